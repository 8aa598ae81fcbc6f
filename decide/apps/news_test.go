package apps

import (
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// What a home tells again is no news: each generation of an application has every site tell of all its instances, and a record for each
// would be most of what a change writes.
func TestToldAgainIsNotWritten(t *testing.T) {
	home := newSite(t)
	home.tell(apply(3, image("web:1", atOnce)))
	home.run(10 * time.Second)
	for _, i := range home.c.InstancesOf(shop) {
		o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: i.State, Phase: i.Phase, Ready: i.IsReady(), Restarts: i.Restarts,
			Runtime: i.Runtime, StartedAt: i.StartedAt, Ports: i.Ports, Digest: i.Digest, Restart: i.Restart}
		var fx wire.Effects
		home.c.Observe(home.now, i.Holder, o, &fx)
		if len(fx.Writes)+len(fx.Events)+len(fx.Changed) > 0 {
			t.Errorf("%s told again: got %d writes, %d events and %d changes, want none", i.ID, len(fx.Writes), len(fx.Events), len(fx.Changed))
		}
		o.Fence.Sequence++
		home.c.Observe(home.now, i.Holder, o, &fx)
		if len(fx.Writes) > 0 || len(fx.Changed) != 1 {
			t.Errorf("%s told of another copy: got %d writes and %d changes, want one change", i.ID, len(fx.Writes), len(fx.Changed))
		}
		fx = wire.Effects{}
		o.Restarts++
		home.c.Observe(home.now, i.Holder, o, &fx)
		if len(fx.Writes) != 1 {
			t.Errorf("%s restarted: got %d writes, want 1", i.ID, len(fx.Writes))
		}
	}
}

// A generation that wants no other addresses leaves the record of the network alone.
func TestNetworkIsWrittenOnce(t *testing.T) {
	home := newSite(t)
	home.tell(apply(3, image("web:1", atOnce)))
	home.run(10 * time.Second)
	written := func(msg any) (n int) {
		fx, ok := home.c.Handle(home.now, msg)
		if !ok || fx.Err != nil {
			t.Fatalf("%T: %v", msg, fx.Err)
		}
		fx.Merge(home.c.Reconcile(home.now))
		for _, w := range fx.Writes {
			if w.Key == prefixNet+shop.String() {
				n++
			}
		}
		home.take(fx)
		return n
	}
	if n := written(Restart{Service: web}); n != 0 {
		t.Errorf("a restart: the network was written %d times, want none", n)
	}
	if n := written(Scale{Service: web, Replicas: 4}); n != 1 {
		t.Errorf("another instance: the network was written %d times, want once", n)
	}
	if n := written(apply(4, image("web:2", atOnce))); n != 0 {
		t.Errorf("another image: the network was written %d times, want none", n)
	}
}
