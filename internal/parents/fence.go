package parents

import (
	"context"
	"io"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/store"
)

// fenced is the images' depot of a process that leads. What it changes is done only if it led until the end: whoever leads after it has
// then not yet looked at what is there.
type fenced struct {
	artifact.Depot
	deposed <-chan struct{}
}

// fence has a depot be changed only while this process leads.
func (l *leading) fence(d artifact.Depot) artifact.Depot {
	if d == nil || l.lead == nil {
		return d
	}
	return &fenced{d, l.lead.Done()}
}

func (f *fenced) over() bool {
	select {
	case <-f.deposed:
		return true
	default:
		return false
	}
}

func (f *fenced) change(ctx context.Context, do func(ctx context.Context) error) error {
	if f.over() {
		return store.ErrDeposed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.deposed:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	if f.over() {
		return store.ErrDeposed
	}
	return err
}

// Put implements artifact.Depot.
func (f *fenced) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	return f.change(ctx, func(ctx context.Context) error { return f.Depot.Put(ctx, name, from, size) })
}

// Delete implements artifact.Depot.
func (f *fenced) Delete(ctx context.Context, name string) error {
	return f.change(ctx, func(ctx context.Context) error { return f.Depot.Delete(ctx, name) })
}
