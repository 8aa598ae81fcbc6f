//go:build linux

package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
)

// userRegistry is a directory that the workers of a machine share: a file for each range of users that one of them gave
// to an instance, or to an organisation, named by its first user. In the file is the path of the instance's own
// (usersFile); the range is in use for as long as that says the same, whether or not the worker's agent runs. It is in
// memory, as nothing runs after a restart of the machine. Workers with other mounts do not see it. The empty name is
// none.
type userRegistry string

// lock keeps other workers out until unlock is called.
func (r userRegistry) lock() (unlock func(), err error) {
	if r == "" {
		return func() {}, nil
	}
	path := filepath.Join(string(r), "lock")
	for {
		// The directories of workers are beside it, and users of theirs enter them.
		if err := errors.Join(os.MkdirAll(filepath.Dir(string(r)), 0o711), os.MkdirAll(string(r), 0o700)); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory was empty, and went
		}
		if err != nil {
			return nil, err
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err == nil {
			own, e := f.Stat()
			if there, err := os.Stat(path); e == nil && err == nil && os.SameFile(own, there) {
				return func() { f.Close() }, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
}

// give releases an instance's range. After an error a file stays behind that claims nothing, because the instance's own is gone.
func (r userRegistry) give(first uint32, file string) {
	if r == "" {
		return
	}
	unlock, err := r.lock()
	if err != nil {
		return
	}
	defer unlock()
	path := filepath.Join(string(r), strconv.FormatUint(uint64(first), 10))
	if data, err := os.ReadFile(path); err == nil && string(data) == file {
		_ = os.Remove(path)
	}
	r.tidy()
}

// tidy removes a registry in which nothing is. It is locked.
func (r userRegistry) tidy() {
	if entries, err := os.ReadDir(string(r)); err == nil && len(entries) == 1 {
		_ = os.Remove(filepath.Join(string(r), "lock"))
		_ = os.Remove(string(r))
	}
}

// TidyUsers removes from a registry what workers that are gone left there.
func TidyUsers(registry string) error {
	if _, err := os.Stat(registry); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r := userRegistry(registry)
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = r.others()
	r.tidy()
	return err
}

// claim is a range of another worker.
type claim struct {
	idRange
	file string // of its instance or organisation
}

// others lists the ranges of workers with other directories, and forgets those that ended. The registry is locked.
func (r userRegistry) others(dirs ...string) (out []claim, err error) {
	if r == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(r))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		first, bad := strconv.ParseUint(e.Name(), 10, 32)
		if bad != nil {
			continue
		}
		path := filepath.Join(string(r), e.Name())
		file, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(dirs, filepath.Dir(filepath.Dir(string(file)))) {
			continue
		}
		own, err := os.ReadFile(string(file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if string(own) != e.Name() {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, claim{idRange{first, first + usersEach - 1}, string(file)})
	}
	return out, nil
}

// add tells the others of a range. The registry is locked.
func (r userRegistry) add(first uint32, file string) error {
	if r == "" {
		return nil
	}
	return files.Swap(filepath.Join(string(r), strconv.FormatUint(uint64(first), 10)), []byte(file), 0o644)
}

// overlaps gives the error for a range that another worker's instance has, too.
func overlaps(first uint32, others []claim) error {
	for _, o := range others {
		if overlap(uint64(first), uint64(first)+usersEach-1, o.first, o.last) {
			return fmt.Errorf("users: %s of another worker of this machine has users from %d, this instance those from %d; it must be placed anew, "+
				"and --user-namespaces gives each worker a pool of its own", filepath.Dir(o.file), o.first, first)
		}
	}
	return nil
}
