package apps

import (
	"testing"

	"skerry.dev/skerry/wire"
)

// A copy that is to take an instance's place elsewhere keeps the generation that it was made for until it does.
func TestReplacementKeepsItsGeneration(t *testing.T) {
	c := controller(t, Quota{})
	c.SetTargets([]string{"north", "south"})
	do(t, c, apply(2))
	first := c.InstancesOf(shop)[0]
	var fx wire.Effects
	c.Place(now, first, "north", first.Fence, nil, &fx)
	if !c.TryElsewhere(now, first, "it does not start", &fx) {
		t.Fatal("no copy was started elsewhere, want one")
	}
	do(t, c, Scale{Service: web, Replicas: 3})
	after := New([16]byte{}, "r")
	if _, err := after.Load(prefixApp+shop.String(), mustJSON(c.App(shop))); err != nil {
		t.Fatal(err)
	}
	for _, i := range c.InstancesOf(shop) {
		if _, err := after.Load(prefixInst+string(i.ID), mustJSON(i)); err != nil {
			t.Fatal(err)
		}
	}
	after.Start(now)
	for _, i := range c.InstancesOf(shop) {
		if got := after.Instance(i.ID); got.Gen != i.Gen {
			t.Errorf("%s, a copy of %q, has generation %d after a start, and had %d", i.ID, i.Replaces, got.Gen, i.Gen)
		}
	}
}

// What was shown of an instance stays as it was: whoever was given it reads it while the core goes on.
func TestShownTimelineStays(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, apply(1))
	i := c.InstancesOf(shop)[0]
	for n := range maxTimeline {
		i.step(now, itoa(n))
	}
	shown := i.Shown()
	second := shown.Timeline[1].Text
	i.step(now, "one more")
	if got := shown.Timeline[1].Text; got != second {
		t.Errorf("the second step that was shown says %q after another one, want %q", got, second)
	}
}
