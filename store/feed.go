package store

import (
	"context"
	"sort"
	"strings"
	"sync"
)

// change is what one commit did.
type change struct {
	revision int64
	events   []Event
}

// feed keeps the latest changes in memory and wakes watchers. The memory store has nothing else; SQLite reads older
// changes from its table.
type feed struct {
	maxSize int   // bytes of keys and values kept
	maxRevs int64 // changes kept; 0 means any number

	mu      sync.Mutex
	changes []change
	size    int
	floor   int64 // every change after it is in changes
	last    int64 // revision of the store
	closed  bool
	wake    chan struct{} // closed and replaced when last or closed changes
}

func newFeed(last int64, maxSize int, maxRevs int64) *feed {
	return &feed{maxSize: maxSize, maxRevs: maxRevs, floor: last, last: last, wake: make(chan struct{})}
}

func (f *feed) add(cs ...change) {
	if len(cs) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range cs {
		f.size += c.size()
		f.last = c.revision
	}
	f.changes = append(f.changes, cs...)
	drop := 0
	for drop < len(f.changes)-1 && (f.size > f.maxSize || f.maxRevs > 0 && int64(len(f.changes)-drop) > f.maxRevs) {
		f.size -= f.changes[drop].size()
		f.floor = f.changes[drop].revision
		f.changes[drop] = change{}
		drop++
	}
	f.changes = f.changes[drop:]
	f.wakeLocked()
}

func (f *feed) wakeLocked() {
	close(f.wake)
	f.wake = make(chan struct{})
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.wakeLocked()
	}
}

func (f *feed) compact(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision > f.last {
		revision = f.last
	}
	i := sort.Search(len(f.changes), func(i int) bool { return f.changes[i].revision > revision })
	for _, c := range f.changes[:i] {
		f.size -= c.size()
	}
	f.changes = append([]change(nil), f.changes[i:]...)
	f.floor = max(f.floor, revision)
	f.wakeLocked()
}

// reset continues at last without history.
func (f *feed) reset(last int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes, f.size, f.floor, f.last = nil, 0, last, last
	f.wakeLocked()
}

func (f *feed) revision() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// after gives the changes after from. ok is false when some of them are no longer in memory. wake is closed when there
// may be more.
func (f *feed) after(from int64) (cs []change, last int64, ok, closed bool, wake <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from < f.floor {
		return nil, f.last, false, f.closed, f.wake
	}
	i := sort.Search(len(f.changes), func(i int) bool { return f.changes[i].revision > from })
	return append([]change(nil), f.changes[i:]...), f.last, true, f.closed, f.wake
}

// watch is the loop behind Watch. older reads changes that have left memory, or gives ErrCompacted.
func (f *feed) watch(ctx context.Context, prefix string, from int64, fn func([]Event) error,
	older func(ctx context.Context, from int64) ([]change, error)) error {
	if from > f.revision() {
		return ErrCompacted
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		cs, last, ok, closed, wake := f.after(from)
		if closed {
			return ErrClosed
		}
		if !ok {
			var err error
			if cs, err = older(ctx, from); err != nil {
				return err
			}
			if len(cs) > 0 {
				last = cs[len(cs)-1].revision
			}
		}
		var evs []Event
		for _, c := range cs {
			for _, e := range c.events {
				if strings.HasPrefix(e.Key, prefix) {
					evs = append(evs, e)
				}
			}
		}
		if len(evs) > 0 {
			if err := fn(evs); err != nil {
				return err
			}
		}
		from = last
		if len(cs) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c change) size() int {
	n := 64
	for _, e := range c.events {
		n += len(e.Key) + len(e.Value) + 64
	}
	return n
}
