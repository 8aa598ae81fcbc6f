//go:build linux

package oci

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// defaultPath is the PATH of a container whose image names none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// config writes the OCI description of a task whose root file system is mounted.
func (d Bundles) config(task *monitor.Task, spec runtime.Spec) (*specs.Spec, error) {
	user, err := lookupUser(d.Root(task), spec.User)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(spec)
	if err != nil {
		return nil, err
	}
	c := &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Path: rootDir, Readonly: spec.ReadOnlyRoot},
		Hostname: spec.Hostname,
		Process: &specs.Process{
			Terminal: spec.TTY, User: user, Args: spec.Args, Env: withPath(spec.Env), Cwd: spec.Dir,
			Capabilities: caps, NoNewPrivileges: !spec.AllowNewPrivileges && !spec.Privileged,
		},
		Mounts: defaultMounts(spec),
		Linux: &specs.Linux{
			CgroupsPath: task.Group().Path(),
			Resources:   d.resources(spec),
			Sysctl:      spec.Sysctls,
		},
	}
	if o := outsideOf(task); o.Dir != "" {
		c.Root.Path = d.Root(task)
	}
	if c.Process.Cwd == "" {
		c.Process.Cwd = "/"
	}
	for i, u := range spec.Ulimits {
		if u.Soft > u.Hard {
			return nil, &runtime.InvalidSpec{Field: fmt.Sprintf("ulimits[%d]", i), Reason: "the soft limit is above the hard one"}
		}
		c.Process.Rlimits = append(c.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(u.Name), Soft: u.Soft, Hard: u.Hard})
	}
	if err := d.namespaces(c, spec); err != nil {
		return nil, err
	}
	c.Process.User.AdditionalGids = append(c.Process.User.AdditionalGids, spec.Groups...)
	if err := hooks(c, spec); err != nil {
		return nil, err
	}
	if err := devices(c, spec); err != nil {
		return nil, err
	}
	if !spec.Privileged {
		c.Linux.MaskedPaths = []string{
			"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
			"/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap",
		}
		c.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	if spec.Checkpoint {
		if err := os.WriteFile(task.Path(criuConfig), []byte(criuOptions), 0o600); err != nil {
			return nil, err
		}
		c.Annotations = map[string]string{"org.criu.config": task.Path(criuConfig)}
	}
	if err := networkFiles(task, c, spec); err != nil {
		return nil, err
	}
	for _, m := range spec.Mounts {
		c.Mounts = append(c.Mounts, mount(m))
	}
	return c, nil
}

func withPath(env []string) []string {
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		return env
	}
	return append([]string{defaultPath}, env...)
}

func defaultMounts(spec runtime.Spec) []specs.Mount {
	sys, cgroups := "ro", "ro"
	if spec.Privileged {
		sys, cgroups = "rw", "rw"
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", sys}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", cgroups}},
	}
}

func mount(m runtime.Mount) specs.Mount {
	out := specs.Mount{Destination: path.Clean(m.Target), Type: m.Type, Source: m.Source, Options: slices.Clone(m.Options)}
	if m.Type == "bind" {
		out.Options = append(out.Options, "rbind", "rprivate")
	} else {
		out.Source = "tmpfs"
		out.Options = append(out.Options, "nosuid", "nodev") // last, for a later one wins
	}
	if m.ReadOnly {
		out.Options = append(out.Options, "ro")
	}
	return out
}

