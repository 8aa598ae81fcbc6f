package tier

import (
	"context"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/wire"
)

// dueCore is a core that panics when a time has come.
type dueCore struct{ idleCore }

func (*dueCore) Tick(time.Time) wire.Effects { panic("due") }
func (*dueCore) NextWake() time.Time         { return time.Now().Add(-time.Second) }

// A panic that no message is to blame for ends a role that contains it, and nobody waits for it in vain.
func TestContainedPanics(t *testing.T) {
	idle := func(ctx context.Context, _ *loop.Loop) error { <-ctx.Done(); return nil }
	for what, change := range map[string]func(r *Role){
		"due": func(r *Role) {
			r.Load = func(context.Context) (loop.Core, wire.Effects, error) { return &dueCore{}, wire.Effects{}, nil }
		},
		"serve": func(r *Role) { r.Serve = func(context.Context, *loop.Loop) error { panic("serve") } },
	} {
		r := newRole(t, &idleCore{}, idle)
		r.Contain = true
		change(r)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		asked := make(chan error, 1)
		go func() {
			<-r.Up()
			for {
				if _, err := r.Do(ctx, "x"); err != nil {
					asked <- err
					return
				}
			}
		}()
		if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("Run = %v, want the panic %q", err, what)
		}
		if err := <-asked; skerry.AsError(err).Code != skerry.CodeUnavailable {
			t.Errorf("Do = %v after the panic %q, want that it is stopping", err, what)
		}
	}
}

// slowHost takes its time to record what a loop tells at its end.
type slowHost struct{ idleHost }

func (slowHost) Record(time.Time, []wire.Event) []wire.Write {
	time.Sleep(50 * time.Millisecond)
	return nil
}

// A view that panics for what a life serves begins another life, whichever of the two is heard of first.
func TestPanicOfViewThatIsServed(t *testing.T) {
	lives := 0
	var r *Role
	r = newRole(t, &idleCore{}, func(ctx context.Context, _ *loop.Loop) error {
		if lives++; lives == 2 {
			return nil
		}
		return r.View(ctx, func(loop.Core) { panic("view") })
	})
	r.Host = slowHost{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Run(ctx); err != nil || lives != 2 {
		t.Errorf("Run = %v in life %d, want nil in the second", err, lives)
	}
}

// A role that panics as soon as it lives does not take a processor, and fill a log, with its lives.
func TestPanicsAreNoSpin(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	const most = 4
	var r *Role
	var begun []time.Time // of its lives
	r = newRole(t, &idleCore{}, func(ctx context.Context, _ *loop.Loop) error {
		if begun = append(begun, time.Now()); len(begun) == most {
			end()
			return nil
		}
		return r.View(ctx, func(loop.Core) { panic("view") })
	})
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if took := begun[len(begun)-1].Sub(begun[0]); len(begun) != most || took < (most-2)*shortestLife {
		t.Errorf("got %d lives within %v, want %d with %v between two", len(begun), took, most, shortestLife)
	}
}
