package tier

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// probeEvery is how often a store that took no writes is tried again.
const probeEvery = time.Second

// firstProbe is the wait before the first try: a member of etcd that died is replaced in moments.
const firstProbe = 100 * time.Millisecond

// shortestLife is how long after the beginning of a life that ended by a panic the next one begins at the earliest.
const shortestLife = 100 * time.Millisecond

const keyProbe = "meta/probe"

// Role runs a core in lives. A life ends when the store refuses a commit: the core is then built anew from what is
// stored, answers readers, refuses writers, and lives again as soon as the store takes a write. That is the same path as
// a crash, so there is no second way in which state could come about. A life also ends when a message makes the core panic: that
// message is refused, in the lives that follow too (loop.Refusals), and the next life begins soon. A core that panics while it is built,
// or when a time has come, ends the process, or Run (Contain): what is stored is the reason, and another life would meet it again.
type Role struct {
	Store store.Store
	Log   *slog.Logger
	// Load builds the core from the store.
	Load func(ctx context.Context) (loop.Core, wire.Effects, error)
	Host loop.Host
	// Serve does what a life needs beside the loop (links), until ctx ends.
	Serve func(ctx context.Context, l *loop.Loop) error
	// Contain makes an error of Run of a panic that no message is to blame for, for a process with several roles. Whoever runs it may then
	// begin anew, from what is stored.
	Contain bool
	// ViewsFirst is that of its loops.
	ViewsFirst bool

	refusals *loop.Refusals
	cur      atomic.Pointer[life]
	started  chan struct{}
	stopped  chan struct{}
	once     sync.Once
}

type life struct {
	loop *loop.Loop
	core loop.Core
	err  error         // why it takes no writes; nil: it does
	over chan struct{} // closed when the next life has begun
}

// begin makes a life the present one.
func (r *Role) begin(l *life) {
	l.over = make(chan struct{})
	if old := r.cur.Swap(l); old != nil {
		close(old.over)
	}
}

// next waits for the life after l. It reports false when there will be none.
func (r *Role) next(ctx context.Context, l *life) bool {
	select {
	case <-l.over:
		return true
	case <-r.stopped:
		return false
	case <-ctx.Done():
		return false
	}
}

// NewRole makes a role; Run starts it.
func NewRole() *Role {
	return &Role{refusals: loop.NewRefusals(), started: make(chan struct{}), stopped: make(chan struct{})}
}

// Up is closed when the first life has begun.
func (r *Role) Up() <-chan struct{} { return r.started }

// Ready gives nil, or why the role cannot do its work now.
func (r *Role) Ready() error {
	l := r.cur.Load()
	if l == nil {
		return errors.New("starting")
	}
	return l.err
}

// Alive returns when the loop has answered, or is being exchanged: what hangs does neither.
func (r *Role) Alive(ctx context.Context) {
	if l := r.cur.Load(); l != nil {
		_ = l.loop.Turn(ctx)
	}
}

// Do gives the core a message.
func (r *Role) Do(ctx context.Context, msg any) (any, error) {
	for {
		l := r.cur.Load()
		if l == nil {
			return nil, skerry.Errorf(skerry.CodeUnavailable, "the role is starting").WithHint("try again in a moment")
		}
		res, err := l.loop.Do(ctx, msg)
		if errors.Is(err, loop.ErrStopped) {
			if r.next(ctx, l) {
				continue // the message was not taken; the next life may
			}
			return nil, skerry.Errorf(skerry.CodeUnavailable, "the role is stopping").WithHint("try again in a moment")
		}
		return res, err
	}
}

// Held is for how long nothing of a child, or of the parent (""), is taken, because its messages made the core panic.
func (r *Role) Held(sender string) time.Duration { return r.refusals.Held(time.Now(), sender) }

// View runs fn with the core while nothing changes it.
func (r *Role) View(ctx context.Context, fn func(c loop.Core)) error {
	return r.viewAbout(ctx, nil, fn)
}

