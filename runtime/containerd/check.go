//go:build linux

package containerd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/hybrid"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/spec"
)

// oldest is the first version of containerd that is known to work.
const oldest = "1.6"

// Check runs a small container by the daemon for real.
func (d *Driver) Check(ctx context.Context) (r runtime.Report) {
	began := time.Now()
	r.Driver = d.Name()
	defer func() { r.Took = time.Since(began) }()
	select {
	case d.choosing <- struct{}{}:
		defer func() { <-d.choosing }()
	case <-ctx.Done():
		r.Cause = ctx.Err().Error()
		return r
	}
	d.check(ctx, &r)
	return r
}

// choose gives the OCI runtime that passed the self-test, running it first when none has.
func (d *Driver) choose(ctx context.Context) (binary string, err error) {
	get := func() (string, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.binary, d.passed
	}
	if binary, ok := get(); ok {
		return binary, nil
	}
	select {
	case d.choosing <- struct{}{}:
		defer func() { <-d.choosing }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if binary, ok := get(); ok {
		return binary, nil
	}
	var r runtime.Report
	d.check(ctx, &r)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if !r.Passed {
		return "", &runtime.StartError{Err: fmt.Errorf("runtime %s does not work on this worker: %s", d.Name(), r.Cause), Hint: r.Cure}
	}
	binary, _ = get()
	return binary, nil
}

// Of a class that is not declared any more.
const (
	undeclared = "the worker is not told of this class any more"
	declareIt  = "declare it with --containerd-class"
)

func (d *Driver) check(ctx context.Context, report *runtime.Report) {
	if d.opts.Undeclared {
		report.Absent, report.Cause, report.Cure = true, undeclared, declareIt
		return
	}
	if d.opts.Socket == "" {
		report.Absent, report.Cause, report.Cure = true, "no containerd is configured",
			"name its socket, as in --containerd /run/containerd/containerd.sock"
		return
	}
	if !d.Preflight(report, "containers need root") {
		return
	}
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok {
		report.Cause, report.Cure = "there is no self-test for "+goruntime.GOARCH, "use amd64, arm64, riscv64 or arm"
		return
	}
	version, err := d.version(ctx)
	if err != nil {
		report.Cause, report.Cure = d.unreachable(err)
		return
	}
	if !atLeast(version, oldest) {
		report.Cause, report.Cure = fmt.Sprintf("containerd at %s is version %s", d.opts.Socket, version), "install "+oldest+" or newer"
		return
	}
	layer := filepath.Join(d.Options.Dir, "check", "layer")
	err = os.MkdirAll(layer, 0o755)
	if err == nil {
		err = files.Program(filepath.Join(layer, "probe"), bytes.NewReader(program), 0o755)
	}
	if err != nil {
		report.Cause, report.Cure = err.Error(), "make the state directory writable, and free space below "+d.Options.Dir
		return
	}
	d.sweep(ctx)
	binary, note, err := d.settle(ctx, layer)
	if err != nil {
		report.Cause, report.Cure = d.diagnose(err)
		return
	}
	apart, err := d.apart(ctx, layer, binary)
	if err != nil {
		report.Cause, report.Cure = d.diagnose(err)
		if se, ok := errors.AsType[*runtime.StartError](err); ok && se.Hint != "" {
			report.Cure = se.Hint
		}
		return
	}
	d.mu.Lock()
	d.passed, d.binary = true, binary
	d.mu.Unlock()
	report.Passed = true
	roots := "no snapshotter: root file systems are Skerry's own"
	if d.opts.Snapshotter != "" {
		roots = "snapshotter " + d.opts.Snapshotter
	}
	report.Version = fmt.Sprintf("containerd %s, shim %s%s; %s", version, d.opts.Shim, d.with()+note+apart, roots)
	report.Abilities = append([]runtime.Ability{
		runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityDevices, runtime.AbilityExec,
		runtime.AbilityImages,
		runtime.AbilityLogs, runtime.AbilityMemory, runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPIDNS,
		runtime.AbilityPids, runtime.AbilityPrivileged, runtime.AbilityReadOnlyRoot, runtime.AbilityResize, runtime.AbilitySeccomp,
		runtime.AbilityStats,
		runtime.AbilitySysctls, runtime.AbilityTTY, runtime.AbilityDir, runtime.AbilityHostNetwork, runtime.AbilitySignals,
		runtime.AbilityHosts, runtime.AbilityUlimits, runtime.AbilityUser,
	}, d.IOAbilities()...)
	if d.opts.Class != "" && d.opts.Isolation != spec.IsolationShared {
		report.Abilities = slices.DeleteFunc(report.Abilities, func(a runtime.Ability) bool {
			return slices.Contains([]runtime.Ability{runtime.AbilityDevices, runtime.AbilityPrivileged, runtime.AbilityHostNetwork,
				runtime.AbilitySysctls}, a)
		})
	}
	slices.Sort(report.Abilities)
}

// settle finds out whether the shim's OCI runtime works, itself or, if it is a crun that refuses a hybrid host, behind
// a stand-in, which the daemon has to find at the same path as the agent.
func (d *Driver) settle(ctx context.Context, layer string) (binary, note string, err error) {
	try := func(binary string) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // the first shim of a daemon takes its time
		defer cancel()
		links, sprung, err := oci.LinkTrap(filepath.Dir(layer))
		if err != nil {
			return err
		}
		for _, lower := range [][]string{{layer}, {links, layer}} { // the second is an image that tries to have it write on the host
			root := runtime.Overlay(lower...)
			if err := d.Try(ctx, "shim", root, []string{"/probe"}, func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
				return d.start(ctx, spec, binary)
			}); err != nil {
				return err
			}
		}
		return sprung()
	}
	if err = try(d.opts.Binary); err == nil || !hybrid.Refused(err.Error()) {
		return d.opts.Binary, "", err
	}
	path := monitor.LookPath(cmp.Or(d.opts.Binary, "crun")) // it is crun that refuses, also where it is the shim's choice
	if path == "" {
		return "", "", err
	}
	binary, err = hybrid.Try(filepath.Join(d.Options.Dir, "hybrid"), path, err, try)
	return binary, hybrid.Note, err
}

