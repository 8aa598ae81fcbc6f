package store

import (
	"context"
	"slices"
)

func (m *memory) load(_ context.Context, records func(func(Record) error) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if len(m.records) > 0 {
		return ErrNotEmpty
	}
	c := change{revision: m.feed.revision() + 1}
	err := records(func(r Record) error {
		r.Revision = c.revision
		r.Value = slices.Clone(r.Value)
		c.events = append(c.events, Event{Record: r})
		return nil
	})
	if err != nil || len(c.events) == 0 {
		return err
	}
	for _, e := range c.events {
		m.records[e.Key] = e.Record
	}
	m.feed.add(c)
	return nil
}

func (s *sqlite) load(ctx context.Context, records func(func(Record) error) error) error {
	_, err := s.submit(ctx, &request{load: records, done: make(chan struct{})})
	return err
}

// load fills the file in one transaction and one revision. Its changes are not kept as history: they may be larger than
// memory, and nobody can have watched a store that was empty. With adopt above 0 what is there is replaced, and that is the
// revision.
func (w *writer) load(records func(func(Record) error) error, adopt int64) (err error) {
	ctx := context.Background()
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return sqliteError(err)
	}
	defer func() {
		if err != nil {
			_, _ = w.rollback.ExecContext(ctx)
		}
	}()
	rev := w.revision + 1
	if adopt > 0 {
		rev = adopt
		if _, err := w.conn.ExecContext(ctx, "DELETE FROM record; DELETE FROM change; UPDATE meta SET value = 0 WHERE name = 'compacted'"); err != nil {
			return sqliteError(err)
		}
	}
	var n int64
	if err := w.conn.QueryRowContext(ctx, "SELECT count(*) FROM record").Scan(&n); err != nil {
		return sqliteError(err)
	}
	if n > 0 {
		return ErrNotEmpty
	}
	err = records(func(r Record) error {
		r.Revision = rev
		if r.Value == nil {
			r.Value = []byte{}
		}
		_, err := w.put.ExecContext(ctx, r.Key, rev, sumOf(r), r.Value)
		return sqliteError(err)
	})
	if err != nil {
		return err
	}
	if _, err := w.setRevision.ExecContext(ctx, rev); err != nil {
		return sqliteError(err)
	}
	var border int64
	if err := w.setCompacted.QueryRowContext(ctx, rev).Scan(&border); err != nil {
		return sqliteError(err)
	}
	if _, err := w.trim.ExecContext(ctx, border); err != nil {
		return sqliteError(err)
	}
	if _, err := w.commit.ExecContext(ctx); err != nil {
		return sqliteError(err)
	}
	w.revision = rev
	return nil
}
