package succession

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/wire"
)

// offers counts the votes that were offered, by the Debug line that each of them ends with.
type offers struct {
	slog.Handler
	n atomic.Int64
}

func (o *offers) Enabled(context.Context, slog.Level) bool { return true }
func (o *offers) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "vote" {
		o.n.Add(1)
	}
	return nil
}

// TestVoterSleeps shows on a simulated clock that a voter whose cluster is in touch does nothing, offers its vote in the moment in which
// that ends, and again for as long as it is so.
func TestVoterSleeps(t *testing.T) {
	log := &offers{Handler: slog.DiscardHandler}
	voter, err := OpenVoter(t.TempDir(), newSite(t).enter(wire.TierWorker, "w1"), slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	voter.Lease(&wire.Lease{Term: 4, Holder: "a", At: nobody.Addr().String(), Seq: 1, TTL: 1}, "")
	nobody.Close() // an offer ends at once
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var up atomic.Bool
		var looks atomic.Int64
		up.Store(true)
		lost, done := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(done)
			voter.Run(ctx, func() bool { looks.Add(1); return up.Load() }, lost, func() {})
		}()
		for range 3 {
			looks.Store(0)
			log.n.Store(0)
			time.Sleep(time.Hour)
			if looks.Load() > 1 || log.n.Load() != 0 {
				t.Errorf("in an hour in touch it looked %d times and offered %d votes", looks.Load(), log.n.Load())
			}
			up.Store(false)
			lost <- struct{}{}
			for n := range int64(10) {
				synctest.Wait()
				if log.n.Load() != n+1 {
					t.Fatalf("%d votes after %s out of touch, not %d", log.n.Load(), time.Duration(n)*offerEvery, n+1)
				}
				time.Sleep(offerEvery)
			}
			synctest.Wait()
			up.Store(true)
		}
		cancel()
		<-done
	})
}
