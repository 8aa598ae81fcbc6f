//go:build linux

package containerd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/hybrid"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/spec"
)

// DefaultShim is what the daemon calls when nothing else is said.
const DefaultShim = "io.containerd.runc.v2"

// Options configure a driver. Dir and Keeper are required.
type Options struct {
	// Dir is the state directory, as in oci.Options.
	Dir string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Socket is the daemon's, an absolute path. Empty: none, and the self-test says so.
	Socket string
	// Shim is the runtime as the daemon names it; DefaultShim when empty. Binary is the OCI runtime that a shim of the runc family is to
	// call, a name or path; its own choice when empty.
	Shim, Binary string
	// Class, if set, makes the driver that of a class of the daemon's shims, which is declared to keep containers apart as Isolation says;
	// what that promises beside IsolationShared the self-test looks at.
	Class     string
	Isolation spec.Isolation
	// Snapshotter is one of the daemon's, which gives containers of the class their root file systems; empty: they are mounted here.
	Snapshotter string
	// Undeclared is a class of which tasks may be left, and which nobody declares any more: nothing new is started.
	Undeclared bool
	// Keeper is the command that runs KeepMain; the program is an absolute path.
	Keeper []string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Execer, Statser, Logger, Resizer, Pinner and Pauser. What tasks use, and their limits, it
// reads from and writes into their cgroup itself, as package oci does.
type Driver struct {
	oci.Bundles
	opts Options

	// choosing holds a token while the self-test is on its way.
	choosing chan struct{}
	mu       sync.Mutex // protects what follows
	passed   bool
	binary   string             // the OCI runtime that passed; empty: the shim's own choice
	clients  map[string]*Client // by socket
}

// New opens the state directory and adopts the tasks in it.
func New(opt Options) (*Driver, error) {
	if len(opt.Keeper) == 0 || !filepath.IsAbs(opt.Keeper[0]) {
		return nil, fmt.Errorf("runtime %s: option Keeper %q must begin with an absolute path", spec.RuntimeContainerd, opt.Keeper)
	}
	opt.Shim = cmp.Or(opt.Shim, DefaultShim)
	name, sandbox := spec.RuntimeContainerd, monitor.Sandbox{}
	if opt.Class != "" {
		name = spec.ClassRuntime(opt.Isolation, opt.Class)
	}
	if k := spec.RuntimeNamed(name); k == nil {
		return nil, fmt.Errorf("runtime %s: option Isolation %q is none", name, opt.Isolation)
	} else if k.Isolation != spec.IsolationShared {
		sandbox = monitor.Sandbox{Memory: k.Memory, Pids: 256}
	}
	d := &Driver{opts: opt, choosing: make(chan struct{}, 1), clients: map[string]*Client{}}
	// The keeper is what supervises, in conmon's place.
	base, err := monitor.NewDriver(monitor.DriverOptions{Name: name, Dir: opt.Dir, CgroupParent: opt.CgroupParent, Conmon: opt.Keeper[0],
		Sandbox: sandbox, Log: opt.Log, Clean: d.clean})
	if err != nil {
		return nil, err
	}
	d.Bundles = oci.Bundles{Driver: base, OwnRoots: opt.Snapshotter != ""}
	return d, nil
}

// Close ends the driver's own goroutines and connections. Tasks run on.
func (d *Driver) Close() error {
	err := d.Driver.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		c.Close()
	}
	return err
}

// at is where the daemon has a task: kept in its record, so that the task is found there whatever the options say later.
type at struct {
	Socket string `json:"socket"`
	ID     string `json:"id"` // of container and task
	// Snapshotter has a snapshot of that ID; empty: none.
	Snapshotter string `json:"snapshotter,omitempty"`
}

// place reads a task's.
func (d *Driver) place(t *monitor.Task) (*Client, string, error) {
	var a at
	if err := json.Unmarshal(t.Record().Extra, &a); err != nil || a.Socket == "" || a.ID == "" {
		return nil, "", fmt.Errorf("task %s: its record does not tell which containerd has it", t.Record().Handle.ID)
	}
	return d.client(a.Socket), a.ID, nil
}

// snapshotterOf gives the snapshotter that a task's root is of; empty: none.
func snapshotterOf(t *monitor.Task) string {
	var a at
	_ = json.Unmarshal(t.Record().Extra, &a) // place tells of what cannot be read
	return a.Snapshotter
}

func (d *Driver) client(socket string) *Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.clients[socket]
	if c == nil {
		c = NewClient(socket)
		d.clients[socket] = c
	}
	return c
}

// The labels of containers, for people and for what looks for leftovers.
const (
	labelDir      = "dev.skerry/dir" // the driver's state directory
	labelTask     = "dev.skerry/task"
	labelInstance = "dev.skerry/instance"
)

