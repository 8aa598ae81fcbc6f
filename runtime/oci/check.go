//go:build linux

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/hybrid"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
)

// Check tries the runtimes in order of preference with a real container and keeps the first that passes.
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

// choose gives the runtime that passed the self-test, running it first when nobody has.
func (d *Driver) choose(ctx context.Context) (string, error) {
	get := func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.chosen
	}
	if p := get(); p != "" {
		return p, nil
	}
	select {
	case d.choosing <- struct{}{}:
		defer func() { <-d.choosing }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if p := get(); p != "" {
		return p, nil
	}
	var r runtime.Report
	d.check(ctx, &r)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if !r.Passed {
		return "", &runtime.StartError{Err: fmt.Errorf("runtime %s does not work on this worker: %s", d.Name(), r.Cause), Hint: r.Cure}
	}
	return get(), nil
}

func (d *Driver) check(ctx context.Context, report *runtime.Report) {
	if !d.Preflight(report, "containers need root") {
		return
	}
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok {
		report.Cause, report.Cure = "there is no self-test for "+goruntime.GOARCH, "use amd64, arm64, riscv64 or arm"
		return
	}
	layer := filepath.Join(d.Options.Dir, "check", "layer")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		report.Cause, report.Cure = err.Error(), "make the state directory writable"
		return
	}
	if err := files.Program(filepath.Join(layer, "probe"), bytes.NewReader(program), 0o755); err != nil {
		report.Cause, report.Cure = err.Error(), "free space below "+d.Options.Dir
		return
	}
	var causes, cures []string
	absent := d.Options.Sandbox != (monitor.Sandbox{})
	for _, name := range d.runtimes {
		path := monitor.LookPath(name)
		if path == "" {
			causes, cures = append(causes, name+" is not installed"), append(cures, "apt-get install "+filepath.Base(name))
			continue
		}
		absent = false
		path, note, err := d.settle(ctx, path, layer)
		if err != nil {
			cause, cure := diagnose(name, err)
			causes, cures = append(causes, cause), append(cures, cure)
			continue
		}
		d.mu.Lock()
		d.chosen = path
		d.mu.Unlock()
		others := len(causes)
		report.Passed, report.Version = true, version(ctx, path)+note
		report.Abilities = []runtime.Ability{
			runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityDevices, runtime.AbilityExec,
			runtime.AbilityImages,
			runtime.AbilityLogs, runtime.AbilityMemory, runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPIDNS,
			runtime.AbilityPids, runtime.AbilityPrivileged, runtime.AbilityReadOnlyRoot, runtime.AbilityResize, runtime.AbilitySeccomp,
			runtime.AbilityStats,
			runtime.AbilitySysctls, runtime.AbilityTTY, runtime.AbilityDir, runtime.AbilityHostNetwork, runtime.AbilitySignals,
			runtime.AbilityHosts, runtime.AbilityUlimits, runtime.AbilityUser,
		}
		if d.Options.Sandbox != (monitor.Sandbox{}) {
			report.Abilities = slices.DeleteFunc(report.Abilities, func(a runtime.Ability) bool {
				return slices.Contains([]runtime.Ability{runtime.AbilityDevices, runtime.AbilityHostNetwork, runtime.AbilityPIDNS,
					runtime.AbilityPids, runtime.AbilityPrivileged, runtime.AbilitySeccomp, runtime.AbilitySysctls}, a)
			})
		}
		report.Abilities = append(report.Abilities, d.IOAbilities()...)
		if d.Options.Sandbox == (monitor.Sandbox{}) {
			switch copied, err := d.tryUserNS(ctx, path, layer); {
			case copied:
				report.Abilities = append(report.Abilities, runtime.AbilityUserNS, runtime.AbilityUserNSCopies)
				causes = append(causes, "user namespaces with copies of images, and one range of users for each organisation: "+err.Error())
			case err == nil:
				report.Abilities = append(report.Abilities, runtime.AbilityUserNS)
			default:
				causes, cures = append(causes, "no user namespaces: "+err.Error()), append(cures, UserNSCure)
			}
		}
		if others > 0 {
			causes = append(causes, "using "+name)
		}
		if d.Options.Sandbox == (monitor.Sandbox{}) && monitor.LookPath(d.criu) != "" { // else nobody expects it
			if err := d.CanCheckpoint(ctx); err == nil {
				report.Abilities = append(report.Abilities, runtime.AbilityCheckpoint)
				slices.Sort(report.Abilities)
			} else if u, ok := errors.AsType[*runtime.Unsupported](err); ok {
				causes = append(causes, "no checkpoints: "+u.Reason)
			}
		}
		break
	}
	report.Absent, report.Cause, report.Cure = absent, strings.Join(causes, "; "), strings.Join(cures, "; ")
}

