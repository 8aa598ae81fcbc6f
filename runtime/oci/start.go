//go:build linux

package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/hybrid"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Start makes and starts a container.
func (d *Driver) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	if err := d.checkSpec(spec); err != nil {
		return runtime.Handle{}, err
	}
	program, err := d.choose(ctx)
	d.mu.Lock()
	why, copied := d.noUserNS, d.copied
	d.mu.Unlock()
	if err == nil && spec.UserNS != nil && copied && !spec.RootFS[0].Shifted {
		why = "owners of files are not mapped here, and the root is none of the namespace's own users"
	}
	if err == nil && spec.UserNS != nil && why != "" {
		return runtime.Handle{}, &runtime.Unsupported{Ability: runtime.AbilityUserNS, Driver: d.Name(), Reason: why + "; " + UserNSCure}
	}
	if spec.Checkpoint {
		program, err = d.chooseForCheckpoint(ctx, &spec)
	}
	if err != nil {
		return runtime.Handle{}, err
	}
	h, err := d.start(ctx, spec, program)
	if err == nil || spec.Checkpoint || !hybrid.Refused(err.Error()) {
		return h, err
	}
	// The machine has changed since the self-test: cgroup2 holds controllers now. The self-test finds another way, or another runtime.
	d.mu.Lock()
	if d.chosen == program {
		d.chosen = ""
	}
	d.mu.Unlock()
	if again, e := d.choose(ctx); e == nil && again != program {
		return d.start(ctx, spec, again)
	}
	return h, err
}

// start starts a checked spec.
func (d *Driver) start(ctx context.Context, spec runtime.Spec, program string) (runtime.Handle, error) {
	return d.startFrom(ctx, spec, program, "")
}

// startFrom starts a checked spec, from a checkpoint if there is one.
func (d *Driver) startFrom(ctx context.Context, spec runtime.Spec, program, from string) (runtime.Handle, error) {
	return d.Launch(ctx, spec, program, func(t *monitor.Task) error { return d.bring(ctx, t, spec, program, from) })
}

// bring goes through the steps of a start.
func (d *Driver) bring(ctx context.Context, task *monitor.Task, spec runtime.Spec, program, from string) error {
	config, err := d.prepare(ctx, task, spec, from)
	if err != nil {
		return err
	}
	key, err := d.addSeccomp(config, spec, d.Root(task), program)
	if err != nil {
		return fmt.Errorf("seccomp profile: %w", err)
	}
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(task.Path(configFile), data, 0o600); err != nil {
		return err
	}
	root := d.root(program)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	launch := monitor.Launch{Runtime: program, RuntimeArgs: d.global(program), LogMax: spec.LogMax(), TTY: spec.TTY}
	bounds := cgroup.Limits{MemoryLow: spec.Resources.MemoryLow, IO: spec.Resources.IO, HugePages: spec.Resources.HugePages}
	if from != "" {
		if err := d.goOn(ctx, task, launch, from); err != nil {
			return err
		}
		return task.Group().Bound(bounds)
	}
	err = task.Start(ctx, launch)
	if err != nil {
		return Explain(spec, err)
	}
	ownStreams(task, config.Process.User)
	if err := unstage(task); err != nil {
		return err
	}
	if err := task.Group().Bound(bounds); err != nil {
		return &runtime.StartError{Field: "resources", Err: err}
	}
	d.keepFilter(key, task, root)
	if err := d.release(ctx, task, program, root); err != nil {
		return Explain(spec, err)
	}
	return nil
}

// checkSpec refuses what this driver cannot run, before anything is touched.
func (d *Driver) checkSpec(spec runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if err := noHandler(d.Name(), &spec); err != nil {
		return err
	}
	if err := d.refuse(&spec); err != nil {
		return err
	}
	if err := withinOwn(d.Name(), &spec); err != nil {
		return err
	}
	return checkHost(spec)
}

