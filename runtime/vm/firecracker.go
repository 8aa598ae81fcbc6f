//go:build linux

package vm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/vm/wire"
)

// firecrackerProgram is an installed Firecracker.
type firecrackerProgram struct {
	Path, Jailer string
	Version      string `json:",omitempty"` // for people
}

// firecracker makes a machine of Firecracker, in a jail below the task's directory:
//
//	vm-run ── jailer, which becomes firecracker: a user, a root directory and mounts of its own, in the task's control group
//	   └── jail/firecracker/m/root/ ── run/firecracker.socket (its API), vsock_1024 (our init comes here), log (a pipe)
//	                                   kernel, initrd, skerry_root, skerry_scratch: mounted there, so nothing is copied;
//	                                   memory, state: the same, of a template; blank
//
// The jail is in memory, in vm-run's own mounts: it ends with the machine however that ends, a Firecracker that was taken over cannot fill
// the disk, and the task's directory may be where devices and programs are forbidden.
// The jailer closes what it inherits, so files are given by mounts and not as descriptors. Firecracker's own filter of system calls
// stays on.
type firecracker struct {
	firecrackerProgram
	dir    string    // the jail's, an absolute path
	log    io.Writer // what it says itself
	said   *os.File  // the pipe that it says it to
	called string    // where the guest's init calls; empty: nobody is called
	caller *caller   // who does
	cmd    *exec.Cmd

	patience time.Duration // how long the guest may take to call
}

func (v *vm) firecracker() *firecracker {
	return &firecracker{firecrackerProgram: *v.setup.Firecracker, dir: filepath.Join(v.bundle, "jail"), log: v.console,
		patience: time.Duration(v.setup.BootMillis) * time.Millisecond}
}

// firecrackerLine is what Linux must be told of Firecracker's machines: they have one serial line, and end by the reset of a keyboard
// controller.
const firecrackerLine = "console=ttyS0 reboot=k 8250.nr_uarts=1 i8042.noaux i8042.nomux i8042.dumbkbd"

// jailID names the machine below the jail's directory; the task has only this one.
const jailID = "m"

// Files in the jail.
const (
	jailAPI    = "run/firecracker.socket" // where it is unless Firecracker is told otherwise
	jailLog    = "log"
	jailKernel = "kernel"
	jailInitrd = "initrd"
	jailNIC    = "eth0" // the guest's network interface
)

// root is the jail's root directory. below gives a file's path from the task's directory, which is the current one: the name of a
// socket must be short.
func (f *firecracker) root() string {
	return filepath.Join(f.dir, filepath.Base(f.Path), jailID, "root")
}

func (f *firecracker) below(name string) string {
	return filepath.Join(filepath.Base(f.dir), filepath.Base(f.Path), jailID, "root", name)
}

// channel listens where Firecracker connects to when the guest does to the host: the first who does is our init. Nobody else in the
// guest can be, for nothing else runs before it has been answered.
func (f *firecracker) channel(*machine, *opened) (io.ReadWriteCloser, error) {
	if err := f.jail(); err != nil {
		return nil, fmt.Errorf("make a jail: %w", err)
	}
	f.called = f.below(fmt.Sprintf("%s_%d", vsockName, wire.SocketPort))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.called})
	if err != nil {
		return nil, err
	}
	f.caller = &caller{l: l}
	return f.caller, nil
}

