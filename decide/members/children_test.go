package members

import (
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