// withinOwn refuses limits above the agent's own for a container with users of its own: nobody inside may raise one.
func withinOwn(driver string, spec *runtime.Spec) error {
	if spec.UserNS == nil {
		return nil
	}
	for _, u := range spec.Ulimits {
		var own unix.Rlimit
		which, ok := monitor.Rlimits()[u.Name]
		if !ok {
			return &runtime.InvalidSpec{Field: "ulimits", Reason: fmt.Sprintf("%q is not a resource limit; see getrlimit(2)", u.Name)}
		}
		if err := unix.Prlimit(0, which, nil, &own); err != nil {
			return fmt.Errorf("the agent's own limit of %s: %w", u.Name, err)
		}
		if u.Hard > own.Max {
			return &runtime.Unsupported{Ability: runtime.AbilityUlimits, Driver: driver, Reason: fmt.Sprintf(
				"the worker's service may have %d of %s itself; raise Limit%s= in its unit", own.Max, u.Name, strings.ToUpper(u.Name))}
		}
	}
	return nil
}

// noHandler refuses what only modules do.
func noHandler(driver string, spec *runtime.Spec) error {
	if spec.Handler == nil {
		return nil
	}
	return &runtime.Unsupported{Ability: runtime.AbilityHandler, Driver: driver,
		Reason: "a container is not started for a request; use the wasm runtime"}
}

// checkHost looks for what a valid spec names of the host.
func checkHost(spec runtime.Spec) error {
	if len(spec.RootFS) != 1 {
		return &runtime.InvalidSpec{Field: "rootfs", Reason: fmt.Sprintf("has %d mounts; give one overlay or one bind mount", len(spec.RootFS))}
	}
	for i, m := range spec.Mounts {
		if m.Type != "bind" {
			continue
		}
		if _, err := os.Stat(m.Source); err != nil {
			reason := fmt.Sprintf("%s cannot be mounted: %v", m.Source, err)
			if errors.Is(err, fs.ErrNotExist) {
				reason = m.Source + " does not exist on the host; create it first"
			}
			return &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].source", i), Reason: reason}
		}
	}
	if n := spec.Network; n != nil && n.NetNS != "" {
		if _, err := os.Stat(n.NetNS); err != nil {
			return &runtime.InvalidSpec{Field: "network.netns", Reason: fmt.Sprintf("%s cannot be joined: %v", n.NetNS, err)}
		}
	}
	return nil
}

// Explain turns a monitor.CreateError, which has what crun or runc said, into the field at fault and what to do.
func Explain(spec runtime.Spec, err error) error {
	var refused *monitor.CreateError
	if !errors.As(err, &refused) {
		return err
	}
	msg := refused.Message
	// Runc speaks in log lines, of which the last error is the reason.
	if _, rest, ok := strings.Cut(msg, "level=error msg="); ok {
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			msg, _ = strconv.Unquote(quoted)
		}
	}
	// Conmon and the runtimes each put words in front.
	for _, cut := range []string{"runtime create failed: ", "runc create failed: ", "unable to start container process: "} {
		if _, rest, ok := strings.Cut(msg, cut); ok {
			msg = rest
		}
	}
	se := &runtime.StartError{Err: errors.New(strings.TrimSpace(msg))}
	low := strings.ToLower(msg)
	has := func(words ...string) bool {
		for _, w := range words {
			if !strings.Contains(low, w) {
				return false
			}
		}
		return true
	}
	program := spec.Args[0]
	switch {
	case has("chdir") || has("cwd") || has("mkdir", "working directory"):
		se.Field, se.Hint = "dir", fmt.Sprintf("make sure that %s is a directory that the user may enter", spec.Dir)
	case has(strings.ToLower(program), "no such file") || has("executable file", "not found"):
		se.Field, se.Hint = "args[0]", fmt.Sprintf("check that %s is in the image, and that its interpreter or dynamic loader is too", program)
	case has("permission denied") && (has(strings.ToLower(program)) || has("exec")):
		se.Field, se.Hint = "args[0]", fmt.Sprintf("make %s executable (chmod +x) for the user of the container", program)
	case has("exec format error"):
		se.Field, se.Hint = "args[0]", fmt.Sprintf("%s is not a program for this machine's architecture; build the image for it", program)
	case has("cannot allocate memory") || has("memory.limit") || has("memory limit"):
		se.Field, se.Hint = "resources.memory", "give the container more memory"
	case has("cpuset"):
		se.Field, se.Hint = "resources.cpuset", "name processors that this machine has"
	case has("sysctl"):
		se.Field, se.Hint = "sysctls", "only sysctls of the container's own namespaces can be set"
	case has("mount"):
		se.Hint = "check the mounts and their targets"
	}
	return se
}