// jail makes its directory, with room for a copy of Firecracker and little else.
func (f *firecracker) jail() error {
	const room, names = 1 << 20, 256
	st, err := os.Stat(f.Path)
	if err != nil {
		return err
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=700,size=%d,nr_inodes=%d", st.Size()+room, names)
	if err := unix.Mount("tmpfs", f.dir, "tmpfs", unix.MS_NOSUID, options); err != nil {
		return err
	}
	return os.MkdirAll(f.root(), 0o700)
}

// caller is the connection of the first who calls. One goroutine reads, and waits for the call; nobody else waits.
type caller struct {
	l    *net.UnixListener
	conn atomic.Pointer[net.Conn] // nil: nobody has called
}

func (c *caller) Read(b []byte) (int, error) {
	conn := c.conn.Load()
	if conn == nil {
		first, err := c.l.Accept()
		c.l.Close()
		if err != nil {
			return 0, err
		}
		conn = &first
		c.conn.Store(conn)
	}
	return (*conn).Read(b)
}

func (c *caller) Write(b []byte) (int, error) {
	conn := c.conn.Load()
	if conn == nil {
		return 0, errors.New("the guest has not called yet")
	}
	return (*conn).Write(b)
}

func (c *caller) Close() error {
	if conn := c.conn.Load(); conn != nil {
		return (*conn).Close()
	}
	return c.l.Close()
}

func (f *firecracker) command(m *machine) (*exec.Cmd, error) {
	uid := int(m.User.Uid)
	if err := errors.Join(f.give(jailKernel, m.Kernel, true), f.give(jailInitrd, m.Initrd, true)); err != nil {
		return nil, err
	}
	if err := m.ownDisks(); err != nil {
		return nil, err
	}
	for _, d := range m.Disks {
		if err := f.give(d.Serial, d.File, d.ReadOnly); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(f.lay(m.Template, uid), f.pipe(uid)); err != nil {
		return nil, err
	}
	if f.called != "" {
		if err := os.Chown(f.called, uid, uid); err != nil {
			return nil, err
		}
	}
	if m.NIC != nil {
		if err := m.NIC.leave(uid); err != nil {
			return nil, err
		}
	}
	id := strconv.Itoa(uid)
	cmd := exec.Command(f.Jailer, "--id", jailID, "--exec-file", f.Path, "--uid", id, "--gid", id, "--chroot-base-dir", f.dir,
		"--", "--log-path", "/"+jailLog, "--level", "Warn")
	cmd.Stdout = m.Console
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	f.cmd = cmd
	return cmd, nil
}

// give mounts a file in the jail; nil: there is none.
func (f *firecracker) give(name string, file *os.File, readOnly bool) error {
	if file == nil {
		return nil
	}
	target := filepath.Join(f.root(), name)
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s in the jail: %w", name, err)
	}
	if readOnly {
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s in the jail: %w", name, err)
		}
	}
	return nil
}

// pipe makes the one that Firecracker's log goes to.
func (f *firecracker) pipe(uid int) (err error) {
	path := filepath.Join(f.root(), jailLog)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, uid, uid); err != nil {
		return err
	}
	f.said, err = os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // also written to, so that it has no end
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(f.log, f.said) }()
	return nil
}

func (f *firecracker) begin(m *machine, ended <-chan struct{}) error {
	if err := f.tell(m, ended); err != nil {
		return err
	}
	if m.NIC != nil {
		// Where the host lets nobody look into a process, a tap may stay until the next machine, or the network, removes it.
		_ = endTapWith(f.cmd.Process.Pid)
	}
	return nil
}

// tell tells Firecracker what the machine is, and to let it go.
func (f *firecracker) tell(m *machine, ended <-chan struct{}) error {
	conn, err := f.dial(ended)
	if err != nil {
		return err
	}
	defer conn.Close()
	api := newFirecrackerAPI(conn)
	if m.Template == nil {
		return api.all(f.boot(m))
	}
	if m.Template.New {
		err = f.makeTemplate(api, m, ended)
	} else {
		err = f.load(api)
	}
	if err != nil {
		return err
	}
	return api.all(f.become(m))
}

// dial waits until Firecracker listens.
func (f *firecracker) dial(ended <-chan struct{}) (net.Conn, error) {
	for deadline := time.Now().Add(monitorSpan); ; {
		conn, err := net.Dial("unix", f.below(jailAPI))
		if err == nil {
			return conn, nil
		}
		select {
		case <-ended:
			return nil, errors.New("it ended by itself")
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s: %w", notListening, err)
		}
	}
}

// apiRequest is one of the API's, and its body.
type apiRequest struct {
	method, path string
	body         any
}

type object = map[string]any

