package parents

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/store"
)

// slowDepot counts changes. Each is made when it was asked for, and answered when the test says so.
type slowDepot struct {
	artifact.Depot
	made   int
	answer func(ctx context.Context) error
}

func (d *slowDepot) Put(ctx context.Context, _ string, _ io.Reader, _ int64) error {
	d.made++
	return d.answer(ctx)
}

func (d *slowDepot) Delete(ctx context.Context, _ string) error {
	d.made++
	return d.answer(ctx)
}

// TestDeposedChangesNoImages: a process that no longer leads acknowledges no push and no deletion, not even one that has begun, and begins
// none.
func TestDeposedChangesNoImages(t *testing.T) {
	for what, change := range map[string]func(context.Context, artifact.Depot) error{
		"put":    func(ctx context.Context, d artifact.Depot) error { return d.Put(ctx, "a", strings.NewReader("x"), 1) },
		"delete": func(ctx context.Context, d artifact.Depot) error { return d.Delete(ctx, "a") },
	} {
		deposed := make(chan struct{})
		d := &slowDepot{answer: func(context.Context) error { return nil }}
		f := &fenced{d, deposed}
		if err := change(t.Context(), f); err != nil || d.made != 1 {
			t.Errorf("%s: the leader gets %v after %d changes, want one and no error", what, err, d.made)
		}
		d.answer = func(ctx context.Context) error {
			close(deposed)
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				t.Errorf("%s: it goes on", what)
			}
			return nil
		}
		if err := change(t.Context(), f); !errors.Is(err, store.ErrDeposed) {
			t.Errorf("%s: who is deposed meanwhile gets %v, want %v", what, err, store.ErrDeposed)
		}
		if err := change(t.Context(), f); !errors.Is(err, store.ErrDeposed) || d.made != 2 {
			t.Errorf("%s: who was deposed gets %v after %d changes, want %v after 2", what, err, d.made, store.ErrDeposed)
		}
	}
}