func (r *Role) viewAbout(ctx context.Context, about any, fn func(c loop.Core)) error {
	return r.inLife(ctx, func(l *life) error { return l.loop.ViewAbout(ctx, about, func() { fn(l.core) }) })
}

// Turn returns once the core has taken what it was given before, and that is kept.
func (r *Role) Turn(ctx context.Context) error {
	return r.inLife(ctx, func(l *life) error { return l.loop.Turn(ctx) })
}

// inLife asks the present life, or the next one if that ends meanwhile.
func (r *Role) inLife(ctx context.Context, ask func(l *life) error) error {
	for {
		l := r.cur.Load()
		if l == nil {
			return skerry.Errorf(skerry.CodeUnavailable, "the role is starting").WithHint("try again in a moment")
		}
		err := ask(l)
		if errors.Is(err, loop.ErrStopped) {
			if r.next(ctx, l) {
				continue
			}
			return skerry.Errorf(skerry.CodeUnavailable, "the role is stopping").WithHint("try again in a moment")
		}
		return err
	}
}

// Post gives the core a message that nobody waits for; between lives it is lost, as it would be in a crash.
func (r *Role) Post(msg any) {
	if l := r.cur.Load(); l != nil {
		l.loop.Post(msg)
	}
}

// Run lives until ctx ends. An error is one that living again would not mend.
func (r *Role) Run(ctx context.Context) error {
	defer close(r.stopped)
	for ctx.Err() == nil {
		began := time.Now()
		err := r.live(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if p, ok := errors.AsType[*loop.PanicError](err); ok {
			r.Log.Error("a message made this role panic; it is refused, and the role goes on from what is stored; please report it",
				"err", p.Value, "message", p.Message, "from", p.Sender, "held", p.Held, "stack", string(p.Stack))
			select { // one that panics as soon as it lives is not to take a processor
			case <-ctx.Done():
			case <-time.After(shortestLife - time.Since(began)):
			}
			continue
		}
		var refused *refusedError
		if !errors.As(err, &refused) {
			return err
		}
		r.Log.Error("the store takes no writes; what runs goes on, new work is refused", "err", refused.err)
		if err := r.readOnly(ctx, refused.err); err != nil {
			return err
		}
		r.Log.Info("the store takes writes again")
	}
	return nil
}

type refusedError struct{ err error }

func (e *refusedError) Error() string { return "the store takes no writes: " + e.err.Error() }

// Refused is what Serve gives to end a life as if the store had refused a commit.
func Refused(err error) error { return &refusedError{err} }

func (r *Role) live(ctx context.Context) error {
	core, fx, err := r.Load(ctx)
	if err != nil {
		return err
	}
	l := loop.New(core, r.Store, r.Host, nil)
	l.Refusals, l.ViewsFirst = r.refusals, r.ViewsFirst
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.begin(&life{loop: l, core: core})
	loopDone := make(chan error, 1)
	go func() { loopDone <- r.contained(func() error { return l.Run(ctx, fx) }) }()
	r.once.Do(func() { close(r.started) })
	serveDone := make(chan error, 1)
	go func() { serveDone <- r.contained(func() error { return r.Serve(ctx, l) }) }()
	select {
	case err = <-loopDone:
		cancel()
		if e := <-serveDone; e != nil && err == nil {
			err = e
		} else if err != nil {
			err = ended(err)
		}
	case err = <-serveDone:
		cancel()
		e := <-loopDone
		// What a panic refused may have ended what is served before the loop has said so.
		if _, panicked := errors.AsType[*loop.PanicError](e); panicked || e != nil && err == nil {
			err = ended(e)
		}
	}
	return err
}

// containedError is a panic that ended a life.
type containedError struct{ error }

// contained runs a part of a life, and makes an error of its panic if the role is to contain it.
func (r *Role) contained(f func() error) (err error) {
	if !r.Contain {
		return f()
	}
	var panicked error
	defer func() {
		if panicked != nil {
			err = &containedError{panicked}
		}
	}()
	defer panics.Error(&panicked)
	return f()
}

// ended says why a loop has ended: its core panicked, or the store refused a commit.
func ended(err error) error {
	_, panicked := errors.AsType[*loop.PanicError](err)
	if _, contained := errors.AsType[*containedError](err); panicked || contained {
		return err
	}
	return &refusedError{err}
}

// readOnly answers readers until the store takes a write.
func (r *Role) readOnly(ctx context.Context, why error) error {
	core, _, err := r.Load(ctx)
	if err != nil {
		return err
	}
	l := loop.New(core, r.Store, r.Host, why)
	ctx, cancel := context.WithCancel(ctx)
	r.begin(&life{loop: l, core: core, err: loop.StoreError(why)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.contained(func() error { return l.Run(ctx, wire.Effects{}) })
	}()
	defer func() {
		cancel()
		<-done
	}()
	t := time.NewTimer(firstProbe)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			t.Reset(probeEvery)
		}
		// As large as a usual commit, so that a disk with a few free bytes does not count as mended.
		if _, err := r.Store.Commit(ctx, []store.Op{{Key: keyProbe, Value: make([]byte, 64<<10)}}); err == nil {
			_, err = r.Store.Commit(ctx, []store.Op{{Key: keyProbe, Delete: true}})
			if err == nil {
				return nil
			}
		}
	}
}

