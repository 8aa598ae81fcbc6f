//go:build linux

package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/vm/wire"
)

// supervise is vm-run: it makes the machine and stays until it has ended. Its exit status is the program's.
func supervise(bundle string) int {
	// The machine is to die with this thread, which is as old as the process.
	runtime.LockOSThread()
	tell := os.NewFile(3, "start")
	syscall.CloseOnExec(3)
	v := &vm{bundle: bundle, tell: tell}
	code, err := v.run()
	if err != nil {
		if v.tell != nil {
			fmt.Fprint(v.tell, err)
		} else {
			fmt.Fprintf(os.Stderr, "vm-run: %v\n", err)
		}
	}
	v.kill()
	return code
}

// vm is a running machine.
type vm struct {
	bundle  string
	setup   *setup
	tell    *os.File // who waits for the start; nil when it has been told
	console *tail
	cmds    []*exec.Cmd
	session *session
	ended   chan struct{} // closed when the machine has
	maker   hypervisor    // nil until it has been started
	machine *machine
}

// run waits for one of the ways in which a machine ends.
func (v *vm) run() (int, error) {
	var err error
	if v.setup, err = readSetup(v.bundle); err != nil {
		return 1, err
	}
	if err := os.Chdir(v.bundle); err != nil { // so that the socket's path is short
		return 1, err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	if v.setup.Appliance != nil {
		return v.runAppliance(signals)
	}
	listener, err := net.Listen("unix", socketFile)
	if err != nil {
		return 1, err
	}
	defer listener.Close()
	if err := os.Chmod(socketFile, 0o600); err != nil {
		return 1, err
	}
	ended, err := v.start()
	if err != nil {
		return 1, err
	}
	go v.session.accept(listener)
	stands := v.console.noClock
	patience := time.NewTimer(time.Duration(v.setup.BootMillis) * time.Millisecond)
	defer patience.Stop()
	for {
		select {
		case <-v.session.booted:
			v.session.booted = nil
			if err := v.configure(); err != nil {
				return 1, err
			}
		case <-v.session.running:
			v.session.running = nil
			patience.Stop()
			if err := v.tellReady(); err != nil {
				return 1, err
			}
		case f := <-v.session.failed:
			if f.Field != "" {
				return 1, fmt.Errorf("%s: %s", f.Field, f.Message)
			}
			return 1, errors.New(f.Message)
		case x := <-v.session.exited:
			return v.finish(x), nil
		case <-stands:
			if stands = nil; v.session.booted != nil {
				return 1, errors.New(foundNoClock)
			}
		case <-patience.C:
			return 1, fmt.Errorf("the guest said nothing for %s, in which its machine used %s of a processor%s",
				time.Duration(v.setup.BootMillis)*time.Millisecond, v.processorTime(), v.lastWords())
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && forwarded(n) {
				_ = v.session.send(wire.KindSignal, 0, []byte{byte(n)})
			}
		case err := <-ended:
			// What it still said comes first.
			select {
			case x := <-v.session.exited:
				return v.finish(x), nil
			case <-time.After(100 * time.Millisecond):
			}
			return v.broken(err)
		}
	}
}

// broken gives the exit status of a machine that has ended before its program, and says how.
func (v *vm) broken(err error) (code int, _ error) {
	code = 1
	if v.machine.reset.Load() {
		return code, errors.New("the guest has reset its machine" + v.lastWords())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
		code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	}
	return code, fmt.Errorf("the machine ended by itself (%v)%s", err, v.lastWords())
}

// configure tells a guest that has booted what it is to become, and limits it.
func (v *vm) configure() error {
	for _, l := range v.setup.Limits {
		if err := os.WriteFile(l[0], []byte(l[1]), 0o644); err != nil {
			return fmt.Errorf("resources: %w", err)
		}
	}
	v.setup.Guest.Time = uint64(time.Now().UnixNano())
	if err := v.session.send(wire.KindConfig, 0, wire.Encode(&v.setup.Guest)); err != nil {
		return fmt.Errorf("speak with the guest: %w", err)
	}
	if v.setup.Guest.Copied {
		go newCopier(v.setup.Shares, v.session).run()
	}
	return nil
}

// tellReady tells who waits that the machine does what it is to; an error means that nobody waits any more.
func (v *vm) tellReady() error {
	_, err := v.tell.WriteString(ready)
	v.tell.Close()
	v.tell = nil
	return err
}

// forwarded says whether a signal is meant for the program and not for this process.
func forwarded(s syscall.Signal) bool {
	switch s {
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE:
		return false
	}
	return true
}

// finish leaves what others ask for later, and gives the exit status.
func (v *vm) finish(x wire.Exit) int {
	if data, err := json.Marshal(x.Usage); err == nil {
		_ = os.WriteFile(usageFile, data, 0o600)
	}
	if x.OOM {
		_ = os.WriteFile(oomFile, nil, 0o600)
	}
	return int(x.Code & 0xff)
}

// start makes the machine; the channel tells when it has ended.
func (v *vm) start() (<-chan error, error) {
	setup := v.setup
	m := &machine{Accel: setup.Accel, Parts: board(runtime.GOARCH), RAM: setup.RAM, CPUs: setup.CPUs, Cmdline: commandLine, Rates: setup.Rates}
	var files opened
	defer files.close()
	if err := v.isolate(); err != nil {
		return nil, err
	}
	var err error
	if m.Kernel, err = files.open(setup.Kernel, os.O_RDONLY); err != nil {
		return nil, err
	}
	if m.Initrd, err = files.open(setup.Initrd, os.O_RDONLY); err != nil {
		return nil, err
	}
	for _, d := range setup.Disks {
		flags := os.O_RDWR
		if d.ReadOnly {
			flags = os.O_RDONLY
		}
		f, err := files.open(d.Path, flags)
		if err != nil {
			return nil, err
		}
		m.Disks = append(m.Disks, disk{Serial: d.Serial, File: f, ReadOnly: d.ReadOnly})
	}
	console, theirs, err := files.pair()
	if err != nil {
		return nil, err
	}
	m.Console, v.console = theirs, follow(console)
	var maker hypervisor = qemu(setup.QEMU)
	reach := connect
	switch {
	case setup.Firecracker != nil:
		maker, m.Cmdline = v.firecracker(), firecrackerLine+" "+commandLine
	case setup.CloudHypervisor != "":
		maker, m.Cmdline, reach = &cloudHypervisor{program: setup.CloudHypervisor}, cloudHypervisorLine+" "+commandLine, v.leaveSocket
	}
	control, err := maker.channel(m, &files)
	if err != nil {
		return nil, err
	}
	if len(setup.Shares) > 0 && !setup.Guest.Copied {
		if m.Files, err = v.shareFiles(reach); err != nil {
			return nil, err
		}
		files = append(files, m.Files)
	}
	if setup.NetNS != "" {
		if m.NIC, setup.Guest.Net, err = joinNetwork(); err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
		if m.NIC != nil {
			files = append(files, m.NIC.Tap)
		}
	}
	if t := setup.Template; t != nil && t.NIC == (m.NIC != nil) {
		m.Template = t
	}
	ended, err := v.spawn(maker, m)
	if err != nil {
		return nil, err
	}
	v.session = newSession(control)
	go v.session.listen()
	return ended, nil
}

// spawn starts the program that is the machine; the channel tells when it has ended.
func (v *vm) spawn(maker hypervisor, m *machine) (<-chan error, error) {
	m.User = v.nobody()
	cmd, err := maker.command(m)
	if err != nil {
		return nil, err
	}
	v.maker, v.machine = maker, m
	cmd.Stderr = v.console
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.User}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	v.cmds = append(v.cmds, cmd)
	ended := make(chan error, 1)
	v.ended = make(chan struct{})
	go func() {
		ended <- cmd.Wait()
		close(v.ended)
	}()
	if err := maker.begin(m, v.ended); err != nil {
		return nil, fmt.Errorf("set up the machine: %w%s", err, v.lastWords())
	}
	return ended, nil
}

