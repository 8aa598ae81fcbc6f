package loop

import (
	"errors"
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// ErrPartly says that a batch was larger than the store takes at once, and that the store kept the first commits of it and refused
// a later one. Whoever asked for the change must look at what became of it.
var ErrPartly = errors.New("only a part of it was kept")

// Engine is a loop without a goroutine, a clock and a store. It steps a core, collects what follows into a batch, and carries the
// batch out in the order on which everything relies: persist, send, announce, act, answer. Loop drives it with channels and a real
// store, package sim with simulated time and a simulated disk. An Engine is used by one goroutine.
type Engine struct {
	// MaxOps is how many writes go into one commit. NewEngine sets what a store takes; the simulator splits earlier.
	MaxOps int

	core    Core
	host    Host
	batch   skerry.Effects
	waiting []answer
	inputs  int
	size    int // bytes that the batch writes
	busy    bool
	err     error
}

// answer is what somebody is told when the batch is persisted.
type answer struct {
	to     func(result any, err error)
	result any
	err    error
}

// Commit persists ops in one step and then calls done, once, with what came of it. It may return first.
type Commit func(ops []store.Op, done func(error))

// NewEngine makes an engine with an empty batch.
func NewEngine(core Core, host Host) *Engine {
	return &Engine{MaxOps: store.MaxOps, core: core, host: host}
}

// Step gives the core a message; what follows from it joins the batch. to is called with its result when the batch is carried out,
// or with an error when the store refuses it; nil means that nobody waits. It must not be called before Flush is done.
func (e *Engine) Step(now time.Time, msg any, to func(result any, err error)) {
	fx := e.core.Step(now, msg)
	e.Add(fx)
	if to != nil {
		e.waiting = append(e.waiting, answer{to, fx.Result, fx.Err})
	}
}

// Tick lets the core do what is due, as Step does.
func (e *Engine) Tick(now time.Time) { e.Add(e.core.Tick(now)) }

// Add puts effects into the batch, such as those of loading the core.
func (e *Engine) Add(fx skerry.Effects) {
	if e.busy || e.err != nil {
		panic("loop: the core is stepped while its last effects are persisted, or after they were refused")
	}
	e.batch.Merge(fx)
	e.Count()
	for _, w := range fx.Writes {
		e.size += len(w.Key) + len(w.Value)
	}
}

// Count counts an input that is no business of the core.
func (e *Engine) Count() { e.inputs++ }

// Full reports whether the batch should take no more inputs.
func (e *Engine) Full() bool {
	return e.inputs >= batchLength || len(e.batch.Writes) >= batchWrites || e.size >= batchBytes
}

// Err is why the store refused a batch; nothing of that batch was sent or carried out, and the engine takes no more. The core is then
// ahead of what is stored, and must be built anew from that.
func (e *Engine) Err() error { return e.err }

// Flush carries the batch out. What is more than a store takes at once, such as ten thousand instances of one service, goes in several
// commits, in order: nothing is sent or answered before the last, and a core that finds the first part alone after a crash goes on
// from there, as it does from any state that its children do not match.
func (e *Engine) Flush(now time.Time, commit Commit) {
	fx, waiting := e.batch, e.waiting
	e.batch, e.waiting, e.inputs, e.size, e.busy = skerry.Effects{}, nil, 0, 0, true
	ops := lastOf(append(fx.Writes, e.host.Record(now, fx.Events)...))
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

// lastOf gives the last write of each key, in order.
func lastOf(writes []skerry.Write) []store.Op {
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

func (e *Engine) carryOut(fx skerry.Effects, waiting []answer) {
	for _, s := range fx.Sends {
		if m, ok := s.Msg.(skerry.Message); ok {
			e.host.Send(s.To, m)
		}
	}
	e.host.Announce(fx.Events, fx.Changed)
	for _, a := range fx.Actions {
		e.host.Act(a)
	}
	e.busy = false
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