// Life names one life of a store: it changes when a backup is restored, and Epoch grows.
type Life struct {
	Incarnation skerry.Incarnation `json:"incarnation"`
	Epoch       uint64             `json:"epoch"`
}

// KeyLife is the record that holds it.
const KeyLife = "meta/life"

// OpenLife reads the store's life, or begins its first.
func OpenLife(ctx context.Context, st store.Store) (Life, error) {
	rec, err := st.Get(ctx, KeyLife)
	if errors.Is(err, store.ErrNotFound) {
		l := Life{Incarnation: newIncarnation(), Epoch: 1}
		zero := int64(0)
		_, err := st.Commit(ctx, []store.Op{{Key: KeyLife, Value: l.encode(), Expect: &zero}})
		return l, err
	}
	if err != nil {
		return Life{}, err
	}
	var l Life
	if err := json.Unmarshal(rec.Value, &l); err != nil {
		return Life{}, fmt.Errorf("record %s: %w", KeyLife, err)
	}
	return l, nil
}

// rebuildGap is by how much a rebuild raises the epoch: above every term in which something may run that the store has forgotten.
const rebuildGap = 1 << 20

// BeginAnew begins a new life in a store that has lost a part of what it had.
func BeginAnew(ctx context.Context, st store.Store) error {
	l, err := OpenLife(ctx, st)
	if err != nil {
		return err
	}
	l.Incarnation, l.Epoch = newIncarnation(), l.Epoch+rebuildGap
	_, err = st.Commit(ctx, []store.Op{{Key: KeyLife, Value: l.encode()}})
	return err
}

// BeginLost begins a new life in a repaired store that has lost the one it had. Its term is lost, too, and it begins
// above all that there can have been.
func BeginLost(ctx context.Context, st store.Store) error {
	if _, err := st.Get(ctx, KeyLife); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return BeginAnew(ctx, st)
}

func (l Life) encode() []byte {
	data, _ := json.Marshal(l)
	return data
}

// restoreGap is by how much a restore raises the epoch: successors may have led in terms that the backup knows nothing of.
const restoreGap = 512

// NewLife alters a restored record: the store begins a new life, and nobody was chosen to succeed it.
func NewLife(r *store.Record) (keep bool, err error) {
	if r.Key == "meta/succession/bound" {
		return false, nil
	}
	if r.Key != KeyLife {
		return true, nil
	}
	var l Life
	if err := json.Unmarshal(r.Value, &l); err != nil {
		return false, err
	}
	l.Incarnation, l.Epoch = newIncarnation(), l.Epoch+restoreGap
	r.Value = l.encode()
	return true, nil
}

func newIncarnation() skerry.Incarnation {
	var b [8]byte
	rand.Read(b[:])
	return skerry.Incarnation(hex.EncodeToString(b[:]))
}

// Seed gives random bytes for a core.
func Seed() (b [16]byte) {
	rand.Read(b[:])
	return b
}