// opened are files that are for the machine, and need to be open here only until it has them.
type opened []*os.File

func (o *opened) close() {
	for _, f := range *o {
		f.Close()
	}
}

func (o *opened) open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		*o = append(*o, f)
	}
	return f, err
}

// pair gives two ends of a connection.
func (o *opened) pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	*o = append(*o, theirs)
	f := os.NewFile(uintptr(fds[0]), "socket")
	defer f.Close()
	ours, err = net.FileConn(f)
	return ours, theirs, err
}

// nobody is a user that nobody else is: the number of a process is its own as long as it runs.
func (v *vm) nobody() *syscall.Credential {
	const first = 1_879_048_192
	id := uint32(first + os.Getpid())
	return &syscall.Credential{Uid: id, Gid: id}
}

// isolate gives this thread and what it starts mounts of their own, and no network but the instance's.
func (v *vm) isolate() error {
	flags := unix.CLONE_NEWNS
	if v.setup.NetNS == "" {
		flags |= unix.CLONE_NEWNET // not the host's
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	var kvm unix.Stat_t
	if v.setup.Accel != "kvm" || v.setup.Firecracker != nil || unix.Stat(kvmDevice, &kvm) != nil {
		return nil // its jailer makes one of its own
	}
	// The machine's user may use the device where it sees it, whoever may elsewhere.
	dir := filepath.Join(v.bundle, "dev")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	node := filepath.Join(dir, "kvm")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(kvm.Rdev)); err != nil {
		return fmt.Errorf("%s: %w", kvmDevice, err)
	}
	id := int(v.nobody().Uid)
	if err := os.Chown(node, id, id); err != nil {
		return err
	}
	return unix.Mount(node, kvmDevice, "", unix.MS_BIND, "")
}