// boot makes a machine and lets it go. One that is to leave a template has nothing in it that is the task's.
func (f *firecracker) boot(m *machine) []apiRequest {
	boot := object{"kernel_image_path": "/" + jailKernel, "boot_args": m.Cmdline}
	if m.Initrd != nil {
		boot["initrd_path"] = "/" + jailInitrd
	}
	all := []apiRequest{
		{"PUT", "/machine-config", object{"vcpu_count": m.CPUs, "mem_size_mib": m.RAM >> 20}},
		{"PUT", "/boot-source", boot},
	}
	if f.reports() {
		// It is never filled: by it the guest says which memory it has freed, and the host takes that.
		all = append(all, apiRequest{"PUT", "/balloon", object{
			"amount_mib": 0, "deflate_on_oom": true, "stats_polling_interval_s": 0, "free_page_reporting": true,
		}})
	}
	for _, d := range m.Disks {
		drive := object{
			"drive_id": d.Serial, "path_on_host": "/" + d.Serial, "is_root_device": false, "is_read_only": d.ReadOnly, "cache_type": "Writeback",
		}
		if m.Template != nil {
			drive["path_on_host"] = "/" + jailBlank
		} else if l := m.Rates.disk(d.ReadOnly); l != nil {
			drive["rate_limiter"] = l
		}
		all = append(all, apiRequest{"PUT", "/drives/" + d.Serial, drive})
	}
	if m.NIC != nil {
		nic := object{"iface_id": jailNIC, "host_dev_name": tapName}
		if m.Template == nil {
			nic["guest_mac"] = m.NIC.MAC.String()
			m.Rates.limitNIC(nic)
		}
		all = append(all, apiRequest{"PUT", "/network-interfaces/" + jailNIC, nic})
	}
	if f.called != "" {
		all = append(all, apiRequest{"PUT", "/vsock", object{"guest_cid": guestCID, "uds_path": "/" + vsockName}})
	}
	return append(all, apiRequest{"PUT", "/actions", object{"action_type": "InstanceStart"}})
}

// become makes a machine that stands still, and is as its template, the task's, and lets it go.
func (f *firecracker) become(m *machine) (all []apiRequest) {
	for _, d := range m.Disks {
		drive := object{"drive_id": d.Serial, "path_on_host": "/" + d.Serial}
		if l := m.Rates.disk(d.ReadOnly); l != nil {
			drive["rate_limiter"] = l
		}
		all = append(all, apiRequest{"PATCH", "/drives/" + d.Serial, drive})
	}
	if m.NIC != nil {
		nic := object{"iface_id": jailNIC}
		if m.Rates.limitNIC(nic); len(nic) > 1 {
			all = append(all, apiRequest{"PATCH", "/network-interfaces/" + jailNIC, nic})
		}
	}
	return append(all, apiRequest{"PATCH", "/vm", object{"state": "Resumed"}})
}

// limitNIC adds the limiters of a network card.
func (r rates) limitNIC(nic object) {
	if b := newBucket(r.In); b != nil {
		nic["rx_rate_limiter"] = limiter{Bandwidth: b}
	}
	if b := newBucket(r.Out); b != nil {
		nic["tx_rate_limiter"] = limiter{Bandwidth: b}
	}
}

// limiter is one of Firecracker's limiters of a device; without a bucket it is none.
type limiter struct {
	Bandwidth *bucket `json:"bandwidth,omitempty"`
	Ops       *bucket `json:"ops,omitempty"`
}

// bucket holds so many tokens, bytes or operations, and is full again after so many milliseconds.
type bucket struct {
	Size   uint64 `json:"size"`
	Refill uint64 `json:"refill_time"`
}

func newBucket(perSecond uint64) *bucket {
	if perSecond == 0 {
		return nil
	}
	return &bucket{perSecond, 1000}
}

// disk is the limiter of a disk, or nil. Firecracker counts what is read and written together, so a disk that is written to gets the
// sum, if both are bounded; what each may be by itself the host's control group says.
func (r rates) disk(readOnly bool) *limiter {
	bytes, ops := r.ReadBps, r.ReadIOPS
	if !readOnly {
		bytes, ops = both(r.ReadBps, r.WriteBps), both(r.ReadIOPS, r.WriteIOPS)
	}
	l := limiter{newBucket(bytes), newBucket(ops)}
	if l == (limiter{}) {
		return nil
	}
	return &l
}

func both(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a + b
}

// end removes the tap of a machine that never had it.
func (f *firecracker) end(m *machine) {
	_ = f.said.Close() // an error for one that was never opened
	if m.NIC != nil {
		_ = dropTap()
	}
}
