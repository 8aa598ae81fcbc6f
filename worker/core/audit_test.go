package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What one part contradicts is found, whichever it is.
func TestAuditAsksEveryPart(t *testing.T) {
	for name, x := range map[string]struct {
		spoil func(c *Core, i *inst)
		fault string
	}{
		"ledger, another name": {func(c *Core, i *inst) { c.ledger.insts["ghost"] = i }, "is listed as ghost"},
		"ledger, an old word":  {func(_ *Core, i *inst) { i.Restarts++ }, "is told something else"},
		"freezer, not held":    {func(c *Core, i *inst) { c.freeze.waits[i.A.ID] = waitsStop }, "a worker that is not held"},
		"freezer, its step":    {func(c *Core, i *inst) { c.freeze.approved = i.A.ID }, "approved beyond its step"},
		"volumes, another name": {func(c *Core, _ *inst) {
			c.volumes.claims[spec.VolumeClaim{Ordinal: 7}] = &volumes{}
		}, "are in the book as"},
		"volumes, wanted": {func(c *Core, _ *inst) {
			c.volumes.claims[spec.VolumeClaim{}] = &volumes{again: time.Unix(1, 0)}
		}, "are to be removed, and wanted"},
		"contacts": {func(_ *Core, i *inst) { i.A.Spec.OnDisconnect = spec.StopAfter(time.Minute) }, "the leases that were told"},
		"strays":   {func(c *Core, _ *inst) { c.strays.tasks["ghost"] = []Task{{}} }, "no records were lost"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			i := d.runs(assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1}))
			if faults := d.c.Audit(); len(faults) > 0 {
				t.Fatalf("before: %q", faults)
			}
			x.spoil(d.c, i)
			if faults := d.c.Audit(); !slices.ContainsFunc(faults, func(s string) bool { return strings.Contains(s, x.fault) }) {
				t.Errorf("found %q, want one of %q", faults, x.fault)
			}
		})
	}
}
