package loop

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// ErrPartly says that a batch was larger than the store takes at once, and that the store kept the first commits of it and refused
// a later one. Whoever asked for the change must look at what became of it.
var ErrPartly = errors.New("only a part of it was kept")

// Engine is a loop without a goroutine, a clock and a store. It steps a core, collects what follows into a batch, and carries the
// batch out in the order on which everything relies: persist, send, announce, act, answer. Some actions begin at once (Beside). Loop
// drives it with channels and a real store, package sim with simulated time and a simulated disk. An Engine is used by one goroutine.
type Engine struct {
	// MaxOps is how many writes go into one commit. NewEngine sets what a store takes; the simulator splits earlier.
	MaxOps int
	// Refusals remembers what the core panicked on, from one engine to the next. NewEngine makes one for this engine alone.
	Refusals *Refusals

	core    Core
	host    Host
	batch   wire.Effects
	waiting []answer
	inputs  int
	size    int // bytes that the batch writes
	busy    bool
	broken  error // the core panicked; what it gave before that is still carried out
	err     error
}

// answer is what somebody is told when the batch is persisted.
type answer struct {
	to     func(result any, err error)
	result any
	err    error
}

// Beside is an action that may be begun while what its batch writes is on its way to the disk, because a core that is built anew without
// those writes finds what was begun, and takes it up or takes it away. What others learn of it waits for a commit like all else.
type Beside interface{ Beside() bool }

// Commit persists ops in one step and then calls done, once, with what came of it. It may return first.
type Commit func(ops []store.Op, done func(error))

// NewEngine makes an engine with an empty batch.
func NewEngine(core Core, host Host) *Engine {
	return &Engine{MaxOps: store.MaxOps, Refusals: NewRefusals(), core: core, host: host}
}

// Step gives the core a message; what follows from it joins the batch. to is called with its result when the batch is carried out,
// or with an error when the store refuses it; nil means that nobody waits. It must not be called before Flush is done.
//
// When the core panics, the message is refused with an error of skerry.CodeInternal and remembered in Refusals. The batch then takes no
// more; what was in it before is carried out, and after that Err gives a *PanicError. A panic of Tick is not caught: it comes of what is
// stored, and a core that is built anew from that would panic again. A message of which something follows that no store takes, such as a
// record that is too large, counts as one on which the core panicked.
func (e *Engine) Step(now time.Time, msg any, to func(result any, err error)) {
	result, err := e.try(now, msg, to != nil, func() (any, error) {
		fx := e.core.Step(now, msg)
		for _, w := range fx.Writes {
			if err := (store.Op{Key: w.Key, Value: w.Value}).Check(); err != nil {
				panic(err) // else the whole batch would be refused, and the role took no writes from anybody
			}
		}
		e.Add(fx)
		return fx.Result, fx.Err
	})
	if to != nil {
		e.waiting = append(e.waiting, answer{to, result, err})
	}
}

// View runs fn between two steps and tells to at once what came of it. A panic of fn is taken like one of Step on the message about; nil:
// there is none that could be told from others.
func (e *Engine) View(now time.Time, about any, fn func(), to func(err error)) {
	e.Count()
	_, err := e.try(now, about, true, func() (any, error) {
		fn()
		return nil, nil
	})
	to(err)
}

// try runs a step, unless the message is one on which the core panicked. early has its digest taken before the step, which may change
// in place what users ask for, such as a manifest; a frame of a link stays as it is.
func (e *Engine) try(now time.Time, msg any, early bool, step func() (any, error)) (any, error) {
	e.takes()
	if err := e.Refusals.check(now, msg); err != nil {
		e.Count()
		return nil, err
	}
	return e.guard(now, msg, early, step)
}

// guard runs a step and makes an error of its panic.
func (e *Engine) guard(now time.Time, msg any, early bool, step func() (any, error)) (result any, err error) {
	var d digest
	if early && msg != nil {
		d = digestOf(msg)
	}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		e.Count()
		p := &PanicError{Value: v, Message: fmt.Sprintf("%T", msg), Sender: called(msg), Stack: debug.Stack()}
		if msg != nil {
			if !early {
				d = digestOf(msg)
			}
			p.Held = e.Refusals.add(now, msg, d)
		}
		text := fmt.Sprintf("a message of %s (%s) made this role panic; it is refused, and the role goes on from what is stored: %v", p.Sender,
			p.Message, v)
		if p.Held > 0 {
			text += fmt.Sprintf("; no message of %s is taken for %s", p.Sender, p.Held)
		}
		e.batch.Events = append(e.batch.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "MessageRefused", Text: text})
		e.broken = p
		if result, err = nil, refusal(); errors.Is(p, store.ErrTooLarge) {
			err = skerry.Errorf(skerry.CodeTooLarge, "it was refused, because a record of it would be too large: %v", v)
		}
	}()
	return step()
}

// Tick lets the core do what is due, as Step does.
func (e *Engine) Tick(now time.Time) { e.Add(e.core.Tick(now)) }

