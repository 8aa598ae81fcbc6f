//go:build linux

package vm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/passwd"
	"skerry.dev/skerry/runtime/vm/wire"
	"skerry.dev/skerry/spec"
)

// What a machine takes beside the memory that the program may use: the guest's kernel with what it keeps of every page, and
// the processes around it on the host, most of which is translated code where the processor is emulated.
const (
	guestMemory = 96 * skerry.MiB
	hostMemory  = 192 * skerry.MiB
)

// defaultPath is the PATH of a container whose image names none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start makes and starts a machine.
func (d *Driver) Start(ctx context.Context, spec runtime.Spec) (runtime.Handle, error) {
	if err := check(spec); err != nil {
		return runtime.Handle{}, err
	}
	c, err := d.choose(ctx)
	if err != nil {
		return runtime.Handle{}, err
	}
	return d.start(ctx, spec, c)
}

// start starts a checked spec.
func (d *Driver) start(ctx context.Context, spec runtime.Spec, c *choice) (runtime.Handle, error) {
	c, err := c.of(&spec)
	if err != nil {
		return runtime.Handle{}, err
	}
	dirs, err := layers(spec.RootFS)
	if err != nil {
		return runtime.Handle{}, err
	}
	image, err := d.ensureDisk(ctx, dirs)
	if err != nil {
		return runtime.Handle{}, err
	}
	var failed error // with a template
	var template *template
	for try := 1; ; try++ {
		made, err := d.setup(spec, c, image)
		if err != nil {
			return runtime.Handle{}, err
		}
		if failed == nil && !d.base.IsCheck(spec.ID) { // what the self-test finds is how machines boot
			// One whose writes to the disk are bounded would take too long to leave one.
			leave := made.Rates.WriteBps == 0 && made.Rates.WriteIOPS == 0
			template = d.templates.find(c, made, spec.Network != nil && spec.Network.NetNS != "", leave)
			made.Template = template
		}
		h, err := d.base.Launch(ctx, spec, d.opts.Command[0], func(t *monitor.Task) error {
			t.Update(func(r *monitor.Record) { r.Handle.Monitor = c.monitor() })
			return d.bring(ctx, t, spec, made, image)
		})
		d.templates.done(made.Template, err)
		switch {
		case err == nil:
			if failed != nil {
				d.templates.drop(template, failed)
			}
			return h, nil
		case made.Template != nil && ctx.Err() == nil && !hostStoodStill(err) && mayBeTemplate(err):
			failed = err
		case !hostStoodStill(err) || try == mostTries:
			return h, err
		}
	}
}

// A guest that found no clock, and a Firecracker that did not come to listen, are started anew, so many times in all: the host may be less
// busy then. Neither says anything about a template.
const (
	mostTries    = 3
	notListening = "Firecracker does not listen"
	foundNoClock = "the guest's kernel found no clock: this machine gave the emulator no processor while it looked"
)

func hostStoodStill(err error) bool {
	return strings.Contains(err.Error(), foundNoClock) || strings.Contains(err.Error(), notListening)
}

// mayBeTemplate says whether a machine with a template may start without one: nothing was wrong with what its task asks for.
func mayBeTemplate(err error) bool {
	refused, ok := errors.AsType[*runtime.StartError](err)
	return !ok || refused.Field == ""
}

func (d *Driver) bring(ctx context.Context, task *monitor.Task, spec runtime.Spec, s *setup, image string) error {
	r, g := spec.Resources, task.Group()
	if err := g.Create(cgroup.Limits{CPURequest: r.CPURequest, Memory: skerry.Bytes(s.RAM) + hostMemory, MemoryLow: r.MemoryLow,
		CPUSet: r.CPUSet, IO: r.IO, HugePages: r.HugePages}); err != nil {
		return &runtime.StartError{Field: "resources", Err: err}
	}
	s.CgroupDirs, s.Unified = g.Dirs(), d.base.Tasks.Tree().Unified()
	if r.CPU > 0 { // once the guest has booted, which it may do as fast as it can
		quota, period := strconv.FormatInt(int64(r.CPU)*cgroup.CPUPeriod/1000, 10), strconv.Itoa(cgroup.CPUPeriod)
		s.Limits = [][2]string{{g.File("cpu", "cpu.cfs_period_us"), period}, {g.File("cpu", "cpu.cfs_quota_us"), quota}}
		if s.Unified {
			s.Limits = [][2]string{{g.File("", "cpu.max"), quota + " " + period}}
		}
	}
	if err := takeImage(task.Path(), image); err != nil {
		return err
	}
	s.Disks = []diskFile{{rootLabel, task.Path(diskFileName), true}}
	if s.Guest.Scratch {
		scratch := task.Path(scratchFile)
		if err := d.scratchDisk(ctx, scratch); err != nil {
			return err
		}
		s.Disks = append(s.Disks, diskFile{scratchLabel, scratch, false})
	}
	if spec.Network != nil {
		s.NetNS = spec.Network.NetNS
	}
	if err := s.networkFiles(task, spec); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(task.Path(setupFile), data, 0o600); err != nil {
		return err
	}
	if err := task.Start(ctx, monitor.Launch{Runtime: d.opts.Command[0], RuntimeArgs: d.opts.Command[1:], LogMax: spec.LogMax()}); err != nil {
		return explain(spec, err)
	}
	return nil
}

