//go:build linux

package main

import (
	"strings"
	"syscall"

	"skerry.dev/skerry/runtime/vm/wire"
)

// copyFiles takes the host's files into a directory, until the host says that these are all.
func (g *guest) copyFiles(dir string) error {
	if err := syscall.Chdir(dir); err != nil {
		return wrap(dir, err)
	}
	for {
		f, err := wire.Read(g.link)
		if err != nil {
			return err
		}
		if f.Kind != wire.KindFile {
			continue
		}
		if len(f.Data) == 0 {
			return nil
		}
		if err := takeFile(f.Data); err != nil {
			return err
		}
	}
}

// part is where a file is written before it takes its place in a directory. A file that is mounted by itself is written in place: whoever
// has it open is to see what it becomes, as on the host.
const part = ".part"

// takeFile makes what a frame says of one file, in the current directory.
func takeFile(data []byte) error {
	var f wire.File
	if err := wire.Decode(data, &f); err != nil {
		return err
	}
	err := func() error {
		switch f.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			return writePart(&f)
		case syscall.S_IFDIR:
			if err := syscall.Mkdir(f.Path, 0o700); err != nil && err != syscall.EEXIST {
				return err
			}
			return own(&f, f.Path)
		case syscall.S_IFLNK:
			_ = syscall.Unlink(part)
			if err := syscall.Symlink(f.Data, part); err != nil {
				return err
			}
			if err := syscall.Lchown(part, int(f.UID), int(f.GID)); err != nil {
				return err
			}
			return syscall.Rename(part, f.Path)
		}
		if err := syscall.Unlink(f.Path); err == syscall.EISDIR {
			return syscall.Rmdir(f.Path)
		}
		return nil
	}()
	return wrap("copy "+f.Path, err)
}

func own(f *wire.File, path string) error {
	if err := syscall.Chown(path, int(f.UID), int(f.GID)); err != nil {
		return err
	}
	return syscall.Chmod(path, f.Mode&0o7777)
}

func writePart(f *wire.File) error {
	path := part
	if !strings.Contains(f.Path, "/") {
		path = f.Path
	}
	flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_CLOEXEC
	if f.Offset == 0 {
		flags |= syscall.O_TRUNC
	}
	fd, err := syscall.Open(path, flags, 0o600)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	for data, at := []byte(f.Data), int64(f.Offset); len(data) > 0; {
		n, err := syscall.Pwrite(fd, data, at)
		if err != nil {
			return err
		}
		data, at = data[n:], at+int64(n)
	}
	if !f.Last {
		return nil
	}
	if err := own(f, path); err != nil || path == f.Path {
		return err
	}
	return syscall.Rename(path, f.Path)
}