// Add puts effects into the batch, such as those of loading the core.
func (e *Engine) Add(fx wire.Effects) {
	e.takes()
	e.batch.Merge(fx)
	e.Count()
	for _, w := range fx.Writes {
		e.size += len(w.Key) + len(w.Value)
	}
}

// takes panics unless the batch may take an input.
func (e *Engine) takes() {
	if e.busy || e.err != nil || e.broken != nil {
		panic("loop: the core is stepped while its last effects are persisted, or after they were refused")
	}
}

// Count counts an input that is no business of the core.
func (e *Engine) Count() { e.inputs++ }

// Full reports whether the batch should take no more inputs.
func (e *Engine) Full() bool {
	return e.broken != nil || e.inputs >= batchLength || len(e.batch.Writes) >= batchWrites || e.size >= batchBytes
}

// Err is why the engine takes no more: the store refused a batch, of which nothing was sent or carried out, or the core panicked (a
// *PanicError). The core is then ahead of what is stored, or half changed, and must be built anew from that.
func (e *Engine) Err() error { return e.err }

// Flush carries the batch out. What is more than a store takes at once, such as ten thousand instances of one service, goes in several
// commits, in order: nothing is sent or answered before the last, and a core that finds the first part alone after a crash goes on
// from there, as it does from any state that its children do not match.
func (e *Engine) Flush(now time.Time, commit Commit) {
	fx, waiting := e.batch, e.waiting
	e.batch, e.waiting, e.inputs, e.size, e.busy = wire.Effects{}, nil, 0, 0, true
	ops := lastOf(append(fx.Writes, e.host.Record(now, fx.Events)...))
	if len(ops) > 0 {
		fx.Actions = e.begin(fx.Actions)
	}
	var persist func(begun bool)
	persist = func(begun bool) {
		if len(ops) == 0 {
			e.carryOut(fx, waiting)
			return
		}
		part := e.next(ops)
		ops = ops[len(part):]
		commit(part, func(err error) {
			if err != nil {
				e.refuse(err, begun, waiting)
				return
			}
			persist(true)
		})
	}
	persist(false)
}

// begin carries out the first actions of a batch, as far as they may go beside its commit, and gives those that may not. None overtakes
// another.
func (e *Engine) begin(actions []any) []any {
	for len(actions) > 0 {
		b, ok := actions[0].(Beside)
		if !ok || !b.Beside() {
			break
		}
		e.host.Act(actions[0])
		actions = actions[1:]
	}
	return actions
}

// lastOf gives the last write of each key, in order.
func lastOf(writes []wire.Write) []store.Op {
	last := make(map[string]int, len(writes))
	for i, w := range writes {
		last[w.Key] = i
	}
	ops := make([]store.Op, 0, len(last))
	for i, w := range writes {
		if last[w.Key] == i {
			ops = append(ops, store.Op{Key: w.Key, Value: w.Value, Delete: w.Value == nil})
		}
	}
	return ops
}

// next gives as many of ops as one commit takes, at least one.
func (e *Engine) next(ops []store.Op) []store.Op {
	n, size := 0, 0
	for n < len(ops) && n < max(e.MaxOps, 1) {
		if size += len(ops[n].Key) + len(ops[n].Value); size > store.MaxCommit && n > 0 {
			break
		}
		n++
	}
	return ops[:n]
}

func (e *Engine) carryOut(fx wire.Effects, waiting []answer) {
	for _, s := range fx.Sends {
		if m, ok := s.Msg.(wire.Message); ok {
			e.host.Send(s.To, m)
		}
	}
	e.host.Announce(fx.Events, fx.Changed)
	for _, a := range fx.Actions {
		e.host.Act(a)
	}
	e.busy, e.err = false, e.broken
	for _, a := range waiting {
		a.to(a.result, a.err)
	}
}

func (e *Engine) refuse(err error, partly bool, waiting []answer) {
	e.busy, e.err = false, err
	told := StoreError(err)
	if partly {
		told = partError(err)
	}
	for _, a := range waiting {
		a.to(nil, told)
	}
}

// StoreError gives the error that a user sees when the store refused a commit.
func StoreError(err error) error {
	if errors.Is(err, store.ErrFull) {
		e := skerry.Errorf(skerry.CodeFull, "the disk is full; nothing was changed")
		e.Cause = err
		return e.WithHint("free some space; the role goes on by itself, and what runs is not touched")
	}
	var told *skerry.Error
	if errors.Is(err, store.ErrDeposed) && errors.As(err, &told) {
		return told // it says itself what that means
	}
	e := skerry.Errorf(skerry.CodeUnavailable, "the store does not take writes; nothing was changed: %v", err)
	e.Cause = err
	return e
}

// partError gives the error that a user sees when the store refused a commit after it had taken others of the same batch.
func partError(err error) error {
	code, what := skerry.CodeUnavailable, fmt.Sprintf("the store took no more writes: %v", err)
	if errors.Is(err, store.ErrFull) {
		code, what = skerry.CodeFull, "the disk is full"
	}
	e := skerry.Errorf(code, "%s; only a part of the change may have been kept", what)
	e.Cause = fmt.Errorf("%w: %w", ErrPartly, err)
	return e.WithHint("look at it again when the role takes writes, and repeat it if something is missing")
}
