//go:build linux

package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// block is the size of what is left out if it is all zeros.
const block = 64 << 10

// unpacker takes the entries of an archive.
type unpacker struct {
	lim     Limits
	volumes map[string]bool     // true: it was there
	loose   map[string]bool     // those without a size
	roots   map[string]*os.Root // nil: it only checks
	// open are the directory that entries are put into, which the archive itself has made, and those that it lies in. Nothing is put anywhere
	// else, nor into one that was left: so there is nothing to remember of those, however many there are.
	open  []openDir
	buf   []byte
	zeros []byte
}

type openDir struct {
	name string // in the archive
	root *os.Root
	rest string // in its volume
	at   time.Time
}

func readTar(in io.Reader, lim Limits, open func(m *Meta) (map[string]*os.Root, error)) (*Meta, error) {
	bounded := &io.LimitedReader{R: in, N: lim.Length}
	t := tar.NewReader(bounded)
	m, err := readMeta(t)
	if err != nil {
		return nil, err
	}
	u := &unpacker{lim: lim, volumes: map[string]bool{}, loose: map[string]bool{}, buf: make([]byte, block), zeros: make([]byte, block)}
	for _, v := range m.Volumes {
		u.volumes[v.Name] = false
		u.loose[v.Name] = v.Size == 0
	}
	if open != nil {
		if u.roots, err = open(m); err != nil {
			return nil, err
		}
	}
	for {
		h, err := t.Next()
		if err == io.EOF && bounded.N > 0 {
			break
		}
		if err == nil {
			err = u.entry(h, t)
		}
		if err != nil && bounded.N <= 0 {
			return nil, invalid("it is longer than the %d bytes for which there is room", lim.Length)
		}
		if err != nil {
			return nil, err
		}
	}
	for name, there := range u.volumes {
		if !there {
			return nil, invalid("volume %s is missing", name)
		}
	}
	return m, u.leave("")
}

// leave goes up to a directory; "" is all the way. What changes in a directory changes its time, which is therefore set at the end.
func (u *unpacker) leave(to string) error {
	for n := len(u.open) - 1; n >= 0 && u.open[n].name != to; n-- {
		d := u.open[n]
		u.open = u.open[:n]
		if d.root == nil {
			continue
		}
		if err := d.root.Chtimes(d.rest, time.Time{}, d.at); err != nil {
			return err
		}
	}
	return nil
}

// local reports whether a name leads down, and nowhere else. Names of files are bytes in whatever encoding, which
// fs.ValidPath does not take.
func local(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// place checks a name of an archive: it is below a volume. rest is its name in the volume.
func (u *unpacker) place(name string) (volume, rest string, err error) {
	if len(name) > unix.PathMax || strings.ContainsRune(name, 0) || !local(name) {
		return "", "", invalid("%.200q is no name of a file in it", name)
	}
	volume, rest, below := strings.Cut(name, "/")
	if _, known := u.volumes[volume]; !known {
		return "", "", invalid("%.200q is in none of its volumes", name)
	}
	if !below {
		rest = "."
	}
	return volume, rest, nil
}

func (u *unpacker) entry(header *tar.Header, src io.Reader) error {
	if u.lim.Files--; u.lim.Files < 0 {
		return invalid("it has more files than there is room for")
	}
	name := strings.TrimSuffix(header.Name, "/")
	volume, rest, err := u.place(name)
	if err != nil {
		return err
	}
	if u.loose[volume] && u.lim.Loose.Files > 0 {
		if u.lim.Loose.Files--; u.lim.Loose.Files == 0 {
			return invalid("volume %s has more files than there is room for", volume)
		}
	}
	if rest == "." && header.Typeflag != tar.TypeDir {
		return invalid("volume %s is no directory", volume)
	}
	in := ""
	if rest != "." {
		in = path.Dir(name)
	}
	if err := u.leave(in); err != nil {
		return err
	}
	if in != "" && len(u.open) == 0 {
		return invalid("the directory of %.200q is not in it, or is not followed by what it has", name)
	}
	for k := range header.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return invalid("%.200q is sparse by a format that a small stream can claim any size with", name)
		}
	}
	root := u.roots[volume]
	switch header.Typeflag {
	case tar.TypeDir:
		if rest == "." && u.volumes[volume] {
			return invalid("%.200q is in it twice", name)
		}
		if rest == "." {
			u.volumes[volume] = true
		}
		u.open = append(u.open, openDir{name, root, rest, header.ModTime})
		return u.dir(root, rest, header)
	case tar.TypeReg:
		return u.file(root, volume, rest, header, src)
	case tar.TypeSymlink:
		if header.Linkname == "" || len(header.Linkname) > unix.PathMax || strings.ContainsRune(header.Linkname, 0) {
			return invalid("%.200q is a link to nothing that can be", name)
		}
		if root == nil {
			return nil
		}
		if err := root.Symlink(header.Linkname, rest); err != nil {
			return refused(name, err)
		}
		return root.Lchown(rest, header.Uid, header.Gid)
	case tar.TypeLink:
		to, target, err := u.place(header.Linkname)
		if err != nil {
			return err
		}
		if to != volume || target == "." {
			return invalid("%.200q is a link out of its volume", name)
		}
		if root == nil {
			return nil
		}
		return refused(name, root.Link(target, rest))
	}
	return invalid("%.200q is of type %q; files, directories and links can be in it", name, header.Typeflag)
}

