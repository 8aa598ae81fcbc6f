//go:build linux

package worker

import (
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// A site that knows no levels, one that trusts, and what is left where it does not.
func TestConfine(t *testing.T) {
	for _, c := range []struct {
		level  skerry.SecurityLevel
		driver string
		user   string // that is asked for
		own    bool   // it gets a user of its own
		drop   []string
	}{
		{"", "oci", "", false, nil},
		{skerry.LevelPrivileged, "oci", "", false, nil},
		{skerry.LevelPrivileged, "native", "root", false, nil},
		{skerry.LevelBaseline, "oci", "", false, nil},
		{skerry.LevelBaseline, "native", "", true, nil},
		{skerry.LevelRestricted, "oci", "33", false, []string{"ALL"}},
		{skerry.LevelRestricted, "microvm", "", false, []string{"ALL"}},
		{skerry.LevelRestricted, "wasm", "", false, nil},
		{skerry.LevelRestricted, "native", "0:0", true, nil},
		{skerry.LevelRestricted, "native", "daemon", true, nil},
	} {
		spec := runtime.Spec{User: c.user}
		confine(&spec, &skerry.Assignment{ID: "web-r1", Level: c.level}, c.driver)
		if own := spec.User != c.user; own != c.own || !slices.Equal(spec.CapDrop, c.drop) {
			t.Errorf("%q, %s as %q: user %q, without %v", c.level, c.driver, c.user, spec.User, spec.CapDrop)
		}
	}
	if a, b := ownUser("web-r1"), ownUser("web-r2"); a == b || a < firstOwnUser {
		t.Errorf("users %d and %d", a, b)
	}
}
