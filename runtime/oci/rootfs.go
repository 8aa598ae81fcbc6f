//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/userns"
)

// mountRoot mounts the root file system on the bundle's rootfs directory.
func (d Bundles) mountRoot(ctx context.Context, task *monitor.Task, spec runtime.Spec, s *stage, from string) error {
	target := d.Root(task)
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	m := spec.RootFS[0]
	bad := func(format string, args ...any) error {
		return &runtime.InvalidSpec{Field: "rootfs[0]", Reason: fmt.Sprintf(format, args...)}
	}
	switch m.Type {
	case "bind":
		if st, err := os.Stat(m.Source); err != nil || !st.IsDir() {
			return bad("%s is not a directory", m.Source)
		}
		if s != nil {
			tree := userns.Tree{Path: m.Source, Users: s.ns, Recursive: true}
			if m.Shifted {
				tree.Users = nil
			}
			return cannotMap(userns.Mount(tree, target))
		}
		if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s as root: %w", m.Source, err)
		}
		return unix.Mount("", target, "", unix.MS_PRIVATE|unix.MS_REC, "")
	case "overlay":
		lower, rest, err := runtime.OverlayDirs(m.Options)
		if err != nil {
			return err
		}
		for _, l := range lower {
			if st, err := os.Stat(l); err != nil || !st.IsDir() {
				return bad("layer %s is not a directory", l)
			}
		}
		own := !slices.ContainsFunc(rest, func(o string) bool { return strings.HasPrefix(o, "upperdir=") })
		if own && d.places != nil && !spec.Checkpoint && from == "" { // a checkpoint carries its places along
			lower = d.withPlaces(task, spec, lower)
		}
		if !m.Shifted {
			if lower, err = s.layers(lower); err != nil {
				return err
			}
		}
		if own {
			for _, dir := range []string{"upper", "work"} {
				if err := os.Mkdir(task.Path(dir), 0o755); err != nil {
					return err
				}
			}
			if err := s.owned(task.Path("upper")); err != nil {
				return err
			}
			if from != "" {
				if err := unpackUpper(ctx, from, task.Path("upper")); err != nil {
					return err
				}
			}
			// The writable layer ends with the task, so there is nothing that must survive a power failure: "volatile"
			// spares the device all syncs, also the one at unmount.
			rest = append(rest, "upperdir="+runtime.EscapeOverlay(task.Path("upper")), "workdir="+runtime.EscapeOverlay(task.Path("work")),
				"volatile")
		}
		err = mountOverlay(target, lower, rest)
		if se, ok := errors.AsType[*runtime.StartError](err); ok && s != nil && !m.Shifted {
			se.Hint += "; layers that are mapped to users need Linux 5.19"
		}
		return err
	}
	return bad("type %q is unknown; use overlay or bind", m.Type)
}

// maxOptions is what mount(2) takes, less the terminating NUL: one page.
const maxOptions = 4095

// mountOverlay mounts; where the paths are too long together, it names the layers by descriptors.
func mountOverlay(target string, lower, rest []string) error {
	options := func(names []string) string {
		return strings.Join(append(runtime.Overlay(names...).Options, rest...), ",")
	}
	data := options(lower)
	if len(data) > maxOptions {
		names := make([]string, len(lower))
		for i, l := range lower {
			fd, err := unix.Open(l, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open layer %s: %w", l, err)
			}
			defer unix.Close(fd)
			names[i] = fmt.Sprintf("/proc/self/fd/%d", fd)
		}
		if data = options(names); len(data) > maxOptions {
			return &runtime.InvalidSpec{Field: "rootfs[0].options",
				Reason: fmt.Sprintf("%d layers are more than one mount takes; rebuild the image with fewer", len(lower))}
		}
	}
	err := unix.Mount("overlay", target, "overlay", 0, data)
	if err == unix.EINVAL && slices.Contains(rest, "volatile") {
		// Before Linux 5.10.
		err = unix.Mount("overlay", target, "overlay", 0, strings.TrimSuffix(strings.Replace(data, ",volatile", "", 1), ","))
	}
	if err != nil {
		hint := "overlayfs must be in the kernel, and the state directory on a file system that it accepts (ext4, xfs, btrfs, tmpfs)"
		return &runtime.StartError{Field: "rootfs", Hint: hint, Err: fmt.Errorf("mount overlay: %w", err)}
	}
	return nil
}
