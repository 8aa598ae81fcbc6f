//go:build linux && amd64

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

// containerPart runs this process's part in a container, if it has one, and reports its exit status.
func containerPart() (status int, has bool) {
	text, has := os.LookupEnv(containerVar)
	if !has {
		return 0, false
	}
	// What ends with a parent's thread must not end sooner; and namespaces that are entered are this thread's.
	runtime.LockOSThread()
	var c container
	err := json.Unmarshal([]byte(text), &c)
	if err == nil && c.Inside {
		err = c.become()
	} else if err == nil {
		err = c.supervise()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cannot, true
	}
	return 0, true
}

// hierarchy is one of cgroups: how it is mounted, and where below the place of all.
type hierarchy struct{ kind, options, dir string }

// hierarchies are those of this host, and where it has version 1, the one that systemd tells services apart by.
func hierarchies() ([]hierarchy, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	second, mounted := optionsOfSecond(string(mounts))
	var list []hierarchy
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(line, ":", 3)
		if len(f) == 3 && f[1] != "" && !strings.HasPrefix(f[1], "name=") {
			list = append(list, hierarchy{"cgroup", f[1], f[1]})
		}
	}
	if len(list) == 0 {
		return []hierarchy{{"cgroup2", second, ""}}, nil
	}
	list = append(list, hierarchy{"cgroup", "none,name=systemd", "systemd"})
	if mounted {
		list = append(list, hierarchy{"cgroup2", second, "unified"})
	}
	return list, nil
}

// optionsOfSecond are those with which version 2 is mounted, if it is. One who mounts it without them takes them from the whole host.
func optionsOfSecond(mountinfo string) (options string, mounted bool) {
	for line := range strings.Lines(mountinfo) {
		if _, right, ok := strings.Cut(line, " - cgroup2 "); ok {
			f := strings.Fields(right)
			list := slices.DeleteFunc(strings.Split(f[len(f)-1], ","), func(o string) bool { return o == "rw" || o == "ro" })
			return strings.Join(list, ","), true
		}
	}
	return "", false
}

// supervise runs the container until its input or its systemd ends, starts it again where it reboots, and removes its groups. It has a
// mount namespace of its own.
func (c container) supervise() (err error) {
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	list, err := hierarchies()
	if err != nil {
		return err
	}
	var groups []string
	defer func() {
		for _, g := range groups {
			err = errors.Join(err, testenv.RemoveCgroup(g, true))
		}
	}()
	for i, h := range list {
		at := filepath.Join(c.Dir, "cgroups", fmt.Sprint(i))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(h.kind, at, h.kind, 0, h.options); err != nil {
			return fmt.Errorf("mount cgroups %s %s: %w", h.kind, h.options, err)
		}
		removeStale(at)
		group := filepath.Join(at, c.Group)
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
		groups = append(groups, group)
		if err := handDown(at, group, h); err != nil {
			return err
		}
	}
	for {
		again, err := c.once(groups, over)
		if err != nil || !again {
			return err
		}
		for _, g := range groups {
			if err := testenv.RemoveCgroup(g, false); err != nil {
				return err
			}
		}
	}
}

// once runs systemd until it ends, and reports whether that was to start anew.
func (c container) once(groups []string, over <-chan struct{}) (again bool, err error) {
	c.Inside = true
	cmd := part(c)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	moved, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	for _, g := range groups {
		if e := os.WriteFile(filepath.Join(g, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	moved.Close()
	ended := make(chan struct{})
	go func() {
		select {
		case <-over:
			_ = cmd.Process.Kill() // all others of its namespace end with it
		case <-ended:
		}
	}()
	waited := cmd.Wait()
	close(ended)
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		// So the kernel reports that process 1 of a namespace asked to restart, to halt, or was killed.
		return state.Signal() == syscall.SIGHUP, err
	}
	return false, errors.Join(err, waited)
}

// handDown gives a new group what its parent has: version 2 hands down no controller, and version 1 no processors, by themselves.
func handDown(parent, group string, h hierarchy) error {
	if h.kind == "cgroup2" && h.dir == "" {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(string(controllers)) {
			// Not each can be; what Skerry needs is looked for below.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+name), 0)
		}
		if controllers, err = os.ReadFile(filepath.Join(group, "cgroup.controllers")); err != nil {
			return err
		}
		for _, name := range []string{"cpu", "memory", "pids"} {
			if !slices.Contains(strings.Fields(string(controllers)), name) {
				return fmt.Errorf("cgroups below %s have no controller %s, only %q", parent, name, controllers)
			}
		}
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join(parent, name)); err == nil && h.kind == "cgroup" {
			if err := os.WriteFile(filepath.Join(group, name), value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeStale removes groups whose supervisor was killed, with all that ran in them.
func removeStale(at string) {
	list, _ := filepath.Glob(filepath.Join(at, groupPrefix+"*"))
	for _, group := range list {
		pid := strings.TrimPrefix(filepath.Base(group), groupPrefix)
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			_ = testenv.RemoveCgroup(group, true) // in use by what has not ended yet; the next finds it again
		}
	}
}

// become makes this process the first of the container.
func (c container) become() error {
	_, _ = io.Copy(io.Discard, os.Stdin) // its groups are set
	unix.Umask(0)                        // everybody may use its devices
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a namespace of cgroups: %w", err)
	}
	list, err := hierarchies()
	if err != nil {
		return err
	}
	root := filepath.Join(c.Dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-o", "loop", filepath.Join(c.Dir, "root.ext4"), root).CombinedOutput(); err != nil {
		return fmt.Errorf("mount the root disk: %w: %s", err, out)
	}
	for _, step := range []func(string) error{c.files, c.devices, network} {
		if err := step(root); err != nil {
			return err
		}
	}
	if err := mountGroups(filepath.Join(root, "sys/fs/cgroup"), list); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return err
	}
	// What is below the new root stays, what it covers goes.
	if err := errors.Join(unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	// The kernel, its clock and its modules are the host's.
	for _, capability := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYSLOG, unix.CAP_AUDIT_CONTROL} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("drop a capability: %w", err)
		}
	}
	return fmt.Errorf("start systemd: %w", unix.Exec("/sbin/init", []string{"/sbin/init"}, []string{"container=skerry", "TERM=dumb"}))
}

