package lease

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestLateAnswer: however late a voter's answer arrives, the holder stops counting on it before the voter may vote for another candidate,
// also where the voter's clock runs a twentieth faster.
func TestLateAnswer(t *testing.T) {
	sent := time.Unix(1000, 0)
	for _, late := range []time.Duration{0, 40 * time.Millisecond, time.Second, 4 * time.Second, ttl, time.Minute} {
		for _, rate := range []float64{1, 1.05} {
			t.Run(fmt.Sprint(late, rate), func(t *testing.T) {
				h := newHolder(sent, 3, []string{"w"}, 0)
				h.name([]wire.LeaseCandidate{{Name: "b"}})
				l := h.lease(sent, wire.LeaseCandidate{Name: "a"}, ttl)
				v := NewVoter(VoterState{}, sent, ttl)
				p, _ := v.Lease(sent, l) // it takes no time to get there
				ends := sent.Add(time.Duration(float64(v.Bound().Sub(sent)) / rate))
				arrives := sent.Add(late)
				h.promise("w", p, arrives, ttl)
				if h.free() {
					t.Fatal("nobody could be elected")
				}
				if h.holds(ends) {
					t.Errorf("the holder counts on a promise that ended %s after the lease was sent", ends.Sub(sent))
				}
				if fresh := late < ttl*9/10; fresh != h.holds(arrives) {
					t.Errorf("when the answer arrives it holds: %v", h.holds(arrives))
				}
			})
		}
	}
}