// settle finds out whether a runtime works, itself or behind a stand-in, and returns which of them does. crun does behind one that executes
// it from a read-only mount, which it would do itself at each call; if it refuses a hybrid host, behind one that hides that. It tries
// because versions of crun differ in what they refuse, and hosts in which controllers they leave to cgroup2.
func (d *Driver) settle(ctx context.Context, path, layer string) (program, note string, err error) {
	if isCrun(path) {
		if program, err = hybrid.ReadOnly(filepath.Join(d.Options.Dir, "readonly"), path); err == nil {
			err = d.tryTwice(ctx, program, layer)
		}
		if err == nil || ctx.Err() != nil {
			return program, "", err
		}
	}
	if err == nil || !hybrid.Refused(err.Error()) { // no stand-in, or one that is at fault itself
		if err = d.tryTwice(ctx, path, layer); err == nil {
			return path, "", d.tryDescriptors(ctx, path, layer)
		}
	}
	if !hybrid.Refused(err.Error()) {
		return path, "", err
	}
	program, err = hybrid.Try(filepath.Join(d.Options.Dir, "hybrid"), path, err,
		func(standIn string) error { return d.tryTwice(ctx, standIn, layer) })
	return program, hybrid.Note, err
}

// tryTwice is try and, if that never ended, try again with crun's command in place of its pipe; see release.
func (d *Driver) tryTwice(ctx context.Context, program, layer string) error {
	err := d.try(ctx, program, layer)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	d.mu.Lock()
	d.byCommand = true
	d.mu.Unlock()
	return d.try(ctx, program, layer)
}

// try runs the self-test in a container of the runtime, and again with an image that tries to have it write on the host.
func (d *Driver) try(ctx context.Context, program, layer string) error {
	return inTime(ctx, program, func(ctx context.Context) error { return d.tryBoth(ctx, program, layer) })
}

// inTime bounds an attempt. What the runtime says when it is cut off is not why it failed.
func inTime(ctx context.Context, program string, attempt func(context.Context) error) error {
	patience := probe.Patience(ctx, program, 15*time.Second)
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := attempt(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("containers of the self-test did not start and end within %s: %w", patience.Round(time.Second), limited.Err())
	}
	return err
}

func (d *Driver) tryBoth(ctx context.Context, program, layer string) error {
	links, sprung, err := LinkTrap(filepath.Dir(layer))
	if err != nil {
		return err
	}
	for _, lower := range [][]string{{layer}, {links, layer}} {
		root := runtime.Overlay(lower...)
		if err := d.Try(ctx, filepath.Base(program), root, []string{"/probe"},
			func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
				return d.start(ctx, spec, program)
			}); err != nil {
			return err
		}
	}
	return sprung()
}

// heldOpen are the descriptors among which runc before 1.1.12 has a directory of the host (CVE-2024-21626).
const heldOpen = 12

