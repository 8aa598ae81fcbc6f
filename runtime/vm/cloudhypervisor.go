//go:build linux

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/vm/wire"
)

// cloudHypervisor makes a machine of Cloud Hypervisor, which opens everything by descriptors that it inherits, as /proc/self/fd/N: its
// user can enter none of the task's directories.
//
//	vm-run ── cloud-hypervisor: a user and mounts of its own, in the task's control group
//	   ├── sockets/ ── vsock, vsock_1024 (our init comes here)
//	   └── virtiofsd ── files.sock
//
// Its sockets are in memory, in vm-run's own mounts: they end with the machine however that ends, and a Cloud Hypervisor that was taken
// over finds no room there. Its own filter of system calls stays on.
type cloudHypervisor struct {
	program string
	sockets *os.File // the directory
	events  net.Conn // what it tells of the machine
	tells   *os.File // its end of that
	cmd     *exec.Cmd
}

// cloudHypervisorLine is what Linux must be told of Cloud Hypervisor's machines.
const cloudHypervisorLine = "console=ttyS0"

// socketsDir is where a machine's socket is, below the task's directory, which is the current one.
const socketsDir = "sockets"

// channel listens where Cloud Hypervisor connects to when the guest does to the host, as Firecracker's does.
func (c *cloudHypervisor) channel(_ *machine, files *opened) (io.ReadWriteCloser, error) {
	var err error
	if c.events, c.tells, err = files.pair(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(socketsDir, 0o700); err != nil {
		return nil, err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", socketsDir, "tmpfs", flags, "mode=700,size=64k,nr_inodes=16"); err != nil {
		return nil, fmt.Errorf("mount its sockets: %w", err)
	}
	if c.sockets, err = files.open(socketsDir, unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.called()})
	if err != nil {
		return nil, err
	}
	return &caller{l: l}, nil
}

func (c *cloudHypervisor) called() string {
	return filepath.Join(socketsDir, fmt.Sprintf("%s_%d", vsockName, wire.SocketPort))
}

func (c *cloudHypervisor) command(what *machine) (*exec.Cmd, error) {
	uid := int(what.User.Uid)
	if err := errors.Join(os.Chown(socketsDir, uid, uid), os.Chown(c.called(), uid, uid), what.ownDisks()); err != nil {
		return nil, err
	}
	c.cmd = exec.Command(c.program)
	pass := func(f *os.File) int {
		c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, f)
		return 2 + len(c.cmd.ExtraFiles)
	}
	path := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", pass(f)) }
	args := []string{
		"--seccomp", "true", "--cpus", "boot=" + strconv.Itoa(what.CPUs), "--memory", fmt.Sprintf("size=%d,shared=on", what.RAM),
		"--kernel", path(what.Kernel), "--cmdline", what.Cmdline, "--console", "off", "--serial", "tty",
		"--vsock", fmt.Sprintf("cid=%d,socket=%s/%s", guestCID, path(c.sockets), vsockName), "--event-monitor", fmt.Sprintf("fd=%d", pass(c.tells)),
	}
	if what.Initrd != nil {
		args = append(args, "--initramfs", path(what.Initrd))
	}
	for _, d := range what.Disks {
		disk := fmt.Sprintf("path=%s,image_type=raw,readonly=%s,serial=%s", path(d.File), onOff(d.ReadOnly), d.Serial)
		if l := what.Rates.disk(d.ReadOnly); l != nil {
			disk += l.Bandwidth.option("bw") + l.Ops.option("ops")
		}
		args = append(args, "--disk", disk)
	}
	if what.Files != nil {
		args = append(args, "--fs", "tag=skerry,socket="+path(what.Files))
	}
	if what.NIC != nil {
		args = append(args, "--net", fmt.Sprintf("fd=%d,mac=%s", pass(what.NIC.Tap), what.NIC.MAC))
	}
	c.cmd.Args = append(c.cmd.Args, args...)
	c.cmd.Stdout = what.Console // the serial line is its terminal
	return c.cmd, nil
}

// option gives a bucket as a part of a device's description; nil: none.
func (b *bucket) option(name string) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(",%s_size=%d,%s_refill_time=%d", name, b.Size, name, b.Refill)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (c *cloudHypervisor) begin(m *machine, _ <-chan struct{}) error {
	go c.watch(m)
	return nil
}

// watch ends a machine that resets itself, which Cloud Hypervisor would start again.
func (c *cloudHypervisor) watch(m *machine) {
	defer c.events.Close()
	if rebooting(c.events) {
		m.reset.Store(true)
		_ = c.cmd.Process.Kill()
	}
}

// rebooting reads what Cloud Hypervisor tells until that is that the guest has reset itself. What runs in the machine may have taken it
// over: false says that nothing more is told, or nothing that is understood.
func rebooting(r io.Reader) bool {
	left := &io.LimitedReader{R: r}
	events := json.NewDecoder(left)
	for {
		left.N = longestAnswer
		var e struct {
			Source string `json:"source"`
			Event  string `json:"event"`
		}
		if events.Decode(&e) != nil {
			return false
		}
		if e.Source == "vm" && e.Event == "rebooting" {
			return true
		}
	}
}

func (c *cloudHypervisor) end(*machine) {}
