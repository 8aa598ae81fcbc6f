package artifact

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
	paxXattr       = "SCHILY.xattr."
)

// unpackTar writes a layer below dir, in overlayfs's terms: a deleted file is a character device 0:0, a folder that
// hides the one below has an xattr. The whole stream is read, also what follows the end of the archive, for its digest.
//
// Everything goes through an os.Root, so that no name, symlink or hard link leads out of dir, and then relative to the
// descriptor of the parent folder without following links.
func unpackTar(in io.Reader, dir string, opt Options) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, o: opt, buf: make([]byte, 64<<10)}
	defer u.closeParent()
	tr := tar.NewReader(in)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return layerError(err)
		}
		if n >= opt.MaxEntries {
			return fmt.Errorf("layer with more than %d files: %w", opt.MaxEntries, ErrTooLarge)
		}
		if err := u.entry(h, tr); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
	if err := u.dirTimes(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return layerError(err)
}

// layerError tells a broken archive from a broken disk.
func layerError(err error) error {
	if err == nil || errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%w: layer: %w", ErrInvalid, err)
}

type unpacker struct {
	root  *os.Root
	o     Options
	buf   []byte
	total int64 // bytes of files, which a sparse one has without being read
	times []dirTime

	parentName string
	parent     *os.File // the folder of the entry before: most have the same
}

type dirTime struct {
	name string
	at   time.Time
}

func (u *unpacker) closeParent() {
	if u.parent != nil {
		u.parent.Close()
		u.parent = nil
	}
}

// clean gives a name relative to the root. ".." is refused rather than resolved: no honest tool writes it.
func clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("%w: its name has a NUL", ErrInvalid)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: its name leads out of the layer", ErrInvalid)
		}
	}
	if len(name) > 4096 {
		return "", fmt.Errorf("%w: its name is too long", ErrInvalid)
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	}
	name, err := clean(header.Name)
	if err != nil {
		return err
	}
	if name == "" || name == "." {
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: the root is no folder", ErrInvalid)
		}
		f, err := u.root.Open(".")
		if err != nil {
			return err
		}
		defer f.Close()
		return u.attributes(int(f.Fd()), "", header, f)
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if err := u.enter(dir); err != nil {
		return err
	}
	at := int(u.parent.Fd())
	if base == opaqueMarker {
		return opaque(int(u.parent.Fd()))
	}
	if hidden, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		return u.whiteout(at, dir, hidden)
	}
	covered, err := u.makeRoom(at, name, base, header.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	if u.total += header.Size; header.Size < 0 || u.total > u.o.MaxLayer {
		return fmt.Errorf("layer: %w when unpacked", ErrTooLarge)
	}
	var self *os.File // of regular files and folders
	switch header.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(at, base, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if self, err = openAt(at, base, unix.O_DIRECTORY|unix.O_RDONLY, 0); err != nil {
			return err
		}
		if covered {
			err = opaque(int(self.Fd()))
		}
		u.times = append(u.times, dirTime{name, header.ModTime})
	case tar.TypeReg:
		if self, err = openAt(at, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600); err != nil {
			return err
		}
		if _, err = io.CopyBuffer(onlyWriter{self}, content, u.buf); err != nil && !isErrno(err) {
			err = layerError(err)
		}
	case tar.TypeSymlink:
		if len(header.Linkname) == 0 || len(header.Linkname) > 4095 {
			return fmt.Errorf("%w: a symbolic link to nothing", ErrInvalid)
		}
		err = unix.Symlinkat(header.Linkname, at, base) // wherever it points: it is followed only inside the container
	case tar.TypeLink:
		return u.hardlink(at, base, header.Linkname)
	case tar.TypeFifo:
		err = unix.Mknodat(at, base, unix.S_IFIFO|0o600, 0)
	case tar.TypeChar, tar.TypeBlock:
		if !u.o.AllowDevices {
			return fmt.Errorf("%w: device nodes in images are not allowed; give the service a device instead", ErrInvalid)
		}
		kind := uint32(unix.S_IFCHR)
		if header.Typeflag == tar.TypeBlock {
			kind = unix.S_IFBLK
		} else if header.Devmajor == 0 && header.Devminor == 0 {
			return fmt.Errorf("%w: a device 0:0 would hide a file", ErrInvalid)
		}
		err = unix.Mknodat(at, base, kind|0o600, int(unix.Mkdev(uint32(header.Devmajor), uint32(header.Devminor))))
	default:
		return fmt.Errorf("%w: unknown kind %q of file", ErrInvalid, header.Typeflag)
	}
	if self != nil {
		defer self.Close()
	}
	if err != nil {
		return err
	}
	return u.attributes(at, base, header, self)
}

// onlyWriter hides ReadFrom, which would not use the buffer.
type onlyWriter struct{ io.Writer }

func isErrno(err error) bool {
	var e unix.Errno
	return errors.As(err, &e)
}

func openAt(dir int, base string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(dir, base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}

// enter opens the folder of an entry, making it if the archive did not.
func (u *unpacker) enter(dir string) error {
	if dir == "" {
		dir = "."
	}
	if u.parent != nil && u.parentName == dir {
		return nil
	}
	u.closeParent()
	f, err := u.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.makeParents(dir); err != nil {
			return escapeError(err)
		}
		f, err = u.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return escapeError(err)
	}
	u.parent, u.parentName = f, dir
	return nil
}

