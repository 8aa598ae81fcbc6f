package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/wire"
)

// What one layer or part contradicts is found, whichever it is.
func TestAuditAsksEveryLayer(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, x := range map[string]struct {
		spoil func(c *Core, p *placement)
		fault string
	}{
		"ledger":    {func(c *Core, p *placement) { c.wait(p.A.ID, true) }, "waits is true"},
		"books":     {func(c *Core, p *placement) { c.workers["w"].reserved.CPU += 7 }, "is reserved, what is on it needs"},
		"lifecycle": {func(c *Core, _ *placement) { c.starts.Expect("gone-1", now) }, "gone-1"},
		"overlay":   {func(c *Core, _ *placement) { c.ingress.Tell("ghost", &wire.IngressState{}) }, "ghost"},
		"drainer":   {func(c *Core, _ *placement) { c.drainer.drains.Begin("ghost", &moves.Drain{Parallel: 1}) }, "ghost is drained"},
	} {
		t.Run(name, func(t *testing.T) {
			c := textSite(t, now, wire.CarrierMQTT)
			a, _ := c.onlyAssignment(t)
			a.ID, a.Fence = "shop-1", skerry.Fence{RootEpoch: 1}
			var fx wire.Effects
			c.intake.accept(now, a, "root", &fx)
			c.settle(now, &fx, nil)
			if faults := c.Audit(); len(faults) > 0 {
				t.Fatalf("before: %q", faults)
			}
			x.spoil(c, c.places[a.ID])
			if faults := c.Audit(); !slices.ContainsFunc(faults, func(s string) bool { return strings.Contains(s, x.fault) }) {
				t.Errorf("found %q, want one of %q", faults, x.fault)
			}
		})
	}
}
