// Package loop runs a pure core: it feeds it messages one at a time, persists what it wants persisted, then sends, then
// announces, then acts, then answers. All three roles use it; it knows nothing of what a core decides.
package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Core is a role as a state machine.
type Core interface {
	Step(now time.Time, msg any) wire.Effects
	Tick(now time.Time) wire.Effects
	// NextWake is when Tick has something to do; the zero time means never.
	NextWake() time.Time
}

// Host carries out effects. Its methods are called from the loop's goroutine, in this order for each batch, and must not
// wait for the loop. Act is also called before the commit, for actions that are Beside.
type Host interface {
	// Record gives the writes that keep events; they go into the same commit.
	Record(now time.Time, events []wire.Event) []wire.Write
	Send(to string, msg wire.Message)
	Announce(events []wire.Event, changed []wire.Change)
	Act(action any)
}

// Limits of a loop.
const (
	queueLength = 1024 // inputs that wait; a full queue holds their senders up
	batchLength = 256  // inputs that share one batch
	batchWrites = 1024 // writes from which on a batch takes no more inputs
	batchBytes  = 2 << 20
)

// ErrStopped says that the loop has ended.
var ErrStopped = errors.New("the role is stopping")

// Loop owns a core. Only its goroutine touches the core.
type Loop struct {
	core  Core
	store store.Store
	host  Host
	in    chan input
	views chan input // those that go first (ViewsFirst)
	done  chan struct{}
	clock func() time.Time
	// Refusals, if not nil, remembers what cores panicked on from one loop to the next. Set it before Run.
	Refusals *Refusals
	// ViewsFirst has views that are about nothing answered before what waits, also while a batch is written: whoever reads beside many
	// changes would wait for two batches. A view then may overtake what the same goroutine has posted. Set it before Run.
	ViewsFirst bool
	// again are views that went first and panicked; they are run once more in turn, which tells what came of it.
	again []input
	// readOnly is not nil for a loop that only answers View, because the store takes no writes.
	readOnly error
	messages atomic.Int64
	commits  atomic.Int64
}

// Stats counts what a loop has done.
type Stats struct {
	Messages int64 // steps of the core
	Commits  int64
	Queue    int // inputs that wait now
}

// Stats gives the counters.
func (l *Loop) Stats() Stats {
	return Stats{l.messages.Load(), l.commits.Load(), len(l.in) + len(l.views)}
}

type input struct {
	msg   any // of a view: what it is about, or nil
	view  func()
	reply chan reply
	share *Share // of its sender; nil: it has none
}

type reply struct {
	result any
	err    error
}

// New makes a loop; Run starts it. A readOnly error makes a loop that answers View and refuses all else with that error.
func New(core Core, st store.Store, host Host, readOnly error) *Loop {
	return &Loop{core: core, store: st, host: host, in: make(chan input, queueLength), views: make(chan input, queueLength),
		done: make(chan struct{}), clock: time.Now, readOnly: readOnly}
}

// Do gives the core a message and returns its result once everything that follows from it is persisted.
func (l *Loop) Do(ctx context.Context, msg any) (any, error) {
	return l.ask(ctx, l.in, input{msg: msg, reply: make(chan reply, 1)})
}

// View runs fn while nothing changes the core. fn must copy what it wants to keep, and be quick.
func (l *Loop) View(ctx context.Context, fn func()) error { return l.ViewAbout(ctx, nil, fn) }

// ViewAbout is View on behalf of what a user sent, such as a manifest: when fn panics, it is not tried again with the same. Nil: nothing.
func (l *Loop) ViewAbout(ctx context.Context, about any, fn func()) error {
	to := l.in
	if l.ViewsFirst && about == nil {
		to = l.views
	}
	_, err := l.ask(ctx, to, input{msg: about, view: fn, reply: make(chan reply, 1)})
	return err
}

// Turn returns when the loop has done what waits now.
func (l *Loop) Turn(ctx context.Context) error {
	_, err := l.ask(ctx, l.in, input{view: func() {}, reply: make(chan reply, 1)})
	return err
}

