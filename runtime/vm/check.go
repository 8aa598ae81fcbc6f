//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
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

// check boots a guest, by what the operator wants for machines. QEMU does it with KVM if that works, else with an emulated processor
// if that is allowed.
func (d *Driver) check(ctx context.Context, report *runtime.Report) *choice {
	if d.opts.Kernel == "" { // what nobody has set up is no fault
		report.Absent = true
		report.Cause, report.Cure = "no guest kernel is given", "give the worker one with --guest-kernel; docs/OPERATIONS.md says where to get it"
		return nil
	}
	if !d.base.Preflight(report, "machines get namespaces and limits, which need root") {
		return nil
	}
	c := choice{}
	if monitor.LookPath("mkfs.ext4") == "" {
		report.Cause, report.Cure = "mkfs.ext4 is not installed", "apt-get install e2fsprogs"
		return nil
	}
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok || len(guestInit) == 0 {
		report.Cause, report.Cure = "there are no guests for "+goruntime.GOARCH, "use amd64, arm64 or riscv64"
		return nil
	}
	var err error
	if c.kernel, err = d.openKernel(); err != nil {
		report.Cause, report.Cure = causeAndCure(err)
		return nil
	}
	layer := filepath.Join(d.opts.Dir, "check", "layer")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		report.Cause, report.Cure = err.Error(), "make the state directory writable"
		return nil
	}
	file := filepath.Join(layer, "probe")
	if have, _ := os.ReadFile(file); string(have) != string(program) { // the disk of one that is the same is kept
		_ = os.Remove(file)
		if err := files.Program(file, bytes.NewReader(program), 0o755); err != nil {
			report.Cause, report.Cure = err.Error(), "free space below "+d.opts.Dir
			return nil
		}
	}
	test := &checking{d, report, func(ctx context.Context, c *choice) error { return d.try(ctx, c, layer) }}
	if !test.run(ctx, &c) {
		return nil
	}
	report.Abilities = []runtime.Ability{
		runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityExec, runtime.AbilityImages, runtime.AbilityLogs,
		runtime.AbilityMemory, runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPids, runtime.AbilityPrivileged,
		runtime.AbilityReadOnlyRoot, runtime.AbilityStats, runtime.AbilitySysctls, runtime.AbilityTTY,
		runtime.AbilityDir, runtime.AbilityHosts, runtime.AbilitySignals, runtime.AbilityUlimits, runtime.AbilityUser,
	}
	report.Abilities = append(report.Abilities, d.base.IOAbilities()...)
	return &c
}

// checking looks for what runs machines.
type checking struct {
	d   *Driver
	r   *runtime.Report
	try func(context.Context, *choice) error
}

// run completes a choice with what the operator wants and a guest came up with.
func (k *checking) run(ctx context.Context, c *choice) bool {
	switch k.d.opts.Monitor {
	case MonitorFirecracker:
		return k.firecracker(ctx, c)
	case MonitorCloudHypervisor:
		return k.cloudHypervisor(ctx, c)
	case MonitorQEMU:
		return k.qemu(ctx, c)
	}
	// QEMU is looked at first: it says in the end whether KVM works, and what it says is to stand when Firecracker is not there.
	ok := k.qemu(ctx, c)
	if ok && c.accel != "kvm" {
		return true // so Firecracker would not run either
	}
	with, found := *c, runtime.Report{}
	if !ok {
		with.qemu, with.fileShare = "", ""
	}
	if !(&checking{k.d, &found, k.try}).firecracker(ctx, &with) {
		if ok {
			k.r.Cause, k.r.Cure = "QEMU runs all machines; Firecracker does not: "+found.Cause, found.Cure
		}
		return ok
	}
	if version := k.r.Version; ok {
		found.Version += "; for writable volumes " + version
	}
	k.r.Cause, k.r.Cure, k.r.Version = "", "", found.Version
	*c = with
	return true
}

