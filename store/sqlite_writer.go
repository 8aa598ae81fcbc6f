package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

const (
	batchCommits = 256     // commits joined into one transaction
	batchBytes   = 4 << 20 // of keys and values; one commit may exceed it
)

// request is a commit or a compaction on its way to the writer.
type request struct {
	ops     []Op
	compact int64                              // if above 0, a compaction instead
	load    func(put func(Record) error) error // if set, a restore instead
	adopt   int64                              // if above 0, load replaces everything, and the store takes this revision
	extend  []change                           // if set, changes of another store instead
	state   atomic.Int32                       // waiting, taken or abandoned
	done    chan struct{}

	revision int64 // set by the writer before done is closed
	err      error
}

const (
	waiting = iota
	taken
	abandoned
)

func (s *sqlite) Commit(ctx context.Context, ops []Op) (int64, error) {
	if err := checkOps(ops); err != nil {
		return 0, err
	}
	return s.submit(ctx, &request{ops: ops, done: make(chan struct{})})
}

func (s *sqlite) Compact(ctx context.Context, revision int64) error {
	_, err := s.submit(ctx, &request{compact: max(revision, 1), done: make(chan struct{})})
	return err
}

func (s *sqlite) submit(ctx context.Context, req *request) (int64, error) {
	if s.isClosed() {
		return 0, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case s.queue <- req:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.stop:
		return 0, ErrClosed
	}
	select {
	case <-req.done:
	case <-ctx.Done():
		if req.state.CompareAndSwap(waiting, abandoned) {
			return 0, ctx.Err()
		}
		<-req.done // being written: the outcome is near, and worth knowing
	case <-s.done:
		// The writer ended. It has answered r, or r came too late.
		select {
		case <-req.done:
		default:
			return 0, ErrClosed
		}
	}
	return req.revision, req.err
}

// writer owns the writing connection. Only its goroutine uses it.
type writer struct {
	conn                                   *sql.Conn
	begin, commit, rollback                *sql.Stmt
	have, put, del, log, setRevision, trim *sql.Stmt
	setCompacted                           *sql.Stmt
	all                                    []*sql.Stmt
	revision                               int64
	untilTrim                              int   // changes
	history, mostHistory                   int64 // bytes of the change table, and how many there may be before trim looks
}

func newWriter(ctx context.Context, conn *sql.Conn, rev int64) (*writer, error) {
	out := &writer{conn: conn, revision: rev, untilTrim: 1, mostHistory: leastHistory}
	if err := conn.QueryRowContext(ctx, historySize).Scan(&out.history); err != nil {
		return nil, sqliteError(err)
	}
	for _, p := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&out.begin, "BEGIN IMMEDIATE"},
		{&out.commit, "COMMIT"},
		{&out.rollback, "ROLLBACK"},
		{&out.have, "SELECT revision FROM record WHERE key = ?"},
		{&out.put, "INSERT INTO record VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, sum = excluded.sum, value = excluded.value"},
		{&out.del, "DELETE FROM record WHERE key = ?"},
		{&out.log, "INSERT INTO change VALUES (?, ?)"},
		{&out.setRevision, "UPDATE meta SET value = ? WHERE name = 'revision'"},
		{&out.setCompacted, "UPDATE meta SET value = max(value, ?) WHERE name = 'compacted' RETURNING value"},
		{&out.trim, "DELETE FROM change WHERE last <= ?"},
	} {
		var err error
		if *p.to, err = conn.PrepareContext(ctx, p.sql); err != nil {
			return nil, errors.Join(sqliteError(err), out.close())
		}
		out.all = append(out.all, *p.to)
	}
	return out, nil
}

