package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrGap says that changes do not go on where the store ends: ask for those between, or for a whole copy.
var ErrGap = errors.New("changes are missing in between")

// maxBatch bounds what Tail joins: one commit may be as large as MaxCommit, with its keys' lengths and flags.
const maxBatch = 1 << 20

// MaxChanges is the size of what Tail hands out, at most.
const MaxChanges = maxBatch + MaxCommit + 16*MaxOps + 64

// replica is the ability to be a copy of another store, with its revisions. The local implementations have it.
type replica interface {
	// adopt replaces everything in one durable step by the records of another store at its revision.
	adopt(ctx context.Context, revision int64, records func(put func(Record) error) error) error
	// extend applies changes that follow each other and what the store has, in one durable step.
	extend(ctx context.Context, cs []change) (int64, error)
}

// CanFollow reports whether a store can be a copy of another one.
func CanFollow(s Store) bool { _, ok := s.(replica); return ok }

// Tail hands every change after a revision to fn, in order and as Extend takes it, with the revision it ends at. It ends as Watch
// does: with ErrCompacted the changes are not kept any more, and a whole copy is needed.
func Tail(ctx context.Context, store Store, from int64, fn func(changes []byte, revision int64) error) error {
	return store.Watch(ctx, "", from, func(events []Event) error {
		var cs []change
		size := 0
		flush := func() error {
			if len(cs) == 0 {
				return nil
			}
			err := fn(encodeChanges(cs), cs[len(cs)-1].revision)
			cs, size = nil, 0
			return err
		}
		for len(events) > 0 {
			n := 1
			for n < len(events) && events[n].Revision == events[0].Revision {
				n++
			}
			c := change{revision: events[0].Revision, events: events[:n]}
			if size > 0 && size+c.size() > maxBatch {
				if err := flush(); err != nil {
					return err
				}
			}
			cs, size = append(cs, c), size+c.size()
			events = events[n:]
		}
		return flush()
	})
}

// Extend applies what Tail gave of another store to a copy of it, and gives the revision that the copy ends at. Changes that it has
// already are passed over; ErrGap means that some are missing, ErrDamaged that these are not whole.
func Extend(ctx context.Context, s Store, changes []byte) (int64, error) {
	cs, err := decodeChanges(changes)
	if err != nil {
		return 0, err
	}
	if err := checkChanges(cs); err != nil {
		return 0, err
	}
	r, ok := s.(replica)
	if !ok {
		return 0, errors.New("this kind of store cannot be a copy of another one")
	}
	return r.extend(ctx, cs)
}

// checkChanges refuses what no store can have written.
func checkChanges(cs []change) error {
	for i, c := range cs {
		if c.revision < 1 || i > 0 && c.revision <= cs[i-1].revision || len(c.events) > MaxOps {
			return fmt.Errorf("changes of another store: %w", ErrInvalid)
		}
		for _, e := range c.events {
			if err := checkKey(e.Key); err != nil {
				return err
			}
			if len(e.Value) > MaxValue {
				return fmt.Errorf("changes of another store: value of %s: %w", e.Key, ErrTooLarge)
			}
		}
	}
	return nil
}

// Adopt replaces everything that a store has by a dump of another one, and takes over its revision, which it gives. The dump is
// read to its end and verified before anything is touched.
func Adopt(ctx context.Context, s Store, dump io.ReadSeeker) (int64, error) {
	r, ok := s.(replica)
	if !ok {
		return 0, errors.New("this kind of store cannot be a copy of another one")
	}
	start, err := dump.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	revision, err := readDump(ctx, dump, func(Record) error { return nil })
	if err != nil {
		return 0, err
	}
	if _, err := dump.Seek(start, io.SeekStart); err != nil {
		return 0, err
	}
	return revision, r.adopt(ctx, revision, func(put func(Record) error) error {
		_, err := readDump(ctx, dump, put)
		return err
	})
}

// Revision gives the newest revision of a store.
func Revision(ctx context.Context, s Store) (int64, error) {
	_, rev, err := s.List(ctx, "\x01") // no key begins like this
	return rev, err
}

// fresh gives those of changes that a store does not have.
func fresh(cs []change, have int64) ([]change, error) {
	i := 0
	for i < len(cs) && cs[i].revision <= have {
		i++
	}
	cs = cs[i:]
	for j, c := range cs {
		if c.revision != have+int64(j)+1 {
			return nil, fmt.Errorf("the copy ends at revision %d, revision %d comes next: %w", have+int64(j), c.revision, ErrGap)
		}
	}
	return cs, nil
}

func (m *memory) adopt(_ context.Context, revision int64, records func(put func(Record) error) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	next := map[string]Record{}
	err := records(func(r Record) error {
		r.Revision, r.Value = revision, slices.Clone(r.Value)
		next[r.Key] = r
		return nil
	})
	if err != nil {
		return err
	}
	m.records = next
	m.feed.reset(revision)
	return nil
}

func (m *memory) extend(_ context.Context, cs []change) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, ErrClosed
	}
	cs, err := fresh(cs, m.feed.revision())
	if err != nil {
		return 0, err
	}
	for _, c := range cs {
		for _, e := range c.events {
			if e.Deleted {
				delete(m.records, e.Key)
			} else {
				m.records[e.Key] = e.Record
			}
		}
	}
	m.feed.add(cs...)
	return m.feed.revision(), nil
}

func (s *sqlite) adopt(ctx context.Context, revision int64, records func(put func(Record) error) error) error {
	_, err := s.submit(ctx, &request{load: records, adopt: max(revision, 1), done: make(chan struct{})})
	return err
}

func (s *sqlite) extend(ctx context.Context, cs []change) (int64, error) {
	return s.submit(ctx, &request{extend: cs, done: make(chan struct{})})
}

// extend writes changes of another store, with the revisions that they have there.
func (w *writer) extend(all []change) (cs []change, err error) {
	cs, err = fresh(all, w.revision)
	if err != nil || len(cs) == 0 {
		return nil, err
	}
	ctx := context.Background()
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return nil, sqliteError(err)
	}
	defer func() {
		if err != nil {
			_, _ = w.rollback.ExecContext(ctx)
		}
	}()
	for _, c := range cs {
		for _, e := range c.events {
			if e.Deleted {
				_, err = w.del.ExecContext(ctx, e.Key)
			} else {
				if e.Value == nil {
					e.Value = []byte{}
				}
				_, err = w.put.ExecContext(ctx, e.Key, c.revision, sumOf(e.Record), e.Value)
			}
			if err != nil {
				return nil, sqliteError(err)
			}
		}
	}
	return cs, w.finish(ctx, cs)
}

// DumpRevision reads the revision off the beginning of a dump, of which the first 30 bytes suffice.
func DumpRevision(b []byte) (int64, error) {
	if len(b) < len(dumpMagic) || string(b[:len(dumpMagic)]) != dumpMagic {
		return 0, ErrBadDump
	}
	b = b[len(dumpMagic):]
	_, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, ErrBadDump
	}
	rev, n := binary.Uvarint(b[n:])
	if n <= 0 {
		return 0, ErrBadDump
	}
	return int64(rev), nil
}
