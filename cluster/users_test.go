package cluster

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/sched"
)

// Where the operator forbids it, nobody is asked to measure, and the decision can say why.
func TestNoMeasuring(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		s := newPeersSite(t)
		s.c.opt.Admission.NoMeasuring = forbidden
		s.join("w", "")
		s.report("w", skerry.WorkerReport{Coordinate: &skerry.Coordinate{}})
		limit := skerry.Duration(10 * time.Millisecond)
		p := &placement{A: skerry.Assignment{ID: "i"}}
		p.A.Spec.Placement.Users = []skerry.User{{Address: "192.0.2.9", MaxLatency: &limit}}
		policy := sched.Policies()[skerry.PolicyLDP]
		var fx skerry.Effects
		known := s.c.usersKnown(s.now, p, policy, &fx)
		if forbidden && (!known || len(fx.Actions) > 0 || !strings.Contains(p.Users[0].Unknown, "operator")) {
			t.Errorf("known=%v, %d questions, %+v", known, len(fx.Actions), p.Users)
		}
		if !forbidden && (known && len(fx.Actions) == 0 && strings.Contains(p.Users[0].Unknown, "operator")) {
			t.Errorf("refused, though it is allowed: %+v", p.Users)
		}
	}
}
