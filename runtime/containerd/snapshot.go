//go:build linux

package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// A class may name a snapshotter of the daemon's, for shims that do not take a directory as a root file system: Kata on Firecracker takes
// block devices alone. An image is then copied into a snapshot of its own, once, from which each container has one to write to. The daemon
// collects that of the image when no container's is left. Before a container's goes to the shim, it is mounted here: the places of mounts
// are to be in it, and no links.

// labelSnapshotter is on containers whose root is a snapshot, which goes with them.
const labelSnapshotter = "dev.skerry/snapshotter"

// layersOf lists where the layers of a root are, the uppermost first.
func layersOf(m runtime.Mount) ([]string, error) {
	if m.Type == "bind" {
		return []string{m.Source}, nil
	}
	lower, _, err := runtime.OverlayDirs(m.Options)
	return lower, err
}

// imageKey names the snapshot of an image at the daemon.
func imageKey(layers []string) string {
	sum := sha256.Sum256([]byte(strings.Join(layers, "\x00")))
	return "skerry-image-" + hex.EncodeToString(sum[:16])
}

// withSnapshot makes a container's description as Make does, with a snapshot as its root, of which it gives the mounts. The snapshot is
// mounted nowhere then.
func (d *Driver) withSnapshot(ctx context.Context, task *monitor.Task, id string, spec runtime.Spec) ([]byte, []Mount, error) {
	layers, err := layersOf(spec.RootFS[0])
	if err != nil {
		return nil, nil, err
	}
	for _, l := range layers {
		if st, err := os.Stat(l); err != nil || !st.IsDir() {
			return nil, nil, &runtime.InvalidSpec{Field: "rootfs[0]", Reason: "layer " + l + " is not a directory"}
		}
	}
	mounts, err := d.snapshot(ctx, d.client(d.opts.Socket), task, id, layers)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Mkdir(task.Path(fillDir), 0o700); err != nil {
		return nil, nil, err
	}
	if err := mountAll(mounts, task.Path(fillDir)); err != nil {
		return nil, nil, err
	}
	spec.RootFS = []runtime.Mount{{Type: "bind", Source: task.Path(fillDir)}}
	config, err := d.Make(ctx, task, spec)
	if err != nil {
		return nil, nil, err
	}
	return config, mounts, errors.Join(d.Unmount(task), unmountFill(task))
}

// fillTries is how often an image is copied that the daemon collects before a container's snapshot is made of it.
const fillTries = 3

// snapshot makes a container's own snapshot, of its image's, which it makes if there is none.
func (d *Driver) snapshot(ctx context.Context, c *Client, t *monitor.Task, id string, layers []string) ([]Mount, error) {
	name, image := d.opts.Snapshotter, imageKey(layers)
	for tries := 0; ; tries++ {
		mounts, err := c.PrepareSnapshot(ctx, name, id, image)
		if !NotFound(err) || tries == fillTries {
			return mounts, err
		}
		if err := d.fill(ctx, c, t, id, layers, image); err != nil {
			return nil, fmt.Errorf("copy the image into a snapshot of %s: %w", name, err)
		}
	}
}

// fillDir is where a snapshot is mounted in a bundle while it is filled, and imageDir what it is filled from.
const (
	fillDir  = "fill"
	imageDir = "image"
)

// fill makes the snapshot of an image. Another container may do the same meanwhile: the first to end wins.
func (d *Driver) fill(ctx context.Context, client *Client, task *monitor.Task, id string, layers []string, image string) (err error) {
	name, key := d.opts.Snapshotter, fillingOf(id)
	mounts, err := client.PrepareSnapshot(ctx, name, key, "")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, client.RemoveSnapshot(context.WithoutCancel(ctx), name, key))
		}
	}()
	from, to := layers[0], task.Path(fillDir)
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, unmountFill(task)); err == nil {
			err = errors.Join(os.Remove(to), removeEmpty(task.Path(imageDir)))
		}
	}()
	if len(layers) > 1 {
		from = task.Path(imageDir)
		if err := os.Mkdir(from, 0o700); err != nil {
			return err
		}
		if err := mountAll([]Mount{{Type: "overlay", Source: "overlay", Options: append(runtime.Overlay(layers...).Options, "ro")}},
			from); err != nil {
			return err
		}
	}
	if err := mountAll(mounts, to); err != nil {
		return err
	}
	if err := owners.Copy(ctx, from, to, 0); err != nil {
		return err
	}
	if err := unmountFill(task); err != nil { // a device that is mounted cannot be committed
		return err
	}
	if err = client.CommitSnapshot(ctx, name, image, key); has(err, CodeAlreadyExists) {
		err = client.RemoveSnapshot(ctx, name, key)
	}
	return err
}

