package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// disk plays a node's store, at the level of what package store gives to who uses it: a commit is kept whole or refused, and a record
// that rots is found when the store is opened.
type disk struct {
	// slow is how long the commits of a batch take together; 0: no time at all. While they go on, the core takes no messages.
	slow time.Duration
	// full: every commit is refused, as SQLite does that has no room for its log.
	full bool
	// short is how many commits go well before one is cut short and refused; less than 0: none will be.
	short int
	// lying: commits are acknowledged that a power cut takes back. before is what each of them replaced.
	lying  bool
	before []map[string][]byte
	// rotten: records are not what was written, which the next start finds out.
	rotten bool

	busy   bool        // a batch is being carried out
	waited bool        // its time has passed
	ops    []store.Op  // the commit that goes on
	then   func(error) // what goes on after it; nil: there is none
	wrote  []store.Op  // by this batch, so far
	inbox  []inbound   // what waits for the batch to end
}

// inbound is a message to a core, and who wants to know what came of it; done may be nil.
type inbound struct {
	msg  any
	done func(result any)
}

// faults of a disk, as scenarios name them.
var faults = []string{"none", "full", "short", "lying", "rotten"}

// fail lets a fault begin. nth is how many commits go well before a short write.
func (d *disk) fail(fault string, nth int) {
	switch fault {
	case "none":
		d.mend()
	case "full":
		d.full = true
	case "short":
		d.short = nth
	case "lying":
		d.lying = true
	case "rotten":
		d.rotten = true
	}
}

// mend ends all faults but what rotted. What a lying disk had not written yet, it has written by now.
func (d *disk) mend() {
	d.slow, d.full, d.short, d.lying, d.before = 0, false, -1, false, nil
}

// tornAt is how many writes a commit may have while the disk is slow. One, so that the engine splits every batch, and a crash may
// fall between any two writes.
const tornAt = 1

// commit is the store's Commit.
func (n *Node) commit(ops []store.Op) error {
	d := &n.disk
	switch {
	case d.full:
		return fmt.Errorf("commit: %w", store.ErrFull)
	case d.short == 0:
		d.short = -1
		return fmt.Errorf("commit: a short write: %w", store.ErrFull)
	case d.short > 0:
		d.short--
	}
	if d.lying {
		was := map[string][]byte{}
		for _, op := range ops {
			was[op.Key] = n.Store[op.Key]
		}
		d.before = append(d.before, was)
	}
	put(n.Store, ops)
	return nil
}

func put(records map[string][]byte, ops []store.Op) {
	for _, op := range ops {
		if op.Delete {
			delete(records, op.Key)
		} else {
			records[op.Key] = op.Value
		}
	}
}

// List is the store's List, of everything.
func (n *Node) List(context.Context, string) ([]store.Record, int64, error) {
	out := make([]store.Record, 0, len(n.Store))
	for _, k := range slices.Sorted(maps.Keys(n.Store)) {
		out = append(out, store.Record{Key: k, Value: n.Store[k], Revision: 1})
	}
	return out, 1, nil
}

// powerCut takes back a tail of what a lying disk acknowledged. As a write-ahead log does, the disk keeps the commits before some
// point, and none after it.
func (w *World) powerCut(n *Node) {
	d := &n.disk
	if len(d.before) == 0 {
		return
	}
	lost := w.rng.IntN(len(d.before) + 1)
	for _, was := range slices.Backward(d.before[len(d.before)-lost:]) {
		for k, v := range was {
			if v == nil {
				delete(n.Store, k)
			} else {
				n.Store[k] = v
			}
		}
	}
	d.before = nil
	if lost > 0 && w.guard != nil {
		w.guard.rolledBack(n)
	}
}

// outer lets the engine step what stands around a node's core at the moment.
type outer struct{ n *Node }

func (o outer) Step(now time.Time, msg any) wire.Effects { return o.n.outer.Step(now, msg) }
func (o outer) Tick(now time.Time) wire.Effects          { return o.n.outer.Tick(now) }
func (o outer) NextWake() time.Time                      { return o.n.outer.NextWake() }

// engine is what drives a core: *loop.Engine, or what a test puts around it.
type engine interface {
	Step(now time.Time, msg any, to func(result any, err error))
	Tick(now time.Time)
	Add(fx wire.Effects)
	Full() bool
	Flush(now time.Time, commit loop.Commit)
	Err() error
}

// host carries out what one life of a node wants, and remembers it for who watches.
type host struct {
	w    *World
	n    *Node
	life uint64
	fx   wire.Effects
}

func (h *host) dead() bool { return h.n.life != h.life }

// Record implements loop.Host. Journals are not simulated.
func (h *host) Record(time.Time, []wire.Event) []wire.Write { return nil }

// Send implements loop.Host.
func (h *host) Send(to string, msg wire.Message) {
	if !h.dead() {
		s := wire.Outgoing{To: to, Msg: msg}
		h.fx.Sends = append(h.fx.Sends, s)
		h.w.deliver(h.n, s)
	}
}

// Announce implements loop.Host.
func (h *host) Announce(events []wire.Event, changed []wire.Change) {
	if h.dead() {
		return
	}
	h.fx.Events, h.fx.Changed = append(h.fx.Events, events...), append(h.fx.Changed, changed...)
	if !h.w.quiet {
		h.w.Events = append(h.w.Events, events...)
	}
}

