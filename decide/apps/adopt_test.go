package apps

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestAdoptedOrdinal gives what a site started while it was alone a number that nothing else has.
func TestAdoptedOrdinal(t *testing.T) {
	c := New([16]byte{1}, "r")
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	a := &App{Manifest: spec.Application{Metadata: spec.Metadata{Namespace: "default", Name: "shop"}}}
	add := func(id, holder, revision string, ordinal int) {
		c.addInstance(&Instance{Instance: wire.Instance{ID: skerry.InstanceID(id), Service: k, Revision: revision, Ordinal: ordinal, State: skerry.Running}, Holder: holder})
	}
	add("web-1", "a", "r1", 0)
	add("web-2", "b", "r1", 1)
	add("web-3", "a", "r1", 3)
	add("web-4", "b", "r0", 4)
	here := map[skerry.InstanceID]bool{"web-1": true, "web-9": true}
	for ordinal, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 3, 4: 4, 5: 5, -1: 2} { // 3 is of one that the site has ended
		if got := c.adoptOrdinal("a", &wire.AmendedInstance{ID: "web-9", Ordinal: ordinal, Revision: "r1"}, "web", a, here); got != want {
			t.Errorf("number %d became %d, want %d", ordinal, got, want)
		}
	}
}