// Layer says what a task writes to. A snapshot in a directory is measured there, which a task cannot make last for ever; of any other its
// snapshotter tells what it takes. Files that were deleted are on the file system that the first process has as its root.
func (d *Driver) Layer(ctx context.Context, handle runtime.Handle) (runtime.Layer, error) {
	l, err := d.Bundles.Layer(ctx, handle)
	if err != nil {
		return l, err
	}
	t, err := d.Tasks.Get(handle)
	if err != nil || snapshotterOf(t) == "" {
		return l, err
	}
	c, id, err := d.place(t)
	if err != nil {
		return l, err
	}
	l.Root = ""
	if init := t.Record().Init.PID; init > 0 && d.Options.Sandbox == (monitor.Sandbox{}) { // else it is a process of the host's
		l.Root = fmt.Sprintf("/proc/%d/root", init)
	}
	mounts, err := c.SnapshotMounts(ctx, snapshotterOf(t), id)
	if err != nil {
		return l, err
	}
	if l.Dir = writtenIn(mounts); l.Dir == "" {
		l.Bytes, l.Inodes, err = c.SnapshotUsage(ctx, snapshotterOf(t), id)
	}
	return l, err
}

// writtenIn gives the directory in which what is written to mounts lies; empty: in none.
func writtenIn(mounts []Mount) string {
	if len(mounts) == 0 {
		return ""
	}
	top := mounts[len(mounts)-1]
	if top.Type == "bind" {
		return top.Source
	}
	for _, o := range top.Options {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok && top.Type == "overlay" {
			return dir
		}
	}
	return ""
}

// DropLayer removes what a task wrote that has exited.
func (d *Driver) DropLayer(ctx context.Context, h runtime.Handle) error {
	if err := d.Bundles.DropLayer(ctx, h); err != nil {
		return err
	}
	t, err := d.Tasks.Get(h)
	if err != nil || snapshotterOf(t) == "" {
		return err
	}
	c, id, err := d.place(t)
	if err != nil {
		return err
	}
	if err := end(ctx, c, id); err != nil && !NotFound(err) { // who has it mounted
		return err
	}
	if err := c.RemoveSnapshot(ctx, snapshotterOf(t), id); err != nil {
		return err
	}
	return c.Collect(ctx, id)
}

// removeEmpty removes a directory that may not be there.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// fillingOf names the snapshot that a container fills for its image.
func fillingOf(id string) string { return id + "-filling" }

// unmountFill unmounts what a crash, or an error, left of the filling. It is idempotent.
func unmountFill(t *monitor.Task) error {
	for _, dir := range []string{fillDir, imageDir} {
		at := t.Path(dir)
		for {
			err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
			if err == unix.EBUSY {
				err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
			if err == unix.EINVAL || err == unix.ENOENT {
				break
			}
			if err != nil {
				return fmt.Errorf("unmount %s: %w", at, err)
			}
		}
	}
	return nil
}

// mountAll mounts what a snapshotter gives, one over another.
func mountAll(mounts []Mount, at string) error {
	for _, m := range mounts {
		flags, data := mountFlags(m.Options)
		if err := unix.Mount(m.Source, at, m.Type, flags, data); err != nil {
			return fmt.Errorf("mount %s %s: %w", m.Type, m.Source, err)
		}
	}
	return nil
}

// mountFlags tells the flags among options from what is for the file system.
func mountFlags(options []string) (flags uintptr, data string) {
	known := map[string]uintptr{"bind": unix.MS_BIND, "rbind": unix.MS_BIND | unix.MS_REC, "ro": unix.MS_RDONLY, "rw": 0,
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME}
	var rest []string
	for _, o := range options {
		if f, ok := known[o]; ok {
			flags |= f
		} else {
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}
