//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Options configure a driver. Dir is required.
type Options struct {
	// Dir is the state directory: bundles, writable layers, logs. An absolute path on a file system that overlayfs
	// accepts as upper layer.
	Dir string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Runtimes are OCI runtimes in order of preference, names or paths; crun, then runc when empty.
	Runtimes []string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	opts  Options
	tasks *monitor.Tasks

	// choosing holds a token while the self-test that chooses the runtime is on its way.
	choosing chan struct{}
	mu       sync.Mutex // protects what follows
	chosen   string     // path of the runtime that passed
	// byCommand says that writing to crun's pipe did not start a container.
	byCommand bool
	filters   map[filterKey]string // compiled seccomp filters, in base64
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	if o.CgroupParent == "" {
		o.CgroupParent = "skerry"
	}
	if len(o.Runtimes) == 0 {
		o.Runtimes = []string{"crun", "runc"}
	}
	if o.Conmon == "" {
		o.Conmon = "conmon"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	conmon := lookPath(o.Conmon)
	if conmon == "" {
		conmon = o.Conmon // Check says that it is missing
	}
	tasks, err := monitor.Open(monitor.Options{Driver: "oci", Dir: o.Dir, Conmon: conmon, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return &Driver{opts: o, tasks: tasks, choosing: make(chan struct{}, 1), filters: map[filterKey]string{}}, nil
}

// lookPath finds a program, also in the sbin directories that a service's PATH may lack; "" when there is none.
func lookPath(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		p, _ = filepath.Abs(p)
		return p
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil && !strings.Contains(name, "/") {
			return p
		}
	}
	return ""
}

func (d *Driver) Name() string { return "oci" }

// Close ends the watching of logs. Tasks run on.
func (d *Driver) Close() error { return d.tasks.Close() }

// List gives the tasks, without those of a self-test.
func (d *Driver) List(context.Context) ([]runtime.Handle, error) {
	return slices.DeleteFunc(d.tasks.List(), func(h runtime.Handle) bool { return isCheck(h.ID) }), nil
}

func (d *Driver) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	t, err := d.tasks.Get(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	return t.Wait(ctx)
}

func (d *Driver) Status(_ context.Context, h runtime.Handle) (runtime.Status, error) {
	t, err := d.tasks.Get(h)
	if err != nil {
		return runtime.Status{}, err
	}
	return t.Status(), nil
}

func (d *Driver) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	t, err := d.tasks.Get(h)
	if err != nil {
		return err
	}
	return t.Stop(ctx, grace)
}

func (d *Driver) Remove(ctx context.Context, h runtime.Handle) error {
	t, err := d.tasks.Get(h)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := t.Lock(ctx); err != nil {
		return err
	}
	defer t.Unlock()
	return d.remove(ctx, t)
}

// remove deletes everything of a task that the caller has locked. Each step is idempotent.
func (d *Driver) remove(ctx context.Context, t *monitor.Task) error {
	rec := t.Record()
	if err := t.End(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
	}
	if rec.Runtime != "" {
		root := d.root(rec.Runtime)
		if _, err := os.Stat(filepath.Join(root, string(rec.Handle.ID))); err == nil {
			out, err := exec.CommandContext(ctx, rec.Runtime, "--root", root, "delete", "--force", string(rec.Handle.ID)).CombinedOutput()
			if err != nil {
				// A state that the runtime itself cannot read any more is ours to delete: nothing runs in it.
				d.opts.Log.Warn("runtime delete", "task", rec.Handle.ID, "err", err, "output", strings.TrimSpace(string(out)))
			}
			if err := os.RemoveAll(filepath.Join(root, string(rec.Handle.ID))); err != nil {
				return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
			}
		}
	}
	for {
		// One mount may lie over another after a crash.
		if err := unix.Unmount(t.Path("rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			break
		}
	}
	if rec.Cgroup != "" {
		if err := t.Group().Remove(); err != nil {
			return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
		}
	}
	if err := t.Discard(); err != nil {
		return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
	}
	return nil
}

// CleanUp removes every task and the cgroups, but not the state directory. It is for a worker that leaves its machine.
func (d *Driver) CleanUp(ctx context.Context) error {
	var errs []error
	for _, h := range d.tasks.List() {
		errs = append(errs, d.Remove(ctx, h))
	}
	// Another driver may have tasks below the same parent; the last one to clean up removes it.
	return errors.Join(append(errs, d.tasks.Tree().Group(d.opts.CgroupParent).RemoveShared())...)
}

// root is where a runtime keeps its own state; two runtimes do not read each other's.
func (d *Driver) root(program string) string {
	return filepath.Join(d.opts.Dir, filepath.Base(program))
}

// Stats reads the task's cgroup.
func (d *Driver) Stats(_ context.Context, h runtime.Handle) (runtime.Stats, error) {
	t, err := d.tasks.Get(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	return t.Group().Stats(time.Now())
}

// OpenLog reads what the task printed.
func (d *Driver) OpenLog(ctx context.Context, h runtime.Handle, o runtime.LogOptions) (runtime.LogStream, error) {
	t, err := d.tasks.Get(h)
	if err != nil {
		return nil, err
	}
	return t.OpenLog(ctx, o)
}

// Pause freezes the task's cgroup, Resume thaws it.
func (d *Driver) Pause(_ context.Context, h runtime.Handle) error  { return d.freeze(h, true) }
func (d *Driver) Resume(_ context.Context, h runtime.Handle) error { return d.freeze(h, false) }

func (d *Driver) freeze(h runtime.Handle, frozen bool) error {
	t, err := d.tasks.Get(h)
	if err != nil {
		return err
	}
	if err := t.Group().Freeze(frozen); err != nil {
		return &runtime.Unsupported{Ability: runtime.AbilityPause, Driver: "oci", Reason: err.Error()}
	}
	return nil
}
