package members

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/wire"
)

// link is a parent and a child with a connection between them that loses nothing.
type link struct {
	children *Children
	up       *Parent
	now      time.Time
}

func (l *link) connect() {
	sets, events := l.children.Up(l.now, &wire.Hello{Name: "w", Sets: l.up.Hello()})
	l.up.Up(l.now, &wire.Welcome{Sets: sets, Events: events})
}

func (l *link) disconnect() {
	l.children.Down(l.now, "w")
	l.up.Down(l.now)
}

// exchange carries messages until there are none.
func (l *link) exchange(t *testing.T) {
	t.Helper()
	for range 20 {
		var down, up wire.Effects
		l.children.Flush(l.now, &down)
		l.up.Flush(l.now, &up, nil)
		if len(down.Sends)+len(up.Sends) == 0 {
			return
		}
		for _, s := range down.Sends {
			_, _, replies := l.up.Frame(l.now, s.Msg.(wire.Message))
			l.up.Flush(l.now, &up, replies)
		}
		for _, s := range up.Sends {
			l.children.Frame(l.now, "w", s.Msg.(wire.Message), &down)
		}
	}
	t.Fatal("they do not come to rest")
}

// TestNamesAndApart: the lists of all children and of those that are not connected follow what happens, and a list that
// somebody still reads stays as it was.
func TestNamesAndApart(t *testing.T) {
	f, now := NewChildren("p", reconcile.Options{}), time.Unix(1000, 0)
	check := func(after string, names, apart []string) {
		t.Helper()
		if got := f.Names(); !slices.Equal(got, names) {
			t.Errorf("%s: names %q, want %q", after, got, names)
		}
		if got := f.Apart(); !slices.Equal(got, apart) {
			t.Errorf("%s: apart %q, want %q", after, got, apart)
		}
	}
	check("none", nil, nil)
	f.Up(now, &wire.Hello{Name: "b"})
	if err := f.Put("a", "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	check("b connects, a is given something", []string{"a", "b"}, []string{"a"})
	held := f.Names()
	f.Down(now, "b")
	f.Up(now, &wire.Hello{Name: "a"})
	check("they change places", []string{"a", "b"}, []string{"b"})
	f.Remove("b", &wire.Effects{})
	check("b is removed", []string{"a"}, nil)
	if !slices.Equal(held, []string{"a", "b"}) {
		t.Errorf("the list read before became %q, want a and b", held)
	}
	var fx wire.Effects
	f.Flush(now, &fx)
	again := NewChildren("p", reconcile.Options{})
	for _, w := range fx.Writes {
		again.Load(w.Key, w.Value)
	}
	again.Finish()
	f = again
	check("loaded", []string{"a"}, []string{"a"})
}

// BenchmarkFlushOfThousand is what each message costs a parent of a thousand children that are at rest.
func BenchmarkFlushOfThousand(b *testing.B) {
	f, now := NewChildren("p", reconcile.Options{}), time.Unix(1000, 0)
	for i := range 1000 {
		f.Up(now, &wire.Hello{Name: fmt.Sprint("child", i)})
	}
	f.Flush(now, &wire.Effects{})
	b.ReportAllocs()
	for b.Loop() {
		f.Flush(now, &wire.Effects{})
		f.Names()
		f.Apart()
	}
}

// TestSettledWithoutAWord: a parent that holds all of a child's set knows so when it comes back, whether the child has much to
// report or nothing; else it would wait for a word that never comes.
func TestSettledWithoutAWord(t *testing.T) {
	for _, items := range []int{0, 3} {
		l := &link{NewChildren("p", reconcile.Options{}), NewParent("c", reconcile.Options{}), time.Unix(1000, 0)}
		for i := range items {
			if _, err := l.up.Observed.Put(string(rune('a'+i)), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		l.connect()
		l.exchange(t)
		if !l.children.Get("w").Settled() {
			t.Errorf("%d items: not settled at first", items)
		}
		l.disconnect()
		l.connect()
		if !l.children.Get("w").Synced {
			t.Errorf("%d items: the parent does not know that it has all", items)
		}
		l.disconnect()
		if _, err := l.up.Observed.Put("new", []byte("x")); err != nil {
			t.Fatal(err)
		}
		l.connect()
		if l.children.Get("w").Synced {
			t.Errorf("%d items: the parent thinks that it has what it has not", items)
		}
		l.exchange(t)
		if !l.children.Get("w").Settled() {
			t.Errorf("%d items: not settled at last", items)
		}
	}
}

// TestRemovedChildLeavesNothing: what is left of a removed child's set would contradict the one of another of its name.
func TestRemovedChildLeavesNothing(t *testing.T) {
	disk := map[string][]byte{}
	keep := func(fx wire.Effects) {
		for _, w := range fx.Writes {
			if w.Value == nil {
				delete(disk, w.Key)
			} else {
				disk[w.Key] = w.Value
			}
		}
	}
	l := &link{NewChildren("p", reconcile.Options{}), NewParent("c", reconcile.Options{}), time.Unix(1000, 0)}
	for _, k := range []string{"a", "b"} {
		if err := l.children.Put("w", k, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	var fx wire.Effects
	l.children.Flush(l.now, &fx)
	l.children.Delete("w", "a")
	l.children.Flush(l.now, &fx)
	l.up.Events.Append([]byte("e"))
	l.connect()
	for _, m := range l.up.Events.Next(l.now) {
		l.children.Frame(l.now, "w", m, &fx)
	}
	keep(fx)
	if len(disk) < 4 { // set, item, tombstone, events
		t.Fatalf("only %v is kept", disk)
	}
	l.disconnect()
	fx = wire.Effects{}
	l.children.Delete("w", "b")
	l.children.Remove("w", &fx)
	keep(fx)
	if len(disk) != 0 {
		t.Errorf("left: %q", disk)
	}
}

// TestReplayedToAnotherOfTheName: what was sent to a removed child has no effect at one of its name that joins later, whether or not
// its parent has something for it before it does.
func TestReplayedToAnotherOfTheName(t *testing.T) {
	for _, early := range []bool{false, true} {
		l := &link{NewChildren("p", reconcile.Options{}), NewParent("c", reconcile.Options{}), time.Unix(1000, 0)}
		put := func(key string) {
			t.Helper()
			if err := l.children.Put("w", key, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		var old, fx wire.Effects
		l.connect()
		put("a")
		l.exchange(t)
		put("b")
		l.children.Flush(l.now, &old)
		if len(old.Sends) != 1 {
			t.Fatalf("%d messages tell of one change", len(old.Sends))
		}
		l.disconnect()
		l.children.Remove("w", &fx)

		l.up, l.now = NewParent("other", reconcile.Options{}), l.now.Add(time.Minute)
		if early {
			put("a")
		}
		l.connect()
		put("a")
		l.exchange(t)
		l.up.Frame(l.now, old.Sends[0].Msg.(wire.Message))
		if _, _, has := l.up.Desired.Get("b"); has {
			t.Errorf("early %v: it has what another was given", early)
		}
	}
}
