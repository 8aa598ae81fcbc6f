// Package files replaces files as a whole: whoever reads one has the old content or the new one.
package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Replace replaces a file. After a power cut it is the old one or the new one, and the new one once Replace has returned.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return ReplaceFrom(path, bytes.NewReader(data), mode)
}

// ReplaceFrom is Replace with what a reader gives.
func ReplaceFrom(path string, from io.Reader, mode fs.FileMode) error {
	err := replace(path, mode, os.Rename, func(f *os.File) error {
		_, err := io.Copy(f, from)
		return errors.Join(err, f.Sync())
	})
	if err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Swap replaces a file that need not outlive the machine's next start: it is not forced to the disk.
func Swap(path string, data []byte, mode fs.FileMode) error {
	return replace(path, mode, exchange, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// Program replaces a program, which may be running, by one that can be executed at once. A child that is forked while a program
// is written inherits the open file, and until that child executes something else the program fails with ETXTBSY; so nothing is
// forked meanwhile, and from must not wait for anything. It is not forced to the disk.
func Program(path string, from io.Reader, mode fs.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return replace(path, mode, os.Rename, func(f *os.File) error {
		_, err := io.Copy(f, from)
		return err
	})
}

// replace writes a new file beside the old one, which nobody else may read and which is named after this process: what
// ended before it could give it the old one's name leaves it, and whoever replaces the file next removes it.
func replace(path string, mode fs.FileMode, rename func(from, to string) error, fill func(*os.File) error) error {
	prefix := "." + filepath.Base(path) + "-"
	removeLeft(filepath.Dir(path), prefix)
	f, err := os.CreateTemp(filepath.Dir(path), prefix+strconv.Itoa(os.Getpid())+"-*"+leftSuffix)
	if err != nil {
		return err
	}
	if err = errors.Join(f.Chmod(mode), fill(f), f.Close()); err == nil {
		err = rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// leftSuffix tells what is written here from somebody's own files, such as .backup-2026-11. leftFor is how long nothing was written to it
// before it is believed to be left: its process may be one of another PID namespace, where it has another number.
const (
	leftSuffix = ".skerry-new"
	leftFor    = 10 * time.Minute
)

// removeLeft removes what processes that have ended have left of files that they replaced.
func removeLeft(dir, prefix string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return // it stays until the next time
	}
	for _, e := range list {
		rest, begins := strings.CutPrefix(e.Name(), prefix)
		rest, ends := strings.CutSuffix(rest, leftSuffix)
		owner, random, _ := strings.Cut(rest, "-")
		if _, err := strconv.ParseUint(random, 10, 32); !begins || !ends || err != nil || !e.Type().IsRegular() {
			continue // it is of a file whose name begins with the name of this one, or somebody's own
		}
		if pid, err := strconv.ParseInt(owner, 10, 32); err != nil || int(pid) == os.Getpid() || lives(int(pid)) {
			continue
		}
		if st, err := e.Info(); err != nil || time.Since(st.ModTime()) < leftFor {
			continue
		}
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}

// lives reports whether a process is there, where that can be found out; elsewhere all of them are.
func lives(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && (runtime.GOOS == "windows" || !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone))
}

// Sync forces a file, or the names in a folder, to the disk. Not every file system can do that for a folder, which is no error.
func Sync(path string) error {
	if runtime.GOOS == "windows" { // cannot open a folder for this, and needs no such thing
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err = f.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
