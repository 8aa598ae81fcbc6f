//go:build linux

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Bundles makes what an OCI runtime is given: a root file system, and a description. Whoever has containers run makes them so, also when it
// is another that calls the runtime.
type Bundles struct {
	*monitor.Driver
	// Mounts is the directory for the roots of tasks with user namespaces; their users must be able to enter it. Nobody whose specs
	// have none needs it.
	Mounts string
	// NoMaps has files on the disk never mapped to users of user namespaces: those that are not theirs already are nobody's inside.
	NoMaps bool
	// OwnRoots: a root that is bound is the task's alone, as one of layers is, so that what is in the way of a mount may be removed from it.
	OwnRoots bool
	places   *places // nil: each task has its own
}

// CheckSpec refuses a spec of which no bundle can be made, before anything is touched.
func (Bundles) CheckSpec(spec runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	return checkHost(spec)
}

// Make mounts a task's root and writes config.json beside it. The bytes are those in the file. Unmount undoes the former.
func (d Bundles) Make(ctx context.Context, t *monitor.Task, spec runtime.Spec) ([]byte, error) {
	config, err := d.prepare(ctx, t, spec, "")
	if err != nil {
		return nil, err
	}
	if err := filter(config, spec, d.Root(t)); err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return data, os.WriteFile(t.Path(configFile), data, 0o600)
}

// configFile is the description in the bundle.
const configFile = "config.json"

// prepare mounts a task's root, from a checkpoint if there is one, and describes the container, but for its filter of system calls.
func (d Bundles) prepare(ctx context.Context, t *monitor.Task, spec runtime.Spec, from string) (*specs.Spec, error) {
	s, err := d.openStage(t, spec)
	defer s.close()
	if err != nil {
		return nil, err
	}
	if err := d.mountRoot(ctx, t, spec, s, from); err != nil {
		return nil, err
	}
	c, err := d.config(t, spec)
	if err != nil {
		return nil, err
	}
	if err := s.apply(t, c, spec); err != nil {
		return nil, err
	}
	root := s.rootOf(d.Root(t), spec)
	root.replace = root.replace || d.OwnRoots
	return c, settleTargets(root, c)
}

// rootDir is the root's directory, in the bundle or outside of it.
const rootDir = "rootfs"

// Root is the directory of a task's root.
func (Bundles) Root(t *monitor.Task) string {
	if o := outsideOf(t); o.Dir != "" {
		return filepath.Join(o.Dir, rootDir)
	}
	return t.Path(rootDir)
}

// Unmount unmounts a task's root, and all that was mounted for it. It is idempotent.
func (d Bundles) Unmount(t *monitor.Task) error {
	if err := unstage(t); err != nil {
		return err
	}
	if err := unmountAll(d.Root(t)); err != nil {
		return fmt.Errorf("unmount the root: %w", err)
	}
	return outsideOf(t).forget()
}

// unmountAll unmounts all that lies at a place, one over another after a crash, with what is below.
func unmountAll(at string) error {
	for {
		switch err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err {
		case nil:
		case unix.EINVAL, unix.ENOENT:
			return nil
		default:
			return err
		}
	}
}

// Process describes a process to run inside a task, with the task's own restrictions. first is the size of its terminal, nil where that is
// not known.
func (d Bundles) Process(task *monitor.Task, spec runtime.ExecSpec, first *runtime.WinSize) (*specs.Process, error) {
	var config specs.Spec
	data, err := os.ReadFile(task.Path(configFile))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("exec in %s: %w", task.Record().Handle.ID, err)
	}
	p := config.Process
	p.Args, p.Terminal, p.ConsoleSize = spec.Args, spec.TTY, nil
	p.Env = append(p.Env, spec.Env...)
	if first != nil {
		p.ConsoleSize = &specs.Box{Height: uint(first.Rows), Width: uint(first.Cols)}
	}
	if spec.Dir != "" {
		if !path.IsAbs(spec.Dir) {
			return nil, &runtime.InvalidSpec{Field: "dir", Reason: fmt.Sprintf("%q is not absolute; begin it with /", spec.Dir)}
		}
		p.Cwd = spec.Dir
	}
	if spec.User != "" {
		if p.User, err = lookupUser(d.Root(task), spec.User); err != nil {
			return nil, err
		}
	}
	return p, nil
}
