//go:build linux

package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Options configure a driver. Dir, Shim and Run are required.
type Options struct {
	// Dir is the state directory, an absolute path.
	Dir string
	// Shim is the command that ends up in native.ShimMain, Run the one that ends up in RunMain.
	Shim, Run []string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Statser, Logger, Resizer and Pauser.
type Driver struct {
	*monitor.Driver
	tasks *native.Driver
	cache *cache
	run   []string
	spare spares
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	if len(o.Run) == 0 || !filepath.IsAbs(o.Run[0]) {
		return nil, fmt.Errorf("runtime wasm: option Run %q must begin with an absolute path", o.Run)
	}
	tasks, err := native.New(native.Options{Name: spec.RuntimeWasm, Dir: o.Dir, Shim: o.Shim, CgroupParent: o.CgroupParent, Conmon: o.Conmon,
		Log: o.Log})
	if err != nil {
		return nil, err
	}
	d := &Driver{Driver: tasks.Driver, tasks: tasks, run: o.Run}
	d.spare.d = d
	d.cache = newCache(filepath.Join(o.Dir, "modules"), o.Run, d.Tasks.Tree().Group(d.Options.CgroupParent+"/"+compileGroup))
	return d, nil
}

// Close ends the watching of logs, and what waits for a task. Tasks run on.
func (d *Driver) Close() error {
	d.spare.close()
	return d.Driver.Close()
}

// CleanUp removes every task and the compiled modules.
func (d *Driver) CleanUp(ctx context.Context) error {
	d.spare.close()
	if err := d.cache.remove(); err != nil {
		return err
	}
	return d.Driver.CleanUp(ctx)
}

// process is what "wasm-run" does.
type process struct {
	// Module is the file with the module, Code the directory with its compiled code.
	Module, Code string
	Root         string
	Args, Env    []string
	// Ports are those of the listening sockets that the module is given; Own says that they are of a network of its own.
	Ports []uint16 `json:",omitempty"`
	Own   bool     `json:",omitempty"`
	// Memory is the file with the limit that the kernel holds the task to.
	Memory  string
	Handler *runtime.Handler `json:",omitempty"`
}

const (
	processFile = "wasm.json"
	rootDir     = "root"
	pointsDir   = "points"
)

// Start makes and starts a process that runs a module.
func (d *Driver) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	fail := func(err error) (runtime.Handle, error) { return runtime.Handle{}, err }
	layers, err := check(spec)
	if err != nil {
		return fail(err)
	}
	if _, err := d.Tasks.Get(runtime.Handle{ID: spec.ID}); err == nil {
		return fail(fmt.Errorf("task %s: %w", spec.ID, runtime.ErrExists))
	}
	file, err := find(layers, spec.Args[0], spec.Env)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	module, err := d.cache.module(ctx, file, spec.Handler != nil)
	if err != nil {
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		hint := "build a command for WASI preview 1, as with GOOS=wasip1 GOARCH=wasm"
		if _, ok := errors.AsType[*tooMuch](err); ok {
			hint = "make the module smaller, or place it on a faster worker"
		}
		return fail(&runtime.StartError{Field: "args[0]", Hint: hint, Err: fmt.Errorf("%s: %w", spec.Args[0], err)})
	}
	p := process{Module: filepath.Join(module, moduleFile), Code: filepath.Join(module, codeDir), Args: spec.Args, Env: environment(spec),
		Ports: spec.Listen, Handler: spec.Handler}
	own := runtime.Spec{
		ID: spec.ID, Instance: spec.Instance, Container: spec.Container, Labels: spec.Labels, Previous: spec.Previous,
		LogMaxBytes: spec.LogMaxBytes,
		Resources:   spec.Resources, StopSignal: spec.StopSignal, Hostname: spec.Hostname, HostNetwork: spec.HostNetwork,
		Args: append(slices.Clone(d.run), filepath.Join(d.Options.Dir, "tasks", string(spec.ID))),
	}
	if n := spec.Network; n != nil {
		own.Network, p.Own = &wire.Attachment{NetNS: n.NetNS}, n.NetNS != ""
	}
	prepare := func(dir string, g cgroup.Group) ([]runtime.Mount, error) {
		p.Memory = g.File("memory", "memory.limit_in_bytes")
		if d.Tasks.Tree().Unified() {
			p.Memory = g.File("memory", "memory.max")
		}
		return root(dir, layers, spec.Mounts)
	}
	defer d.spare.renew(spec) // when this one is out of the way
	if sp := d.spare.take(spec); sp != nil {
		h, err := d.tasks.StartFrom(ctx, own, sp.Spare, func(dir string, g cgroup.Group) error {
			mounts, err := prepare(dir, g)
			if err != nil {
				return err
			}
			return sp.hand(ctx, &p, own, mounts)
		})
		if err == nil {
			return h, nil
		}
		sp.end()
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		// What is wrong with the task is told in its field's name below, and what was wrong with the spare does not matter there.
		d.spare.log("a module is started anew: that by a spare failed", err)
	}
	return d.tasks.StartWith(ctx, own, func(dir string, g cgroup.Group) ([]runtime.Mount, error) {
		mounts, err := prepare(dir, g)
		if err != nil {
			return nil, err
		}
		p.Root = filepath.Join(dir, rootDir)
		data, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		return mounts, os.WriteFile(filepath.Join(dir, processFile), data, 0o600)
	})
}