// namespaces gives the task its own of everything but what it is to share.
func (d Bundles) namespaces(config *specs.Spec, spec runtime.Spec) error {
	pid, user := specs.LinuxNamespace{Type: specs.PIDNamespace}, specs.LinuxNamespace{Type: specs.UserNamespace}
	if spec.SharePID != nil {
		other, err := d.Tasks.Get(*spec.SharePID)
		if err != nil {
			return err
		}
		init := other.Record().Init
		if theirs := outsideOf(other).Users; (spec.UserNS == nil) != (theirs == nil) || theirs != nil && *theirs != *spec.UserNS {
			return &runtime.InvalidSpec{Field: "sharePID", Reason: fmt.Sprintf("task %s has other users", spec.SharePID.ID)}
		}
		if !init.Alive() {
			return &runtime.InvalidSpec{Field: "sharePID", Reason: fmt.Sprintf("task %s is not running", spec.SharePID.ID)}
		}
		pid.Path = fmt.Sprintf("/proc/%d/ns/pid", init.PID)
		if spec.UserNS != nil { // which owns the other
			user.Path = fmt.Sprintf("/proc/%d/ns/user", init.PID)
		}
	}
	config.Linux.Namespaces = []specs.LinuxNamespace{pid, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	if spec.UserNS != nil {
		config.Linux.Namespaces = append(config.Linux.Namespaces, user)
	}
	if !spec.HostNetwork {
		n := specs.LinuxNamespace{Type: specs.NetworkNamespace}
		if spec.Network != nil {
			n.Path = spec.Network.NetNS
		}
		config.Linux.Namespaces = append(config.Linux.Namespaces, n)
	}
	return nil
}

func (d Bundles) resources(spec runtime.Spec) *specs.LinuxResources {
	in, out := d.Options.Sandbox.Around(spec.Resources), &specs.LinuxResources{}
	if in.CPU > 0 || in.CPURequest > 0 || in.CPUSet != "" {
		cpu := &specs.LinuxCPU{Cpus: in.CPUSet}
		if in.CPU > 0 {
			quota, period := int64(in.CPU)*cgroup.CPUPeriod/1000, uint64(cgroup.CPUPeriod)
			cpu.Quota, cpu.Period = &quota, &period
		}
		if in.CPURequest > 0 {
			shares := cgroup.Shares(in.CPURequest)
			cpu.Shares = &shares
		}
		out.CPU = cpu
	}
	if in.Memory > 0 {
		limit := int64(in.Memory)
		// Memory and swap together: the limit is not extended by swap.
		out.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		if d.Tasks.Tree().Unified() {
			// A container that lost one of its processes is not to go on half-alive.
			out.Unified = map[string]string{"memory.oom.group": "1"}
		}
	}
	if in.Pids > 0 {
		pids := in.Pids
		out.Pids = &specs.LinuxPids{Limit: &pids}
	}
	out.Devices = []specs.LinuxDeviceCgroup{{Allow: spec.Privileged, Access: "rwm"}}
	return out
}

// devices adds device nodes; the usual ones (null, zero, full, random, urandom, tty, ptmx) are the runtime's to add.
func devices(config *specs.Spec, spec runtime.Spec) error {
	for i, dev := range spec.Devices {
		var st unix.Stat_t
		field := fmt.Sprintf("devices[%d]", i)
		if err := unix.Stat(dev.Path, &st); err != nil {
			return &runtime.InvalidSpec{Field: field, Reason: fmt.Sprintf("%s: %v", dev.Path, err)}
		}
		kind := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			kind = "c"
		case unix.S_IFBLK:
			kind = "b"
		default:
			return &runtime.InvalidSpec{Field: field, Reason: dev.Path + " is not a device node"}
		}
		major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		target, access, mode := dev.Target, dev.Access, os.FileMode(st.Mode&0o777)
		if target == "" {
			target = dev.Path
		}
		if access == "" {
			access = "rw"
		}
		config.Linux.Devices = append(config.Linux.Devices,
			specs.LinuxDevice{Path: target, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: &st.Uid, GID: &st.Gid})
		config.Linux.Resources.Devices = append(config.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access})
	}
	return nil
}

// ownFile is a file that a container gets at a place of the same name in all images.
type ownFile struct {
	target string
	text   string // "": it is the host's own
}

// ownFiles are a resolv.conf, hosts and hostname that fit a container's network, unless the spec mounts its own there.
func ownFiles(spec runtime.Spec) (out []ownFile) {
	files := map[string]string{}
	if n := spec.Network; n != nil {
		files["/etc/resolv.conf"] = runtime.ResolvConf(n)
		files["/etc/hosts"] = runtime.Hosts(n, spec.Hostname, spec.ExtraHosts)
	} else if len(spec.ExtraHosts) > 0 {
		files["/etc/hosts"] = runtime.Hosts(nil, spec.Hostname, spec.ExtraHosts)
	}
	if spec.Hostname != "" {
		files["/etc/hostname"] = spec.Hostname + "\n"
	}
	if spec.HostNetwork {
		files["/etc/resolv.conf"], files["/etc/hosts"] = "", ""
		if own, err := os.ReadFile("/etc/hosts"); err == nil && len(spec.ExtraHosts) > 0 {
			files["/etc/hosts"] = runtime.HostLines(string(own), spec.ExtraHosts)
		}
	}
	for _, target := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/hostname"} {
		text, ok := files[target]
		if !ok || slices.ContainsFunc(spec.Mounts, func(m runtime.Mount) bool { return path.Clean(m.Target) == target }) {
			continue
		}
		if text == "" {
			if _, err := os.Stat(target); err != nil {
				continue
			}
		}
		out = append(out, ownFile{target, text})
	}
	return out
}

// networkFiles gives the container its own files.
func networkFiles(task *monitor.Task, config *specs.Spec, spec runtime.Spec) error {
	for _, f := range ownFiles(spec) {
		source := f.target
		if f.text != "" {
			source = task.Path(path.Base(f.target))
			if err := os.WriteFile(source, []byte(f.text), 0o644); err != nil {
				return err
			}
		}
		config.Mounts = append(config.Mounts, specs.Mount{Destination: f.target, Type: "bind", Source: source,
			Options: []string{"bind", "rprivate", "ro"}})
	}
	return nil
}
