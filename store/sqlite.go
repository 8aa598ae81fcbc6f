package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"skerry.dev/skerry/internal/files"
)

// schemaVersion is in the file's user_version. A file with a higher one was written by a newer program.
const schemaVersion = 1

// applicationID marks the file as ours ("SKRY").
const applicationID = 0x534b5259

// The records are in a table with an index beside it, and not in the index: there SQLite gives each value that is larger than a quarter of
// a page a page more, which made files half as large again and updates write three times as much. Stores that are older have them there.
const schema = `
CREATE TABLE record (key TEXT NOT NULL PRIMARY KEY, revision INTEGER NOT NULL, sum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE change (last INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0), ('compacted', 0);
PRAGMA user_version = 1;
PRAGMA application_id = 1397445209;
`

// sqlite is a Store in one file. One goroutine writes: it joins the commits that wait into one transaction, so that
// they share the wait for the disk. Readers have their own connections and see the last finished transaction.
//
// The change table holds one row per transaction, with all its changes, named by its last revision.
type sqlite struct {
	path string
	o    Options
	lock *fileLock
	head head  // of the writer
	feed *feed // memory's share of history is small; older changes come from the file

	write   *sql.DB
	read    *sql.DB
	get     *sql.Stmt
	list    *sql.Stmt
	changes *sql.Stmt

	queue    chan *request // senders: Commit, Compact; nobody closes it; a full queue makes Commit wait
	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	done     chan struct{} // closed by the writer
	closeErr error         // written by the writer before done

	compacted atomic.Int64 // changes up to it are gone
}

func sqliteDSN(path string, cacheKiB int, more ...string) string {
	q := url.Values{}
	for _, p := range append([]string{"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)",
		"cache_size(-" + strconv.Itoa(cacheKiB) + ")", "temp_store(MEMORY)", "mmap_size(0)"}, more...) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}).String()
}

// readOnlyDSN opens a file for reading. Closing the last connection of another kind would write the log back into the file and delete it,
// which on a damaged one destroys what is left.
func readOnlyDSN(path string, cacheKiB int) string {
	q := url.Values{"mode": {"ro"}}
	for _, p := range []string{"query_only(1)", "busy_timeout(10000)", "cache_size(-" + strconv.Itoa(cacheKiB) + ")", "mmap_size(0)"} {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}).String()
}

func openSQLite(ctx context.Context, path string, o Options) (*sqlite, error) {
	s, err := lockSQLite(path, o)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		err = s.failed(err)
		if e := s.lock.release(); e != nil {
			err = errors.Join(err, e)
		}
		return nil, err
	}
	return s, nil
}

// lockSQLite takes the lock of a file, and no more.
func lockSQLite(path string, o Options) (*sqlite, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	lock, err := lockFile(path + ".lock")
	if errors.Is(err, syscall.EROFS) {
		return nil, fmt.Errorf("store %s: %w", path, ErrReadOnly)
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return &sqlite{path: path, o: o, lock: lock, head: head{path: path + headSuffix}, queue: make(chan *request, 64),
		stop: make(chan struct{}), done: make(chan struct{})}, nil
}

// failed closes what open has opened, but the lock, and says what is wrong.
func (s *sqlite) failed(err error) error {
	s.closeFiles()
	var damaged *DamagedError
	switch {
	case errors.As(err, &damaged):
		return damaged
	case isDamage(err):
		return &DamagedError{Path: s.path, Acknowledged: s.head.read(), Revision: s.head.read(), Cause: err}
	}
	return fmt.Errorf("store %s: %w", s.path, err)
}

func (s *sqlite) open(ctx context.Context) error {
	historyWhole, err := s.verify(ctx)
	if err != nil {
		return err
	}
	// SQLite would create it readable for all, and gives its log the same rights.
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if s.write, err = openDB(sqliteDSN(s.path, s.o.CacheKiB, "journal_size_limit(4194304)", "wal_autocheckpoint(1000)"), 1); err != nil {
		return err
	}
	conn, err := s.write.Conn(ctx)
	if err != nil {
		return sqliteError(err)
	}
	out, rev, err := s.prepare(ctx, conn, historyWhole)
	if err != nil {
		conn.Close()
		return err
	}
	s.feed = newFeed(rev, 256<<10, 0)
	if s.read, err = openDB(sqliteDSN(s.path, s.o.CacheKiB, "query_only(1)"), 2); err != nil {
		return errors.Join(err, out.close())
	}
	for _, p := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&s.get, "SELECT revision, sum, value FROM record WHERE key = ?"},
		{&s.list, "SELECT key, revision, sum, value FROM record WHERE key >= ? AND key < ? ORDER BY key"},
		{&s.changes, "SELECT last, data FROM change WHERE last > ? ORDER BY last LIMIT 64"},
	} {
		if *p.to, err = s.read.PrepareContext(ctx, p.sql); err != nil {
			return errors.Join(sqliteError(err), out.close())
		}
	}
	go s.writer(out)
	return nil
}

