//go:build linux

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
)

// check boots a guest: with KVM if that works, else with an emulated processor if that is allowed.
func (d *Driver) check(ctx context.Context, r *runtime.Report) *choice {
	if d.opts.Kernel == "" { // what nobody has set up is no fault
		r.Absent = true
		r.Cause, r.Cure = "no guest kernel is given", "give the worker one with --guest-kernel; docs/OPERATIONS.md says where to get it"
		return nil
	}
	if !d.base.Preflight(r, "machines get namespaces and limits, which need root") {
		return nil
	}
	c := choice{}
	if c.qemu = installed(r, d.opts.QEMU, "qemu-system-x86", board(goruntime.GOARCH).program); c.qemu == "" {
		return nil
	}
	c.fileShare = installed(r, d.opts.FileShare, "qemu-system-common (Debian 12) or virtiofsd", "virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
	if c.fileShare == "" {
		return nil
	}
	if monitor.LookPath("mkfs.ext4") == "" {
		r.Cause, r.Cure = "mkfs.ext4 is not installed", "apt-get install e2fsprogs"
		return nil
	}
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok || len(guestInit) == 0 {
		r.Cause, r.Cure = "there are no guests for "+goruntime.GOARCH, "use amd64, arm64 or riscv64"
		return nil
	}
	var err error
	if c.kernel, err = d.openKernel(); err != nil {
		r.Cause, r.Cure = causeAndCure(err)
		return nil
	}
	layer := filepath.Join(d.opts.Dir, "check", "layer")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		r.Cause, r.Cure = err.Error(), "make the state directory writable"
		return nil
	}
	file := filepath.Join(layer, "probe")
	if have, _ := os.ReadFile(file); string(have) != string(program) { // the disk of one that is the same is kept
		_ = os.Remove(file)
		if err := files.Program(file, bytes.NewReader(program), 0o755); err != nil {
			r.Cause, r.Cure = err.Error(), "free space below "+d.opts.Dir
			return nil
		}
	}
	if !d.accelerate(ctx, r, &c, d.opts.Emulate, func(ctx context.Context, c *choice) error { return d.try(ctx, c, layer) }) {
		return nil
	}
	r.Version = fmt.Sprintf("%s, %s, linux %s sha256:%s", version(ctx, c.qemu), c.accel, c.kernel.Version, c.kernel.Digest)
	r.Abilities = []runtime.Ability{
		runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityExec, runtime.AbilityImages, runtime.AbilityLogs,
		runtime.AbilityMemory, runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPids, runtime.AbilityPrivileged,
		runtime.AbilityReadOnlyRoot, runtime.AbilityStats, runtime.AbilitySysctls, runtime.AbilityTTY,
		runtime.AbilityDir, runtime.AbilitySignals, runtime.AbilityUlimits, runtime.AbilityUser,
	}
	r.Abilities = append(r.Abilities, d.base.IOAbilities()...)
	return &c
}

// try runs the self-test in a machine.
func (d *Driver) try(ctx context.Context, c *choice, layer string) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience(c.accel)+30*time.Second)
	defer cancel()
	return d.base.TryWith(ctx, c.accel, runtime.Mount{Type: "bind", Source: layer}, []string{"/probe"}, func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
		return d.start(ctx, spec, c)
	}, d.Stats)
}