// takeImage links what there is of an image into a task's directory: its disk, and its files of users, for what is
// executed later. The machine's user must be able to read the disk, so that the directory is closed to all others.
func takeImage(dir, image string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{diskFileName, "passwd", "group"} {
		if err := os.Link(filepath.Join(image, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// check refuses what a machine cannot have, before anything is touched.
func check(task runtime.Spec) error {
	if err := task.Check(); err != nil {
		return err
	}
	no := func(a runtime.Ability, reason string) error {
		return &runtime.Unsupported{Ability: a, Driver: spec.RuntimeMicroVM, Reason: reason}
	}
	if n := task.Network; n != nil && n.NetNS != "" {
		if _, err := os.Stat(n.NetNS); err != nil {
			return &runtime.InvalidSpec{Field: "network.netns", Reason: fmt.Sprintf("%s cannot be joined: %v", n.NetNS, err)}
		}
	}
	switch {
	case task.Seccomp == runtime.SeccompDefault:
		return no(runtime.AbilitySeccomp, "system calls go to the guest's own kernel, and are not filtered; leave it out")
	case task.SharePID != nil:
		return no(runtime.AbilityPIDNS, "processes of two machines cannot see each other")
	case len(task.Devices)+len(task.Groups)+len(task.Hooks) > 0:
		return no(runtime.AbilityDevices, "the host's devices are not in the machine; use the oci runtime")
	case task.Handler != nil:
		return no(runtime.AbilityHandler, "a machine is not started for a request; use the wasm runtime")
	case task.UserNS != nil:
		return no(runtime.AbilityUserNS, "users of a machine's system are nobody outside as it is")
	case task.HostNetwork:
		return no(runtime.AbilityHostNetwork, "the host's network is not in the machine; use the oci runtime")
	case task.Checkpoint:
		return no(runtime.AbilityCheckpoint, "machines are not checkpointed")
	}
	for i, m := range task.Mounts {
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
	return nil
}

// setup turns a checked spec into what vm-run makes.
func (d *Driver) setup(spec runtime.Spec, c *choice, image string) (*setup, error) {
	memory := spec.Resources.Memory
	if memory == 0 {
		memory = d.opts.Memory
	}
	s := &setup{
		QEMU: c.qemu, FileShare: c.fileShare, Accel: c.accel, Kernel: c.kernel.Path, Initrd: c.kernel.Initrd,
		RAM: int64((memory + guestMemory + skerry.MiB - 1) / skerry.MiB * skerry.MiB), CPUs: processors(spec.Resources.CPU),
		BootMillis: int(d.patience(c.accel).Milliseconds()),
		Guest: wire.Config{
			Seed: rand.Text() + rand.Text(), Hostname: spec.Hostname, NewPrivs: spec.AllowNewPrivileges || spec.Privileged,
			Privileged: spec.Privileged,
			Scratch:    !spec.ReadOnlyRoot, Memory: uint64(spec.Resources.Memory), Pids: uint64(spec.Resources.Pids),
		},
	}
	if c.accel != "kvm" && c.vmlinux != "" {
		s.Kernel = c.vmlinux
	}
	if c.firecracker != nil {
		s.Firecracker, s.Kernel, s.Guest.Copied, s.Rates = c.firecracker, c.vmlinux, true, ratesOf(&spec.Resources)
	}
	if c.cloudHypervisor != nil {
		s.CloudHypervisor, s.Rates = c.cloudHypervisor.Path, ratesOf(&spec.Resources)
	}
	g := &s.Guest
	user, err := lookupUser(image, spec.User)
	if err != nil {
		return nil, err
	}
	g.Process = wire.Process{Args: spec.Args, Env: spec.Env, Dir: spec.Dir, UID: user.UID, GID: user.GID, Groups: user.Groups, TTY: spec.TTY}
	if g.Process.Dir == "" {
		g.Process.Dir = "/"
	}
	if !slices.ContainsFunc(spec.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		g.Process.Env = append([]string{defaultPath}, spec.Env...)
	}
	set, add, err := runtime.ContainerCapabilities(spec)
	if err != nil {
		return nil, err
	}
	for i, name := range runtime.Capabilities() {
		if slices.Contains(add, name) {
			g.Ambient = append(g.Ambient, uint32(i))
		}
		if !slices.Contains(set, name) {
			g.Drop = append(g.Drop, uint32(i))
		}
	}
	for i, u := range spec.Ulimits {
		n, ok := monitor.Rlimits()[strings.ToLower(u.Name)]
		if !ok || u.Soft > u.Hard {
			return nil, &runtime.InvalidSpec{Field: fmt.Sprintf("ulimits[%d]", i),
				Reason: fmt.Sprintf("%q with %d and %d is not a resource limit; see getrlimit(2)", u.Name, u.Soft, u.Hard)}
		}
		g.Rlimits = append(g.Rlimits, wire.Rlimit{Resource: uint32(n), Soft: u.Soft, Hard: u.Hard})
	}
	for name, value := range spec.Sysctls {
		g.Sysctls = append(g.Sysctls, strings.ReplaceAll(name, ".", "/"), value)
	}
	return s, s.mounts(spec.Mounts)
}

// patience is how long a guest may take to speak.
func (d *Driver) patience(accel string) time.Duration {
	switch {
	case d.opts.BootTimeout > 0:
		return d.opts.BootTimeout
	case accel == "kvm":
		return time.Minute
	}
	return 5 * time.Minute
}

// mounts divides mounts into what vm-run shares and what the guest does with it.
func (s *setup) mounts(mounts []runtime.Mount) error {
	for _, m := range mounts {
		w := wire.Mount{Target: path.Clean(m.Target), Data: strings.Join(m.Options, ","), ReadOnly: m.ReadOnly}
		if m.Type == "bind" {
			st, err := os.Stat(m.Source)
			if err != nil {
				return err
			}
			w.Share, w.File, w.Data = strconv.Itoa(len(s.Shares)), !st.IsDir(), ""
			s.Shares = append(s.Shares, share{Source: m.Source, Name: w.Share, ReadOnly: m.ReadOnly})
		}
		s.Guest.Mounts = append(s.Guest.Mounts, w)
	}
	return nil
}

// networkFiles gives the guest a resolv.conf, hosts and hostname that fit its network, unless the spec mounts its own there.
func (s *setup) networkFiles(task *monitor.Task, spec runtime.Spec) error {
	files := map[string]string{}
	if n := spec.Network; n != nil {
		files["/etc/resolv.conf"], files["/etc/hosts"] = runtime.ResolvConf(n), runtime.Hosts(n, spec.Hostname, spec.ExtraHosts)
	} else if len(spec.ExtraHosts) > 0 {
		files["/etc/hosts"] = runtime.Hosts(nil, spec.Hostname, spec.ExtraHosts)
	}
	if spec.Hostname != "" && spec.Network != nil {
		files["/etc/hostname"] = spec.Hostname + "\n"
	}
	for target, text := range files {
		if slices.ContainsFunc(spec.Mounts, func(m runtime.Mount) bool { return path.Clean(m.Target) == target }) {
			continue
		}
		source := task.Path(path.Base(target))
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
			return err
		}
		if err := s.mounts([]runtime.Mount{{Type: "bind", Source: source, Target: target, ReadOnly: true}}); err != nil {
			return err
		}
	}
	return nil
}

// processors is how many a guest has for a limit: as many whole ones as hold it, or one where there is none.
func processors(limit skerry.MilliCPU) int {
	return max(1, int(math.Ceil(float64(limit)/1000)))
}

// lookupUser finds a user in the files kept beside an image's disk.
func lookupUser(image, user string) (passwd.User, error) {
	if user == "" {
		return passwd.User{}, nil
	}
	users, err := os.Open(filepath.Join(image, "passwd"))
	if err != nil {
		return passwd.User{}, err
	}
	defer users.Close()
	groups, err := os.Open(filepath.Join(image, "group"))
	if err != nil {
		return passwd.User{}, err
	}
	defer groups.Close()
	u, err := passwd.Resolve(user, users, groups)
	if err != nil {
		return u, &runtime.InvalidSpec{Field: "user", Reason: err.Error()}
	}
	return u, nil
}

// explain names the field that vm-run's message begins with.
func explain(spec runtime.Spec, err error) error {
	refused, ok := errors.AsType[*monitor.CreateError](err)
	if !ok {
		return err
	}
	field, msg := refused.Field(func(f string) bool {
		return slices.Contains([]string{"args[0]", "dir", "ulimits", "sysctls", "capDrop", "resources", "network"}, f) ||
			strings.HasPrefix(f, "mounts[")
	})
	se := &runtime.StartError{Field: field, Err: errors.New(msg)}
	switch {
	case se.Field == "args[0]" && (strings.Contains(msg, "no such file") || strings.Contains(msg, "not found")):
		se.Hint = fmt.Sprintf("check that %s is in the image, and that its interpreter or dynamic loader is too", spec.Args[0])
	case se.Field == "args[0]" && strings.Contains(msg, "permission denied"):
		se.Hint = fmt.Sprintf("make %s executable (chmod +x) for the user of the container", spec.Args[0])
	case se.Field == "args[0]" && strings.Contains(msg, "format error"):
		se.Hint = fmt.Sprintf("%s is not a program for this machine's architecture; build the image for it", spec.Args[0])
	case se.Field == "dir":
		se.Hint = fmt.Sprintf("make sure that %s is a directory that the user may enter", spec.Dir)
	case strings.Contains(msg, "said nothing"):
		se.Hint = "try the guest kernel by hand, or allow more time where the processor is emulated"
	}
	return se
}