// makeParents makes the folders that the archive takes for granted, with the usual mode whatever the umask.
func (u *unpacker) makeParents(dir string) error {
	for i := 0; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		err := u.root.Mkdir(dir[:i], 0o755)
		if err == nil {
			err = u.root.Chmod(dir[:i], 0o755)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func escapeError(err error) error {
	if isErrno(err) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	return fmt.Errorf("%w: its folder is none, or leads out of the layer: %w", ErrInvalid, err)
}

// makeRoom removes what an earlier entry put at the same place. A folder stays when a folder comes. covered tells that a
// whiteout was there: a new folder then hides the one below.
func (u *unpacker) makeRoom(at int, name, base string, isDir bool) (covered bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return isDir && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0, unix.Unlinkat(at, base, 0)
	case isDir:
		return false, nil
	}
	// By the real folder, not by its name: that may lead through a symbolic link.
	sub, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", at))
	if err != nil {
		return false, err
	}
	defer sub.Close()
	return false, sub.RemoveAll(base)
}

func (u *unpacker) whiteout(at int, dir, hidden string) error {
	if hidden == "" || hidden == "." || hidden == ".." || strings.HasPrefix(hidden, whiteoutPrefix) {
		if strings.HasPrefix(hidden, whiteoutPrefix) {
			return nil // .wh..wh.plnk and the like: notes of an old file system
		}
		return fmt.Errorf("%w: a deletion of nothing", ErrInvalid)
	}
	var st unix.Stat_t
	err := unix.Fstatat(at, hidden, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return unix.Mknodat(at, hidden, unix.S_IFCHR, 0)
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		// Here already from this layer: the deletion means what lies below.
		f, err := openAt(at, hidden, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return opaque(int(f.Fd()))
	}
	return nil // a file of this layer hides the one below anyway
}

func opaque(fd int) error {
	if err := unix.Fsetxattr(fd, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		return fmt.Errorf("mark a folder as opaque, which needs root and a file system with trusted xattrs: %w", err)
	}
	return nil
}

// hardlink links to a file of this layer. The target is found through the root and linked by its parent's descriptor,
// so that a symbolic link is linked and not followed.
func (u *unpacker) hardlink(at int, base, target string) error {
	to, err := clean(target)
	if err != nil || to == "" {
		return fmt.Errorf("%w: a hard link to %.200q", ErrInvalid, target)
	}
	dir, name := path.Split(to)
	f, err := u.root.OpenFile(path.Clean(dir+"."), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("%w: a hard link to %.200q: %w", ErrInvalid, target, err)
	}
	defer f.Close()
	if err := unix.Linkat(int(f.Fd()), name, at, base, 0); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: a hard link to %.200q, which is no file of this layer", ErrInvalid, target)
		}
		return err
	}
	return nil
}

// attributes sets owner, mode, xattrs and times, in the order in which one does not undo the other. base "" means the
// folder at itself; self is open for regular files and folders.
func (u *unpacker) attributes(at int, base string, header *tar.Header, self *os.File) error {
	var err error
	if self != nil {
		err = self.Chown(header.Uid, header.Gid)
	} else {
		err = unix.Fchownat(at, base, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("set its owner to %d:%d: %w", header.Uid, header.Gid, err)
	}
	for k, v := range header.PAXRecords {
		attr, ok := strings.CutPrefix(k, paxXattr)
		if !ok || !allowedXattr(attr) {
			continue
		}
		if self != nil {
			err = unix.Fsetxattr(int(self.Fd()), attr, []byte(v), 0)
		} else {
			err = unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", at, base), attr, []byte(v), 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set xattr %s: %w", attr, err)
		}
	}
	if header.Typeflag != tar.TypeSymlink { // after the owner: changing that clears setuid
		mode := uint32(header.Mode & 0o7777)
		if self != nil {
			err = unix.Fchmod(int(self.Fd()), mode)
		} else {
			err = unix.Fchmodat(at, base, mode, 0) // a fifo or a device that was just made here
		}
		if err != nil {
			return err
		}
	}
	if header.Typeflag == tar.TypeDir {
		return nil // later, when nothing is put into it any more
	}
	return setTime(at, base, header.ModTime)
}

// allowedXattr keeps out what would change how overlayfs reads the layer, and labels of another host.
func allowedXattr(name string) bool {
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") || name == "security.capability" ||
		name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

func setTime(at int, base string, t time.Time) error {
	if t.Unix() < 0 || t.Unix() > 1<<33 {
		t = time.Unix(0, 0)
	}
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(at, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) dirTimes() error {
	u.closeParent()
	for i := len(u.times) - 1; i >= 0; i-- {
		d := u.times[i]
		dir, base := path.Split(d.name)
		f, err := u.root.OpenFile(path.Clean(dir+"."), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // replaced later on
		}
		if err != nil {
			return err
		}
		err = setTime(int(f.Fd()), base, d.at)
		f.Close()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// syncTree writes a tree to the disk before it is named: a layer that is there is whole.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
