//go:build linux

package owners

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
)

// Record is the file in which it stands which ranges the files of a tree may have beside that from 0 on, by the first
// of each. No file is none. It has two while an exchange is on its way.
type Record string

// Ranges reads it.
func (r Record) Ranges() ([]uint32, error) {
	data, err := os.ReadFile(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, word := range strings.Fields(string(data)) {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil || n < Size {
			return nil, fmt.Errorf("%s: %q is not the first of a range of users", r, word)
		}
		out = append(out, uint32(n))
	}
	return out, nil
}

// Settled reports whether a tree has the range from to on, so that Settle has nothing to do.
func (r Record) Settled(dir string, to uint32) (bool, error) {
	have, err := r.Ranges()
	if err != nil || to == 0 {
		return len(have) == 0, err
	}
	// A file system in memory is a new one after a boot, and its record is of the last.
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false, err
	}
	return slices.Equal(have, []uint32{to}) && st.Uid-to < Size, nil
}

// Settle gives a tree to the range from to on, and records that. Nothing that may write to the tree may run.
func (r Record) Settle(ctx context.Context, dir string, to uint32) error {
	have, err := r.Ranges()
	if err != nil {
		return err
	}
	all := slices.Clone(have)
	if to != 0 && !slices.Contains(all, to) {
		all = append(all, to)
	}
	if err := r.write(all); err != nil {
		return err
	}
	if err := Change(ctx, dir, Map{From: all, To: to}); err != nil {
		return err
	}
	if to == 0 {
		return r.write(nil)
	}
	return r.write([]uint32{to})
}

// Lock keeps others from settling the same tree, until unlock is called.
func (r Record) Lock() (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(string(r)))
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

// write has the record on the disk before anything that depends on it.
func (r Record) write(ranges []uint32) error {
	if len(ranges) == 0 {
		switch err := os.Remove(string(r)); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		return files.Sync(filepath.Dir(string(r)))
	}
	words := make([]string, len(ranges))
	for i, n := range ranges {
		words[i] = strconv.FormatUint(uint64(n), 10)
	}
	return files.Replace(string(r), []byte(strings.Join(words, " ")), 0o644)
}
