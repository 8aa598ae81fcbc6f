package core

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestSurelyStopped: an instance that must not run twice counts as stopped at a site that is out of touch when the site has counted
// its time, after the grace of one that was just started, and a worker that it lost at that moment has counted it again, by slow
// clocks. What the site may not have been told does not count as stopped at all.
func TestSurelyStopped(t *testing.T) {
	const stop, grace = 20 * time.Second, 10 * time.Second
	r := newHostileRoot(t, "a")
	k := r.apply("shop", "", "a")
	i := r.c.Apps.Instances(k)[0]
	g := spec.Duration(grace)
	i.Spec.OnDisconnect, i.Spec.TerminationGrace = spec.StopAfter(stop), &g
	lost := r.now
	r.step(ChildDown{Name: "a"})
	if at, ok := r.c.surelyStopped(i); ok {
		t.Errorf("the site may not know of it, and it counts as stopped at %s", at)
	}
	i.Bound = true
	at, ok := r.c.surelyStopped(i)
	site, worker := time.Duration(1.02*float64(stop)), time.Duration(1.02*float64(stop+grace))
	if !ok || at.Before(lost.Add(wire.AutonomyGrace+site+worker)) {
		t.Errorf("it counts as stopped %s after the site was lost (%v)", at.Sub(lost), ok)
	}
	i.Spec.OnDisconnect = ""
	if at, ok := r.c.surelyStopped(i); !ok || !at.IsZero() {
		t.Errorf("what runs on counts as stopped at %s (%v)", at, ok)
	}
}
