//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/spec"
)

// oldestFirecracker is the first whose machines tell their devices by ACPI: the kernels of distributions, whose drivers are modules,
// find them in no other way.
func oldestFirecracker() []int { return []int{1, 8, 0} }

// atLeast compares versions.
func (p *firecrackerProgram) atLeast(want ...int) bool {
	have, ok := parseVersion(p.Version)
	return ok && slices.Compare(have[:], want) >= 0
}

// reports says whether a guest of this release can tell the host which memory it has freed.
func (p *firecrackerProgram) reports() bool { return p.atLeast(1, 14, 0) }

// findFirecracker gives the installed Firecracker with its jailer, or says in the report what is missing.
func findFirecracker(ctx context.Context, report *runtime.Report, named string) *firecrackerProgram {
	const cure = "install a release of Firecracker, 1.8 or newer, with the jailer of the same release beside it, " +
		"and name it with --firecracker"
	if goruntime.GOARCH != "amd64" {
		report.Cause, report.Cure = "Firecracker was not tried on "+goruntime.GOARCH+" yet", "use QEMU: --microvm-monitor qemu"
		return nil
	}
	refuse := func(format string, args ...any) *firecrackerProgram {
		report.Cause, report.Cure = fmt.Sprintf(format, args...), cure
		return nil
	}
	name := named
	if name == "" {
		name = "firecracker"
	}
	path := monitor.LookPath(name)
	if path == "" {
		return refuse("%s is not installed", name)
	}
	path, err := filepath.EvalSymlinks(path) // the jailer names its directory by it
	if err != nil {
		return refuse("%v", err)
	}
	p := &firecrackerProgram{Path: path}
	// A release has firecracker-vVERSION-ARCH and jailer-vVERSION-ARCH.
	beside := filepath.Join(filepath.Dir(path), strings.Replace(filepath.Base(path), "firecracker", "jailer", 1))
	for _, j := range []string{beside, "jailer"} {
		if p.Jailer = monitor.LookPath(j); p.Jailer != "" && p.Jailer != path {
			break
		}
	}
	if p.Jailer == "" || p.Jailer == path {
		return refuse("its jailer is not installed: neither %s nor jailer is there", beside)
	}
	if p.Version, err = monitorVersion(ctx, path); err != nil {
		return refuse("%v", err)
	}
	if jailer, err := monitorVersion(ctx, p.Jailer); err != nil || jailer != p.Version {
		return refuse("%s is of version %s, and its jailer %s of %s (%v)", path, p.Version, p.Jailer, jailer, err)
	}
	if !p.atLeast(oldestFirecracker()...) {
		return refuse("%s is of version %s, which is too old", path, p.Version)
	}
	return p
}

// firecrackerCPUs is the most that one of its machines has.
const firecrackerCPUs = 32

const useQEMU = "have the worker run with --microvm-monitor auto or qemu"

// of gives what runs a task's machine: Firecracker where it is used and can, else QEMU.
func (c *choice) of(task *runtime.Spec) (*choice, error) {
	if c.firecracker == nil {
		return c, nil
	}
	lack := firecrackerLacks(task)
	with := *c
	switch {
	case lack == nil:
		with.qemu, with.fileShare = "", ""
		return &with, nil
	case c.qemu == "":
		return nil, lack
	}
	with.firecracker, with.vmlinux = nil, ""
	return &with, nil
}

// firecrackerLacks says what of a task Firecracker cannot do, where QEMU can; nil: nothing.
func firecrackerLacks(task *runtime.Spec) error {
	left := int64(copyMax - skerry.MiB) // Skerry adds files of its own
	for i, m := range task.Mounts {
		if m.Type != "bind" {
			continue
		}
		refuse := func(why, instead string) error {
			return &runtime.Unsupported{Ability: runtime.AbilityMounts, Driver: spec.RuntimeMicroVM, Reason: fmt.Sprintf(
				"mounts[%d]: %s %s, and Firecracker shares no directories; %s, or %s", i, m.Target, why, instead, useQEMU)}
		}
		if !m.ReadOnly {
			return refuse("is written to", "mount it read-only")
		}
		weight, err := share{Source: m.Source}.weigh(left)
		if _, ok := errors.AsType[*fs.PathError](err); ok { // it may be readable later
			return &runtime.StartError{Field: fmt.Sprintf("mounts[%d].source", i), Err: err, Hint: "make it readable"}
		}
		if err != nil {
			return refuse("cannot be copied ("+err.Error()+")", "mount less")
		}
		left -= weight
	}
	if n := processors(task.Resources.CPU); n > firecrackerCPUs {
		return &runtime.InvalidSpec{Field: "resources.cpu", Reason: fmt.Sprintf(
			"%d processors are more than the %d of Firecracker's machines; ask for less, or %s", n, firecrackerCPUs, useQEMU)}
	}
	return nil
}

// ratesOf gives what a task's disks and network are held to.
func ratesOf(r *runtime.Resources) rates {
	out := rates{In: uint64(r.BandwidthIn), Out: uint64(r.BandwidthOut)}
	if io := r.IO; io != nil {
		out.ReadBps, out.WriteBps, out.ReadIOPS, out.WriteIOPS = io.ReadBps, io.WriteBps, io.ReadIOPS, io.WriteIOPS
	}
	return out
}
