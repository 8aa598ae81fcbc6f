//go:build linux

package native

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// SpareRoot is where, in the directory of a spare, the tree of its task is to be mounted.
const SpareRoot = "root"

// StartSpare starts a program that waits to be told which task it is, for a driver whose tasks are processes that it chooses
// itself. It has that directory to work in, a mount namespace and one for the host's name of its own, and no way to new privileges.
// prepare is called when the directory is there.
func (d *Driver) StartSpare(ctx context.Context, args []string, logMax skerry.Bytes, prepare func(dir string) error) (*monitor.Spare,
	error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return d.Tasks.StartSpare(ctx, monitor.Launch{Runtime: d.shim[0], RuntimeArgs: d.shim[1:], LogMax: logMax}, d.Options.CgroupParent,
		func(dir string, g cgroup.Group) error {
			if err := g.Create(cgroup.Limits{}); err != nil {
				return err
			}
			root := filepath.Join(dir, SpareRoot)
			if err := os.Mkdir(root, 0o755); err != nil {
				return err
			}
			s := setup{Args: args, Env: []string{defaultPath}, Dir: dir, Hostname: name,
				Mounts: []bind{{Type: "tmpfs", Target: root, Data: "size=4k"}}, CgroupDirs: g.Dirs(), Unified: d.Tasks.Tree().Unified()}
			data, err := json.Marshal(s)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, setupFile), data, 0o600); err != nil {
				return err
			}
			return prepare(dir)
		})
}

// StartFrom is StartWith by a spare: hand tells it what to do when it is under the task's limits.
func (d *Driver) StartFrom(ctx context.Context, spec runtime.Spec, sp *monitor.Spare,
	hand func(dir string, g cgroup.Group) error) (runtime.Handle, error) {
	return d.Launch(ctx, spec, d.shim[0], func(t *monitor.Task) error {
		if err := t.Become(sp); err != nil {
			return err
		}
		l := limits(spec.Resources)
		l.Pids = spec.Resources.Pids
		if err := t.Group().Create(l); err != nil {
			return err
		}
		return hand(t.Path(), t.Group())
	})
}

// Tree makes mounts as for a task, the first of them that of its root, and gives the whole of it as a descriptor (see open_tree(2)),
// which is mounted nowhere. A spare cannot make them itself: of what the host mounted after its start it may have seen nothing.
func Tree(mounts []runtime.Mount) (fd int, err error) {
	var s setup
	s.mounts(mounts)
	fd = -1
	thread.Run(func() {
		if err = s.mount(); err != nil {
			return
		}
		fd, err = unix.OpenTree(unix.AT_FDCWD, s.Mounts[0].Target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			err = fmt.Errorf("open_tree %s: %w", s.Mounts[0].Target, err)
		}
	})
	return fd, err
}
