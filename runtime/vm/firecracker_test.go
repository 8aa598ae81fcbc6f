//go:build linux && amd64

package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/runtime/vm/wire"
)

// installedFirecracker is the one on this machine.
func installedFirecracker(t *testing.T) *firecrackerProgram {
	t.Helper()
	var r runtime.Report
	p := findFirecracker(t.Context(), &r, testenv.Monitor(t, MonitorFirecracker))
	if p == nil {
		t.Fatalf("%+v", r)
	}
	t.Log("Firecracker", p.Version)
	return p
}

// TestFirecracker boots a kernel of some 200 bytes in a jail: any KVM runs that, also one that runs no Linux. It looks at the jail from
// outside, and at what is left.
func TestFirecracker(t *testing.T) {
	program := installedFirecracker(t)
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a machine of Firecracker", Why: err.Error()})
	} else {
		kvm.Close()
	}
	// As /tmp is on many machines, where worker check has its files.
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	bundle := filepath.Join(dir, "bundle")
	if err := os.Mkdir(bundle, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Chdir(bundle)
	kernel := shortKernel(t)
	binary.LittleEndian.PutUint32(kernel[64+56:], 0) // its note is nothing, so that it is entered in 64-bit mode
	path, disk0 := filepath.Join(bundle, "probe"), filepath.Join(bundle, "disk")
	if err := errors.Join(os.WriteFile(path, kernel, 0o644), os.WriteFile(disk0, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, inner, _ := cable(t)
	v := &vm{bundle: bundle, setup: &setup{Firecracker: program, Accel: "kvm", NetNS: inner}, console: &tail{}}
	inside(t, inner, func() error {
		defer v.kill()
		f := v.firecracker()
		if err := bootProbe(t, v, f, path, disk0); err != nil {
			return fmt.Errorf("%w%s", err, v.lastWords())
		}
		inJail(t, v, f)
		// Both are killed at once when a task is removed.
		if err := v.cmds[0].Process.Kill(); err != nil {
			return err
		}
		<-v.ended
		if _, err := netlink.LinkByName(tapName); err == nil {
			t.Error("the tap outlives the machine")
		}
		return nil
	})
	if st, err := os.Stat(disk0); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the disk is %v, %v", st, err)
	}
	if left, err := os.ReadDir(filepath.Join(bundle, "jail")); err != nil || len(left) > 0 {
		t.Errorf("the jail is left: %v, %v", left, err)
	}
	if mounts := testenv.Mounts(bundle); len(mounts) > 0 {
		t.Errorf("mounts are left: %v", mounts)
	}
}

// TestTemplateOfFirecracker saves that kernel and loads it in another jail, with everything that a template is asked for. In place of its
// init the test calls.
func TestTemplateOfFirecracker(t *testing.T) {
	program := installedFirecracker(t)
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a machine of Firecracker", Why: err.Error()})
	} else {
		kvm.Close()
	}
	if !program.clones() {
		t.Skip(&testenv.Unsupported{What: "a machine that begins with a template", Why: "Firecracker is older than 1.16.1"})
	}
	kernel := shortKernel(t)
	binary.LittleEndian.PutUint32(kernel[64+56:], 0) // as in TestFirecracker
	used := &template{Dir: t.TempDir(), New: true, NIC: true}
	for range 2 {
		bundle := t.TempDir()
		t.Chdir(bundle)
		path, scratch := filepath.Join(bundle, "probe"), filepath.Join(bundle, "disk")
		if err := errors.Join(os.WriteFile(path, kernel, 0o644), os.WriteFile(scratch, make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, inner, _ := cable(t)
		v := &vm{bundle: bundle, console: &tail{},
			setup: &setup{Firecracker: program, Accel: "kvm", NetNS: inner, Template: used, BootMillis: 60_000}}
		inside(t, inner, func() error {
			defer v.kill()
			f := v.firecracker()
			if used.New {
				// The jail is in mounts of this thread's.
				go callsOnce(t.Context(), fmt.Sprintf("/proc/self/task/%d/cwd/%s_%d", unix.Gettid(), f.below(vsockName), wire.SocketPort))
			}
			if err := bootProbe(t, v, f, path, scratch); err != nil {
				return fmt.Errorf("%w%s", err, v.lastWords())
			}
			inJail(t, v, f)
			holdsNoTemplate(t, f.cmd.Process.Pid)
			return nil
		})
		for _, name := range []string{templateMemory, templateState} {
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(used.Dir, name), &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o644 || st.Size == 0 {
				t.Errorf("%s is %+v, %v", name, st, err)
			}
		}
		if outcome, err := os.ReadFile(filepath.Join(used.Dir, templateOutcome)); err != nil || len(outcome) > 0 {
			t.Errorf("the outcome is %q, %v", outcome, err)
		}
		used = &template{Dir: used.Dir, NIC: true}
	}
}

// holdsNoTemplate sees that a machine has no file of a template open, and none mapped, that it could write to: it left one as a user that
// may not open it any more.
func holdsNoTemplate(t *testing.T, pid int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("its files: %v, %v", fds, err)
	}
	for _, fd := range fds {
		file, _ := os.Readlink(fd)
		if base := filepath.Base(file); base != templateMemory && base != templateState {
			continue
		}
		info, _ := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		_, flags, _ := strings.Cut(string(info), "flags:\t")
		flags, _, _ = strings.Cut(flags, "\n")
		if n, err := strconv.ParseUint(flags, 8, 64); err != nil || n&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("it has %s open with the flags %q, %v", file, flags, err)
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil || len(maps) == 0 {
		t.Fatalf("its mappings: %q, %v", maps, err)
	}
	for line := range strings.Lines(string(maps)) {
		of := filepath.Base(strings.TrimSpace(line))
		if rights := strings.Fields(line)[1]; (of == templateMemory || of == templateState) && !strings.HasSuffix(rights, "p") {
			t.Errorf("it shares %s", line)
		}
	}
}

// TestTemplateWithoutRoom has a machine go on that fills the disk with its template, and gives the room back before its program runs.
func TestTemplateWithoutRoom(t *testing.T) {
	program := installedFirecracker(t)
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a machine of Firecracker", Why: err.Error()})
	} else {
		kvm.Close()
	}
	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(full, unix.MNT_DETACH) })
	kernel := shortKernel(t)
	binary.LittleEndian.PutUint32(kernel[64+56:], 0) // as in TestFirecracker
	bundle := t.TempDir()
	t.Chdir(bundle)
	path, scratch := filepath.Join(bundle, "probe"), filepath.Join(bundle, "disk")
	if err := errors.Join(os.WriteFile(path, kernel, 0o644), os.WriteFile(scratch, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, inner, _ := cable(t)
	used := &template{Dir: full, New: true, NIC: true}
	v := &vm{bundle: bundle, console: &tail{},
		setup: &setup{Firecracker: program, Accel: "kvm", NetNS: inner, Template: used, BootMillis: 60_000}}
	inside(t, inner, func() error {
		defer v.kill()
		f := v.firecracker()
		go callsOnce(t.Context(), fmt.Sprintf("/proc/self/task/%d/cwd/%s_%d", unix.Gettid(), f.below(vsockName), wire.SocketPort))
		if err := bootProbe(t, v, f, path, scratch); err != nil {
			return fmt.Errorf("%w%s", err, v.lastWords())
		}
		return nil
	})
	outcome, err := os.ReadFile(filepath.Join(full, templateOutcome))
	if err != nil || !strings.Contains(string(outcome), "No space left") {
		t.Errorf("the outcome is %q, %v", outcome, err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(full, &disk); err != nil || disk.Bfree+2 < disk.Blocks {
		t.Errorf("%d of %d blocks are free, %v", disk.Bfree, disk.Blocks, err)
	}
}

// callsOnce calls vm-run as a guest's init does, once it listens.
func callsOnce(ctx context.Context, path string) {
	conn, err := net.Dial("unix", path)
	for ; err != nil; conn, err = net.Dial("unix", path) {
		if ctx.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	_ = wire.Write(conn, wire.Frame{Kind: wire.KindHello, Data: []byte{wire.Version}})
	_, _ = wire.Read(conn) // until it is hung up
	conn.Close()
}

// shortKernel is the self-test's kernel with code that speaks at once, in 32-bit and in 64-bit mode.
func shortKernel(t *testing.T) []byte {
	t.Helper()
	const base, headers, note = 0x100000, 64 + 2*56, 20
	b, ok := probe.Kernel("amd64")
	line := bytes.Index(b, []byte(probe.Line))
	if !ok || line < 0 {
		t.Fatal("there is no kernel")
	}
	code := []byte{
		0xbe, 0, 0, 0, 0, // mov esi, the line
		0xb9, byte(len(probe.Line) + 1), 0, 0, 0, // mov ecx, its length
		0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8 (the serial port)
		0xac, 0xee, 0xe2, 0xfc, // lodsb; out dx, al; loop
		0xf4, 0xeb, 0xfd, // hlt; jmp to hlt
	}
	binary.LittleEndian.PutUint32(code[1:], uint32(base+line))
	copy(b[headers+note:], code)
	return b
}

// bootProbe starts a machine with a disk, a network card and limiters, and waits until its kernel has spoken, unless it began with a
// template.
func bootProbe(t *testing.T, v *vm, h hypervisor, kernel, scratch string) error {
	if err := v.isolate(); err != nil {
		return err
	}
	m := &machine{RAM: 32 << 20, CPUs: 1, Rates: rates{ReadBps: 1 << 20, WriteBps: 1 << 20, ReadIOPS: 100, WriteIOPS: 100},
		Template: v.setup.Template}
	var files opened
	defer files.close()
	var err error
	if m.Kernel, err = files.open(kernel, os.O_RDONLY); err != nil {
		return err
	}
	file, err := files.open(scratch, os.O_RDWR)
	if err != nil {
		return err
	}
	m.Disks = []disk{{Serial: scratchLabel, File: file}}
	if m.NIC, _, err = joinNetwork(); err != nil {
		return err
	}
	console, theirs, err := files.pair()
	if err != nil {
		return err
	}
	m.Console = theirs
	channel, err := h.channel(m, &files)
	if err != nil {
		return err
	}
	defer channel.Close()
	ended, err := v.spawn(h, m)
	if err != nil {
		return err
	}
	theirs.Close()
	if m.Template == nil || m.Template.New {
		line, err := bufio.NewReader(console).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != probe.Line {
			return fmt.Errorf("it printed %q, %w", line, err)
		}
	}
	select {
	case err := <-ended:
		return fmt.Errorf("it ended: %w", err)
	default:
	}
	return nil
}

// isNobody looks at a machine's process: whose it is, and that its system calls are filtered in all threads but so many, which only wait.
func isNobody(t *testing.T, v *vm, program string, waiting int) {
	t.Helper()
	pid := v.cmds[0].Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
	}
	id := fmt.Sprint(v.machine.User.Uid)
	for name, want := range map[string]string{
		"Name": program, "Uid": strings.Join([]string{id, id, id, id}, "\t"), "Gid": strings.Join([]string{id, id, id, id}, "\t"),
		"CapEff": "0000000000000000",
	} {
		_, text, _ := strings.Cut(string(status), "\n"+name+":\t")
		if name == "Name" {
			_, text, _ = strings.Cut(string(status), "Name:\t")
		}
		text, _, _ = strings.Cut(text, "\n")
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s is %q, not %q", name, text, want)
		}
	}
	// The thread that serves the machine's processor is the one that a guest attacks.
	filtered := 0
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range tasks {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "\nSeccomp:\t2\n") {
			filtered++
		}
	}
	if filtered == 0 || filtered != len(tasks)-waiting {
		t.Errorf("system calls of %d of %d threads are filtered", filtered, len(tasks))
	}
}

// inJail is isNobody, and looks at where the process has its root.
func inJail(t *testing.T, v *vm, f *firecracker) {
	t.Helper()
	isNobody(t, v, "firecracker", 0)
	for dir := f.root(); dir != filepath.Dir(f.dir); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("others of the host can enter %s: %v, %v", dir, st, err)
		}
	}
	root, err := os.Stat(fmt.Sprintf("/proc/%d/root/", v.cmds[0].Process.Pid))
	jail, err2 := os.Stat(f.root())
	if err := errors.Join(err, err2); err != nil || !os.SameFile(root, jail) {
		t.Errorf("its root is not the jail: %v", err)
	}
}

