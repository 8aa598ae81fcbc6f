//go:build linux

package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/passwd"
	"skerry.dev/skerry/runtime/internal/tty"
)

// defaultPath is the PATH of a task that names none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start makes and starts a process.
func (d *Driver) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	return d.StartWith(ctx, spec, nil)
}

// StartWith is Start for a driver whose tasks are processes that it chooses itself. prepare, if not nil, is called when the task
// has its directory: what it puts there goes with the task, and the mounts that it gives, which may also be of type "overlay",
// are made in the process's own mount namespace. The driver must not be used beside it: a task belongs to one of the two.
func (d *Driver) StartWith(ctx context.Context, spec runtime.Spec,
	prepare func(dir string, g cgroup.Group) ([]runtime.Mount, error)) (runtime.Handle, error) {
	if err := check(spec); err != nil {
		return runtime.Handle{}, err
	}
	s, err := d.setup(spec)
	if err != nil {
		return runtime.Handle{}, err
	}
	return d.Launch(ctx, spec, d.shim[0], func(t *monitor.Task) error {
		if prepare != nil {
			more, err := prepare(t.Path(), t.Group())
			if err != nil {
				return err
			}
			s.mounts(more)
		}
		return d.bring(ctx, t, spec, s)
	})
}

func (d *Driver) bring(ctx context.Context, task *monitor.Task, spec runtime.Spec, s *setup) error {
	r, g := spec.Resources, task.Group()
	// The pids limit is the shim's to set, when it is out of the way.
	if err := g.Create(limits(r)); err != nil {
		return &runtime.StartError{Field: "resources", Err: err}
	}
	s.CgroupDirs, s.Unified = g.Dirs(), d.Tasks.Tree().Unified()
	if r.Pids > 0 {
		s.PidsFile, s.PidsMax = g.File("pids", "pids.max"), strconv.FormatInt(r.Pids, 10)
	}
	if n := spec.Network; n != nil && len(n.DNS) > 0 &&
		!slices.ContainsFunc(s.Mounts, func(m bind) bool { return m.Target == "/etc/resolv.conf" }) {
		file := task.Path("resolv.conf")
		if err := os.WriteFile(file, []byte(runtime.ResolvConf(n)), 0o644); err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, bind{Source: file, Target: "/etc/resolv.conf", Type: "bind", ReadOnly: true})
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(task.Path(setupFile), data, 0o600); err != nil {
		return err
	}
	if err := task.Start(ctx, monitor.Launch{Runtime: d.shim[0], RuntimeArgs: d.shim[1:], LogMax: spec.LogMax(), TTY: spec.TTY}); err != nil {
		return explain(spec, err)
	}
	return nil
}

// limits are those of a task's cgroup, without that of processes.
func limits(r runtime.Resources) cgroup.Limits {
	return cgroup.Limits{CPU: r.CPU, CPURequest: r.CPURequest, Memory: r.Memory, MemoryLow: r.MemoryLow, CPUSet: r.CPUSet, IO: r.IO,
		HugePages: r.HugePages}
}

