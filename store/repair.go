package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DamagedError says that a store's file cannot be trusted. Nothing was changed: Repair makes a new file of what is whole,
// SetAside moves the file away.
type DamagedError struct {
	Path    string
	Records []string // keys of the records whose checksum is wrong; none: the file itself is damaged, or it ends too early
	Whole   int      // records that can be read; 0 if that is not known
	// Acknowledged is the newest revision that a writer was promised, and Revision where the file ends, if that is earlier.
	Acknowledged, Revision int64
	Cause                  error
}

func (e *DamagedError) Error() string {
	switch {
	case len(e.Records) > 0:
		names := e.Records[:min(len(e.Records), 5)]
		text := "the checksum of " + strings.Join(names, ", ")
		if more := len(e.Records) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Sprintf("store %s is damaged: %s is wrong; %d other records are whole", e.Path, text, e.Whole)
	case e.Acknowledged > e.Revision:
		return fmt.Sprintf("store %s has lost writes: it ends at revision %d, and revision %d was acknowledged", e.Path, e.Revision, e.Acknowledged)
	}
	return fmt.Sprintf("store %s is damaged: %v", e.Path, e.Cause)
}

// Unwrap makes errors.Is(err, ErrDamaged) true.
func (e *DamagedError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrDamaged}
	}
	return []error{ErrDamaged, e.Cause}
}

// Repaired says what Repair made of a damaged store.
type Repaired struct {
	SetAside string   // where the damaged file is now, with its log beside it
	Whole    int      // records that were taken over
	Lost     []string // keys of the records that were not
	// Unreadable: a part of the file could not be read, and which records were there is not known.
	Unreadable bool
	// Acknowledged and Revision are those of the DamagedError.
	Acknowledged, Revision int64
}

// String says it in a sentence.
func (r Repaired) String() string {
	s := fmt.Sprintf("%d records are whole and were kept", r.Whole)
	if len(r.Lost) > 0 {
		s += fmt.Sprintf("; lost: %s", strings.Join(r.Lost, ", "))
	}
	if r.Unreadable {
		s += "; a part of the file is unreadable, and the records in it are lost"
	}
	if r.Acknowledged > r.Revision {
		s += fmt.Sprintf("; the writes from revision %d to %d are lost", r.Revision+1, r.Acknowledged)
	}
	return s + "; the damaged file is " + r.SetAside
}

// ErrNotDamaged is the answer of Repair to a store that is whole.
var ErrNotDamaged = errors.New("the store is not damaged")

// Repair sets a damaged SQLite file aside and makes a new one of the records in it that are whole, each as alter leaves it. needed
// are the keys of records without which there must be no new file: if one is lost, nothing is changed. The new store's revisions
// are above all that were acknowledged.
func Repair(ctx context.Context, rawURL string, o Options, alter Alter, needed ...string) (done Repaired, err error) {
	o = o.withDefaults()
	path, ok := sqlitePath(rawURL)
	if !ok {
		return done, fmt.Errorf("store %q: only SQLite files are repaired", rawURL)
	}
	s, err := openSQLite(ctx, path, o)
	if err == nil {
		return done, errors.Join(fmt.Errorf("store %s: %w", path, ErrNotDamaged), s.Close())
	}
	var damaged *DamagedError
	if !errors.As(err, &damaged) {
		return done, err
	}
	path = damaged.Path
	done.Acknowledged, done.Revision = damaged.Acknowledged, damaged.Revision
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return done, fmt.Errorf("%w; nothing is left to repair", damaged)
	}
	have := map[string]bool{}
	if err := done.salvage(ctx, path, func(r Record) error { have[r.Key] = true; return nil }); err != nil {
		return done, err
	}
	for _, key := range needed {
		if !have[key] {
			return done, fmt.Errorf("%w; record %s is lost, without which it cannot be repaired", damaged, key)
		}
	}
	if done.SetAside, err = SetAside(path, o); err != nil {
		return done, err
	}
	if s, err = openSQLite(ctx, path, o); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	again := Repaired{}
	err = s.adopt(ctx, max(done.Acknowledged, done.Revision)+1, func(put func(Record) error) error {
		return again.salvage(ctx, done.SetAside, func(r Record) error {
			if alter != nil {
				if keep, err := alter(&r); err != nil || !keep {
					return err
				}
			}
			return put(r)
		})
	})
	return done, err
}

// salvage gives each whole record of a damaged file to fn, once, and counts those that are not.
func (r *Repaired) salvage(ctx context.Context, path string, fn func(Record) error) error {
	r.Whole, r.Lost, r.Unreadable = 0, nil, false
	db, err := openDB(readOnlyDSN(path, 256), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	seen := map[string]bool{}
	// Where a page in the middle cannot be read, the records after it are reached from the other end.
	for _, order := range []string{"", " DESC"} {
		whole, err := r.read(ctx, db, order, seen, fn)
		switch {
		case err != nil:
			return err
		case whole:
			return nil
		}
		r.Unreadable = true
	}
	slices.Sort(r.Lost)
	return nil
}

// read reads records in an order until they end or SQLite finds damage. What fn answers is an error.
func (r *Repaired) read(ctx context.Context, db *sql.DB, order string, seen map[string]bool, fn func(Record) error) (whole bool, err error) {
	rows, err := db.QueryContext(ctx, "SELECT key, revision, sum, value FROM record ORDER BY key"+order)
	if err != nil {
		return false, unlessDamage(err)
	}
	defer rows.Close()
	for rows.Next() {
		var rec Record
		var sum int64
		if err := rows.Scan(&rec.Key, &rec.Revision, &sum, &rec.Value); err != nil {
			continue // of another type: no record of ours
		}
		if seen[rec.Key] {
			continue
		}
		seen[rec.Key] = true
		if checkSum(rec, sum) != nil || checkKey(rec.Key) != nil {
			r.Lost = append(r.Lost, strconv.Quote(rec.Key))
			continue
		}
		r.Whole++
		r.Revision = max(r.Revision, rec.Revision)
		if err := fn(rec); err != nil {
			return false, err
		}
	}
	err = rows.Err()
	return err == nil, unlessDamage(err)
}

// unlessDamage gives an error that is not about the file's content.
func unlessDamage(err error) error {
	if err = sqliteError(err); isDamage(err) || err != nil && strings.Contains(err.Error(), "no such table") {
		return nil
	}
	return err
}

// SetAside moves a store's file, its log and what is remembered of it out of the way, and gives the new name. No process may have it open.
func SetAside(path string, o Options) (string, error) {
	o = o.withDefaults()
	to := path + ".damaged-" + o.Now().UTC().Format("20060102T150405Z")
	for i := 1; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s.%d", strings.TrimSuffix(to, "."+strconv.Itoa(i-1)), i)
	}
	// The log first: a file without its log could be taken for whole, a log without its file cannot. What is remembered of it goes last:
	// until then a missing file is noticed.
	for _, suffix := range []string{"-wal", "-shm", "", headSuffix} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("store %s could not be set aside: %w", path, err)
		}
	}
	return to, syncDir(filepath.Dir(path))
}

// sqlitePath gives the file that a URL names.
func sqlitePath(rawURL string) (string, bool) {
	rest, ok := strings.CutPrefix(rawURL, "sqlite:")
	if strings.HasPrefix(rest, "//") { // sqlite:///abs/path, as some write it
		rest = rest[2:]
	}
	return rest, ok
}
