//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"skerry.dev/skerry/runtime"
)

// endings are the tasks that somebody was ordered to end or remove, until that is done. An instance that comes back under a new token has
// tasks of the same names: what was ordered for the old one must not meet the new one.
type endings struct {
	mu    sync.Mutex
	under map[runtime.TaskID][]chan struct{}
}

// begin notes an order in the turn in which it was given; done ends it. What names no task needs no order.
func (e *endings) begin(data json.RawMessage) (done func()) {
	var handle runtime.Handle
	if json.Unmarshal(data, &handle) != nil {
		return func() {}
	}
	ch := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.under == nil {
		e.under = map[runtime.TaskID][]chan struct{}{}
	}
	e.under[handle.ID] = append(e.under[handle.ID], ch)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(ch)
		left := slices.DeleteFunc(slices.Clone(e.under[handle.ID]), func(c chan struct{}) bool { return c == ch })
		if e.under[handle.ID] = left; len(left) == 0 {
			delete(e.under, handle.ID)
		}
	}
}

// await waits until nothing that was ordered before is under way for a task.
func (e *endings) await(ctx context.Context, id runtime.TaskID) error {
	e.mu.Lock()
	before := slices.Clone(e.under[id])
	e.mu.Unlock()
	for _, ch := range before {
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