// qemu looks for QEMU, and boots a guest with it.
func (k *checking) qemu(ctx context.Context, c *choice) bool {
	if c.qemu = installed(k.r, k.d.opts.QEMU, "qemu-system-x86", board(goruntime.GOARCH).program); c.qemu == "" {
		return false
	}
	c.qemuIs = version(ctx, c.qemu)
	if !k.findFileShare(c) || !k.d.accelerate(ctx, k.r, c, k.d.opts.Emulate, k.tryQEMU) {
		return false
	}
	k.r.Version = fmt.Sprintf("%s, %s, linux %s sha256:%s", c.qemuIs, c.accel, c.kernel.Version, c.kernel.Digest)
	return true
}

// tryQEMU boots a guest, an emulated one with its kernel unpacked where that can be. One that has an entry need not come up by it: then the
// image that was given is booted.
func (k *checking) tryQEMU(ctx context.Context, c *choice) error {
	if c.accel == "kvm" {
		return k.try(ctx, c)
	}
	if c.vmlinux = k.d.direct(ctx, c.kernel); c.vmlinux != "" {
		err := k.try(ctx, c)
		if err == nil || ctx.Err() != nil {
			return err
		}
		k.d.opts.Log.Warn("no emulated guest came up with its kernel unpacked; they unpack it themselves", "err", err)
		c.vmlinux = ""
	}
	return k.try(ctx, c)
}

// findFileShare looks for the program that shares a machine's mounts.
func (k *checking) findFileShare(c *choice) bool {
	c.fileShare = installed(k.r, k.d.opts.FileShare, "qemu-system-common (Debian 12) or virtiofsd",
		"virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
	return c.fileShare != ""
}

// firecracker looks for Firecracker, and boots a guest with it.
func (k *checking) firecracker(ctx context.Context, c *choice) bool {
	alone := *c
	alone.qemu, alone.fileShare = "", ""
	if alone.firecracker = findFirecracker(ctx, k.r, k.d.opts.Firecracker); alone.firecracker == nil {
		return false
	}
	var err error
	if alone.vmlinux, err = k.d.vmlinux(ctx, c.kernel); err != nil {
		k.r.Cause, k.r.Cure = causeAndCure(err)
		return false
	}
	if err := k.d.tryKVM(ctx, &alone, k.try); err != nil {
		k.withoutKVM(err)
		return false
	}
	c.accel, c.firecracker, c.vmlinux = "kvm", alone.firecracker, alone.vmlinux
	k.r.Version = fmt.Sprintf("Firecracker %s, kvm, linux %s sha256:%s", c.firecracker.Version, c.kernel.Version, c.kernel.Digest)
	return true
}

// withoutKVM says in the report why no guest came up with KVM on a monitor that cannot do without.
func (k *checking) withoutKVM(err error) {
	cause, _ := causeAndCure(err)
	k.r.Cause = "no working KVM: " + cause
	k.r.Cure = "use a machine whose /dev/kvm runs Linux guests; of the monitors QEMU alone can emulate: --microvm-monitor qemu --emulate"
	if s, ok := errors.AsType[*runtime.StartError](err); ok && s.Hint != "" {
		k.r.Cure = s.Hint
	}
}

// cloudHypervisor looks for Cloud Hypervisor, and boots a guest with it.
func (k *checking) cloudHypervisor(ctx context.Context, c *choice) bool {
	if c.cloudHypervisor = findCloudHypervisor(ctx, k.r, k.d.opts.CloudHypervisor); c.cloudHypervisor == nil || !k.findFileShare(c) {
		return false
	}
	if err := k.d.tryKVM(ctx, c, k.try); err != nil {
		k.withoutKVM(err)
		return false
	}
	c.accel = "kvm"
	k.r.Version = fmt.Sprintf("Cloud Hypervisor %s, kvm, linux %s sha256:%s", c.cloudHypervisor.Version, c.kernel.Version, c.kernel.Digest)
	return true
}

// try runs the self-test in a machine.
func (d *Driver) try(ctx context.Context, c *choice, layer string) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience(c.accel)+30*time.Second)
	defer cancel()
	return d.base.TryWith(ctx, c.accel, runtime.Mount{Type: "bind", Source: layer}, []string{"/probe"},
		func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
			return d.start(ctx, spec, c)
		}, d.Stats)
}