func (l *Loop) ask(ctx context.Context, to chan<- input, in input) (any, error) {
	select {
	case to <- in:
	case <-l.done:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-in.reply:
		return r.result, r.err
	case <-l.done:
		select {
		case r := <-in.reply:
			return r.result, r.err
		default:
			return nil, ErrStopped
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Post gives the core a message that nobody waits for. It waits while the queue is full and reports whether the message
// was taken.
func (l *Loop) Post(msg any) bool {
	select {
	case l.in <- input{msg: msg}:
		return true
	case <-l.done:
		return false
	}
}

// Run works until ctx ends (nil), the store refuses a commit (its error) or the core panics on a message (a *PanicError). first are
// effects from loading the core.
func (l *Loop) Run(ctx context.Context, first wire.Effects) error {
	defer close(l.done)
	if l.readOnly != nil {
		return l.runReadOnly(ctx)
	}
	engine := NewEngine(l.core, l.host)
	if l.Refusals != nil {
		engine.Refusals = l.Refusals
	}
	commit := func(ops []store.Op, done func(error)) {
		l.commits.Add(1)
		done(l.commit(ctx, ops, l.ViewsFirst && engine.broken == nil))
	}
	engine.Add(first)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if engine.Flush(l.clock(), commit); engine.Err() != nil {
			return engine.Err()
		}
		if len(l.again) > 0 {
			in := l.again[0]
			l.again = l.again[1:]
			l.batch(engine, in)
			continue
		}
		l.arm(timer)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			engine.Tick(l.clock())
		case in := <-l.in:
			l.batch(engine, in)
		case in := <-l.views:
			l.batch(engine, in)
		}
	}
}

func (l *Loop) arm(timer *time.Timer) {
	at := l.core.NextWake()
	if at.IsZero() {
		timer.Reset(time.Hour)
		return
	}
	timer.Reset(max(at.Sub(l.clock()), 0))
}

// commit has the store take writes. Views that go first are answered meanwhile, if they may look: like those within a batch they see what
// is not on the disk yet. Of a core that panicked in the middle of a step nobody sees anything; the next life answers them.
func (l *Loop) commit(ctx context.Context, ops []store.Op, mayLook bool) error {
	ctx = context.WithoutCancel(ctx) // a stopping role still finishes what it has begun
	if !mayLook {
		_, err := l.store.Commit(ctx, ops)
		return err
	}
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		defer func() {
			out.panicked = recover()
			done <- out
		}()
		_, out.err = l.store.Commit(ctx, ops)
	}()
	for {
		select {
		case out := <-done:
			if out.panicked != nil {
				panic(out.panicked) // as if it had been called here
			}
			return out.err
		case in := <-l.views:
			if look(in.view) != nil {
				l.again = append(l.again, in)
				continue
			}
			in.reply <- reply{}
		}
	}
}

// viewsBetween is how many views at most go before a message that waits: whoever asks much must not keep a role from its work.
const viewsBetween = 16

// longBatch is how long a batch grows, so that no answer waits for many slow messages of others.
const longBatch = 50 * time.Millisecond

// batch steps through what has queued up, so that it shares one commit.
func (l *Loop) batch(engine *Engine, in input) {
	for began := time.Now(); ; {
		l.take(engine, in)
		for range min(len(l.views), viewsBetween) {
			if engine.Full() {
				return
			}
			l.take(engine, <-l.views)
		}
		if engine.Full() || time.Since(began) > longBatch {
			return
		}
		select {
		case in = <-l.in:
		default:
			return
		}
	}
}

// take gives the engine an input.
func (l *Loop) take(engine *Engine, in input) {
	if in.view != nil {
		engine.View(l.clock(), in.msg, in.view, func(err error) { in.reply <- reply{err: err} })
		return
	}
	l.messages.Add(1)
	var to func(any, error)
	if r := in.reply; r != nil {
		to = func(result any, err error) { r <- reply{result, err} }
	}
	engine.Step(l.clock(), in.msg, to)
	in.share.taken()
}

func (l *Loop) runReadOnly(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-l.views:
			in.reply <- reply{err: look(in.view)}
		case in := <-l.in:
			switch {
			case in.view != nil:
				in.reply <- reply{err: look(in.view)}
			case in.reply != nil:
				in.reply <- reply{nil, StoreError(l.readOnly)}
			}
			in.share.taken()
		}
	}
}

// look runs a view of a core that is never stepped, and outlives a panic of it.
func look(view func()) (err error) {
	defer func() {
		if recover() != nil {
			err = refusal()
		}
	}()
	view()
	return nil
}