// close closes the statements too: database/sql does not know those of a single connection, and SQLite keeps the file
// open as long as one is left.
func (w *writer) close() error {
	var errs []error
	for _, st := range w.all {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// writer takes what waits, writes it, answers, and starts again.
func (s *sqlite) writer(out *writer) {
	defer close(s.done)
	var next *request // taken from the queue, but not fitting into the batch before
	for {
		req := next
		next = nil
		if req == nil {
			select {
			case req = <-s.queue:
			case <-s.stop:
				select { // those in the queue came before Close
				case req = <-s.queue:
				default:
					s.feed.close()
					s.closeErr = errors.Join(out.close(), s.closeFiles(), s.lock.release())
					return
				}
			}
		}
		if !req.state.CompareAndSwap(waiting, taken) {
			continue
		}
		if req.special() {
			s.do(out, req)
			close(req.done)
			continue
		}
		batch, size := []*request{req}, req.size()
	fill:
		for len(batch) < batchCommits && size < batchBytes {
			select {
			case req := <-s.queue:
				if req.special() {
					next = req
					break fill
				}
				if req.state.CompareAndSwap(waiting, taken) {
					batch, size = append(batch, req), size+req.size()
				}
			default:
				break fill
			}
		}
		s.apply(out, batch)
	}
}

// do carries out what is no commit.
func (s *sqlite) do(out *writer, req *request) {
	switch {
	case req.load != nil:
		if req.adopt > 0 {
			if req.err = s.head.set(0); req.err != nil {
				return
			}
		}
		req.err = out.load(req.load, req.adopt)
		s.head.write(out.revision)
		if req.err == nil {
			s.compacted.Store(out.revision)
			s.feed.reset(out.revision)
		}
	case req.extend != nil:
		var cs []change
		if cs, req.err = out.extend(req.extend); req.err == nil {
			s.head.write(out.revision)
			s.feed.add(cs...)
			s.trim(out, len(cs))
		}
		req.revision = out.revision
	default:
		req.err = s.compact(out, min(req.compact, out.revision))
	}
}

func (r *request) special() bool { return r.compact > 0 || r.load != nil || r.extend != nil }

func (r *request) size() int {
	n := 0
	for _, op := range r.ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

// apply writes a batch and answers it. When the disk is full the commits are tried one by one: a large one must not
// take its small neighbours with it.
func (s *sqlite) apply(out *writer, batch []*request) {
	changes, err := out.transact(batch)
	if err != nil && len(batch) > 1 && errors.Is(err, ErrFull) {
		for _, r := range batch {
			s.apply(out, []*request{r})
		}
		return
	}
	if err == nil {
		s.head.write(out.revision)
		s.feed.add(changes...)
	}
	for _, r := range batch {
		if err != nil {
			r.revision, r.err = 0, fmt.Errorf("commit: %w", err)
		}
		close(r.done)
	}
	if err == nil {
		s.trim(out, len(changes))
	}
}

// leastHistory is how many bytes of history remain in any case. Beyond that it takes as much room as the records: whoever has missed more
// than that reads all records for less.
const leastHistory = 4 << 20

const (
	historySize = "SELECT coalesce(sum(length(data)), 0) FROM change"
	// usedSize counts the bytes of the file's pages that are in use.
	usedSize = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
	// tooOld finds the last change that has more than so many bytes of history after it.
	tooOld = `SELECT coalesce(max(last), 0) FROM (SELECT last, sum(length(data)) OVER (ORDER BY last DESC) - length(data) AS newer FROM change)
		WHERE newer > ?`
)

// trim forgets old history after n changes, in steps of a tenth, so that it costs one statement now and then. A failure shows at the next
// commit; history then stays a little longer.
func (s *sqlite) trim(w *writer, n int) {
	if s.o.KeepRevisions < 0 {
		return
	}
	if w.untilTrim -= n; w.untilTrim <= 0 {
		w.untilTrim = int(s.o.KeepRevisions/10) + 1
		if upTo := w.revision - s.o.KeepRevisions; upTo > s.compacted.Load() {
			_ = s.compact(w, upTo)
		}
	}
	if w.history > w.mostHistory {
		_ = s.trimSize(w)
	}
}

// trimSize forgets old history that takes too much room.
func (s *sqlite) trimSize(w *writer) error {
	ctx := context.Background()
	var used, upTo int64
	if err := w.conn.QueryRowContext(ctx, usedSize).Scan(&used); err != nil {
		return sqliteError(err)
	}
	most := max(used-w.history, leastHistory)
	if w.mostHistory = most + most/10; w.history <= w.mostHistory {
		return nil
	}
	if err := w.conn.QueryRowContext(ctx, tooOld, most).Scan(&upTo); err != nil {
		return sqliteError(err)
	}
	return s.compact(w, upTo)
}

// transact does a batch in one transaction. Each commit is checked before its first write, so that one which conflicts
// leaves nothing behind and harms no other. An error means that nothing of the batch was written.
func (w *writer) transact(batch []*request) (changes []change, err error) {
	ctx := context.Background()
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return nil, sqliteError(err)
	}
	defer func() {
		if err != nil {
			// Fails when SQLite has rolled back by itself, as it does for a full disk.
			_, _ = w.rollback.ExecContext(ctx)
		}
	}()
	rev := w.revision
	for _, r := range batch {
		r.revision, r.err = rev, nil
		ok, err := w.check(ctx, r)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		c := change{revision: rev + 1}
		if err := w.put1(ctx, r, &c); err != nil {
			return nil, err
		}
		if len(c.events) > 0 {
			rev++
			changes = append(changes, c)
		}
		r.revision = rev
	}
	if rev == w.revision {
		_, err := w.rollback.ExecContext(ctx)
		return nil, sqliteError(err)
	}
	return changes, w.finish(ctx, changes)
}

// finish writes changes down as history, ends the transaction that made them, and counts them as done when that is durable.
func (w *writer) finish(ctx context.Context, changes []change) error {
	rev, data := changes[len(changes)-1].revision, encodeChanges(changes)
	if _, err := w.log.ExecContext(ctx, rev, data); err != nil {
		return sqliteError(err)
	}
	if _, err := w.setRevision.ExecContext(ctx, rev); err != nil {
		return sqliteError(err)
	}
	if _, err := w.commit.ExecContext(ctx); err != nil {
		return sqliteError(err)
	}
	w.revision, w.history = rev, w.history+int64(len(data))
	return nil
}

func (w *writer) check(ctx context.Context, r *request) (bool, error) {
	for _, op := range r.ops {
		if op.Expect == nil {
			continue
		}
		var have int64
		err := w.have.QueryRowContext(ctx, op.Key).Scan(&have)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, sqliteError(err)
		}
		if have != *op.Expect {
			r.revision, r.err = 0, conflict(op, have)
			return false, nil
		}
	}
	return true, nil
}

func (w *writer) put1(ctx context.Context, req *request, c *change) error {
	for _, op := range req.ops {
		rec := Record{Key: op.Key, Revision: c.revision}
		if op.Delete {
			res, err := w.del.ExecContext(ctx, op.Key)
			if err != nil {
				return sqliteError(err)
			}
			if n, err := res.RowsAffected(); err != nil {
				return err
			} else if n > 0 {
				c.events = append(c.events, Event{Record: rec, Deleted: true})
			}
			continue
		}
		rec.Value = slices.Clone(op.Value)
		if rec.Value == nil {
			rec.Value = []byte{} // nil would be NULL
		}
		if _, err := w.put.ExecContext(ctx, op.Key, rec.Revision, sumOf(rec), rec.Value); err != nil {
			return sqliteError(err)
		}
		c.events = append(c.events, Event{Record: rec})
	}
	return nil
}

// compact forgets changes up to upTo. A transaction's row goes when all its changes may go; the rest of a row that
// straddles the border stays on disk, but nobody is given it in part: the border is what counts.
func (s *sqlite) compact(out *writer, upTo int64) (err error) {
	ctx := context.Background()
	if _, err := out.begin.ExecContext(ctx); err != nil {
		return sqliteError(err)
	}
	defer func() {
		if err != nil {
			_, _ = out.rollback.ExecContext(ctx)
		}
	}()
	var border int64
	if err := out.setCompacted.QueryRowContext(ctx, upTo).Scan(&border); err != nil {
		return sqliteError(err)
	}
	if _, err := out.trim.ExecContext(ctx, border); err != nil {
		return sqliteError(err)
	}
	var history int64
	if err := out.conn.QueryRowContext(ctx, historySize).Scan(&history); err != nil {
		return sqliteError(err)
	}
	// Watchers must not find a hole, so the border moves before the rows go.
	s.compacted.Store(border)
	if _, err := out.commit.ExecContext(ctx); err != nil {
		return sqliteError(err)
	}
	out.history = history
	s.feed.compact(border)
	return nil
}
