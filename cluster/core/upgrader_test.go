package core

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

const goodImage = "ops/agent@sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func takenOrders(fx *wire.Effects) (out []OrderTaken) {
	for _, action := range fx.Actions {
		if taken, is := action.(OrderTaken); is {
			out = append(out, taken)
		}
	}
	return out
}

// An order without a digest, a number or a name is none. One that is not granted is audited, and no worker is upgraded.
func TestOrdersOfTheRoot(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for what, order := range map[string]wire.SiteOrder{
		"tag alone": {Seq: 1, Name: "v2", Image: "ops/agent:v2"}, "no number": {Name: "v2", Image: goodImage}, "no image": {Seq: 1, Name: "v2"},
		"odd name": {Seq: 1, Name: "../v2", Image: goodImage},
	} {
		c := textSite(t, now, "")
		c.grants.list = []wire.Granted{{Grant: wire.GrantWaves}}
		var fx wire.Effects
		if c.upgrader.follow(now, wire.New().Marshal(&order), &fx); len(fx.Actions) > 0 || len(fx.Writes) > 0 || c.upgrader.shown() != nil {
			t.Errorf("%s: it was taken up: got %+v, want it refused", what, fx)
		}
	}
	c := textSite(t, now, "")
	var fx wire.Effects
	c.upgrader.follow(now, wire.New().Marshal(&wire.SiteOrder{Seq: 1, Name: "v2", Image: goodImage, By: "ben"}), &fx)
	if taken := takenOrders(&fx); len(taken) != 1 || taken[0].Refused == "" || taken[0].Order.By != "ben" {
		t.Errorf("got %+v, want one refusal for the audit", taken)
	}
	if shown := c.upgrader.shown(); shown == nil || shown.Refused == "" || shown.Workers != 0 {
		t.Errorf("got %+v, want a refusal that tells nothing of workers", shown)
	}
	for name, w := range c.workers {
		if w.Agent != nil {
			t.Errorf("worker %s is upgraded", name)
		}
	}
}

// A root that sends one order after another does not flush the site's audit: they are taken up 10 s apart. The same number with another
// image is another order.
func TestOrdersAreApart(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, "")
	c.grants.list = []wire.Granted{{Grant: wire.GrantWaves}}
	var all wire.Effects
	for n := range 100 {
		order := wire.SiteOrder{Seq: 1, Name: "v2", Image: goodImage[:len(goodImage)-1] + string(rune('0'+n%2))}
		c.upgrader.follow(now.Add(time.Duration(n)*time.Second), wire.New().Marshal(&order), &all)
	}
	taken := takenOrders(&all)
	if len(taken) < 2 || len(taken) > 10 {
		t.Errorf("of 100 orders in 100 s %d were taken up, want at most 10 and more than one", len(taken))
	}
	if !c.upgrader.due.After(now) {
		t.Errorf("the one that came too soon is due at %v, want later", c.upgrader.due)
	}
}

// FuzzSiteOrder has the root order anything.
func FuzzSiteOrder(f *testing.F) {
	f.Add([]byte{0xa0}, true)
	f.Add(wire.New().Marshal(&wire.SiteOrder{Seq: 1, Name: "v2", Image: goodImage, Window: -1}), true)
	f.Add(wire.New().Marshal(&wire.SiteOrder{Seq: 2, Name: "v2", Image: goodImage, Pause: true, By: "\x00"}), false)
	f.Fuzz(func(t *testing.T, data []byte, granted bool) {
		now := time.Unix(1_700_000_000, 0)
		c := textSite(t, now, "")
		if granted {
			c.grants.list = []wire.Granted{{Grant: wire.GrantWaves}}
		}
		var fx wire.Effects
		for range 3 {
			c.upgrader.follow(now, data, &fx)
		}
		if taken := takenOrders(&fx); len(taken) > 1 {
			t.Errorf("one order was taken up %d times", len(taken))
		}
		under := 0
		for _, w := range c.workers {
			if w.Agent != nil {
				under++
			}
		}
		if under > 1 || under > 0 && !granted {
			t.Errorf("%d workers are upgraded at a time, granted: %v", under, granted)
		}
		if slices.ContainsFunc(fx.Writes, func(w wire.Write) bool { return w.Key == keySiteUpgrade && len(w.Value) > 4<<10 }) {
			t.Error("the record of the order is larger than any needs")
		}
	})
}