// Act implements loop.Host.
func (h *host) Act(action any) {
	if !h.dead() {
		h.w.machines.act(h.n, action)
	}
}

// tell gives a node a message that nobody waits for.
func (w *World) tell(n *Node, msg any) { w.ask(n, msg, nil) }

// ask gives a node a message, and done its result once all that follows from it is on the disk. A node that dies before
// gives none.
func (w *World) ask(n *Node, msg any, done func(result any)) {
	switch {
	case !n.Up:
		return
	case n.disk.busy:
		n.disk.inbox = append(n.disk.inbox, inbound{msg, done})
		return
	}
	w.step1(n, inbound{msg, done})
	w.flush(n)
}

// step1 gives the engine a message.
func (w *World) step1(n *Node, in inbound) {
	var to func(any, error)
	if life := n.life; in.done != nil {
		to = func(result any, err error) {
			if n.life != life {
				return
			}
			if err != nil {
				result = err
			}
			in.done(result)
		}
	}
	if w.trail != nil && to != nil {
		done := to
		to = func(result any, err error) {
			w.trail.answer(n, result)
			done(result, err)
		}
	}
	n.engine.Step(w.clock(n), in.msg, to)
}

// tick lets a node's core do what is due, unless a batch goes on: what comes after that asks again.
func (w *World) tick(n *Node) {
	if n.Up && !n.disk.busy {
		n.engine.Tick(w.clock(n))
		w.flush(n)
	}
}

// flush has the engine carry out its batch.
func (w *World) flush(n *Node) {
	d := &n.disk
	d.busy = true
	n.loop.MaxOps = store.MaxOps
	if d.slow > 0 {
		n.loop.MaxOps = tornAt
	}
	n.engine.Flush(w.clock(n), func(ops []store.Op, then func(error)) { d.ops, d.then = ops, then })
	w.persist(n)
}

// persist does the commits that the engine asks for, one after the other, when the disk has had its time.
func (w *World) persist(n *Node) {
	d, life := &n.disk, n.life
	for d.then != nil {
		if d.slow > 0 && !d.waited {
			d.waited = true
			w.at(w.Now.Add(d.slow), func() {
				if n.life == life {
					w.persist(n)
				}
			})
			return
		}
		ops, then := d.ops, d.then
		var err error
		if n.candidates != nil {
			err = n.candidates.writes()
		}
		if err == nil {
			err = n.commit(ops)
		}
		if err == nil {
			d.wrote = append(d.wrote, ops...)
		}
		if err == nil && n.candidates != nil {
			d.ops = nil // what is left is done
			n.candidates.committed(ops, func(err error) {
				if n.life != life {
					return
				}
				d.then = nil
				if then(err); n.life == life {
					w.persist(n)
				}
			})
			return
		}
		d.ops, d.then = nil, nil
		if then(err); n.life != life {
			return
		}
	}
	w.flushed(n)
}

// flushed looks at what a batch came to, and goes on with what waited for it.
func (w *World) flushed(n *Node) {
	d, h := &n.disk, n.host
	fx, wrote := h.fx, d.wrote
	h.fx, d.wrote, d.busy, d.waited = wire.Effects{}, nil, false, false
	if err := n.engine.Err(); err != nil {
		if p, ok := errors.AsType[*loop.PanicError](err); ok && !w.survives {
			panic(fmt.Sprintf("%v\n%s", p.Value, p.Stack))
		}
		w.refused(n)
		return
	}
	for _, op := range wrote {
		fx.Writes = append(fx.Writes, wire.Write{Key: op.Key, Value: op.Value})
	}
	w.watch(n, &fx)
	if len(d.inbox) == 0 {
		return
	}
	for len(d.inbox) > 0 && !n.engine.Full() {
		in := d.inbox[0]
		d.inbox = d.inbox[1:]
		w.step1(n, in)
	}
	w.flush(n)
}

// Times of internal/tier after a store refused a commit.
const (
	firstProbe = 100 * time.Millisecond
	probeEvery = time.Second
)

// refused ends a life whose store took no writes, or whose core panicked, as internal/tier does: its connections end, and the core is built anew from what is
// stored. Until the store takes a write it refuses all changes, which is here as if it were down.
func (w *World) refused(n *Node) {
	w.crash(n, false)
	life := n.life
	var probe func()
	probe = func() {
		switch {
		case n.Up || n.life != life:
		case n.disk.full:
			w.at(w.Now.Add(probeEvery), probe)
		default:
			w.boot(n)
		}
	}
	w.at(w.Now.Add(firstProbe), probe)
}

// tear decides what a crash leaves of a batch that was being persisted: nothing, all of it, or the commits before some point.
func (w *World) tear(n *Node) {
	d := &n.disk
	var list [][]store.Op
	for d.then != nil {
		ops, then := d.ops, d.then
		d.ops, d.then = nil, nil
		list = append(list, ops)
		then(nil) // nothing of what follows gets out of a dead process
	}
	*d = disk{slow: d.slow, full: d.full, short: d.short, lying: d.lying, before: d.before, rotten: d.rotten}
	if len(list) == 0 {
		return
	}
	switch w.rng.IntN(3) {
	case 0:
	case 1:
		list = list[:w.rng.IntN(len(list)+1)]
	default:
		list = nil
	}
	for _, ops := range list {
		if n.commit(ops) != nil {
			return
		}
	}
}
