//go:build linux

package native

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
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Options configure a driver. Dir and Shim are required.
type Options struct {
	// Dir is the state directory, an absolute path.
	Dir string
	// Shim is the command that ends up in ShimMain, such as {"/usr/bin/skerry", "shim"}.
	Shim []string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	opts  Options
	tasks *monitor.Tasks
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	if len(o.Shim) == 0 || !filepath.IsAbs(o.Shim[0]) {
		return nil, fmt.Errorf("runtime native: option Shim %q must begin with an absolute path", o.Shim)
	}
	if o.CgroupParent == "" {
		o.CgroupParent = "skerry"
	}
	if o.Conmon == "" {
		o.Conmon = "conmon"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	conmon := o.Conmon
	if p, err := exec.LookPath(conmon); err == nil {
		conmon, _ = filepath.Abs(p)
	} else if p, err := exec.LookPath(filepath.Join("/usr/bin", conmon)); err == nil {
		conmon = p
	}
	tasks, err := monitor.Open(monitor.Options{Driver: "native", Dir: o.Dir, Conmon: conmon, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return &Driver{opts: o, tasks: tasks}, nil
}

func (d *Driver) Name() string { return "native" }

// Close ends the watching of logs. Tasks run on.
func (d *Driver) Close() error { return d.tasks.Close() }

// List gives the tasks, without those of a self-test.
func (d *Driver) List(context.Context) ([]runtime.Handle, error) {
	return slices.DeleteFunc(d.tasks.List(), func(h runtime.Handle) bool { return strings.HasPrefix(string(h.ID), checkPrefix()) }), nil
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
	if err := t.Stop(ctx, grace); err != nil {
		return err
	}
	// There is no process namespace whose end takes the children along.
	t.Kill(10 * time.Second)
	return nil
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

func (d *Driver) remove(ctx context.Context, t *monitor.Task) error {
	rec := t.Record()
	if err := t.End(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
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
		return &runtime.Unsupported{Ability: runtime.AbilityPause, Driver: "native", Reason: err.Error()}
	}
	return nil
}

// checkPrefix begins the IDs of self-test tasks. List does not show those of this process; it shows what the self-test
// of an agent that crashed left behind.
func checkPrefix() string { return fmt.Sprintf("skerry-check.%d.", os.Getpid()) }

// dirExists is for errors that name a directory.
func dirExists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