// prepare brings the file to the schema, and gives the writer's statements. History that is not whole is forgotten, no more: the records
// are whole, and watchers list again.
func (s *sqlite) prepare(ctx context.Context, conn *sql.Conn, historyWhole bool) (*writer, int64, error) {
	var version, appID int64
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return nil, 0, sqliteError(err)
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&appID); err != nil {
		return nil, 0, sqliteError(err)
	}
	switch {
	case version == 0 && appID == 0:
		var tables int
		if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return nil, 0, sqliteError(err)
		}
		if tables > 0 {
			return nil, 0, errors.New("this is an SQLite file of another program; name another file")
		}
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return nil, 0, sqliteError(err)
		}
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return nil, 0, errors.Join(sqliteError(err), ignoreDone(tx.Rollback()))
		}
		if err := tx.Commit(); err != nil {
			return nil, 0, sqliteError(err)
		}
		if err := files.Sync(filepath.Dir(s.path)); err != nil {
			return nil, 0, err
		}
	case appID != applicationID:
		return nil, 0, errors.New("this is an SQLite file of another program; name another file")
	case version > schemaVersion:
		return nil, 0, fmt.Errorf("%w: the file has schema %d and this program knows %d; use the newer program, or restore a backup", ErrNewer,
			version, schemaVersion)
	}
	if !historyWhole {
		if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE; DELETE FROM change;
			UPDATE meta SET value = (SELECT value FROM meta WHERE name = 'revision') WHERE name = 'compacted'; COMMIT`); err != nil {
			return nil, 0, sqliteError(err)
		}
	}
	var rev, compacted int64
	for name, to := range map[string]*int64{"revision": &rev, "compacted": &compacted} {
		if err := conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(to); err != nil {
			return nil, 0, sqliteError(err)
		}
	}
	s.compacted.Store(compacted)
	w, err := newWriter(ctx, conn, rev)
	return w, rev, err
}

func (s *sqlite) Get(ctx context.Context, key string) (Record, error) {
	if s.isClosed() {
		return Record{}, ErrClosed
	}
	r := Record{Key: key}
	var sum int64
	err := s.get.QueryRowContext(ctx, key).Scan(&r.Revision, &sum, &r.Value)
	if errors.Is(err, sql.ErrNoRows) {
		return Record{}, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	if err != nil {
		return Record{}, s.readError(ctx, "read "+key, err)
	}
	return r, checkSum(r, sum)
}

func (s *sqlite) List(ctx context.Context, prefix string) (out []Record, rev int64, err error) {
	err = s.scan(ctx, prefix, func(r int64) error { rev = r; return nil }, func(r Record) error {
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, rev, nil
}

// snapshot is Dump's view: one read transaction, while writers go on.
func (s *sqlite) snapshot(ctx context.Context, begin func(int64) error, each func(Record) error) error {
	return s.scan(ctx, "", begin, each)
}

func (s *sqlite) scan(ctx context.Context, prefix string, begin func(int64) error, each func(Record) error) error {
	if s.isClosed() {
		return ErrClosed
	}
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return s.readError(ctx, "list", err)
	}
	defer tx.Rollback()
	var rev int64
	if err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'revision'").Scan(&rev); err != nil {
		return s.readError(ctx, "list", err)
	}
	if err := begin(rev); err != nil {
		return err
	}
	end := prefixEnd(prefix)
	if end == "" {
		end = "\xff" // above every UTF-8 text
	}
	rows, err := tx.StmtContext(ctx, s.list).QueryContext(ctx, prefix, end)
	if err != nil {
		return s.readError(ctx, "list", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r Record
		var sum int64
		if err := rows.Scan(&r.Key, &r.Revision, &sum, &r.Value); err != nil {
			return s.readError(ctx, "list", err)
		}
		if err := checkSum(r, sum); err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.readError(ctx, "list", err)
	}
	return nil
}

func (s *sqlite) Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error {
	return s.feed.watch(ctx, prefix, from, fn, s.older)
}

// older reads a page of changes from the file.
func (s *sqlite) older(ctx context.Context, from int64) ([]change, error) {
	if from < s.compacted.Load() {
		return nil, ErrCompacted
	}
	rows, err := s.changes.QueryContext(ctx, from)
	if err != nil {
		return nil, s.readError(ctx, "watch", err)
	}
	defer rows.Close()
	var out []change
	size := 0
	for size < 1<<20 && rows.Next() {
		var last int64
		var data []byte
		if err := rows.Scan(&last, &data); err != nil {
			return nil, s.readError(ctx, "watch", err)
		}
		cs, err := decodeChanges(data)
		if err != nil {
			return nil, err
		}
		for _, c := range cs {
			if c.revision > from {
				out = append(out, c)
			}
		}
		size += len(data)
	}
	if err := rows.Err(); err != nil {
		return nil, s.readError(ctx, "watch", err)
	}
	// A compaction may have come between the check and the query.
	if len(out) == 0 || from < s.compacted.Load() {
		return nil, ErrCompacted
	}
	return out, nil
}

func (s *sqlite) isClosed() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *sqlite) readError(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.isClosed():
		return ErrClosed
	}
	return fmt.Errorf("%s: %w", what, sqliteError(err))
}

// Close finishes the commits that wait, writes the log back into the file and releases it.
func (s *sqlite) Close() error {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.done
	return s.closeErr
}

func (s *sqlite) closeFiles() error {
	var errs []error
	for _, c := range []*sql.Stmt{s.get, s.list, s.changes} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	for _, db := range []*sql.DB{s.read, s.write} { // the writer last, so that its close folds the log into the file
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	errs = append(errs, s.head.close())
	return errors.Join(errs...)
}
