package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry.dev/skerry/internal/files"
)

// Replace puts a store that fill has made in the place of a damaged SQLite file, and gives the file that the damaged one is in now. If fill
// fails, nothing is changed. At no time is there an empty file or none, which a role would take for a first start: whatever ends this, the
// store is the damaged one or the new one.
func Replace(ctx context.Context, rawURL string, o Options, fill func(ctx context.Context, s Store) error) (aside string, err error) {
	return replace(ctx, rawURL, o, func(_ *DamagedError, s *sqlite) error { return fill(ctx, s) })
}

func replace(ctx context.Context, rawURL string, opt Options, fill func(*DamagedError, *sqlite) error) (aside string, err error) {
	opt = opt.withDefaults()
	path, ok := sqlitePath(rawURL)
	if !ok {
		return "", fmt.Errorf("store %q: only SQLite files are repaired", rawURL)
	}
	if !exists(path) && !exists(path+headSuffix) {
		return "", fmt.Errorf("store %s: %w", path, os.ErrNotExist)
	}
	s, err := lockSQLite(path, opt)
	if err != nil {
		return "", err
	}
	if err := s.open(ctx); err == nil {
		return "", errors.Join(fmt.Errorf("store %s: %w", s.path, ErrNotDamaged), s.Close())
	} else if err = s.failed(err); !isDamage(err) {
		return "", errors.Join(err, s.lock.release())
	} else if damaged, ok := errors.AsType[*DamagedError](err); ok {
		aside, err = s.replace(ctx, damaged, fill)
		return aside, errors.Join(err, s.lock.release()) // until then, nobody opens what is half done
	}
	return "", errors.Join(err, s.lock.release())
}

// replace does that under the lock of the damaged store.
func (s *sqlite) replace(ctx context.Context, damaged *DamagedError, fill func(*DamagedError, *sqlite) error) (aside string, err error) {
	next := s.path + ".new"
	clear := func() error {
		for _, suffix := range []string{"", "-wal", "-shm", headSuffix, ".lock"} {
			if err := os.Remove(next + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	if err := clear(); err != nil { // of one that was cut short
		return "", err
	}
	to, err := openSQLite(ctx, next, s.o)
	if err == nil {
		err = errors.Join(fill(damaged, to), to.Close())
	}
	if err != nil {
		return "", errors.Join(err, clear())
	}
	// While its log is moved away, the damaged file could be taken for whole.
	ahead := head{path: s.path + headSuffix}
	if err := errors.Join(ahead.set(max(damaged.Acknowledged, damaged.Revision)+1), ahead.close()); err != nil {
		return "", errors.Join(err, clear())
	}
	aside = s.o.asideName(s.path)
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := move(s.path+suffix, aside+suffix); err != nil {
			return "", err
		}
	}
	// With a second name, the file is never missing; a file system without such names has the head to tell.
	if err := os.Link(s.path, aside); err != nil {
		if err := move(s.path, aside); err != nil {
			return "", err
		}
	}
	for _, suffix := range []string{"", headSuffix} {
		if err := os.Rename(next+suffix, s.path+suffix); err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			return "", fmt.Errorf("store %s could not be replaced by %s: %w", s.path, next, err)
		}
		if err := files.Sync(filepath.Dir(s.path)); err != nil {
			return "", err
		}
	}
	return aside, clear()
}

func move(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s could not be set aside: %w", from, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// asideName gives a damaged store's file a name that is free.
func (o *Options) asideName(path string) string {
	to := path + ".damaged-" + o.Now().UTC().Format("20060102T150405Z")
	for i := 1; exists(to) || exists(to+"-wal"); i++ {
		to = strings.TrimSuffix(to, "."+strconv.Itoa(i-1)) + "." + strconv.Itoa(i)
	}
	return to
}
