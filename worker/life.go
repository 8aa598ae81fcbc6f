//go:build linux

package worker

import (
	"context"
	"sync"
)

// life is one of a server's, from one loading of its records to the next: what acts on the machine in it, and nothing of which acts in the next.
type life struct {
	ctx    context.Context // ends with it
	cancel context.CancelFunc

	mu   sync.Mutex
	over bool
	work sync.WaitGroup
}

func newLife(ctx context.Context) *life {
	l := &life{}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// Go runs f, which is to end with the context, unless the life is over: the core's loop may still act while the server already waits for what does.
func (l *life) Go(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.work.Go(f)
	}
}

// end ends the context, and waits for all that runs.
func (l *life) end() {
	l.cancel()
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.work.Wait()
}
