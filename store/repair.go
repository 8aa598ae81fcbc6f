package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DamagedError says that a store's file cannot be trusted. Nothing was changed: Repair makes a new file of what is whole,
// Replace one of something else.
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
		return fmt.Sprintf("store %s has lost writes: it ends at revision %d, and revision %d was acknowledged", e.Path, e.Revision,
			e.Acknowledged)
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

// ErrNotDamaged is the answer of Repair and Replace to a store that is whole.
var ErrNotDamaged = errors.New("the store is not damaged")

// Repairing says how a store is repaired. The zero value keeps what is whole.
type Repairing struct {
	Alter  Alter    // leaves each record as the new store is to have it; nil: as it was
	Needed []string // keys of records without which there must be no new store: if one is lost, nothing is changed
	// Finish ends the new store before it takes the damaged one's place; nil: nothing is left to do.
	Finish func(ctx context.Context, s Store) error
}

// Repair puts a new file of the records that are whole in the place of a damaged SQLite file, as Replace does. The new
// store's revisions are above all that were acknowledged.
func Repair(ctx context.Context, rawURL string, opt Options, how Repairing) (done Repaired, err error) {
	done.SetAside, err = replace(ctx, rawURL, opt, func(damaged *DamagedError, s *sqlite) error {
		done.Acknowledged, done.Revision = damaged.Acknowledged, damaged.Revision
		if !exists(damaged.Path) {
			return fmt.Errorf("%w; nothing is left to repair", damaged)
		}
		have := map[string]bool{}
		if err := done.rebuild(ctx, damaged.Path, func(r Record) error { have[r.Key] = true; return nil }); err != nil {
			return err
		}
		for _, key := range how.Needed {
			if !have[key] {
				return fmt.Errorf("%w; record %s is lost, without which it cannot be repaired", damaged, key)
			}
		}
		again := Repaired{}
		err := s.adopt(ctx, max(done.Acknowledged, done.Revision)+1, func(put func(Record) error) error {
			return again.rebuild(ctx, damaged.Path, func(r Record) error {
				if how.Alter != nil {
					if keep, err := how.Alter(&r); err != nil || !keep {
						return err
					}
				}
				return put(r)
			})
		})
		if err == nil && how.Finish != nil {
			err = how.Finish(ctx, s)
		}
		return err
	})
	return done, err
}

// rebuild gives each whole record of a damaged file to fn, once, and counts those that are not.
func (r *Repaired) rebuild(ctx context.Context, path string, fn func(Record) error) error {
	r.Whole, r.Lost, r.Unreadable = 0, nil, false
	db, err := openDB(readOnlyDSN(path, 256), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	seen := map[string]bool{}
	// The table has all records, whatever its index says. Where a page in the middle cannot be read, the records after it are reached by
	// the index, or from the other end.
	for _, order := range []string{"NOT INDEXED", "ORDER BY key", "ORDER BY key DESC", "NOT INDEXED ORDER BY rowid DESC"} {
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
func (r *Repaired) read(ctx context.Context, db *sql.DB, order string, seen map[string]bool, fn func(Record) error) (whole bool,
	err error) {
	rows, err := db.QueryContext(ctx, "SELECT key, revision, sum, value FROM record "+order)
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
	if err = sqliteError(err); isDamage(err) || err != nil && (strings.Contains(err.Error(), "no such table") ||
		strings.Contains(err.Error(), "no such column")) { // an older store has no rowid
		return nil
	}
	return err
}

// sqlitePath gives the file that a URL names.
func sqlitePath(rawURL string) (string, bool) {
	rest, ok := strings.CutPrefix(rawURL, "sqlite:")
	return strings.TrimPrefix(rest, "//"), ok // sqlite:///abs/path, as some write it
}
