package spec

import (
	"testing"
	"time"
)

// TestSurelyStopped: the time covers the wait of a holder whose clock runs slower by the drift that is reckoned with, the grace in which
// its container may still run by that clock, and what may pass in the network.
func TestSurelyStopped(t *testing.T) {
	const spare = 5 * time.Second
	grace := func(d time.Duration) *Duration { g := Duration(d); return &g }
	for _, x := range []struct {
		stop, grace time.Duration
		want        time.Duration
	}{
		{20 * time.Second, 0, 25*time.Second + 400*time.Millisecond},
		{20 * time.Second, 10 * time.Second, 35*time.Second + 600*time.Millisecond},
		{time.Hour, time.Hour, 2*time.Hour + 144*time.Second + spare},
		{MaxStopAfter, time.Minute, MaxStopAfter + time.Minute + MaxStopAfter/50 + time.Minute/50 + spare},
	} {
		s := ServiceSpec{OnDisconnect: StopAfter(x.stop), TerminationGrace: grace(x.grace)}
		got, ok := s.SurelyStopped(spare)
		if !ok || got.Round(time.Millisecond) != x.want {
			t.Errorf("stopAfter %s, grace %s: %s (%v), want %s", x.stop, x.grace, got, ok, x.want)
		}
		// Its container is gone when the holder's clock, which is the slower one, has counted both.
		if gone := time.Duration(float64(x.stop+x.grace) * 1.02); got < gone+spare-time.Millisecond {
			t.Errorf("stopAfter %s, grace %s: it may run until %s, and is believed gone after %s", x.stop, x.grace, gone, got)
		}
	}
	if _, ok := (&ServiceSpec{}).SurelyStopped(spare); ok {
		t.Error("what runs on is believed to stop")
	}
}
