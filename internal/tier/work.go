package tier

import (
	"context"
	"sync"
)

// Work is what a server does beside its core's loop from one loading of its records to the next. Nothing of it goes on in the next.
type Work struct {
	Again  bool            // that of an earlier life of the same role has ended; set by who makes it
	Ctx    context.Context // ends with it
	Cancel context.CancelFunc

	mu   sync.Mutex
	over bool
	work sync.WaitGroup
}

// NewWork begins what ends with ctx, or before.
func NewWork(ctx context.Context) *Work {
	w := &Work{}
	w.Ctx, w.Cancel = context.WithCancel(ctx)
	return w
}

// Go runs f, which is to end with the context, unless it is over: the core's loop may still act while its server
// already waits for what does.
func (w *Work) Go(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.work.Go(f)
	}
}

// End ends the context, and waits for all that runs.
func (w *Work) End() {
	w.Cancel()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.work.Wait()
}