// TestConformanceOfFirecracker runs the suite with Linux guests of Firecracker. It needs a KVM that runs these.
func TestConformanceOfFirecracker(t *testing.T) {
	installedFirecracker(t)
	conformsMonitor(t, MonitorFirecracker, runtimetest.Options{Copies: true})
}

// conformsMonitor runs the suite with Linux guests of a monitor that needs a KVM that runs these.
func conformsMonitor(t *testing.T, monitor string, o runtimetest.Options) {
	t.Setenv(kernelEnv, testenv.GuestKernel(t))
	t.Setenv(kindEnv, monitor)
	o.New, o.CgroupParent, o.Machine, o.Brief = open, runtimetest.CgroupParent(), true, !testenv.Systems()
	o.Unfit = func(r runtime.Report) string {
		t.Log(r.Version, r.Cause)
		if strings.HasPrefix(r.Cause, "no working KVM") {
			return r.Cause
		}
		return ""
	}
	runtimetest.Run(t, o)
	t.Run("network", reachesGuests)
}

// TestTapIsLeft has a tap that a user may open by its name, as Firecracker does: it stays, another machine is refused while it is open,
// and the next one finds none.
func TestTapIsLeft(t *testing.T) {
	_, inner, _ := cable(t)
	inside(t, inner, func() error {
		n, _, err := joinNetwork()
		if err != nil {
			return err
		}
		if err := n.leave(12345); err != nil {
			return err
		}
		tap, err := openTap() // as the machine
		if err != nil {
			return err
		}
		if _, _, err := joinNetwork(); err == nil || !strings.Contains(err.Error(), "another machine") {
			t.Errorf("a second machine: %v", err)
		}
		tap.Close()
		again, _, err := joinNetwork() // the machine and vm-run were killed
		if err != nil {
			return err
		}
		again.Tap.Close()
		if tap, err = openTap(); err != nil { // nothing of it is there: a new one
			return err
		}
		return tap.Close()
	})
}
