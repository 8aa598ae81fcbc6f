package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"skerry.dev/skerry/internal/panics"
)

func openDB(dsn string, conns int) (*sql.DB, error) {
	c, err := driver.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// sqliteError adds the error of this package that an SQLite error means.
func sqliteError(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w; free some space on its disk: %w", ErrFull, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case sqlite3.SQLITE_IOERR:
		switch e.Code() {
		case sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN:
			// These files are only ever grown: what stops that is a full disk.
			return fmt.Errorf("%w; free some space on its disk: %w", ErrFull, err)
		case sqlite3.SQLITE_IOERR_SHORT_READ: // a file that is too short to be one
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return err
}

func isDamage(err error) bool { return errors.Is(err, ErrDamaged) }

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// verify reads the whole file before anything may write to it: its structure by SQLite, every record by its checksum, whether it goes as
// far as was acknowledged, and whether its history is whole. Acting on a wrong record costs more.
func (s *sqlite) verify(ctx context.Context) (historyWhole bool, err error) {
	acked := s.head.read()
	st, err := os.Stat(s.path)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, err
	case err != nil || st.Size() == 0: // a log alone is one that SQLite has begun
		if acked > 0 {
			return false, &DamagedError{Path: s.path, Acknowledged: acked}
		}
		return true, nil
	}
	db, err := openDB(readOnlyDSN(s.path, s.o.CacheKiB), 2)
	if err != nil {
		return false, err
	}
	bad := &DamagedError{Path: s.path, Acknowledged: acked, Revision: acked}
	historyWhole, err = bad.check(ctx, db)
	return historyWhole, errors.Join(err, db.Close())
}

// check completes e, and gives it if there is damage. It gives nil for a file of another program, which has no head, and of a newer one.
func (e *DamagedError) check(ctx context.Context, db *sql.DB) (historyWhole bool, err error) {
	var appID, version int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&appID); err != nil || appID != applicationID && e.Acknowledged == 0 {
		return true, sqliteError(err)
	}
	if appID != applicationID {
		return false, fmt.Errorf("%w: it is not marked as a store", ErrDamaged)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil || version > schemaVersion {
		return true, sqliteError(err)
	}
	// Both read all of the file, which two processors do in half of the time.
	structure := make(chan error, 1)
	go func() { structure <- checkStructure(ctx, db) }()
	if err = e.checkRecords(ctx, db); err == nil {
		historyWhole, err = isHistoryWhole(ctx, db)
	}
	if bad := <-structure; bad != nil {
		return false, bad
	}
	return historyWhole, err
}

func checkStructure(ctx context.Context, db *sql.DB) (err error) {
	defer panics.Error(&err) // in a goroutine of its own it would end the program
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
		return sqliteError(err)
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, verdict)
	}
	return nil
}

// checkRecords is check for what the records say.
func (e *DamagedError) checkRecords(ctx context.Context, db *sql.DB) error {
	// A key that is no text any more stands where no search for text finds it, nor what lies behind it; SQLite takes it
	// for a key of another type.
	rows, err := db.QueryContext(ctx, "SELECT key, revision, sum, value, typeof(key) FROM record")
	if err != nil {
		return sqliteError(err)
	}
	defer rows.Close()
	var key, value, kind sql.RawBytes
	for rows.Next() {
		var r Record
		var sum int64
		if err := rows.Scan(&key, &r.Revision, &sum, &value, &kind); err != nil {
			return fmt.Errorf("%w: a record is of another type: %w", ErrDamaged, err)
		}
		r.Key, r.Value = string(key), value
		err := checkSum(r, sum)
		if err == nil && string(kind) != "text" {
			err = fmt.Errorf("record %q: %w: its key is a %s", r.Key, ErrDamaged, kind)
		}
		if err != nil {
			e.Records, e.Cause = append(e.Records, strconv.Quote(r.Key)), err
			continue
		}
		e.Whole++
	}
	if err := rows.Err(); err != nil {
		return sqliteError(err)
	}
	if len(e.Records) > 0 {
		return e
	}
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'revision'").Scan(&e.Revision); err != nil {
		return fmt.Errorf("%w: its revision cannot be read: %w", ErrDamaged, err)
	}
	if e.Acknowledged > e.Revision {
		return e
	}
	return nil
}

// isHistoryWhole reads the change table.
func isHistoryWhole(ctx context.Context, db *sql.DB) (bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT data FROM change")
	if err != nil {
		return false, sqliteError(err)
	}
	defer rows.Close()
	var data sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&data); err != nil {
			return false, sqliteError(err)
		}
		if _, err := decodeChanges(data); err != nil {
			return false, nil
		}
	}
	return true, sqliteError(rows.Err())
}

// sumOf covers what a bit flip on the medium could change without SQLite noticing.
func sumOf(r Record) int64 {
	t := crc32.MakeTable(crc32.Castagnoli)
	var rev [8]byte
	binary.LittleEndian.PutUint64(rev[:], uint64(r.Revision))
	return int64(crc32.Update(crc32.Update(crc32.Checksum(rev[:], t), t, []byte(r.Key)), t, r.Value))
}

func checkSum(r Record, sum int64) error {
	if sumOf(r) != sum {
		return fmt.Errorf("record %q: %w: its checksum is wrong", r.Key, ErrDamaged)
	}
	return nil
}

// encodeChanges makes a row of the change table: per change its revision and number of events, per event a flag, the key
// and the value; at the end a CRC-32C.
func encodeChanges(cs []change) []byte {
	n := 8
	for _, c := range cs {
		n += c.size()
	}
	b := make([]byte, 0, n)
	b = binary.AppendUvarint(b, uint64(len(cs)))
	for _, c := range cs {
		b = binary.AppendUvarint(b, uint64(c.revision))
		b = binary.AppendUvarint(b, uint64(len(c.events)))
		for _, e := range c.events {
			b = binary.AppendUvarint(b, uint64(len(e.Key)))
			b = append(b, e.Key...)
			if e.Deleted {
				b = append(b, 1)
				continue
			}
			b = append(b, 0)
			b = binary.AppendUvarint(b, uint64(len(e.Value)))
			b = append(b, e.Value...)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func decodeChanges(data []byte) ([]change, error) {
	damaged := fmt.Errorf("history: %w", ErrDamaged)
	if len(data) < 4 || crc32.Checksum(data[:len(data)-4],
		crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(data[len(data)-4:]) {
		return nil, damaged
	}
	data = data[:len(data)-4]
	bad := false
	num := func() uint64 {
		n, w := binary.Uvarint(data)
		if w <= 0 {
			bad = true
			return 0
		}
		data = data[w:]
		return n
	}
	bytes := func(n uint64) []byte {
		if bad || n > uint64(len(data)) {
			bad = true
			return nil
		}
		out := data[:n:n]
		data = data[n:]
		return out
	}
	var cs []change
	for n := num(); n > 0 && !bad; n-- {
		c := change{revision: int64(num())}
		for m := num(); m > 0 && !bad; m-- {
			e := Event{Record: Record{Key: string(bytes(num())), Revision: c.revision}}
			if flag := bytes(1); !bad && flag[0] == 1 {
				e.Deleted = true
			} else {
				e.Value = bytes(num())
			}
			c.events = append(c.events, e)
		}
		cs = append(cs, c)
	}
	if bad || len(data) > 0 {
		return nil, damaged
	}
	return cs, nil
}