// check refuses what a native process cannot have, before anything is touched.
func check(spec runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	no := func(a runtime.Ability, reason string) error {
		return &runtime.Unsupported{Ability: a, Driver: "native", Reason: reason}
	}
	switch {
	case spec.ReadOnlyRoot:
		return no(runtime.AbilityReadOnlyRoot, "a native task sees the host's own root; use the oci runtime")
	case spec.Seccomp == runtime.SeccompDefault:
		return no(runtime.AbilitySeccomp, "system calls of native tasks are not filtered; use the oci runtime")
	case spec.SharePID != nil:
		return no(runtime.AbilityPIDNS, "native tasks have no process namespace of their own; they see each other anyway")
	case len(spec.Devices)+len(spec.Groups)+len(spec.Hooks) > 0:
		return no(runtime.AbilityDevices, "a native task sees the host's devices; give its user access to them instead")
	case spec.UserNS != nil:
		return no(runtime.AbilityUserNS, "a native task is a user of the host; use the oci runtime")
	case len(spec.Sysctls) > 0:
		return no(runtime.AbilitySysctls, "they would change the host; use the oci runtime")
	case len(spec.ExtraHosts) > 0:
		return no(runtime.AbilityHosts, "a native task sees the host's hosts file; use the oci runtime")
	case spec.Handler != nil:
		return no(runtime.AbilityHandler, "a process is not started for a request; use the wasm runtime")
	case spec.Checkpoint:
		return no(runtime.AbilityCheckpoint, "native tasks are not checkpointed; use the oci runtime")
	case len(spec.RootFS) > 1 || len(spec.RootFS) == 1 && spec.RootFS[0].Type != "bind":
		return no(runtime.AbilityImages, "layers need a root of their own; use the oci runtime, or give a directory or a program as one bind mount")
	}
	for i, m := range spec.Mounts {
		if m.Type == "bind" {
			if _, err := os.Stat(m.Source); err != nil {
				return &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].source", i),
					Reason: m.Source + " does not exist on the host; create it first"}
			}
		}
	}
	if n := spec.Network; n != nil && n.NetNS != "" {
		if _, err := os.Stat(n.NetNS); err != nil {
			return &runtime.InvalidSpec{Field: "network.netns", Reason: fmt.Sprintf("%s cannot be joined: %v", n.NetNS, err)}
		}
	}
	return nil
}

// setup turns a checked spec into what the shim does.
func (d *Driver) setup(spec runtime.Spec) (*setup, error) {
	s := &setup{
		Args: slices.Clone(spec.Args), Env: spec.Env, Dir: spec.Dir, Hostname: spec.Hostname,
		NewPrivs: spec.AllowNewPrivileges || spec.Privileged, TTY: spec.TTY,
	}
	if !slices.ContainsFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		s.Env = append([]string{defaultPath}, s.Env...)
	}
	if spec.Network != nil {
		s.NetNS = spec.Network.NetNS
	}
	if len(spec.RootFS) == 1 {
		if err := s.artifact(spec.RootFS[0].Source); err != nil {
			return nil, err
		}
	}
	if s.Dir == "" {
		s.Dir = "/"
	} else if !dirExists(s.Dir) && len(spec.Mounts) == 0 {
		return nil, &runtime.InvalidSpec{Field: "dir", Reason: s.Dir + " is not a directory on this host; create it first"}
	}
	s.mounts(spec.Mounts)
	if spec.User != "" {
		u, err := lookupUser(spec.User)
		if err != nil {
			return nil, err
		}
		s.User = &credential{u.UID, u.GID, u.Groups}
	}
	add, err := runtime.CapabilityNames("capAdd", spec.CapAdd)
	if err != nil {
		return nil, err
	}
	drop, err := runtime.CapabilityNames("capDrop", spec.CapDrop)
	if err != nil {
		return nil, err
	}
	for i, name := range runtime.Capabilities() {
		if slices.Contains(add, name) {
			s.Ambient = append(s.Ambient, uintptr(i))
		} else if slices.Contains(drop, name) {
			s.Drop = append(s.Drop, uintptr(i))
		}
	}
	for i, u := range spec.Ulimits {
		n, ok := monitor.Rlimits()[strings.ToLower(u.Name)]
		if !ok || u.Soft > u.Hard {
			return nil, &runtime.InvalidSpec{Field: fmt.Sprintf("ulimits[%d]", i),
				Reason: fmt.Sprintf("%q with %d and %d is not a resource limit; see getrlimit(2)", u.Name, u.Soft, u.Hard)}
		}
		s.Rlimits = append(s.Rlimits, rlimit{n, u.Soft, u.Hard})
	}
	return s, nil
}

func (s *setup) mounts(ms []runtime.Mount) {
	for _, m := range ms {
		s.Mounts = append(s.Mounts, bind{Source: m.Source, Target: path.Clean(m.Target), Type: m.Type, Data: strings.Join(m.Options, ","),
			ReadOnly: m.ReadOnly})
	}
}