// containerID names a task at the daemon, whose names are shorter and know no two signs in a row. The state directory
// is in it, since two workers may have one daemon.
func containerID(dir string, id runtime.TaskID) string {
	sum := sha256.Sum256([]byte(dir + "\x00" + string(id)))
	words := strings.FieldsFunc(string(id), func(r rune) bool { return strings.ContainsRune("._-", r) })
	name := strings.Join(words, "-")
	if len(name) > 50 {
		name = strings.TrimRight(name[:50], "-")
	}
	return name + "-" + hex.EncodeToString(sum[:8])
}

// Start makes and starts a container.
func (d *Driver) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	if err := d.CheckSpec(spec); err != nil {
		return runtime.Handle{}, err
	}
	if d.opts.Undeclared {
		return runtime.Handle{}, &runtime.StartError{Err: fmt.Errorf("runtime %s: %s", d.Name(), undeclared), Hint: declareIt}
	}
	if spec.Checkpoint {
		return runtime.Handle{}, &runtime.Unsupported{Ability: runtime.AbilityCheckpoint, Driver: d.Name(),
			Reason: "containers of containerd are not checkpointed; use runtime oci"}
	}
	if spec.Handler != nil {
		return runtime.Handle{}, &runtime.Unsupported{Ability: runtime.AbilityHandler, Driver: d.Name(),
			Reason: "a container is not started for a request; use the wasm runtime"}
	}
	if err := d.refuse(&spec); err != nil {
		return runtime.Handle{}, err
	}
	if spec.UserNS != nil {
		return runtime.Handle{}, &runtime.Unsupported{Ability: runtime.AbilityUserNS, Driver: d.Name(),
			Reason: "containers of containerd have the host's users; use runtime oci"}
	}
	binary, err := d.choose(ctx)
	if err != nil {
		return runtime.Handle{}, err
	}
	h, err := d.start(ctx, spec, binary)
	if err == nil || !hybrid.Refused(err.Error()) {
		return h, err
	}
	// The machine has changed since the self-test: cgroup2 holds controllers now.
	d.mu.Lock()
	if d.binary == binary {
		d.passed = false
	}
	d.mu.Unlock()
	if again, e := d.choose(ctx); e == nil && again != binary {
		return d.start(ctx, spec, again)
	}
	return h, err
}

// start starts a checked spec by an OCI runtime.
func (d *Driver) start(ctx context.Context, spec runtime.Spec, binary string) (runtime.Handle, error) {
	return d.Launch(ctx, spec, "", func(t *monitor.Task) error { return d.bring(ctx, t, spec, binary) })
}

// bring goes through the steps of a start.
func (d *Driver) bring(ctx context.Context, task *monitor.Task, spec runtime.Spec, binary string) error {
	id := containerID(d.Options.Dir, spec.ID)
	place, err := json.Marshal(at{d.opts.Socket, id, d.opts.Snapshotter})
	if err != nil {
		return err
	}
	task.Update(func(r *monitor.Record) { r.Extra = place })
	if err := task.Save(); err != nil { // before the daemon has anything of it
		return err
	}
	root := []Mount{{Type: "bind", Source: d.Root(task), Options: []string{"rbind", "rw"}}}
	var config []byte
	if d.opts.Snapshotter == "" {
		config, err = d.Make(ctx, task, spec)
	} else {
		config, root, err = d.withSnapshot(ctx, task, id, spec)
	}
	if err != nil {
		return err
	}
	s, err := pipes(task, spec.TTY)
	if err != nil {
		return err
	}
	k, err := d.startKeeper(task, job{Socket: d.opts.Socket, ID: id, LogMax: int64(spec.LogMax()), TTY: spec.TTY})
	if err != nil {
		return err
	}
	defer k.close()
	client := d.client(d.opts.Socket)
	labels := map[string]string{labelDir: d.Options.Dir, labelTask: string(spec.ID), labelInstance: string(spec.Instance)}
	if d.opts.Snapshotter != "" {
		labels[labelSnapshotter] = d.opts.Snapshotter
	}
	if err := client.CreateContainer(ctx, NewContainer{ID: id, Shim: d.opts.Shim, Binary: binary, Labels: labels, Spec: config,
		Snapshotter: d.opts.Snapshotter}); err != nil {
		return err
	}
	pid, err := client.CreateTask(ctx, id, root, s)
	if err != nil {
		return d.explain(spec, err)
	}
	task.Update(func(r *monitor.Record) { r.Init, r.Handle.PID = monitor.Identify(pid), pid })
	if err := task.Group().Bound(cgroup.Limits{MemoryLow: spec.Resources.MemoryLow, IO: spec.Resources.IO,
		HugePages: spec.Resources.HugePages}); err != nil {
		return &runtime.StartError{Field: "resources", Err: err}
	}
	if err := d.bound(ctx, task, spec.Resources); err != nil {
		return err
	}
	if err := k.goOn(ctx, pid); err != nil {
		return err
	}
	return d.explain(spec, client.Start(ctx, id, ""))
}

