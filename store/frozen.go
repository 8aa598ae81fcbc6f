package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// frozen is a store in a file whose file system is mounted read-only. It reads from a copy of the file, because SQLite cannot read one with
// a log where it can write nothing, and refuses commits with ErrReadOnly until the file can be opened. From then on it is that file.
//
//	copy ─ a commit finds that the file can be written ─► the file, as it was: nothing was committed meanwhile
type frozen struct {
	path string
	o    Options
	mu   sync.RWMutex
	cur  *sqlite
	dir  string    // of the copy; empty: cur is the file
	lock *fileLock // of the file, as far as the copy is read
	done bool
}

// OpenFrozen opens a store in a file as Open does, or, if its file system is mounted read-only, for reading until that changes.
// thawed reports whether it can be written. The copy of a process that was killed is removed in both cases.
func OpenFrozen(ctx context.Context, rawURL string, opt Options) (st Store, thawed bool, err error) {
	st, err = Open(ctx, rawURL, opt)
	path, ok := sqlitePath(rawURL)
	if !ok || err != nil && !errors.Is(err, ErrReadOnly) {
		return st, err == nil, err
	}
	path, e := filepath.Abs(path)
	if err == nil {
		dropAside(path)
		return st, true, nil
	}
	if e != nil {
		return nil, false, e
	}
	f := &frozen{path: path, o: opt.withDefaults()}
	f.lock, err = lockExisting(path + ".lock")
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("store %s: %w", path, ErrReadOnly) // there is nothing to read
	}
	if err != nil {
		return nil, false, fmt.Errorf("store %s: %w", path, err)
	}
	if f.dir, err = copyAside(path); err != nil {
		return nil, false, errors.Join(fmt.Errorf("store %s: %w; a copy to read from: %w", path, ErrReadOnly, err), f.lock.release())
	}
	if f.cur, err = openSQLite(ctx, filepath.Join(f.dir, filepath.Base(path)), f.o); err != nil {
		return nil, false, errors.Join(err, os.RemoveAll(f.dir), f.lock.release())
	}
	return f, false, nil
}

// aside is where the copy of a store may be.
func aside(path string) (dirs []string) {
	sum := sha256.Sum256([]byte(path))
	for _, in := range []string{"/dev/shm", "/run", os.TempDir()} {
		dirs = append(dirs, filepath.Join(in, "skerry-read-only-"+hex.EncodeToString(sum[:8])))
	}
	return dirs
}

// dropAside removes what a process has left that was killed. Whoever opens the store has its lock, so that nobody reads it.
func dropAside(path string) {
	for _, dir := range aside(path) {
		_ = os.RemoveAll(dir)
	}
}

// copyAside copies a store, its log and its head to memory, or else to where temporary files are. Only this user may read it.
func copyAside(path string) (dir string, err error) {
	dropAside(path)
	for _, dir = range aside(path) {
		if err = os.Mkdir(dir, 0o700); err != nil {
			continue
		}
		if err = errors.Join(copyFile(path, dir), copyFile(path+"-wal", dir), copyFile(path+headSuffix, dir)); err == nil {
			return dir, nil
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return "", err
}

func copyFile(path, dir string) error {
	from, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, filepath.Base(path)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// now gives what to read from.
func (f *frozen) now() *sqlite {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.cur
}

// Get implements Store.
func (f *frozen) Get(ctx context.Context, key string) (Record, error) { return f.now().Get(ctx, key) }

// List implements Store.
func (f *frozen) List(ctx context.Context, prefix string) ([]Record, int64, error) {
	return f.now().List(ctx, prefix)
}

// Watch implements Store. Where the copy gives way to the file, watches end with ErrCompacted.
func (f *frozen) Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error {
	at := f.now()
	err := at.Watch(ctx, prefix, from, fn)
	if errors.Is(err, ErrClosed) && at != f.now() {
		return ErrCompacted
	}
	return err
}

// snapshot implements snapshotter.
func (f *frozen) snapshot(ctx context.Context, begin func(int64) error, each func(Record) error) error {
	return f.now().snapshot(ctx, begin, each)
}

// Compact implements Compacter.
func (f *frozen) Compact(ctx context.Context, revision int64) error {
	st, err := f.thaw(ctx)
	if err != nil {
		return err
	}
	return st.Compact(ctx, revision)
}

// Commit implements Store.
func (f *frozen) Commit(ctx context.Context, ops []Op) (int64, error) {
	st, err := f.thaw(ctx)
	if err != nil {
		return 0, err
	}
	return st.Commit(ctx, ops)
}

// adopt and extend implement replica, so that a site's machine stands by and asks for votes as it does with the file itself, and leads
// nothing by itself because its disk is read-only.
func (f *frozen) adopt(ctx context.Context, revision int64, records func(put func(Record) error) error) error {
	st, err := f.thaw(ctx)
	if err != nil {
		return err
	}
	return st.adopt(ctx, revision, records)
}

func (f *frozen) extend(ctx context.Context, cs []change) (int64, error) {
	st, err := f.thaw(ctx)
	if err != nil {
		return 0, err
	}
	return st.extend(ctx, cs)
}

// thaw gives the file, if it can be written.
func (f *frozen) thaw(ctx context.Context) (*sqlite, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return nil, ErrClosed
	}
	if f.dir == "" {
		return f.cur, nil
	}
	if err := f.lock.release(); err != nil && !errors.Is(err, os.ErrClosed) { // it is taken again by who opens the file
		return nil, err
	}
	st, err := openSQLite(ctx, f.path, f.o)
	if err != nil {
		lock, e := lockExisting(f.path + ".lock")
		if e == nil {
			f.lock = lock
		}
		return nil, errors.Join(err, e)
	}
	old, dir := f.cur, f.dir
	f.cur, f.dir = st, ""
	// A life ends with the refused commit, and the next one loads what is in the file: readers of the copy are gone by then, or end.
	_ = errors.Join(old.Close(), os.RemoveAll(dir))
	return st, nil
}

// Close implements Store.
func (f *frozen) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return nil
	}
	f.done = true
	err := f.cur.Close()
	if f.dir != "" {
		err = errors.Join(err, os.RemoveAll(f.dir), f.lock.release())
	}
	return err
}