const kvmDevice = "/dev/kvm"

// optionEscapes has a text stand in one option of virtiofsd's, which commas part.
var optionEscapes = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// shareFiles makes a directory of everything that the guest mounts, which only this process and its children see, and
// starts the program that shares it at a socket. It gives what reach makes of that.
func (v *vm) shareFiles(reach func(socket string) (*os.File, error)) (*os.File, error) {
	dir := filepath.Join(v.bundle, "shares")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=1m"); err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	for i, s := range v.setup.Shares {
		target := filepath.Join(dir, s.Name)
		st, err := os.Stat(s.Source)
		if err == nil && st.IsDir() {
			err = os.Mkdir(target, 0o755)
		} else if err == nil {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err == nil {
			err = unix.Mount(s.Source, target, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err == nil && s.ReadOnly {
			err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		if err != nil {
			return nil, fmt.Errorf("mounts[%d].source: %w", i, err)
		}
	}
	const socket = "files.sock"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	listening, err := l.File()
	if err != nil {
		return nil, err
	}
	defer listening.Close()
	cmd := exec.Command(v.setup.FileShare, "--fd=3", "-o", "source="+optionEscapes.Replace(dir), "-o", "cache=auto", "-o",
		"sandbox=namespace", "--thread-pool-size=1")
	cmd.ExtraFiles = []*os.File{listening}
	cmd.Stderr = v.console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", v.setup.FileShare, err)
	}
	v.cmds = append(v.cmds, cmd)
	return reach(socket)
}

// connect gives a connection to a socket.
func connect(socket string) (*os.File, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*net.UnixConn).File()
}

// leaveSocket gives the file of a socket that the machine's user connects to.
func (v *vm) leaveSocket(socket string) (*os.File, error) {
	id := int(v.nobody().Uid)
	if err := os.Chown(socket, id, id); err != nil {
		return nil, err
	}
	return os.OpenFile(socket, unix.O_PATH, 0)
}

// kill ends what was started, and waits for it: a control group with a process that is ending cannot be removed.
func (v *vm) kill() {
	for _, c := range v.cmds {
		_ = c.Process.Kill()
	}
	if v.ended != nil {
		<-v.ended
	}
	for _, c := range v.cmds {
		_ = c.Wait() // an error for one that was waited for
	}
	if v.maker != nil {
		v.maker.end(v.machine)
	}
}

// processorTime is what the machine has used: it tells a guest that stands still from one that is not given the time.
func (v *vm) processorTime() time.Duration {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.cmds[len(v.cmds)-1].Process.Pid))
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	ticks := 0
	for _, field := range []int{11, 12} { // user and system time, of what follows the name
		if len(f) > field {
			n, _ := strconv.Atoi(f[field])
			ticks += n
		}
	}
	const perSecond = 100
	return time.Duration(ticks) * time.Second / perSecond
}

func (v *vm) lastWords() string {
	if v.console == nil {
		return ""
	}
	if text := v.console.String(); text != "" {
		return "; the last it wrote:\n" + text
	}
	return "; it wrote nothing"
}

// clean makes text of a guest's fit to be shown.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && r != 0xfffd {
			return r
		}
		return -1
	}, s)
}
