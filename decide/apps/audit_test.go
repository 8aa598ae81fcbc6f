package apps

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// What the parts contradict is found, whichever it is.
func TestAuditAsksTheParts(t *testing.T) {
	for fault, spoil := range map[string]func(c *Controller, i *Instance){
		"is not listed under its service": func(c *Controller, i *Instance) { delete(c.byService[i.Service], i.ID) },
		"unplaced is true":                func(_ *Controller, i *Instance) { i.Holder = "site" },
		"its list says false":             func(_ *Controller, i *Instance) { i.Stopping = true },
		"their lists have 2 and 1":        func(c *Controller, _ *Instance) { c.stopping["gone-1"] = true },
		"are listed by service":           func(c *Controller, i *Instance) { c.byService[skerry.ServiceKey{}] = c.byService[i.Service] },
		"given twice, or beyond":          func(c *Controller, _ *Instance) { c.lastNet = 0 },
	} {
		c := controller(t, Quota{})
		do(t, c, apply(2))
		if faults := c.Audit(); len(faults) > 0 {
			t.Fatalf("before: %q", faults)
		}
		spoil(c, c.InstancesOf(shop)[0])
		if faults := c.Audit(); !slices.ContainsFunc(faults, func(s string) bool { return strings.Contains(s, fault) }) {
			t.Errorf("found %q, want one of %q", faults, fault)
		}
	}
}
