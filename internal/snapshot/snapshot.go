//go:build linux

// Package snapshot is the format of a copy of local volumes: a tar archive, compressed with zstd, that begins with a description of itself.
// It writes directories into such a stream, and unpacks one that anybody may have made: nothing in it leads out of the directories that it
// is unpacked into, and it takes no more room than was said. It never follows a link. The worker imports it.
package snapshot

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// Version is that of the format. A reader refuses a later one.
const Version = 1

const (
	metaName    = "skerry-snapshot.json" // no volume has this name, which has dots
	maxMeta     = 64 << 10
	maxVolumes  = 64
	xattrPrefix = "SCHILY.xattr."
	maxWindow   = 8 << 20 // of a compressed stream, in memory
)

// Meta describes a snapshot, as the first file of its archive.
type Meta struct {
	Format  int                     `json:"format"`
	Service skerry.ServiceKey       `json:"service"`
	Replica int                     `json:"replica,omitempty"`
	At      time.Time               `json:"at"`
	Volumes []skerry.SnapshotVolume `json:"volumes"`
}

func (m *Meta) check() error {
	if m.Format != Version {
		return invalid("its format is %d; this program knows %d", m.Format, Version)
	}
	if len(m.Volumes) == 0 || len(m.Volumes) > maxVolumes || m.Replica < 0 {
		return invalid("it has %d volumes of replica %d; from 1 to %d can be, from 0 on", len(m.Volumes), m.Replica, maxVolumes)
	}
	seen := map[string]bool{}
	for _, v := range m.Volumes {
		if err := skerry.CheckName(v.Name); err != nil || seen[v.Name] || v.Size < 0 || v.Size > skerry.MaxAmount {
			return invalid("%.100q of %d bytes is no volume, or there twice", v.Name, v.Size)
		}
		seen[v.Name] = true
	}
	return nil
}

// Invalid is why a stream is no snapshot that may be unpacked.
type Invalid struct{ Reason string }

func (e *Invalid) Error() string { return "not a snapshot that can be taken: " + e.Reason }

func invalid(format string, args ...any) error { return &Invalid{fmt.Sprintf(format, args...)} }

// Tree is a directory as it was when it was scanned.
type Tree struct {
	volume  string
	entries []entry
	Bytes   int64 // of its files
	Skipped int   // sockets, pipes and devices, which are left out
}

type entry struct {
	header tar.Header
	path   string // with what is in the file
}

// Scan lists what is in a volume. owner gives the number in the stream of a user or group that files belong to; nil: the same. With clone, each
// file is cloned at once, and what is written later comes from the clones; else nothing may change until Write has ended.
func Scan(volume, dir string, owner func(uint32) uint32, clone func(from string) (to string, err error)) (*Tree, error) {
	t := &Tree{volume: volume}
	linked := map[[2]uint64]string{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := dir + "/" + name
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		if owner != nil {
			st.Uid, st.Gid = owner(st.Uid), owner(st.Gid)
		}
		h := tar.Header{Name: volume + "/" + name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
		if name == "." {
			h.Name = volume
		}
		e := entry{path: path}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			h.Typeflag = tar.TypeDir
			h.Name += "/"
			if name == "lost+found" {
				return fs.SkipDir // of the file system, which makes its own
			}
		case unix.S_IFLNK:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(path); err != nil {
				return err
			}
		case unix.S_IFREG:
			at := [2]uint64{st.Dev, st.Ino}
			if first := linked[at]; first != "" {
				h.Typeflag, h.Linkname = tar.TypeLink, first
				break
			}
			if st.Nlink > 1 {
				linked[at] = h.Name
			}
			h.Typeflag, h.Size = tar.TypeReg, st.Size
			t.Bytes += st.Size
			if clone != nil && st.Size > 0 {
				if e.path, err = clone(path); err != nil {
					return err
				}
			}
		default:
			t.Skipped++
			return nil
		}
		if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir {
			if h.PAXRecords, err = xattrs(path); err != nil {
				return err
			}
		}
		e.header = h
		t.entries = append(t.entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", volume, err)
	}
	return t, nil
}

// xattrs gives the attributes of a file that its users set. Others mean something to the kernel, which no stream may decide about.
func xattrs(path string) (map[string]string, error) {
	var out map[string]string
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, list)
	if err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "llistxattr", Path: path, Err: err}
	}
	for _, name := range strings.Split(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "lgetxattr", Path: path, Err: err}
		}
		if out == nil {
			out = map[string]string{}
		}
		out[xattrPrefix+name] = string(value[:n])
	}
	return out, nil
}

// Write writes a snapshot of what was scanned.
func Write(w io.Writer, m Meta, trees ...*Tree) error {
	m.Format = Version
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		return err
	}
	err = writeTar(z, m, trees)
	if e := z.Close(); err == nil {
		err = e
	}
	return err
}

func writeTar(w io.Writer, m Meta, trees []*Tree) error {
	t := tar.NewWriter(w)
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: metaName, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(data)), ModTime: m.At, Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := t.Write(data); err != nil {
		return err
	}
	for _, tree := range trees {
		for i := range tree.entries {
			if err := writeEntry(t, &tree.entries[i]); err != nil {
				return fmt.Errorf("volume %s: %w", tree.volume, err)
			}
		}
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, e *entry) error {
	if err := t.WriteHeader(&e.header); err != nil {
		return fmt.Errorf("%s: %w", e.header.Name, err)
	}
	if e.header.Typeflag != tar.TypeReg || e.header.Size == 0 {
		return nil
	}
	fd, err := unix.Open(e.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: e.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), e.path)
	defer f.Close()
	n, err := io.Copy(t, io.LimitReader(f, e.header.Size))
	if err == nil && n < e.header.Size {
		err = fmt.Errorf("%s became shorter while it was copied: %w", e.header.Name, io.ErrUnexpectedEOF)
	}
	return err
}

// Limits bound a stream.
type Limits struct {
	Bytes int64 // that may be written; zeros in whole blocks are not
	Files int64
	// Length bounds the stream once it is decompressed.
	Length int64
}

// LimitsFor gives the limits of a stream for which there is so much room. Files with holes are longer than what they take.
func LimitsFor(room int64) Limits {
	return Limits{Bytes: room, Files: max(room/1024, 1<<16), Length: max(room, 1<<20) * 16}
}

// Read reads a snapshot. open gives, once it is known which volumes there are, the directories they are unpacked into; without it the
// stream is only checked.
func Read(r io.Reader, lim Limits, open func(m *Meta) (map[string]*os.Root, error)) (*Meta, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	m, err := readTar(z, lim, open)
	if err != nil {
		return nil, err
	}
	// What follows the archive's end is part of no file; the stream must end well.
	if n, err := io.Copy(io.Discard, io.LimitReader(z, 1<<20)); err != nil || n == 1<<20 {
		return nil, invalid("something follows its end: %v", err)
	}
	return m, nil
}

func readMeta(t *tar.Reader) (*Meta, error) {
	h, err := t.Next()
	if err != nil {
		return nil, invalid("it cannot be read: %v", err)
	}
	if h.Name != metaName || h.Typeflag != tar.TypeReg || h.Size > maxMeta {
		return nil, invalid("it does not begin with %s", metaName)
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return nil, err
	}
	m := new(Meta)
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(m); err != nil {
		return nil, invalid("%s: %v", metaName, err)
	}
	return m, m.check()
}
