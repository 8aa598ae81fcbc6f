// Package members holds what one tier keeps about its neighbours on links: for each child the set it should have, the set
// it reports and when it was last heard; towards the parent the same from the other side. It is pure, and shared by the
// role cores.
package members

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/wire"
)

// Names of the two sets on every link.
const (
	Desired  = "desired"  // parent to child
	Observed = "observed" // child to parent
)

// Child is a neighbour below.
type Child struct {
	Name      string
	Desired   *reconcile.Source
	Observed  *reconcile.Replica
	Events    *reconcile.Inbox
	Connected bool
	Synced    bool      // its observed set is complete as of this connection
	Reviewed  bool      // for the owner: what it holds was compared with what it should hold on this connection
	Since     time.Time // of the connection, or of its end
	Heard     time.Time
	Version   string
	Machine   string
	// told is what the child said of its own set when it connected; without it the first change counts as all.
	told  *wire.SetAck
	fresh bool // its set was made since the start, and no child has seen it
}

// Settled reports whether the child has confirmed all that it should have, and has told all that it has.
func (c *Child) Settled() bool { return c.Connected && c.Synced && c.Desired.Settled() }

// Children holds all children of one parent.
type Children struct {
	inc   skerry.Incarnation
	opt   reconcile.Options
	m     map[string]*Child
	dirty map[string]bool // to be looked at by the next Flush
	waits map[string]bool // connected, and something sent to them is not yet acknowledged
	next  time.Time       // no resend is due before; zero: none is known
	names []string        // of all, in order; nil: to be made anew. It is replaced, and never changed.
	apart map[string]bool // not connected
	// Ignored counts what children sent that had no effect.
	Ignored Ignored
	// records seen while loading, by child
	loading map[string]map[string][]byte
}

// NewChildren makes an empty set of children under the parent's incarnation.
func NewChildren(inc skerry.Incarnation, opt reconcile.Options) *Children {
	return &Children{inc: inc, opt: opt, m: map[string]*Child{}, dirty: map[string]bool{}, waits: map[string]bool{},
		apart: map[string]bool{}, loading: map[string]map[string][]byte{}}
}

const prefixChild = "child/"

func childPrefix(name, part string) string { return prefixChild + name + "/" + part + "/" }

// Load takes a record of the store and reports whether it is one of ours. Finish must follow the last one.
func (f *Children) Load(key string, value []byte) bool {
	rest, ok := strings.CutPrefix(key, prefixChild)
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(rest, "/")
	if f.loading[name] == nil {
		f.loading[name] = map[string][]byte{}
	}
	f.loading[name][key] = value
	return true
}

// Finish builds the children from the records. A child whose records are damaged starts a set of a new incarnation, so
// that nothing at it is deleted for being unknown here; its name is returned.
func (f *Children) Finish() (damaged []string) {
	for name, records := range f.loading {
		c := f.make(name)
		prefix := childPrefix(name, Desired)
		src, err := reconcile.LoadSource(Desired, prefix, f.inc, records, f.opt)
		if err != nil {
			damaged = append(damaged, name)
			delete(records, prefix+"meta") // what is left belongs to nothing, and goes with the first change
			src, _ = reconcile.LoadSource(Desired, prefix, f.inc+".damaged", records, f.opt)
		} else if src.Incarnation() != f.inc && !strings.HasPrefix(string(src.Incarnation()), string(f.inc)) {
			src.Reincarnate(f.inc)
		}
		c.Desired, c.fresh = src, false
		if in, err := reconcile.LoadInbox(childPrefix(name, "events"), records); err == nil {
			c.Events = in
		}
	}
	f.loading = map[string]map[string][]byte{}
	slices.Sort(damaged)
	return damaged
}

func (f *Children) make(name string) *Child {
	c := &Child{Name: name, fresh: true,
		Desired:  reconcile.NewSource(Desired, childPrefix(name, Desired), f.inc, f.opt),
		Observed: reconcile.NewReplica(Observed, childPrefix(name, Observed), f.opt),
		Events:   reconcile.NewInbox(childPrefix(name, "events"))}
	f.m[name], f.apart[name], f.names = c, true, nil
	return c
}

// Get gives a child, or nil.
func (f *Children) Get(name string) *Child { return f.m[name] }

// Names lists all children. Nobody may change the list.
func (f *Children) Names() []string {
	if f.names == nil {
		f.names = slices.Sorted(maps.Keys(f.m))
	}
	return f.names
}

// Apart lists the children that are not connected.
func (f *Children) Apart() []string { return slices.Sorted(maps.Keys(f.apart)) }

// Up begins a connection and gives what the Welcome must say.
func (f *Children) Up(now time.Time, hello *wire.Hello) (sets []wire.SetAck, events wire.EventsAck) {
	c := f.m[hello.Name]
	if c == nil {
		c = f.make(hello.Name)
	}
	if c.fresh { // one of its name may have been removed, and words of that one's set may still be on their way
		c.fresh = false
		c.Desired.Renew(now)
	}
	c.Connected, c.Synced, c.Reviewed, c.Since, c.Heard = true, false, false, now, now
	c.Version, c.Machine = hello.Version, hello.Machine
	held := wire.SetAck{Set: Desired}
	c.told = nil
	for _, s := range hello.Sets {
		switch s.Set {
		case Desired:
			held = s
		case Observed:
			c.told = &s
		}
	}
	c.Synced = c.told != nil && c.caughtUp() // a set that did not change is not sent again
	c.Desired.Connect(now, held)
	f.dirty[c.Name] = true
	delete(f.apart, c.Name)
	return []wire.SetAck{c.Observed.State()}, c.Events.State()
}

