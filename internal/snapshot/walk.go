//go:build linux

package snapshot

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// walker lists what is in a volume. Whoever has the volume may be hostile, and may run although it should stand still: everything is opened
// by the descriptor of its directory and never through a link, so that nothing leads out of the volume, and is looked at once it is open.
type walker struct {
	ctx    context.Context
	tree   *Tree
	visit  func(h *tar.Header, f *os.File) error // f is a file, or nil for what has no content
	linked map[[2]uint64]string                  // the first name of files with several
	listed int                                   // bytes of those names
}

func (w *walker) walk(dir string) error {
	w.linked, w.tree.Skipped = map[[2]uint64]string{}, 0
	f, err := openAt(unix.AT_FDCWD, dir, unix.O_DIRECTORY)
	if err == nil {
		err = w.dir(f, w.tree.volume)
	}
	if err != nil {
		return fmt.Errorf("volume %s: %w", w.tree.volume, err)
	}
	return nil
}

func openAt(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: clip(name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// dir visits a directory and what is in it, and closes it.
func (w *walker) dir(file *os.File, name string) error {
	defer file.Close()
	if len(name) >= unix.PathMax {
		return skerry.Errorf(skerry.CodeUnsupported, "directories lie inside one another so far that their names have more than %d bytes: %s",
			unix.PathMax, clip(name)).
			WithHint("move what is in them")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	header := w.header(name+"/", tar.TypeDir, &st)
	var err error
	if header.PAXRecords, err = xattrs(file); err != nil {
		return err
	}
	if err := w.visit(header, nil); err != nil {
		return err
	}
	for {
		names, err := file.Readdirnames(1024)
		for _, base := range names {
			if w.ctx.Err() != nil {
				return context.Cause(w.ctx)
			}
			if base == "lost+found" && name == w.tree.volume {
				continue // of the file system, which makes its own
			}
			if err := w.entry(int(file.Fd()), base, name+"/"+base); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// entry visits something in a directory.
func (w *walker) entry(dir int, base, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "lstat", Path: clip(name), Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f, err := openAt(dir, base, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		return w.dir(f, name)
	case unix.S_IFLNK:
		to := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, base, to)
		if err != nil {
			return &fs.PathError{Op: "readlink", Path: clip(name), Err: err}
		}
		h := w.header(name, tar.TypeSymlink, &st)
		h.Linkname = string(to[:n])
		return w.visit(h, nil)
	case unix.S_IFREG:
		return w.file(dir, base, name, &st)
	}
	w.tree.Skipped++
	return nil
}

func (w *walker) file(dir int, base, name string, st *unix.Stat_t) error {
	if first := w.linked[[2]uint64{st.Dev, st.Ino}]; first != "" {
		h := w.header(name, tar.TypeLink, st)
		h.Linkname = first
		return w.visit(h, nil)
	}
	f, err := openAt(dir, base, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s became something else while it was copied", clip(name))
	}
	if st.Nlink > 1 {
		if w.listed += entrySize + len(name); w.listed > maxListed {
			return skerry.Errorf(skerry.CodeUnsupported, "more files have several names (hard links) than a snapshot remembers: %d MiB of names",
				maxListed>>20).
				WithHint("replace hard links by links of other kinds, or by copies")
		}
		w.linked[[2]uint64{st.Dev, st.Ino}] = name
	}
	h := w.header(name, tar.TypeReg, st)
	h.Size = st.Size
	if h.PAXRecords, err = xattrs(f); err != nil {
		return err
	}
	return w.visit(h, f)
}

// header is that of an entry, with the owners that it has in the stream.
func (w *walker) header(name string, typeflag byte, st *unix.Stat_t) *tar.Header {
	uid, gid := st.Uid, st.Gid
	if w.tree.owner != nil {
		uid, gid = w.tree.owner(uid), w.tree.owner(gid)
	}
	return &tar.Header{Name: name, Typeflag: typeflag, Mode: int64(st.Mode & 0o7777), Uid: int(uid), Gid: int(gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
}

// xattrs gives the attributes of a file that its users set. Others mean something to the kernel, which no stream may decide about.
func xattrs(file *os.File) (map[string]string, error) {
	var out map[string]string
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(file.Fd()), list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "flistxattr", Path: clip(file.Name()), Err: err}
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.Contains(name, "=") { // which the format has no way to say
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(int(file.Fd()), name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "fgetxattr", Path: clip(file.Name()), Err: err}
		}
		if out == nil {
			out = map[string]string{}
		}
		out[xattrPrefix+name] = string(value[:n])
	}
	return out, nil
}
