//go:build linux

package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/spec"
)

// Appliances is a runtime.Driver, Statser, Logger and Pauser for machines whose system is the image's own. There is no init of ours
// in them: their console is the log, the stop signal is the power button, and how they end is what they tell the machine.
type Appliances struct {
	supervised
	*selfTest
	base *monitor.Driver
	opts Options
	kind kind
}

// kind is what tells the two sorts of appliances apart.
type kind struct {
	name string
	// memory is a machine's where the task has no limit.
	memory skerry.Bytes
	parts  func(arch string) parts
	// probe is the image of the self-test: a file, and what is in it.
	probe func(arch string) ([]byte, bool)
	// place is where the image has it.
	place string
	// command is what the self-test names to start it; empty: place.
	command string
	// abilities are those that not all have.
	abilities []runtime.Ability
	// refuse says what machines of this kind cannot have beside what none can.
	refuse func(spec *runtime.Spec) error
	// find completes a setup by what is in the layers of an image.
	find func(dirs []string, spec *runtime.Spec, s *setup) error
	// bring makes the files of a task; nil: there are none.
	bring func(t *monitor.Task, s *setup) error
}

// applianceMemory is what the processes around an appliance take on the host.
const applianceMemory = hostMemory

// NewUnikernels opens the state directory of a driver of kernels that are a whole program.
func NewUnikernels(o Options) (*Appliances, error) {
	return newAppliances(o, kind{
		name: spec.RuntimeUnikernel, memory: 128 * skerry.MiB, parts: bareBoard, probe: probe.Kernel, place: "kernel",
		abilities: []runtime.Ability{runtime.AbilityReadOnlyRoot}, // it has no root that could be written to
		refuse:    refuseKernel, find: findKernel,
	})
}

func newAppliances(o Options, k kind) (*Appliances, error) {
	if len(o.Command) == 0 || !filepath.IsAbs(o.Command[0]) {
		return nil, fmt.Errorf("runtime %s: option Command %q must begin with an absolute path", k.name, o.Command)
	}
	base, err := monitor.NewDriver(monitor.DriverOptions{Name: k.name, Dir: o.Dir, CgroupParent: o.CgroupParent, Conmon: o.Conmon, Log: o.Log,
		Sandbox: monitor.Sandbox{Memory: applianceMemory}})
	if err != nil {
		return nil, err
	}
	d := &Appliances{supervised: base, base: base, opts: o, kind: k}
	d.selfTest = newSelfTest(base, o.Dir, probeWork, d.check)
	return d, nil
}

// Stats reads the task's cgroup, in which is the whole machine.
func (d *Appliances) Stats(ctx context.Context, h runtime.Handle) (runtime.Stats, error) {
	return d.base.Stats(ctx, h)
}

// Remove is runtime.Driver's.
func (d *Appliances) Remove(ctx context.Context, h runtime.Handle) error {
	d.unplug(ctx, h)
	return d.base.Remove(ctx, h)
}

// CleanUp removes every task.
func (d *Appliances) CleanUp(ctx context.Context) error {
	for _, h := range d.base.Tasks.List() {
		d.unplug(ctx, h)
	}
	return d.base.CleanUp(ctx)
}

// unplug has vm-run end a machine that runs, and itself. Were both killed, a first process of the host that collects late what has
// lost its parent would hold up the removal of the control group.
func (d *Appliances) unplug(ctx context.Context, h runtime.Handle) {
	t, err := d.base.Tasks.Get(h)
	if err != nil || t.Status().State != runtime.StateRunning {
		return
	}
	if t.Record().Init.Signal(plug) == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = t.Wait(ctx)
	}
}

// Start makes and starts a machine.
func (d *Appliances) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	if err := d.refuse(&spec); err != nil {
		return runtime.Handle{}, err
	}
	c, err := d.choose(ctx)
	if err != nil {
		return runtime.Handle{}, err
	}
	return d.start(ctx, spec, c)
}