// Down ends a connection.
func (f *Children) Down(now time.Time, name string) {
	if c := f.m[name]; c != nil && c.Connected {
		c.Connected, c.Synced, c.Since = false, false, now
		c.Desired.Disconnect()
		delete(f.waits, name)
		f.apart[name] = true
	}
}

// Put sets an item in a child's desired set; the child need not be known yet.
func (f *Children) Put(name, key string, value []byte) error {
	c := f.m[name]
	if c == nil {
		c = f.make(name)
	}
	changed, err := c.Desired.Put(key, value)
	if changed {
		f.dirty[name] = true
	}
	return err
}

// Delete removes an item from a child's desired set.
func (f *Children) Delete(name, key string) {
	if c := f.m[name]; c != nil && c.Desired.Delete(key) {
		f.dirty[name] = true
	}
}

// Remove forgets a child for good, with its records.
func (f *Children) Remove(name string, fx *wire.Effects) {
	c := f.m[name]
	if c == nil {
		return
	}
	// All of it goes: a child of the same name that joins later starts a set of its own, and what were left of this one would
	// contradict it.
	fx.Writes = append(fx.Writes, c.Desired.Erase()...)
	fx.Delete(childPrefix(name, "events") + "meta")
	delete(f.m, name)
	f.names = nil
	delete(f.apart, name)
	delete(f.dirty, name)
	delete(f.waits, name)
}

// Delivery is what a frame from a child brought.
type Delivery struct {
	Changed []string // keys of its observed set
	Deleted []string
	Events  [][]byte
	Lost    uint64 // events dropped by the child before they could be sent
	Report  *wire.Report
	Settled bool // something was acknowledged; look again at what waits for it
}

// Frame takes a message of a child.
func (f *Children) Frame(now time.Time, name string, msg wire.Message, fx *wire.Effects) Delivery {
	c := f.m[name]
	if c == nil {
		return Delivery{}
	}
	c.Heard = now
	var d Delivery
	switch m := msg.(type) {
	case *wire.SetAck, *wire.SetWant, *wire.SetHeld:
		f.Ignored.Count(c.Desired.Handle(now, m))
		f.dirty[name] = true
		d.Settled = true
	case *wire.SetDelta, *wire.SetChunk, *wire.SetHeldWant:
		out := c.Observed.Apply(m)
		f.Ignored.Count(out.Refused)
		c.Observed.Flush() // reported state is not kept: the child tells it again after a restart
		c.Observed.DropOrphans()
		if out.Complete {
			c.Synced = c.Synced || c.caughtUp()
		}
		// What was taken for gone when a new life of the child did not name it, and is named now, counts as new.
		d.Changed, d.Deleted, d.Settled = append(out.Changed, out.Adopted...), out.Deleted, true
		send(fx, name, out.Reply)
		// A child that starts a new life reports all it has; what an earlier life reported is no longer true.
		d.Deleted = append(d.Deleted, out.Orphaned...)
	case *wire.Events:
		events, lost, reply := c.Events.Accept(m)
		if reply == nil {
			f.Ignored.Count(IgnoredEvents)
			return d
		}
		if len(events) == 0 && len(m.Items) > 0 {
			f.Ignored.Count(IgnoredRepeat)
		}
		d.Events, d.Lost = events, lost
		fx.Writes = append(fx.Writes, c.Events.Flush()...)
		send(fx, name, []wire.Message{reply})
	case *wire.Report:
		d.Report = m
	default:
		f.Ignored.Count(IgnoredUnexpected)
	}
	return d
}

// caughtUp reports whether all is here that the child had to tell when it connected.
func (c *Child) caughtUp() bool {
	return c.told == nil || c.Observed.Incarnation() == c.told.Incarnation && c.Observed.Gen() >= c.told.Gen
}

func send(fx *wire.Effects, to string, list []wire.Message) {
	for _, m := range list {
		fx.Sends = append(fx.Sends, wire.Outgoing{To: to, Msg: m})
	}
}

// Flush adds what must be persisted and sent because of changes, acknowledgements and time.
func (f *Children) Flush(now time.Time, fx *wire.Effects) {
	if !f.next.IsZero() && !f.next.After(now) {
		// One look at all that wait for every resend that may be due, and not for every message.
		f.next = time.Time{}
		for name := range f.waits {
			if due := f.m[name].Desired.Due(); !due.IsZero() && !due.After(now) {
				f.dirty[name] = true
			} else {
				f.expect(due)
			}
		}
	}
	names := make([]string, 0, len(f.dirty))
	for n := range f.dirty {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		c := f.m[n]
		fx.Writes = append(fx.Writes, c.Desired.Flush()...)
		if c.Connected {
			send(fx, n, c.Desired.Next(now))
		}
		if c.Connected && !c.Desired.Due().IsZero() {
			f.waits[n] = true
			f.expect(c.Desired.Due())
		} else {
			delete(f.waits, n)
		}
	}
	f.dirty = map[string]bool{} // a cleared map keeps its size, and ranging over it stays as slow
}

// expect notes that a resend may be due at a time.
func (f *Children) expect(due time.Time) {
	if !due.IsZero() && (f.next.IsZero() || due.Before(f.next)) {
		f.next = due
	}
}

// Due gives the time at which Flush should be called for a resend, or the zero time. What was answered since may make that a
// call for nothing.
func (f *Children) Due() time.Time {
	if len(f.waits) == 0 {
		return time.Time{}
	}
	return f.next
}
