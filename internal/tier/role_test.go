package tier

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// idleCore is a core that takes anything and does nothing, but hold still while hold is not nil.
type idleCore struct {
	n    int
	hold chan struct{}
}

func (c *idleCore) Step(time.Time, any) wire.Effects {
	if c.hold != nil {
		c.hold <- struct{}{}
		<-c.hold
	}
	return wire.Effects{}
}
func (c *idleCore) Tick(time.Time) wire.Effects { return wire.Effects{} }
func (c *idleCore) NextWake() time.Time         { return time.Time{} }

type idleHost struct{}

func (idleHost) Record(time.Time, []wire.Event) []wire.Write { return nil }
func (idleHost) Send(string, wire.Message)                   {}
func (idleHost) Announce([]wire.Event, []wire.Change)        {}
func (idleHost) Act(any)                                     {}

func newRole(t *testing.T, core *idleCore, serve func(ctx context.Context, l *loop.Loop) error) *Role {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	r := NewRole()
	r.Store, r.Log, r.Host, r.Serve = st, slog.New(slog.DiscardHandler), idleHost{}, serve
	r.Load = func(context.Context) (loop.Core, wire.Effects, error) { return core, wire.Effects{}, nil }
	return r
}

// A link that is just being made when a life ends asks the core what it holds. It must not wait for a next life, which
// would wait for it.
func TestViewAtTheEndOfALife(t *testing.T) {
	var r *Role
	asked := make(chan error, 1)
	r = newRole(t, &idleCore{}, func(ctx context.Context, l *loop.Loop) error {
		<-ctx.Done()
		for l.Post(nil) { // until the loop has ended
		}
		_, err := View(ctx, r, func(c *idleCore) (int, error) { return c.n, nil })
		asked <- err
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-r.Up()
	cancel()
	if err := <-asked; err == nil {
		t.Error("a role that has stopped was looked into")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Who gives up waiting for the core reads nothing that the core writes later; the race detector looks on.
func TestViewGivesUp(t *testing.T) {
	core := &idleCore{hold: make(chan struct{})}
	r := newRole(t, core, func(ctx context.Context, _ *loop.Loop) error { <-ctx.Done(); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-r.Up()
	r.Post("hold still")
	<-core.hold
	short, giveUp := context.WithCancel(t.Context())
	ran := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := View(short, r, func(*idleCore) ([]int, error) { defer close(ran); return []int{1}, nil })
		got <- err
	}()
	for r.LoopStats().Queue == 0 {
		time.Sleep(time.Millisecond)
	}
	giveUp()
	time.Sleep(10 * time.Millisecond) // let it give up; an order that the race detector cannot see
	core.hold <- struct{}{}
	<-ran
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	cancel()
	<-done
}

// A child whose welcome failed is not there: nothing is kept for it, and the core knows that it is gone.
func TestWelcomeFails(t *testing.T) {
	var gone []string
	d := &Down{children: map[string]*downChild{}, cfg: DownConfig{
		Up:   func(context.Context, *wire.Hello) (*wire.Welcome, error) { return nil, errors.New("no") },
		Down: func(name string) { gone = append(gone, name) },
	}}
	p := &link.Peer{}
	var refuse *wire.Refuse
	if _, err := d.welcome(p); !errors.As(err, &refuse) || refuse.Code != wire.RefuseBusy {
		t.Errorf("got %v", err)
	}
	d.Send(p.Name(), &wire.Ping{})
	if len(d.children) != 0 || len(gone) != 1 {
		t.Errorf("%d children are kept, %d were told as gone", len(d.children), len(gone))
	}
}
