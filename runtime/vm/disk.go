//go:build linux

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// A disk of the cache is a directory "disks/KEY": the image as an ext4 file system, its files of users, and the layers it
// was made of, one a line. A task has a link to the file system, so that a disk may go from the cache while it is used.
const (
	diskFileName = "root.ext4"
	layersFile   = "layers"
	making       = "new-" // begins the names of those that are being made
)

// Labels of file systems, by which the guest knows its disks. Firecracker takes letters, digits and underscores for a name.
const rootLabel, scratchLabel = "skerry_root", "skerry_scratch"

// layers gives the directories of which a root file system is made, the topmost first.
func layers(mounts []runtime.Mount) ([]string, error) {
	bad := func(format string, args ...any) ([]string, error) {
		return nil, &runtime.InvalidSpec{Field: "rootfs[0]", Reason: fmt.Sprintf(format, args...)}
	}
	if len(mounts) != 1 {
		return nil, &runtime.InvalidSpec{Field: "rootfs", Reason: fmt.Sprintf("has %d mounts; give one overlay or one bind mount", len(mounts))}
	}
	var dirs []string
	switch m := mounts[0]; m.Type {
	case "bind":
		dirs = []string{m.Source}
	case "overlay":
		var rest []string
		var err error
		if dirs, rest, err = runtime.OverlayDirs(m.Options); err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return bad("option %q cannot be had on a disk; give lowerdir alone", rest[0])
		}
	default:
		return bad("type %q is unknown; use overlay or bind", m.Type)
	}
	for _, l := range dirs {
		if st, err := os.Stat(l); err != nil || !st.IsDir() {
			return bad("layer %s is not a directory", l)
		}
	}
	return dirs, nil
}

// diskKey names a disk by the layers' paths, which of the same image are the same, and by what they are on this file system.
func diskKey(dirs []string) string {
	h := sha256.New()
	fmt.Fprintln(h, "labelled") // those before had no label
	for _, dir := range dirs {
		var st unix.Stat_t
		_ = unix.Stat(dir, &st)
		fmt.Fprintf(h, "%s %d %d %d.%d\n", dir, st.Dev, st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// ensureDisk gives the directory of the disk of some layers, which is made first if it is not there.
func (d *Driver) ensureDisk(ctx context.Context, dirs []string) (string, error) {
	d.disks.Lock()
	defer d.disks.Unlock()
	cache := filepath.Join(d.opts.Dir, "disks")
	dir := filepath.Join(cache, diskKey(dirs))
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil { // the time of its last use
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, making)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, layersFile), []byte(strings.Join(dirs, "\n")), 0o600); err != nil {
		return "", err
	}
	if err := makeDisk(ctx, work, dirs); err != nil {
		hint := "look at the worker's log, and free space below " + d.opts.Dir
		return "", &runtime.StartError{Field: "rootfs", Hint: hint, Err: fmt.Errorf("make the image's disk: %w", err)}
	}
	if err := os.Rename(work, dir); err != nil {
		return "", err
	}
	d.cutCache(dir)
	return dir, nil
}

// cutCache removes disks of which a layer is gone, and the longest unused beyond the bound.
func (d *Driver) cutCache(keep string) {
	type entry struct {
		dir  string
		used time.Time
		size int64
	}
	var all []entry
	total := int64(0)
	dirs, _ := filepath.Glob(filepath.Join(d.opts.Dir, "disks", "*"))
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || strings.HasPrefix(filepath.Base(dir), making) {
			continue
		}
		list, _ := os.ReadFile(filepath.Join(dir, layersFile))
		gone := slices.ContainsFunc(strings.Split(string(list), "\n"), func(l string) bool { _, err := os.Stat(l); return err != nil })
		var f unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, diskFileName), &f); gone || err != nil {
			_ = os.RemoveAll(dir)
			continue
		}
		all = append(all, entry{dir, st.ModTime(), f.Blocks * 512})
		total += f.Blocks * 512
	}
	slices.SortFunc(all, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range all {
		if total <= int64(d.opts.CacheMax) {
			return
		}
		if e.dir != keep {
			_ = os.RemoveAll(e.dir)
			total -= e.size
		}
	}
}