// bound sets the limits of what holds a container that has a kernel of its own: its shim holds what is inside to them, and need not hold
// the rest.
func (d *Driver) bound(ctx context.Context, t *monitor.Task, r runtime.Resources) error {
	if d.Options.Sandbox == (monitor.Sandbox{}) {
		return nil
	}
	r = d.Options.Sandbox.Around(r)
	if err := t.Group().Resize(ctx, cgroup.Limits{CPU: r.CPU, CPURequest: r.CPURequest, Memory: r.Memory}); err != nil {
		return &runtime.StartError{Field: "resources",
			Hint: "have the shim run all of a container in the container's cgroup (of Kata Containers: sandbox_cgroup_only)", Err: err}
	}
	return nil
}

// explain turns a daemon's refusal into the field at fault and what to do.
func (d *Driver) explain(spec runtime.Spec, err error) error {
	refused, ok := errors.AsType[*CallError](err)
	if !ok {
		return err
	}
	return oci.Explain(spec, &monitor.CreateError{Message: strings.TrimSuffix(refused.Message, ": unknown")})
}

// Stop sends the stop signal through the daemon, for what the host sees of the task need not be its own process.
func (d *Driver) Stop(ctx context.Context, handle runtime.Handle, grace time.Duration) error {
	task, err := d.Tasks.Get(handle)
	if err != nil {
		return err
	}
	switch task.Status().State {
	case runtime.StateExited:
		return nil
	case runtime.StateBroken:
		return task.Stop(ctx, 0)
	}
	client, id, err := d.place(task)
	if err != nil {
		return err
	}
	// When it has ended meanwhile, or the daemon is away, what follows does without.
	ask := func(do func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		if err := do(ctx); err != nil {
			d.Options.Log.Debug("stop by containerd", "task", handle.ID, "err", err)
		}
	}
	if grace > 0 {
		ask(func(ctx context.Context) error {
			if p, err := client.Get(ctx, id); err == nil && p.Status == StatusPaused {
				if err := client.Resume(ctx, id); err != nil {
					return err
				}
			}
			return client.Kill(ctx, id, "", task.Record().StopSignal, false)
		})
		graceCtx, cancel := context.WithTimeout(ctx, grace)
		_, err := task.Wait(graceCtx)
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	ask(func(ctx context.Context) error { return client.Kill(ctx, id, "", int(unix.SIGKILL), true) })
	task.Kill(endTime)
	_, err = task.Wait(ctx)
	return err
}

// lookTime is how long a daemon may take for what is done without it otherwise.
const lookTime = 2 * time.Second

// Status looks once. That a task is paused only the daemon knows for every shim.
func (d *Driver) Status(ctx context.Context, h runtime.Handle) (runtime.Status, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Status{}, err
	}
	st := t.Status()
	if st.State != runtime.StateRunning {
		return st, nil
	}
	if c, id, err := d.place(t); err == nil {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		if p, err := c.Get(ctx, id); err == nil && (p.Status == StatusPaused || p.Status == StatusPausing) {
			st.State = runtime.StatePaused
		}
	}
	return st, nil
}

// Pause has the daemon hold a task still, Resume lets it go on.
func (d *Driver) Pause(ctx context.Context, h runtime.Handle) error {
	return d.hold(ctx, h, (*Client).Pause)
}

// Resume is Pause's opposite.
func (d *Driver) Resume(ctx context.Context, h runtime.Handle) error {
	return d.hold(ctx, h, (*Client).Resume)
}

func (d *Driver) hold(ctx context.Context, h runtime.Handle, do func(*Client, context.Context, string) error) error {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	c, id, err := d.place(t)
	if err != nil {
		return err
	}
	if err = do(c, ctx, id); has(err, CodeUnimplemented) {
		return &runtime.Unsupported{Ability: runtime.AbilityPause, Driver: d.Name(), Reason: err.Error()}
	}
	return err
}

// clean takes a task out of the daemon's books, which ends its shim, and unmounts its root.
func (d *Driver) clean(ctx context.Context, task *monitor.Task) error {
	if len(task.Record().Extra) > 0 {
		client, id, err := d.place(task)
		if err != nil {
			return err
		}
		ready := task.Record().Ready
		snapshotter := snapshotterOf(task)
		if snapshotter != "" { // it removes nothing that is mounted
			if err := errors.Join(d.Unmount(task), unmountFill(task)); err != nil {
				return err
			}
		}
		if err := d.forget(ctx, client, id, snapshotter, ready); gone(err) {
			if err := d.putOff(task, err); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		if !ready {
			task.Kill(endTime) // what was put into the cgroup after it was emptied
		}
	}
	return d.Unmount(task)
}

// CleanUp removes every task, the cgroups, and the namespace at the daemon where nothing else is in it.
func (d *Driver) CleanUp(ctx context.Context) error {
	err := d.Driver.CleanUp(ctx)
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		_ = c.DeleteNamespace(ctx) // refused as long as another worker has something there
	}
	return err
}