// environment is the task's, with what a program in WASI has no other way to know: its directory, and its sockets.
func environment(spec runtime.Spec) []string {
	env := slices.Clone(spec.Env)
	add := func(name, value string) {
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			env = append(env, name+"="+value)
		}
	}
	add("PATH", defaultPath)
	if spec.Dir != "" {
		add("PWD", spec.Dir)
	}
	if spec.Handler == nil && len(spec.Listen) > 0 {
		var list []string
		for i, port := range spec.Listen {
			list = append(list, fmt.Sprintf("%d=%d", port, firstSocket+i))
		}
		add(runtime.EnvListen, strings.Join(list, ","))
	}
	return env
}

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// firstSocket is the descriptor of the first listening socket: 3 is the root directory.
	firstSocket = 4
)

// root says how the task's root is mounted: the layers, above them a layer of ours with the places of mounts, and the mounts.
func root(dir string, layers []string, mounts []runtime.Mount) ([]runtime.Mount, error) {
	target, points := filepath.Join(dir, rootDir), filepath.Join(dir, pointsDir)
	for _, d := range []string{target, points} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	all := runtime.Overlay(append([]string{points}, layers...)...)
	if all.Target = target; len(all.Options[0]) > 4095 {
		return nil, &runtime.InvalidSpec{Field: "rootfs[0]",
			Reason: fmt.Sprintf("its %d layers do not fit into one mount; build the image with fewer", len(layers))}
	}
	out := []runtime.Mount{all}
	in, err := os.OpenRoot(points)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for i, m := range mounts {
		at := strings.TrimPrefix(filepath.Clean(m.Target), "/")
		folder := true
		if m.Type == "bind" {
			st, err := os.Stat(m.Source)
			if err != nil {
				return nil, &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].source", i),
					Reason: m.Source + " does not exist on the host; create it first"}
			}
			folder = st.IsDir()
		}
		if err := point(in, at, folder); err != nil {
			return nil, &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].target", i), Reason: err.Error()}
		}
		m.Target = filepath.Join(target, at)
		out = append(out, m)
	}
	return out, nil
}

// point makes the place of a mount.
func point(in *os.Root, at string, folder bool) error {
	parents := at
	if !folder {
		parents = filepath.Dir(at)
	}
	if err := in.MkdirAll(parents, 0o755); err != nil || folder {
		return err
	}
	f, err := in.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// check refuses what a module cannot have, before anything is touched, and gives the layers of the root, the topmost first.
func check(task runtime.Spec) ([]string, error) {
	if err := task.Check(); err != nil {
		return nil, err
	}
	no := func(a runtime.Ability, reason string) ([]string, error) {
		return nil, &runtime.Unsupported{Ability: a, Driver: spec.RuntimeWasm, Reason: reason}
	}
	for _, list := range [][]string{task.CapAdd, task.CapDrop} {
		if _, err := runtime.CapabilityNames("capAdd", list); err != nil {
			return nil, err
		}
	}
	switch {
	case task.User != "":
		return no(runtime.AbilityUser, "WASI has no users; leave it out")
	case task.TTY:
		return no(runtime.AbilityTTY, "WASI has no terminals")
	case task.Privileged || task.AllowNewPrivileges:
		return no(runtime.AbilityPrivileged, "a module has no privileges, and nothing to use them with")
	case len(task.CapAdd) > 0:
		return no(runtime.AbilityCapabilities, "a module makes no system calls, and has no use for them")
	case task.Seccomp == runtime.SeccompDefault:
		return no(runtime.AbilitySeccomp, "a module makes no system calls of its own; leave it out")
	case task.SharePID != nil:
		return no(runtime.AbilityPIDNS, "WASI has no processes")
	case len(task.Devices)+len(task.Groups)+len(task.Hooks) > 0:
		return no(runtime.AbilityDevices, "WASI has no devices; mount a file")
	case len(task.Sysctls) > 0:
		return no(runtime.AbilitySysctls, "a module has no network stack of its own to set")
	case len(task.ExtraHosts) > 0:
		return no(runtime.AbilityHosts, "a module looks up no names")
	case task.UserNS != nil:
		return no(runtime.AbilityUserNS, "WASI has no users; a module runs as nobody")
	case len(task.Ulimits) > 0:
		return no(runtime.AbilityUlimits, "WASI has no resource limits but those of the runtime")
	case task.Checkpoint:
		return no(runtime.AbilityCheckpoint, "modules cannot be written into files while they run")
	}
	switch task.Signal() {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGKILL:
	default:
		return no(runtime.AbilitySignals, "WASI has no signals: SIGTERM ends a module, others cannot be told to it")
	}
	if n := task.Network; n != nil && n.NetNS != "" {
		if _, err := os.Stat(n.NetNS); err != nil {
			return nil, &runtime.InvalidSpec{Field: "network.netns", Reason: fmt.Sprintf("%s cannot be joined: %v", n.NetNS, err)}
		}
	}
	if h := task.Handler; h != nil && len(task.Listen) == 0 {
		return nil, &runtime.InvalidSpec{Field: "handler", Reason: "a handler needs a TCP port to listen on"}
	}
	return layersOf(task)
}

func layersOf(spec runtime.Spec) (layers []string, err error) {
	bad := func(format string, args ...any) ([]string, error) {
		return nil, &runtime.InvalidSpec{Field: "rootfs[0]", Reason: fmt.Sprintf(format, args...)}
	}
	if len(spec.RootFS) != 1 {
		return bad("there are %d root file systems; give one with the module", len(spec.RootFS))
	}
	switch m := spec.RootFS[0]; m.Type {
	case "bind":
		layers = []string{m.Source}
	case "overlay":
		var rest []string
		var err error
		if layers, rest, err = runtime.OverlayDirs(m.Options); err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return bad("option %s is not known: the root of a module is read-only", strconv.Quote(rest[0]))
		}
	default:
		return bad("type %q is unknown; use overlay or bind", m.Type)
	}
	for _, l := range layers {
		if st, err := os.Stat(l); err != nil || !st.IsDir() {
			return bad("layer %s is not a directory", l)
		}
	}
	return layers, nil
}
