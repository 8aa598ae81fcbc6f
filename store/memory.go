package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// memory is a Store in a map, for tests and for roles that keep nothing.
type memory struct {
	mu      sync.RWMutex // before feed.mu
	records map[string]Record
	closed  bool
	feed    *feed
}

func newMemory(o Options) *memory {
	return &memory{records: map[string]Record{}, feed: newFeed(0, 16<<20, max(o.KeepRevisions, 0))}
}

func (m *memory) Get(ctx context.Context, key string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return Record{}, ErrClosed
	}
	r, ok := m.records[key]
	if !ok {
		return Record{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return r, nil
}

func (m *memory) List(ctx context.Context, prefix string) ([]Record, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, 0, ErrClosed
	}
	var out []Record
	for k, r := range m.records {
		if strings.HasPrefix(k, prefix) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return out, m.feed.revision(), nil
}

func (m *memory) Commit(ctx context.Context, ops []Op) (int64, error) {
	if err := checkOps(ops); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, ErrClosed
	}
	for _, op := range ops {
		if have := m.records[op.Key].Revision; op.Expect != nil && *op.Expect != have {
			return 0, conflict(op, have)
		}
	}
	rev := m.feed.revision()
	c := change{revision: rev + 1}
	for _, op := range ops {
		r := Record{Key: op.Key, Revision: c.revision}
		if op.Delete {
			if _, ok := m.records[op.Key]; ok {
				delete(m.records, op.Key)
				c.events = append(c.events, Event{Record: r, Deleted: true})
			}
			continue
		}
		r.Value = slices.Clone(op.Value)
		m.records[op.Key] = r
		c.events = append(c.events, Event{Record: r})
	}
	if len(c.events) == 0 {
		return rev, nil
	}
	m.feed.add(c)
	return c.revision, nil
}

func (m *memory) Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error {
	return m.feed.watch(ctx, prefix, from, fn, func(context.Context, int64) ([]change, error) { return nil, ErrCompacted })
}

func (m *memory) Compact(_ context.Context, revision int64) error {
	m.feed.compact(revision)
	return nil
}

func (m *memory) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.feed.close()
	return nil
}

// snapshot is Dump's view.
func (m *memory) snapshot(ctx context.Context, begin func(int64) error, each func(Record) error) error {
	m.mu.RLock()
	rev, records, closed := m.feed.revision(), maps.Clone(m.records), m.closed
	m.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	if err := begin(rev); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(records)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(records[k]); err != nil {
			return err
		}
	}
	return nil
}
