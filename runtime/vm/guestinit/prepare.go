//go:build linux

package main

import (
	"strconv"
	"strings"
	"syscall"

	"skerry.dev/skerry/runtime/vm/wire"
)

// group is where the program runs, in the guest's own control groups.
const group = "/cg/task"

// prepare makes the guest what the task is to find: limits, root, files, names.
func (g *guest) prepare(conf *wire.Config) error {
	if err := seed(conf.Seed); err != nil {
		return wrap("seed the random numbers", err)
	}
	if err := setClock(conf.Time); err != nil {
		return wrap("set the clock", err)
	}
	if conf.Memory > 0 {
		// The control group says how much there is, as for a container; the kernel is not to guess by the machine's size.
		_ = writeFile("/proc/sys/vm/overcommit_memory", "1")
	}
	if err := g.limits(conf); err != nil {
		return err
	}
	if err := network(conf.Net); err != nil {
		return err
	}
	if err := g.root(conf); err != nil {
		return err
	}
	if conf.Hostname != "" {
		if err := syscall.Sethostname([]byte(conf.Hostname)); err != nil {
			return wrap("hostname", err)
		}
	}
	g.spawner = newSpawner(conf, g.group)
	if err := files(conf); err != nil {
		return err
	}
	for i := 0; i+1 < len(conf.Sysctls); i += 2 {
		if err := writeFile("/proc/sys/"+conf.Sysctls[i], conf.Sysctls[i+1]); err != nil {
			return wrap("sysctls", err)
		}
	}
	if !conf.Scratch {
		// Only now, so that places to mount on could be made.
		if err := syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			return wrap("make the root read-only", err)
		}
	}
	return nil
}

