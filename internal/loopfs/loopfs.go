//go:build linux

// Package loopfs holds a directory to a size: it becomes a file system of its own, ext4 in a sparse file, mounted by a loop
// device. That needs no quotas of the file system below, and what is full is full for this directory alone. The loop device goes
// by itself when nothing is mounted from it, also when the process that made it is killed in between. The worker imports it.
package loopfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Options say how a directory is held to a size.
type Options struct {
	Image string // the file that holds it
	Dir   string // where it is mounted
	Size  int64  // in bytes; more than it has grows it, less leaves it as it is
	// Lasting: what is in it is to survive a power cut (it has a journal).
	Lasting bool
}

// ErrMissing says that a program or a device that all this needs is not there.
var ErrMissing = errors.New("not available")

// Ensure makes a directory what Options say, whatever an earlier try left. fresh tells that there was nothing.
func Ensure(ctx context.Context, opt Options) (fresh bool, err error) {
	if err := os.MkdirAll(opt.Dir, 0o755); err != nil {
		return false, err
	}
	st, err := os.Stat(opt.Image)
	if fresh = errors.Is(err, fs.ErrNotExist); fresh {
		err = format(ctx, opt)
	}
	if err != nil {
		return false, err
	}
	mounted, err := isMounted(opt.Dir)
	if err != nil {
		return false, err
	}
	if !fresh && st.Size() < opt.Size {
		// Not while it is mounted: that takes a capability that services often lack. What is still in use grows another time.
		if mounted && unix.Unmount(opt.Dir, 0) == nil {
			mounted = false
		}
		if !mounted {
			if err := grow(ctx, opt); err != nil {
				return false, err
			}
		}
	}
	if !mounted {
		if err := mount(opt); err != nil {
			return false, err
		}
	}
	// Programs take a directory with lost+found for one that is in use. e2fsck makes it again where it needs one.
	_ = os.Remove(filepath.Join(opt.Dir, "lost+found"))
	return fresh, nil
}

// format makes the image, whole or not at all.
func format(ctx context.Context, opt Options) error {
	work := opt.Image + ".new"
	if err := os.MkdirAll(filepath.Dir(work), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(work, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(file.Truncate(opt.Size), file.Close())
	args := []string{"-q", "-F", "-m", "0", "-E", "nodiscard,root_owner=0:0"}
	if !opt.Lasting {
		args = append(args, "-O", "^has_journal")
	}
	if err == nil {
		err = run(ctx, "mkfs.ext4", append(args, work)...)
	}
	if err == nil && opt.Lasting {
		err = syncFile(work)
	}
	if err == nil {
		err = os.Rename(work, opt.Image)
	}
	if err != nil {
		_ = os.Remove(work)
	}
	return err
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// mount attaches the image to a free loop device, which gives itself up when it is unmounted, and mounts that.
func mount(opt Options) error {
	image, err := os.OpenFile(opt.Image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	// A file system must not be mounted from two devices at once: an earlier mount may be held by what still runs, or be in a mount
	// namespace of before.
	if device := attached(image); device != "" {
		return mountDevice(device, opt)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("loop devices are %w: %w", ErrMissing, err)
	}
	defer control.Close()
	for range 32 { // somebody else may take the one that is free
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("loop devices are %w: %w", ErrMissing, err)
		}
		device := "/dev/loop" + strconv.Itoa(n)
		if err := node(device, n); err != nil {
			return err
		}
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], opt.Image)
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			err = mountDevice(device, opt)
			loop.Close()
			return err
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("attach %s to a loop device: %w", opt.Image, err)
		}
	}
	return fmt.Errorf("attach %s: no loop device stays free", opt.Image)
}

func mountDevice(device string, o Options) error {
	if err := unix.Mount(device, o.Dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "errors=remount-ro"); err != nil {
		return fmt.Errorf("mount %s: %w", o.Image, err)
	}
	return nil
}

// attached finds the loop device that a file is attached to, or gives "".
func attached(image *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(image.Fd()), &st) != nil {
		return ""
	}
	used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range used {
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(path)))
		loop, err := os.Open(device)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		loop.Close()
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev {
			return device
		}
	}
	return ""
}

// node makes the device file where nobody else does, as in containers.
func node(path string, n int) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const major = 7
	err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, uint32(n))))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// grow gives the file system in an image that is not in use more room.
func grow(ctx context.Context, o Options) error {
	image, err := os.OpenFile(o.Image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	if attached(image) != "" {
		return nil
	}
	if err := run(ctx, "e2fsck", "-f", "-p", o.Image); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() > 1 { // 1: it mended something
			return err
		}
	}
	// The size tells afterwards that it was done.
	if err := run(ctx, "resize2fs", o.Image, strconv.FormatInt(o.Size/1024, 10)+"K"); err != nil {
		return err
	}
	return image.Truncate(o.Size)
}

// Release unmounts a directory, if it is mounted. What still has files open there keeps them.
func Release(dir string) error {
	mounted, err := isMounted(dir)
	if err != nil || !mounted {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// isMounted reports whether a directory is the root of a file system of its own.
func isMounted(dir string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Stat(dir, &a); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	err := unix.Stat(filepath.Dir(dir), &b)
	return a.Dev != b.Dev, err
}

// run runs a program of e2fsprogs, which is often not in the PATH of services.
func run(ctx context.Context, name string, args ...string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
			if _, e := os.Stat(filepath.Join(dir, name)); e == nil {
				program, err = filepath.Join(dir, name), nil
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s is %w; apt-get install e2fsprogs", name, ErrMissing)
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