// tryDescriptors starts containers in working directories that a runtime may have open itself, as a manifest or an image can ask for: none
// of them may start. Versions from which it is known that they close them are not asked.
func (d *Driver) tryDescriptors(ctx context.Context, program, layer string) error {
	if !isRunc(program) || closesDescriptors(version(ctx, program)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // boards take a second for each
	defer cancel()
	root := runtime.Overlay(layer)
	for n := 3; n <= heldOpen; n++ {
		dir := fmt.Sprintf("/proc/self/fd/%d", n)
		err := d.Try(ctx, "cwd", root, []string{"/probe"}, func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
			spec.Dir = dir
			return d.start(ctx, spec, program)
		})
		if err == nil {
			return fmt.Errorf("it starts a container in %s, a directory of the host that it has open; install runc 1.1.12 or newer, or your distribution's update for CVE-2024-21626", dir)
		}
	}
	return ctx.Err()
}

// closesDescriptors reports whether what runc says of its version is 1.1.12 or newer. Distributions mend older ones.
func closesDescriptors(line string) bool {
	var major, minor, patch int
	n, _ := fmt.Sscanf(strings.TrimPrefix(line, "runc version "), "%d.%d.%d", &major, &minor, &patch)
	return n == 3 && (major > 1 || major == 1 && (minor > 1 || minor == 1 && patch >= 12))
}

// UserNSCure is the advice where user namespaces do not work.
const UserNSCure = "containers run without: root in them is root outside. Use a run directory that others may enter (0711), a sysctl user.max_user_namespaces above 0, and, " +
	"for users of each instance's own, Linux 5.19 or newer and a data directory on ext4, xfs or btrfs"

// tryUserNS runs the self-test in a container with a user namespace and keeps why it did not work. Copied: it does with
// files that belong to the namespace's users on the disk, and the error is why not with others.
func (d *Driver) tryUserNS(ctx context.Context, program, layer string) (copied bool, err error) {
	err = errNoMaps
	if d.owners != OwnersCopied {
		err = d.tryUsers(ctx, program, runtime.Mount{Type: "bind", Source: layer})
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	if err != nil && d.owners != OwnersMapped && ctx.Err() == nil {
		e := d.tryCopied(ctx, program, layer)
		if copied = e == nil; copied {
			why = ""
		} else {
			why = e.Error()
			err = errors.Join(err, e)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noUserNS, d.copied = why, copied
	return copied, err
}

// tryCopied is tryUsers with a copy of the layer that belongs to the namespace.
func (d *Driver) tryCopied(ctx context.Context, program, layer string) error {
	copied := layer + "-copied"
	err := os.RemoveAll(copied)
	if err == nil {
		err = os.Mkdir(copied, 0o755)
	}
	if err == nil {
		err = owners.Copy(ctx, layer, copied, runtime.ProbeUsers().First)
	}
	if err != nil {
		return err
	}
	return d.tryUsers(ctx, program, runtime.Mount{Type: "bind", Source: copied, Shifted: true})
}

// tryUsers runs the self-test in a container with a user namespace, of a layer that it sees as a volume as well.
func (d *Driver) tryUsers(ctx context.Context, program string, layer runtime.Mount) error {
	root := runtime.Overlay(layer.Source)
	root.Shifted = layer.Shifted
	layer.Target, layer.ReadOnly = "/mnt", true
	return inTime(ctx, program, func(ctx context.Context) error {
		return d.Try(ctx, "users", root, []string{"/probe"}, func(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
			users := runtime.ProbeUsers()
			spec.UserNS, spec.Mounts = &users, []runtime.Mount{layer}
			return d.start(ctx, spec, program)
		})
	})
}

// diagnose adds what is known about a runtime's refusal.
func diagnose(name string, err error) (cause, cure string) {
	se, ok := errors.AsType[*runtime.StartError](err)
	msg := err.Error()
	if ok {
		msg = se.Err.Error()
	}
	cause = name + ": " + msg
	if ok && se.Hint != "" {
		return cause, se.Hint
	}
	return cause, fmt.Sprintf("run a container by hand with %s to see more", name)
}

func version(ctx context.Context, path string) string {
	out, _ := exec.CommandContext(ctx, path, "--version").Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
