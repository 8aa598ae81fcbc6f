package members

import (
	"maps"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/wire"
)

// TestDamageIsLeftBehind: a set of which a record was damaged starts anew, and what was kept of the old one does not come back: neither the
// damage nor items that are in the new set no more.
func TestDamageIsLeftBehind(t *testing.T) {
	now := time.Unix(1000, 0)
	sites, workers := map[string][]byte{}, map[string][]byte{}
	commit := func(disk map[string][]byte, flush func(fx *wire.Effects)) {
		var fx wire.Effects
		flush(&fx)
		for _, w := range fx.Writes {
			disk[w.Key] = w.Value
		}
		maps.DeleteFunc(disk, func(_ string, v []byte) bool { return v == nil })
	}
	load := func() (children *Children, parent *Parent, damaged []string, err error) {
		children, parent = NewChildren("x", reconcile.Options{}), NewParent("y", reconcile.Options{})
		for k, v := range sites {
			children.Load(k, v)
		}
		for k, v := range workers {
			parent.Load(k, v)
		}
		return children, parent, children.Finish(), parent.Finish()
	}
	// converge carries frames until there are none.
	converge := func(children *Children, parent *Parent) {
		t.Helper()
		sets, events := children.Up(now, &wire.Hello{Name: "w", Sets: parent.Hello()})
		parent.Up(now, &wire.Welcome{Sets: sets, Events: events})
		for range 20 {
			var down wire.Effects
			commit(sites, func(fx *wire.Effects) { children.Flush(now, fx); down = *fx })
			for _, s := range down.Sends {
				_, _, replies := parent.Frame(now, s.Msg.(wire.Message))
				var up wire.Effects
				commit(workers, func(fx *wire.Effects) { parent.Flush(now, fx, replies); up = *fx })
				for _, s := range up.Sends {
					commit(sites, func(fx *wire.Effects) { children.Frame(now, "w", s.Msg.(wire.Message), fx) })
				}
			}
		}
		if !children.Get("w").Settled() {
			t.Fatal("the two do not come to rest")
		}
	}
	children, parent, _, _ := load()
	for _, key := range []string{"a", "b", "c"} {
		if err := children.Put("w", key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	converge(children, parent)
	sites[childPrefix("w", Desired)+"i/a"] = []byte{1}
	workers[prefixParent+Desired+"/i/a"] = []byte{1}

	children, parent, damaged, err := load()
	if len(damaged) != 1 || err == nil {
		t.Fatalf("the damage is not seen: %v, %v", damaged, err)
	}
	if err := children.Put("w", "b", []byte("2")); err != nil {
		t.Fatal(err)
	}
	converge(children, parent)

	children, parent, damaged, err = load()
	if len(damaged) > 0 || err != nil {
		t.Errorf("the damage came back: %v, %v", damaged, err)
	}
	if got := children.Get("w").Desired.Keys(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the site keeps %q for the worker", got)
	}
	if n := parent.Desired.Len(); n != 1 {
		t.Errorf("the worker keeps %d items", n)
	}
}