// with tells which OCI runtime the shim is to call.
func (d *Driver) with() string {
	if d.opts.Binary == "" {
		return ""
	}
	return " with " + d.opts.Binary
}

func (d *Driver) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return d.client(d.opts.Socket).Version(ctx)
}

// unreachable tells why a daemon does not say its version.
func (d *Driver) unreachable(err error) (cause, cure string) {
	at := d.opts.Socket
	switch {
	case !filepath.IsAbs(at):
		return fmt.Sprintf("%q is no absolute path of a socket", at),
			"name the socket of containerd, as in --containerd /run/containerd/containerd.sock"
	case errors.Is(err, os.ErrNotExist):
		return "there is no containerd at " + at, "apt-get install containerd and start it, or name its socket with --containerd"
	case errors.Is(err, unix.ECONNREFUSED):
		return "no process listens at " + at, "start containerd, for example by: systemctl start containerd"
	case errors.Is(err, context.DeadlineExceeded):
		return "containerd at " + at + " does not answer", "restart containerd; containers run on"
	}
	return at + ": " + err.Error(), "make sure that it is containerd who listens there"
}

// diagnose tells why the self-test's container did not run.
func (d *Driver) diagnose(err error) (cause, cure string) {
	msg := err.Error()
	if se, ok := errors.AsType[*runtime.StartError](err); ok {
		msg = se.Err.Error()
	}
	cause, cure = "containerd with shim "+d.opts.Shim+d.with()+": "+msg,
		"run a container by hand to see more: ctr --address "+d.opts.Socket+" run --runtime "+d.opts.Shim
	switch {
	case hybrid.Refused(msg):
		cure = hybrid.Cure
	case d.opts.Snapshotter != "" && strings.Contains(msg, "snapshotter not loaded"):
		cure = "set the snapshotter " + d.opts.Snapshotter + " up in the configuration of containerd, or name another for the class"
	case strings.Contains(msg, "failed to start shim") || strings.Contains(msg, "invalid runtime name"):
		cure = "install the shim where containerd finds it, " + shimProgram(d.opts.Shim) + " on its PATH, or name another with --containerd-shim"
	case d.opts.Binary != "" && strings.Contains(msg, d.opts.Binary) && strings.Contains(msg, "not found"):
		cure = "install " + d.opts.Binary + " where containerd finds it, or name another with --containerd-binary"
	}
	return cause, cure
}

// shimProgram is the name of a shim's program, which containerd makes of that of a runtime: io.containerd.runc.v2 is
// containerd-shim-runc-v2.
func shimProgram(shim string) string {
	parts := strings.Split(shim, ".")
	if filepath.IsAbs(shim) || len(parts) < 2 {
		return shim
	}
	return "containerd-shim-" + strings.Join(parts[len(parts)-2:], "-")
}

// atLeast compares the first two numbers of versions; one that is none is taken for a new one.
func atLeast(version, least string) bool {
	numbers := func(s string) (out [2]int, ok bool) {
		parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
		for i := range out {
			if i >= len(parts) {
				return out, false
			}
			n, err := strconv.Atoi(parts[i])
			if err != nil {
				return out, false
			}
			out[i] = n
		}
		return out, true
	}
	have, ok := numbers(version)
	want, _ := numbers(least)
	return !ok || cmp.Or(cmp.Compare(have[0], want[0]), cmp.Compare(have[1], want[1])) >= 0
}

// sweep has the daemon forget what it has of tasks that are not known here any more, since it was away when they were removed.
func (d *Driver) sweep(ctx context.Context) {
	c := d.client(d.opts.Socket)
	list, err := c.Containers(ctx, labelDir, d.Options.Dir)
	if err != nil {
		d.Options.Log.Warn("list leftovers at containerd", "err", err)
		return
	}
	d.catchUp(ctx)
	for _, k := range list {
		if _, err := d.Tasks.Get(runtime.Handle{ID: runtime.TaskID(k.Labels[labelTask])}); !errors.Is(err, runtime.ErrNotFound) {
			continue
		}
		if err := d.forget(ctx, c, k.ID, k.Labels[labelSnapshotter], true); err != nil {
			d.Options.Log.Warn("remove a leftover at containerd", "container", k.ID, "err", err)
		}
	}
}
