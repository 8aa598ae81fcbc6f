//go:build linux

package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
)

// Check runs a small program with limits and looks whether they were set.
func (d *Driver) Check(ctx context.Context) (r runtime.Report) {
	began := time.Now()
	r.Driver = "native"
	defer func() { r.Took = time.Since(began) }()
	if os.Geteuid() != 0 {
		r.Cause, r.Cure = "cgroups and users need root", "run the worker as root"
		return r
	}
	if _, err := exec.LookPath(d.opts.Conmon); err != nil {
		r.Cause, r.Cure = d.opts.Conmon+" is not installed", "apt-get install conmon"
		return r
	}
	if missing := d.tasks.Tree().Missing(); len(missing) > 0 {
		r.Cause = "cgroup controllers are missing: " + strings.Join(missing, ", ")
		r.Cure = "enable them (on Raspberry Pi OS: cgroup_enable=memory on the kernel command line); without them limits cannot be enforced"
		return r
	}
	if err := d.try(ctx); err != nil {
		r.Cause, r.Cure = err.Error(), "look at the worker's log for what the supervisor said"
		return r
	}
	r.Passed, r.Version = true, "linux "+goruntime.GOARCH
	r.Abilities = []runtime.Ability{
		runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityExec, runtime.AbilityLogs, runtime.AbilityMemory,
		runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPids, runtime.AbilityPrivileged, runtime.AbilityStats, runtime.AbilityTTY,
	}
	return r
}

func (d *Driver) try(ctx context.Context) error {
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok {
		return fmt.Errorf("there is no self-test for %s", goruntime.GOARCH)
	}
	file := filepath.Join(d.opts.Dir, "check", "probe")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, program, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	const memory = 64 * skerry.MiB
	h, err := d.Start(ctx, runtime.Spec{
		ID:        runtime.TaskID(fmt.Sprintf("%s%d", checkPrefix(), time.Now().UnixNano())),
		RootFS:    []runtime.Mount{{Type: "bind", Source: file}},
		Args:      []string{"probe"},
		Resources: runtime.Resources{CPU: 500, Memory: memory, Pids: 4},
	})
	if err != nil {
		return err
	}
	defer d.Remove(context.WithoutCancel(ctx), h)
	exit, err := d.Wait(ctx, h)
	if err != nil {
		return err
	}
	log, err := d.OpenLog(ctx, h, runtime.LogOptions{})
	if err != nil {
		return err
	}
	defer log.Close()
	entry, _ := log.Next()
	if exit.Code != probe.Code || entry.Line != probe.Line {
		return fmt.Errorf("the test program printed %q and ended with status %d instead of %q and %d", entry.Line, exit.Code, probe.Line, probe.Code)
	}
	if stats, err := d.Stats(ctx, h); err != nil || stats.MemoryLimit != memory {
		return fmt.Errorf("a memory limit of %s was set, but the kernel says %s (%v)", memory, stats.MemoryLimit, err)
	}
	return nil
}
