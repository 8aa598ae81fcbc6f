//go:build linux

// Package diskuse measures what directories of hostile owners take on a disk. It looks at them by descriptors, follows no links, and stops
// as soon as there is more than is allowed. The worker imports it.
package diskuse

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Use is what is taken. Directories, links and other things without content are files as well.
type Use struct {
	Bytes int64
	Files int64
	// Deep: directories lie inside one another beyond maxDepth, where nobody looked.
	Deep bool
}

// Over reports whether there is more than is allowed; 0 is no limit.
func (u Use) Over(most Use) bool {
	return most.Bytes > 0 && u.Bytes > most.Bytes || most.Files > 0 && u.Files > most.Files || u.Deep
}

// maxDepth bounds the descriptors that a look takes. No program nests directories so far, but one that wants not to be looked at.
const maxDepth = 256

// maxHeld bounds the files of processes that are looked at for those that were deleted.
const maxHeld = 1 << 18

// meter counts as far as there is a point in it.
type meter struct {
	use, most Use
	devices   map[uint64]bool
	deleted   map[[2]uint64]bool
}

// Of measures directories or single files, and files of some file systems that were deleted and that processes still
// hold: those take room as well, and no directory has them. The file systems are those of the directories and of
// further paths.
func Of(dirs, paths []string, pids []int, most Use) (Use, error) {
	m := &meter{most: most, devices: map[uint64]bool{}, deleted: map[[2]uint64]bool{}}
	var errs []error
	for _, p := range append(dirs[:len(dirs):len(dirs)], paths...) {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil {
			m.devices[st.Dev] = true
		}
	}
	for _, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		var st unix.Stat_t
		switch {
		case err == nil:
			err = m.dir(os.NewFile(uintptr(fd), dir), 0)
		case errors.Is(err, unix.ENOTDIR) && unix.Lstat(dir, &st) == nil:
			m.count(&st)
			err = nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", dir, err))
		}
	}
	held := 0
	for _, pid := range pids {
		if m.use.Over(most) || held > maxHeld {
			break
		}
		held += m.held(pid)
	}
	return m.use, errors.Join(errs...)
}

// dir counts what is in a directory, and closes it. What goes while it is looked at is nobody's.
func (m *meter) dir(file *os.File, depth int) error {
	defer file.Close()
	if depth > maxDepth {
		m.use.Deep = true
		return nil
	}
	for !m.use.Over(m.most) {
		names, err := file.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if m.count(&st); m.use.Over(m.most) {
				return nil
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || !m.devices[st.Dev] {
				continue
			}
			fd, err := unix.Openat(int(file.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if err := m.dir(os.NewFile(uintptr(fd), name), depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count adds a file. One with several names is a part of each.
func (m *meter) count(st *unix.Stat_t) {
	m.use.Files++
	n := st.Blocks * 512
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
		n /= int64(st.Nlink)
	}
	m.use.Bytes += n
}

// held counts the deleted files that a process has open or mapped, and gives how many files it looked at.
func (m *meter) held(pid int) (seen int) {
	proc := "/proc/" + strconv.Itoa(pid)
	if f, err := os.Open(proc + "/fd"); err == nil {
		for seen < maxHeld {
			names, err := f.Readdirnames(1024)
			for _, name := range names {
				seen++
				m.gone(proc + "/fd/" + name)
			}
			if err != nil {
				break
			}
		}
		f.Close()
	}
	maps, err := os.Open(proc + "/maps")
	if err != nil {
		return seen
	}
	defer maps.Close()
	text, _ := io.ReadAll(io.LimitReader(maps, 16<<20))
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if where, _, ok := strings.Cut(line, " "); ok && strings.HasSuffix(line, " (deleted)") {
			seen++
			m.gone(proc + "/map_files/" + where)
		}
	}
	return seen
}

func (m *meter) gone(path string) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 || !m.devices[st.Dev] {
		return
	}
	if id := [2]uint64{st.Dev, st.Ino}; !m.deleted[id] {
		m.deleted[id] = true
		m.count(&st)
	}
}