// artifact finds Args[0] in the root: the root itself when it is a program, a file below it when it is a directory.
func (s *setup) artifact(source string) error {
	st, err := os.Stat(source)
	if err != nil {
		return &runtime.InvalidSpec{Field: "rootfs[0].source", Reason: source + " does not exist on the host"}
	}
	if st.Mode().IsRegular() {
		s.Args[0], s.FromImage = source, true
		return nil
	}
	for _, dir := range []string{"", "bin", "usr/bin", "usr/local/bin"} {
		if dir != "" && strings.Contains(s.Args[0], "/") {
			break
		}
		p := filepath.Join(source, dir, filepath.Join("/", s.Args[0]))
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			s.Args[0], s.FromImage = p, true
			return nil
		}
	}
	if strings.HasPrefix(s.Args[0], "/") || !strings.Contains(s.Args[0], "/") {
		return nil // a program of the host
	}
	return &runtime.StartError{Field: "args[0]", Hint: "check the path within the artifact",
		Err: fmt.Errorf("%s: no such file in %s", s.Args[0], source)}
}

func lookupUser(user string) (passwd.User, error) {
	var files [2]*os.File
	for i, name := range []string{"/etc/passwd", "/etc/group"} {
		f, err := os.Open(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return passwd.User{}, err
		}
		if f != nil {
			defer f.Close()
		}
		files[i] = f
	}
	// A nil file reads as an error, which is what a name without its file is.
	u, err := passwd.Resolve(user, files[0], files[1])
	if err != nil {
		return u, &runtime.InvalidSpec{Field: "user", Reason: err.Error()}
	}
	return u, nil
}

// explain names the field that the shim's message begins with.
func explain(spec runtime.Spec, err error) error {
	refused, ok := errors.AsType[*monitor.CreateError](err)
	if !ok {
		return err
	}
	field, msg := refused.Field(func(f string) bool { return !strings.Contains(f, " ") })
	se := &runtime.StartError{Field: field, Err: errors.New(msg)}
	if se.Field == "args[0]" {
		switch {
		case strings.Contains(msg, "no such file") || strings.Contains(msg, "not found"):
			se.Hint = fmt.Sprintf("check that %s is on this host, and its interpreter too", spec.Args[0])
		case strings.Contains(msg, "permission denied"):
			se.Hint = fmt.Sprintf("make %s executable (chmod +x) and reachable for the task's user", spec.Args[0])
		case strings.Contains(msg, "format error"):
			se.Hint = fmt.Sprintf("%s is not a program for this machine's architecture", spec.Args[0])
		}
	}
	return se
}

// Exec runs a process beside a task: in its cgroup, namespaces and mounts, with its restrictions.
func (d *Driver) Exec(ctx context.Context, handle runtime.Handle, spec runtime.ExecSpec) (int, error) {
	task, err := d.Running(handle, spec)
	if err != nil {
		return -1, err
	}
	var s setup
	data, err := os.ReadFile(task.Path(setupFile))
	if err != nil {
		return -1, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return -1, fmt.Errorf("exec in %s: %w", handle.ID, err)
	}
	s.Args, s.Env, s.NSPid = spec.Args, append(s.Env, spec.Env...), task.Record().Init.PID
	if spec.Dir != "" {
		s.Dir = spec.Dir
	}
	if spec.User != "" {
		u, err := lookupUser(spec.User)
		if err != nil {
			return -1, err
		}
		s.User = &credential{u.UID, u.GID, u.Groups}
	}
	if data, err = json.Marshal(s); err != nil {
		return -1, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return -1, err
	}
	defer r.Close()
	go func() {
		_, _ = w.Write(data)
		w.Close()
	}()
	cmd := exec.Command(d.shim[0], slices.Concat(d.shim[1:], []string{"exec"})...)
	cmd.Env = []string{defaultPath}
	cmd.ExtraFiles = []*os.File{r}
	return tty.Run(ctx, cmd, spec, tty.Options{First: tty.First(spec)})
}
