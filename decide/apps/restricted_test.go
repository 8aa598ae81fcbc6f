package apps

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Exports that nobody imports, short names across organisations, and use above a quota are listed with what to change in whose manifest.
func TestRestricted(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, PutOrg{Org: Org{Name: "friend"}})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "friends", Org: "friend"}})
	do(t, c, apply(1))
	export := func(as string, list ...spec.Export) {
		do(t, c, apply(1, func(a *Apply) {
			a.App.Metadata.Namespace = "friends"
			a.App.Spec.Services[0].Export = list
		}))
		if as != "" { // as a version had it that still took these
			c.App(skerry.AppKey{Namespace: "friends", Name: "shop"}).Manifest.Spec.Services[0].Export[0].As = as
		}
	}
	check := func(when string, parts ...string) {
		t.Helper()
		got := c.Restricted()
		if len(parts) == 0 && len(got) != 0 || len(parts) > 0 && len(got) != 1 {
			t.Fatalf("%s: %+v", when, got)
		}
		for _, part := range parts {
			if text := got[0].Service.String() + " " + got[0].Org + ": " + got[0].Reason.Text + "; " + got[0].Reason.Hint; !strings.Contains(text, part) {
				t.Errorf("%s: %s, want %q", when, text, part)
			}
		}
	}
	check("nothing is exported")
	export("", spec.Export{To: "friends/*"}, spec.Export{To: "default/other", Org: "harbour"}, spec.Export{To: "default/*", Org: "nobody"})
	check("to nobody who is there")
	export("db", spec.Export{To: "default/*", Org: "harbour"})
	check("not imported", "friends/shop/web friend", "export[0] takes no effect for application default/shop of organisation harbour",
		"imports: [{from: friends/shop, org: friend}]", "its manifest (default/shop)")
	do(t, c, apply(1, func(a *Apply) { a.App.Spec.Imports = []spec.Import{{From: "friends/shop", Org: "friend"}} }))
	check("imported, with a short name", "friends/shop/web friend", `the short name "db"`, "full name")
	export("", spec.Export{To: "default/*", Org: "harbour"})
	check("imported")
	do(t, c, PutOrg{Org: Org{Name: "harbour", Quota: Quota{Storage: skerry.GiB, Memory: skerry.GiB}}})
	check("above a quota", "harbour: organisation harbour is above its quota: 4Gi of storage of 1Gi", "skerry org quota harbour")
}