// limits makes the program's control group.
func (g *guest) limits(conf *wire.Config) error {
	_ = syscall.Mkdir("/cg", 0o755)
	if err := syscall.Mount("cgroup2", "/cg", "cgroup2", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return wrap("mount cgroup2", err)
	}
	for _, controller := range []string{"cpu", "memory", "pids", "io"} {
		_ = writeFile("/cg/cgroup.subtree_control", "+"+controller)
	}
	if err := syscall.Mkdir(group, 0o755); err != nil {
		return wrap(group, err)
	}
	if conf.Memory > 0 {
		if err := writeFile(group+"/memory.max", strconv.FormatUint(conf.Memory, 10)); err != nil {
			return err
		}
		_ = writeFile(group+"/memory.swap.max", "0")
	}
	_ = writeFile(group+"/memory.oom.group", "1")
	if conf.Pids > 0 {
		if err := writeFile(group+"/pids.max", strconv.FormatUint(conf.Pids, 10)); err != nil {
			return err
		}
	}
	fd, err := syscall.Open(group, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	g.group = fd
	return wrap(group, err)
}

// hostDir is where the host's shared directory stands until everything in it is mounted at its place.
const hostDir = "/dev/.host"

// root mounts the image below what is written to it, and makes that the root directory.
func (g *guest) root(conf *wire.Config) error {
	for _, d := range []string{"/lower", "/rw", "/root"} {
		_ = syscall.Mkdir(d, 0o755)
	}
	image, err := findDisk("skerry_root")
	if err != nil {
		return err
	}
	if err := syscall.Mount(image, "/lower", "ext4", syscall.MS_RDONLY, ""); err != nil {
		return wrap("mount the image", err)
	}
	if conf.Scratch {
		disk, err := findDisk("skerry_scratch")
		if err != nil {
			return err
		}
		if err := syscall.Mount(disk, "/rw", "ext4", syscall.MS_NOATIME, "noinit_itable"); err != nil {
			return wrap("mount the writable disk", err)
		}
	} else if err := syscall.Mount("tmpfs", "/rw", "tmpfs", 0, "mode=755"); err != nil {
		return wrap("mount a tmpfs", err)
	}
	_ = syscall.Mkdir("/rw/upper", 0o755)
	_ = syscall.Mkdir("/rw/work", 0o755)
	if err := syscall.Mount("overlay", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"); err != nil {
		return wrap("mount the root", err)
	}
	_ = syscall.Mkdir("/root/dev", 0o755)
	if err := syscall.Mount("tmpfs", "/root/dev", "tmpfs", syscall.MS_NOSUID|syscall.MS_STRICTATIME, "mode=755,size=64m"); err != nil {
		return wrap("mount /dev", err)
	}
	if err := g.host(conf); err != nil {
		return err
	}
	if err := syscall.Chdir("/root"); err != nil {
		return err
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return wrap("change the root", err)
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	return syscall.Chdir("/")
}

// host mounts the host's shared directory, or a copy of it, where something of it is to be mounted.
func (g *guest) host(c *wire.Config) error {
	shared := false
	for _, m := range c.Mounts {
		shared = shared || m.Share != ""
	}
	if !shared {
		return nil
	}
	const dir = "/root" + hostDir
	if err := syscall.Mkdir(dir, 0o700); err != nil {
		return wrap(hostDir, err)
	}
	if !c.Copied {
		return wrap("mount the host's files", syscall.Mount(wire.Port, dir, "virtiofs", 0, ""))
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return wrap("mount a tmpfs", err)
	}
	return g.copyFiles(dir)
}

// files mounts what every program expects, and what the task asks for. Links in the image lead within it: it is the root now.
func files(conf *wire.Config) error {
	const quiet = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
	for _, m := range []struct {
		target, kind, data string
		flags              uintptr
	}{
		{"/sys", "sysfs", "", quiet},
		{"/sys/fs/cgroup", "cgroup2", "", quiet},
		{"/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5", syscall.MS_NOSUID | syscall.MS_NOEXEC},
		{"/dev/shm", "tmpfs", "mode=1777,size=64m", quiet},
		{"/dev/mqueue", "mqueue", "", quiet},
	} {
		if err := makeDir(m.target); err != nil {
			return err
		}
		if err := syscall.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil && m.kind != "mqueue" {
			return wrap("mount "+m.target, err)
		}
	}
	if !conf.Privileged {
		for _, dir := range []string{"/sys", "/sys/fs/cgroup"} {
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|quiet, ""); err != nil {
				return wrap("mount "+dir, err)
			}
		}
	}
	for name, number := range map[string]int{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "tty": 5 << 8} {
		dev := 1<<8 | number
		if number > 0xff {
			dev = number
		}
		if err := syscall.Mknod("/dev/"+name, syscall.S_IFCHR|0o666, dev); err != nil {
			return wrap("/dev/"+name, err)
		}
		_ = syscall.Chmod("/dev/"+name, 0o666)
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		_ = syscall.Symlink(target, "/dev/"+name)
	}
	for i, m := range conf.Mounts {
		if err := mount(m); err != nil {
			return &failure{"mounts[" + strconv.Itoa(i) + "].target", err}
		}
	}
	if conf.Copied && len(conf.Mounts) > 0 {
		_ = syscall.Chdir(hostDir) // what the host copies later goes there
	}
	// What is mounted from it stays.
	_ = syscall.Unmount(hostDir, syscall.MNT_DETACH)
	_ = syscall.Rmdir(hostDir)
	return nil
}

func mount(m wire.Mount) error {
	if m.File {
		if i := strings.LastIndexByte(m.Target, '/'); i > 0 {
			if err := makeDir(m.Target[:i]); err != nil {
				return err
			}
		}
		if fd, err := syscall.Open(m.Target, syscall.O_RDONLY|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0o644); err == nil {
			syscall.Close(fd)
		}
	} else if err := makeDir(m.Target); err != nil {
		return err
	}
	if m.Share == "" {
		flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV)
		if m.ReadOnly {
			flags |= syscall.MS_RDONLY
		}
		return syscall.Mount("tmpfs", m.Target, "tmpfs", flags, m.Data)
	}
	if err := syscall.Mount(hostDir+"/"+m.Share, m.Target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if m.ReadOnly {
		return syscall.Mount("", m.Target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	return nil
}

// makeDir makes a directory and those above it.
func makeDir(path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if err := syscall.Mkdir(path[:i], 0o755); err != nil && err != syscall.EEXIST {
			var st syscall.Stat_t
			if syscall.Stat(path[:i], &st) != nil {
				return wrap(path[:i], err)
			}
		}
	}
	return nil
}
