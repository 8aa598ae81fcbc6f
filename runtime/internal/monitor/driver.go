//go:build linux

package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

// DriverOptions set up a Driver. Name and Dir are required.
type DriverOptions struct {
	Name string
	// Dir is the state directory, an absolute path.
	Dir string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	// Sandbox is what the cgroups have room for beside the limits of the tasks.
	Sandbox Sandbox
	Log     *slog.Logger // nil: nothing is logged
	// Clean removes what the driver itself has made for a task, after its processes have ended and before its cgroup and
	// files go. It is idempotent; nil when there is nothing.
	Clean func(ctx context.Context, t *Task) error
}

// Driver is the part of a runtime.Driver that all have whose tasks conmon supervises, with Statser, Logger and Pauser.
// A driver embeds it and adds Start, Exec and Check.
type Driver struct {
	Tasks *Tasks
	// Options are those given, with the defaults filled in.
	Options DriverOptions
}

// NewDriver opens the state directory and adopts the tasks in it. A missing conmon shows in Preflight.
func NewDriver(o DriverOptions) (*Driver, error) {
	if o.CgroupParent == "" {
		o.CgroupParent = "skerry"
	}
	if o.Conmon == "" {
		o.Conmon = "conmon"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	conmon := LookPath(o.Conmon)
	if conmon == "" {
		conmon = o.Conmon
	}
	tasks, err := Open(Options{Driver: o.Name, Dir: o.Dir, Conmon: conmon, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return &Driver{tasks, o}, nil
}

// LookPath finds a program, also in the sbin directories that a service's PATH may lack; "" when there is none.
func LookPath(name string) string {
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

func (d *Driver) Name() string { return d.Options.Name }

// Close ends the watching of logs. Tasks run on.
func (d *Driver) Close() error { return d.Tasks.Close() }

// List gives the tasks, without those of a self-test of this process; it shows what the self-test of an agent that
// crashed left behind.
func (d *Driver) List(context.Context) ([]runtime.Handle, error) {
	return d.withoutChecks(d.Tasks.List()), nil
}

// ListOf gives those of an instance.
func (d *Driver) ListOf(_ context.Context, instance skerry.InstanceID) ([]runtime.Handle, error) {
	return d.withoutChecks(d.Tasks.ListOf(instance)), nil
}

func (d *Driver) withoutChecks(list []runtime.Handle) []runtime.Handle {
	return slices.DeleteFunc(list, func(h runtime.Handle) bool { return d.IsCheck(h.ID) })
}

func (d *Driver) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Exit{}, err
	}
	return t.Wait(ctx)
}

func (d *Driver) Status(_ context.Context, h runtime.Handle) (runtime.Status, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Status{}, err
	}
	return t.Status(), nil
}

func (d *Driver) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	return t.Stop(ctx, grace)
}

// Launch starts a task: bring does the driver's part, up to a running program, and what it leaves is removed when it fails.
// program is what conmon calls for the task.
func (d *Driver) Launch(ctx context.Context, spec runtime.Spec, program string, bring func(t *Task) error) (h runtime.Handle, err error) {
	if err := d.Tasks.Tree().CheckIO(d.Options.Name, spec.Resources.IO); err != nil {
		return h, err
	}
	t, err := d.Tasks.Create(Record{
		Handle:  runtime.Handle{ID: spec.ID, Instance: spec.Instance, Container: spec.Container, Labels: spec.Labels, Started: time.Now()},
		Runtime: program, Cgroup: path.Join(d.Options.CgroupParent, string(spec.ID)), StopSignal: int(spec.Signal()),
	})
	if err != nil {
		return h, err
	}
	defer t.Unlock()
	if err := d.launch(t, spec, bring); err != nil {
		// The caller's context may be what ended; cleaning up must not end with it.
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return h, errors.Join(err, d.remove(cleanCtx, t))
	}
	return t.Record().Handle, nil
}

func (d *Driver) launch(t *Task, spec runtime.Spec, bring func(t *Task) error) error {
	if spec.Previous != "" {
		if prev, err := d.Tasks.Get(runtime.Handle{ID: spec.Previous}); err == nil {
			if err := t.AdoptLog(prev); err != nil {
				return err
			}
		}
	}
	if err := bring(t); err != nil {
		return err
	}
	t.Update(func(r *Record) { r.Ready, r.Handle.Started = true, time.Now() })
	if err := t.Save(); err != nil {
		return err
	}
	t.Watch()
	return nil
}