func (d *Appliances) start(ctx context.Context, spec runtime.Spec, c *choice) (runtime.Handle, error) {
	dirs, err := layers(spec.RootFS)
	if err != nil {
		return runtime.Handle{}, err
	}
	memory := cmp.Or(spec.Resources.Memory, d.opts.Memory, d.kind.memory)
	s := &setup{
		QEMU: c.qemu, Accel: c.accel, RAM: int64(memory / skerry.MiB * skerry.MiB), CPUs: processors(spec.Resources.CPU),
		Appliance: &appliance{Env: spec.Env},
	}
	if n := spec.Network; n != nil {
		s.NetNS = n.NetNS
		for _, a := range n.DNS {
			s.Appliance.DNS = append(s.Appliance.DNS, a.String())
		}
	}
	if err := d.kind.find(dirs, &spec, s); err != nil {
		return runtime.Handle{}, err
	}
	return d.base.Launch(ctx, spec, d.opts.Command[0], func(t *monitor.Task) error {
		t.Update(func(r *monitor.Record) { r.Handle.Monitor = c.monitor() })
		return d.bring(ctx, t, &spec, s)
	})
}

func (d *Appliances) bring(ctx context.Context, task *monitor.Task, spec *runtime.Spec, s *setup) error {
	r, g := spec.Resources, task.Group()
	if err := g.Create(cgroup.Limits{CPU: r.CPU, CPURequest: r.CPURequest, Memory: skerry.Bytes(s.RAM) + applianceMemory,
		MemoryLow: r.MemoryLow, CPUSet: r.CPUSet, IO: r.IO, HugePages: r.HugePages}); err != nil {
		return &runtime.StartError{Field: "resources", Err: err}
	}
	s.CgroupDirs, s.Unified = g.Dirs(), d.base.Tasks.Tree().Unified()
	if d.kind.bring != nil {
		if err := d.kind.bring(task, s); err != nil {
			return err
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(task.Path(setupFile), data, 0o600); err != nil {
		return err
	}
	err = task.Start(ctx, monitor.Launch{Runtime: d.opts.Command[0], RuntimeArgs: d.opts.Command[1:], LogMax: spec.LogMax()})
	refused, ok := errors.AsType[*monitor.CreateError](err)
	if !ok {
		return err
	}
	field, msg := refused.Field(func(f string) bool { return f == "network" || strings.HasPrefix(f, "args") })
	hint := ""
	if s.Kernel != "" && strings.Contains(msg, "PVH") || s.Kernel != "" && strings.Contains(msg, "kernel") && field == "" {
		field, hint = "args[0]", "build the kernel for QEMU: on amd64 an ELF file with a PVH note, or a bzImage"
	}
	return &runtime.StartError{Field: field, Err: errors.New(msg), Hint: hint}
}

// refuse says what a machine cannot have that has no init of ours, before anything is touched.
func (d *Appliances) refuse(spec *runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	no := func(a runtime.Ability, reason string) error {
		return &runtime.Unsupported{Ability: a, Driver: d.kind.name, Reason: reason}
	}
	for _, list := range [][]string{spec.CapAdd, spec.CapDrop} {
		if _, err := runtime.CapabilityNames("capAdd", list); err != nil {
			return err
		}
	}
	switch {
	case spec.User != "":
		return no(runtime.AbilityUser, "users are the affair of the system in the machine; leave it out")
	case spec.TTY:
		return no(runtime.AbilityTTY, "its console is a serial line, which is the log")
	case spec.Dir != "" && spec.Dir != "/":
		return no(runtime.AbilityDir, "there is no program of ours in the machine to be started in a directory; leave it out")
	case spec.Privileged || spec.AllowNewPrivileges:
		return no(runtime.AbilityPrivileged, "the system in the machine has all of it, and nothing of the host")
	case len(spec.CapAdd) > 0:
		return no(runtime.AbilityCapabilities, "the system in the machine has all of them, and none of the host")
	case spec.Seccomp == runtime.SeccompDefault:
		return no(runtime.AbilitySeccomp, "system calls go to the machine's own system, and are not filtered; leave it out")
	case spec.SharePID != nil:
		return no(runtime.AbilityPIDNS, "processes of two machines cannot see each other")
	case len(spec.Devices)+len(spec.Groups)+len(spec.Hooks) > 0:
		return no(runtime.AbilityDevices, "the host's devices are not in the machine; use the oci runtime")
	case spec.HostNetwork:
		return no(runtime.AbilityHostNetwork, "the host's network is not in the machine; use the oci runtime")
	case len(spec.Sysctls) > 0:
		return no(runtime.AbilitySysctls, "the machine's system is set by what is in its image")
	case len(spec.ExtraHosts) > 0:
		return no(runtime.AbilityHosts, "the machine's system has a hosts file of its own")
	case spec.UserNS != nil:
		return no(runtime.AbilityUserNS, "users of a machine's system are nobody outside as it is")
	case len(spec.Ulimits) > 0:
		return no(runtime.AbilityUlimits, "the machine's system limits its own")
	case spec.Handler != nil:
		return no(runtime.AbilityHandler, "a machine is not started for a request; use the wasm runtime")
	case spec.Checkpoint:
		return no(runtime.AbilityCheckpoint, "machines are not checkpointed")
	}
	switch spec.Signal() {
	case unix.SIGTERM, unix.SIGINT, unix.SIGKILL:
	default:
		return no(runtime.AbilitySignals, "a machine has no signals: SIGTERM presses its power button, others cannot be told to it")
	}
	if m := spec.Resources.Memory; m > 0 && m < leastMemory {
		return &runtime.InvalidSpec{Field: "resources.memory",
			Reason: fmt.Sprintf("%s is less than a machine needs; use %s or more", m, leastMemory)}
	}
	if n := spec.Network; n != nil && n.NetNS != "" {
		if _, err := os.Stat(n.NetNS); err != nil {
			return &runtime.InvalidSpec{Field: "network.netns", Reason: fmt.Sprintf("%s cannot be joined: %v", n.NetNS, err)}
		}
	}
	return d.kind.refuse(spec)
}

// leastMemory is that of a machine.
const leastMemory = 8 * skerry.MiB

// check boots what the self-test's image has, with limits.
func (d *Appliances) check(ctx context.Context, report *runtime.Report) *choice {
	image, ok := d.kind.probe(goruntime.GOARCH)
	switch {
	case !d.opts.Enabled: // what nobody has set up is no fault
		report.Absent = true
		report.Cause, report.Cure = "virtual machines are not allowed on this worker", "start it with --machines, where QEMU is installed"
		return nil
	case !ok:
		report.Absent = true
		report.Cause, report.Cure = "there are no such machines for "+goruntime.GOARCH+" yet",
			"use amd64, or isolation: hardware with an image of containers"
		return nil
	case !d.base.Preflight(report, "machines get namespaces and limits, which need root"):
		return nil
	}
	c := choice{}
	if c.qemu = installed(report, d.opts.QEMU, "qemu-system-x86", d.kind.parts(goruntime.GOARCH).program); c.qemu == "" {
		return nil
	}
	dir := filepath.Join(d.opts.Dir, "check", "layer")
	file := filepath.Join(dir, d.kind.place)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, image, 0o644)
	}
	if err != nil {
		report.Cause, report.Cure = err.Error(), "make the state directory writable, and free space there"
		return nil
	}
	try := func(ctx context.Context, c *choice) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		start := func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) { return d.start(ctx, spec, c) }
		return d.base.Try(ctx, c.accel, runtime.Mount{Type: "bind", Source: dir}, []string{cmp.Or(d.kind.command, "/"+d.kind.place)}, start)
	}
	if !d.accelerate(ctx, report, &c, d.opts.Emulate, try) {
		return nil
	}
	c.qemuIs = version(ctx, c.qemu)
	report.Version = fmt.Sprintf("%s, %s", c.qemuIs, c.accel)
	report.Abilities = []runtime.Ability{
		runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityImages, runtime.AbilityLogs, runtime.AbilityMemory, runtime.AbilityNetNS,
		runtime.AbilityPause, runtime.AbilityStats,
	}
	report.Abilities = append(append(report.Abilities, d.kind.abilities...), d.base.IOAbilities()...)
	slices.Sort(report.Abilities)
	return &c
}