// makeDisk makes the file system of some layers. They are mounted where nobody else sees it, and nothing is left of the mount
// when this process ends.
func makeDisk(ctx context.Context, work string, dirs []string) error {
	var err error
	thread.Run(func() {
		err = func() error {
			root := dirs[0]
			if len(dirs) > 1 {
				root = filepath.Join(work, "root")
				if err := mountLayers(root, dirs); err != nil {
					return err
				}
			}
			size, inodes, err := measure(root)
			if err != nil {
				return err
			}
			if err := keepUsers(root, work); err != nil {
				return err
			}
			return mkfs(ctx, filepath.Join(work, diskFileName), rootLabel, size, "-N", strconv.FormatInt(inodes, 10), "-d", root)
		}()
	})
	_ = os.Remove(filepath.Join(work, "root"))
	return err
}

func mountLayers(root string, dirs []string) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	names := make([]string, len(dirs)) // short ones, for there is one page for all
	for i, l := range dirs {
		fd, err := unix.Open(l, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open layer %s: %w", l, err)
		}
		defer unix.Close(fd)
		names[i] = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	if err := unix.Mount("overlay", root, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(names, ":")); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// measure gives how large a file system must be for a tree, and how many files it has.
func measure(root string) (size, inodes int64, err error) {
	const block = 4096
	err = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inodes++
		size += block // a directory, or the end of a file
		if e.Type().IsRegular() {
			info, err := e.Info()
			if err != nil {
				return err
			}
			size += info.Size()
		}
		return nil
	})
	inodes += 64
	return size + size/16 + inodes*256 + 8<<20, inodes, err
}

// keepUsers copies the image's files of users beside its disk, for names are looked up there.
func keepUsers(root, work string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, name := range []string{"passwd", "group"} {
		data := []byte{}
		// Whatever a link in the image says, nothing outside of it is read; nor from what is no file.
		if st, err := r.Stat("etc/" + name); err == nil && st.Mode().IsRegular() {
			if f, err := r.Open("etc/" + name); err == nil {
				data, err = io.ReadAll(io.LimitReader(f, 1<<20))
				f.Close()
				if err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(work, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func mkfs(ctx context.Context, file, label string, size int64, args ...string) error {
	program := monitor.LookPath("mkfs.ext4")
	if program == "" {
		return errors.New("mkfs.ext4 is not installed; apt-get install e2fsprogs")
	}
	// A journal would protect what a task leaves behind, and nothing is left of either disk.
	args = append([]string{"-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-L", label,
		"-O", "^has_journal,^resize_inode", "-E", "nodiscard,root_owner=0:0"}, args...)
	out, err := exec.CommandContext(ctx, program, append(args, file, strconv.FormatInt((size+4095)/4096, 10))...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out))
	}
	// A hypervisor that is a user of its own opens it. The directories that it is in are closed to all others.
	return os.Chmod(file, 0o644)
}

// scratchDisk makes an empty disk for what a task writes: a copy of one that was made once, of which almost all are holes.
func (d *Driver) scratchDisk(ctx context.Context, path string) error {
	size := int64(d.opts.Scratch)
	template := filepath.Join(d.opts.Dir, "disks", fmt.Sprintf("%s-%d.ext4", scratchLabel, size))
	d.disks.Lock()
	if _, err := os.Stat(template); err != nil {
		work := template + ".new"
		_ = os.Remove(work)
		if err = mkfs(ctx, work, scratchLabel, size, "-i", "65536"); err == nil {
			err = os.Rename(work, template)
		}
		if err != nil {
			d.disks.Unlock()
			return &runtime.StartError{Hint: "free space below " + d.opts.Dir, Err: fmt.Errorf("make a writable disk: %w", err)}
		}
	}
	d.disks.Unlock()
	if err := copySparse(path, template); err != nil {
		return &runtime.StartError{Hint: "free space below " + d.opts.Dir, Err: fmt.Errorf("make a writable disk: %w", err)}
	}
	return nil
}

// copySparse copies a file without its holes.
func copySparse(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.Truncate(st.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		begin, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return out.Close()
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, begin), io.NewSectionReader(in, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
}