// bind shows a file or directory at another place, too.
func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// bindReadOnly is bind for what must not be written there.
func bindReadOnly(from, to string) error {
	if err := bind(from, to); err != nil {
		return err
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", to, err)
	}
	return nil
}

// mounted is a file system at a place that is made.
func mounted(kind, at, options string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, at, kind, unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, at, err)
	}
	return nil
}

// files are those of the kernel, with the host's settings read-only, and of the test.
func (c container) files(root string) error {
	at := func(name string) string { return filepath.Join(root, name) }
	// Containers with users of their own get file systems of these kinds only where whole ones are to be seen.
	whole := at("run/host")
	if err := errors.Join(mounted("tmpfs", at("run"), "mode=755"), mounted("proc", at("proc"), ""), mounted("proc", whole+"/proc", ""),
		mounted("sysfs", whole+"/sys", ""), mounted("tmpfs", at("tmp"), "")); err != nil {
		return err
	}
	fresh, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	boot := whole + "/boot_id" // as if it were another kernel each time
	const cable = "[Match]\nName=eth0\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\n"
	if err := errors.Join(os.WriteFile(boot, fresh, 0o444), os.MkdirAll(at("payload"), 0o755),
		os.WriteFile(at("etc/systemd/network/cable.network"), []byte(cable), 0o644)); err != nil {
		return err
	}
	return errors.Join(
		bindReadOnly(whole+"/proc/sys", at("proc/sys")), bind(whole+"/proc/sys/net", at("proc/sys/net")),
		bindReadOnly(boot, at("proc/sys/kernel/random/boot_id")),
		bindReadOnly(whole+"/sys", at("sys")), mounted("bpf", at("sys/fs/bpf"), "mode=700"),
		bindReadOnly(c.Payload, at("payload")))
}

// devices are those that concern nobody else, and loop devices.
func (c container) devices(root string) error {
	at := func(name string) string { return filepath.Join(root, "dev", name) }
	if err := errors.Join(mounted("tmpfs", at(""), "mode=755"), mounted("devpts", at("pts"), "newinstance,ptmxmode=0666,mode=620,gid=5"),
		mounted("tmpfs", at("shm"), ""), os.Mkdir(at("net"), 0o755), os.Symlink("pts/ptmx", at("ptmx"))); err != nil {
		return err
	}
	nodes := map[string][2]uint32{"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0},
		"fuse": {10, 229}, "net/tun": {10, 200}, "loop-control": {10, 237}}
	for name, n := range nodes {
		if err := unix.Mknod(at(name), unix.S_IFCHR|0o666, int(unix.Mkdev(n[0], n[1]))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	for i := range uint32(256) { // the kernel gives the first free one of the host's
		if err := unix.Mknod(at(fmt.Sprintf("loop%d", i)), unix.S_IFBLK|0o660, int(unix.Mkdev(7, i))); err != nil {
			return fmt.Errorf("make a loop device: %w", err)
		}
	}
	for from, to := range map[string]string{c.Console: at("console"), c.Agent: at("ttyS1")} {
		if err := errors.Join(os.WriteFile(to, nil, 0o600), bind(from, to)); err != nil {
			return err
		}
	}
	return nil
}

// network is a cable that leads nowhere; the container's own service gives it an address.
func network(string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far0"}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add a cable: %w", err)
	}
	far, err := netlink.LinkByName("far0")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetUp(far))
}

// mountGroups mounts hierarchies as the host has them, each from the container's own group down.
func mountGroups(at string, list []hierarchy) error {
	if list[0].dir != "" {
		if err := mounted("tmpfs", at, "mode=755"); err != nil {
			return err
		}
	}
	for _, h := range list {
		dir := filepath.Join(at, h.dir)
		if err := mounted(h.kind, dir, h.options); err != nil {
			return err
		}
		if names := strings.Split(h.dir, ","); len(names) > 1 {
			for _, name := range names {
				if err := os.Symlink(h.dir, filepath.Join(at, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func TestOptionsOfVersionTwo(t *testing.T) {
	const line = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	if got, ok := optionsOfSecond(line); got != "nsdelegate,memory_recursiveprot" || !ok {
		t.Errorf("options of cgroup2 are %q, %t, want nsdelegate,memory_recursiveprot", got, ok)
	}
	if got, ok := optionsOfSecond("30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"); got != "" || ok {
		t.Errorf("options of a cgroup2 that is not mounted are %q, %t, want none", got, ok)
	}
}
