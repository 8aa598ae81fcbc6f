package apps

import (
	"slices"
	"testing"
)

// TestImageUses: an image is used by an application that is only registered, kept for one that could go back to it, and used by its tag
// while nobody knows its digest. Nothing of a deleted application is used.
func TestImageUses(t *testing.T) {
	c := controller(t, Quota{})
	want := func(used, kept []string) {
		t.Helper()
		var gotUsed, gotKept []string
		for image, use := range c.ImageUses() {
			if len(use.UsedBy) > 0 {
				gotUsed = append(gotUsed, image)
			}
			if len(use.KeptFor) > 0 {
				gotKept = append(gotKept, image)
			}
			for _, user := range append(use.UsedBy, use.KeptFor...) {
				if user != "default/shop/web" {
					t.Errorf("%s is used by %q", image, user)
				}
			}
		}
		slices.Sort(gotUsed)
		slices.Sort(gotKept)
		if !slices.Equal(gotUsed, used) || !slices.Equal(gotKept, kept) {
			t.Errorf("used are %v and kept %v; want %v and %v", gotUsed, gotKept, used, kept)
		}
	}
	pin := func(digest string, register bool) func(*Apply) {
		return func(a *Apply) { a.Digests, a.Register = pinned(digest), register }
	}
	is := func(digest string) []string { return []string{pinned(digest)["web:1"]} }
	do(t, c, apply(1, pin("a", true)))
	want(is("a"), nil)
	do(t, c, Deploy{Key: shop})
	do(t, c, apply(1, pin("b", false))) // the tag has moved on
	got := c.ImageUses()
	if u := got[is("b")[0]]; u == nil || len(u.UsedBy) != 1 {
		t.Errorf("the new digest is not used: %v", got)
	}
	if u := got[is("a")[0]]; u == nil || len(u.KeptFor) != 1 {
		t.Errorf("the old digest is not kept: %v", got)
	}
	do(t, c, Delete{Key: shop})
	want(nil, nil)
	do(t, c, apply(1))
	want([]string{"web:1"}, nil)
}