// refused tells what an archive contradicts itself in from what a disk refuses.
func refused(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return invalid("%.200q is in it twice", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("%.200q leads to nothing that is in it", name)
	}
	return err
}

func (u *unpacker) dir(root *os.Root, rest string, h *tar.Header) error {
	if root == nil {
		return nil
	}
	if rest != "." {
		if err := root.Mkdir(rest, 0o700); err != nil {
			return refused(h.Name, err)
		}
	}
	f, err := root.Open(rest)
	if err != nil {
		return err
	}
	defer f.Close()
	return own(f, h)
}

// own gives a file its owner, rights and attributes.
func own(f *os.File, h *tar.Header) error {
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), uint32(h.Mode&0o7777)); err != nil {
		return err
	}
	for k, v := range h.PAXRecords {
		name, is := strings.CutPrefix(k, xattrPrefix)
		if !is || !strings.HasPrefix(name, "user.") {
			continue
		}
		if err := unix.Fsetxattr(int(f.Fd()), name, []byte(v), 0); err != nil && err != unix.ENOTSUP {
			return &fs.PathError{Op: "fsetxattr", Path: h.Name, Err: err}
		}
	}
	return nil
}

func (u *unpacker) file(root *os.Root, volume, rest string, header *tar.Header, in io.Reader) error {
	var f *os.File
	if root != nil {
		var err error
		if f, err = root.OpenFile(rest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return refused(header.Name, err)
		}
		defer f.Close()
	}
	at := int64(0)
	for {
		n, err := io.ReadFull(in, u.buf)
		if n > 0 && !bytes.Equal(u.buf[:n], u.zeros[:n]) {
			if u.lim.Bytes -= int64(n); u.lim.Bytes < 0 {
				return invalid("it takes more than the room that there is for it")
			}
			if u.loose[volume] && u.lim.Loose.Bytes > 0 {
				if u.lim.Loose.Bytes -= int64(n); u.lim.Loose.Bytes <= 0 {
					return invalid("volume %s takes more than the room that its organisation has for it", volume)
				}
			}
			if f != nil {
				if _, err := f.WriteAt(u.buf[:n], at); err != nil {
					return err
				}
			}
		}
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF && at == header.Size {
			break
		}
		if err != nil {
			return invalid("%.200q is cut off: %v", header.Name, err)
		}
	}
	if f == nil {
		return nil
	}
	if err := f.Truncate(at); err != nil {
		return err
	}
	if err := own(f, header); err != nil {
		return err
	}
	return root.Chtimes(rest, time.Time{}, header.ModTime)
}