// Remove ends a task and deletes everything of it. One that is not there is no error.
func (d *Driver) Remove(ctx context.Context, h runtime.Handle) error {
	t, err := d.Tasks.Get(h)
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
func (d *Driver) remove(ctx context.Context, t *Task) error {
	rec := t.Record()
	steps := []func() error{func() error { return t.End(ctx) }}
	if d.Options.Clean != nil {
		steps = append(steps, func() error { return d.Options.Clean(ctx, t) })
	}
	if rec.Cgroup != "" {
		steps = append(steps, func() error { return t.Group().End(10 * time.Second) })
	}
	for _, step := range append(steps, t.Discard) {
		if err := step(); err != nil {
			return fmt.Errorf("remove %s: %w", rec.Handle.ID, err)
		}
	}
	return nil
}

// CleanUp removes every task and the cgroups, but not the state directory. It is for a worker that leaves its machine.
func (d *Driver) CleanUp(ctx context.Context) error {
	var errs []error
	for _, h := range d.Tasks.List() {
		errs = append(errs, d.Remove(ctx, h))
	}
	// Another driver may have tasks below the same parent; the last one to clean up removes it.
	return errors.Join(append(errs, d.Tasks.Tree().Group(d.Options.CgroupParent).RemoveShared())...)
}

// Shelter moves a process of the agent that is to outlive it out of the agent's service, to the supervisors of tasks.
func (d *Driver) Shelter(pid int) error {
	return d.Tasks.Tree().Group(path.Join(d.Options.CgroupParent, "conmon")).Shelter(pid)
}

// Running gives a task that a process can be started in, for Exec.
func (d *Driver) Running(h runtime.Handle, spec runtime.ExecSpec) (*Task, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return nil, err
	}
	if st := t.Status(); st.State != runtime.StateRunning {
		return nil, fmt.Errorf("exec in %s: the task is %s", h.ID, st.State)
	}
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return nil, &runtime.InvalidSpec{Field: "args", Reason: "is empty; name the program to run"}
	}
	return t, nil
}

// Stats reads the task's cgroup.
func (d *Driver) Stats(_ context.Context, h runtime.Handle) (runtime.Stats, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Stats{}, err
	}
	s, err := t.Stats(time.Now())
	s.MemoryLimit = d.Options.Sandbox.within(s.MemoryLimit)
	return s, err
}

// Resize changes the limits in the task's cgroup.
func (d *Driver) Resize(ctx context.Context, h runtime.Handle, r runtime.Resources) error {
	r = d.Options.Sandbox.Around(r)
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	if err := t.Lock(ctx); err != nil { // not while it is being removed
		return err
	}
	defer t.Unlock()
	if st := t.Status(); st.State != runtime.StateRunning && st.State != runtime.StatePaused {
		return fmt.Errorf("change the limits of %s: the task is %s", h.ID, st.State)
	}
	defer t.rest() // its meter may hold the limit for what it was
	err = t.Group().Resize(ctx, cgroup.Limits{CPU: r.CPU, CPURequest: r.CPURequest, Memory: r.Memory, MemoryLow: r.MemoryLow})
	if in, ok := errors.AsType[*runtime.InUse](err); ok {
		// of what the sandbox takes nobody knows which part is used
		return &runtime.InUse{Used: in.Used, Limit: d.Options.Sandbox.within(in.Limit)}
	}
	return err
}

// Pin is runtime.Pinner's.
func (d *Driver) Pin(ctx context.Context, h runtime.Handle, cpus string) error {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	if err := t.Lock(ctx); err != nil {
		return err
	}
	defer t.Unlock()
	return t.Group().Pin(cpus)
}

// Limits reads the limits in the task's cgroup.
func (d *Driver) Limits(_ context.Context, h runtime.Handle) (runtime.Resources, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Resources{}, err
	}
	l, err := t.Group().Limits()
	return runtime.Resources{CPU: l.CPU, Memory: d.Options.Sandbox.within(l.Memory)}, err
}

// OpenLog reads what the task printed.
func (d *Driver) OpenLog(ctx context.Context, h runtime.Handle, o runtime.LogOptions) (runtime.LogStream, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return nil, err
	}
	return t.OpenLog(ctx, o)
}

// Pause freezes the task's cgroup, Resume thaws it.
func (d *Driver) Pause(_ context.Context, h runtime.Handle) error  { return d.freeze(h, true) }
func (d *Driver) Resume(_ context.Context, h runtime.Handle) error { return d.freeze(h, false) }

func (d *Driver) freeze(h runtime.Handle, frozen bool) error {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	if err := t.Group().Freeze(frozen); err != nil {
		return &runtime.Unsupported{Ability: runtime.AbilityPause, Driver: d.Options.Name, Reason: err.Error()}
	}
	return nil
}
