//go:build linux && amd64

package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// TestFindCloudHypervisor refuses what cannot be used, with the way out.
func TestFindCloudHypervisor(t *testing.T) {
	for name, c := range map[string]struct{ line, cause string }{
		"absent":           {"", "is not installed"},
		"too old":          {"cloud-hypervisor v51.1", "of version 51.1, which is too old"},
		"something else":   {"hello", `says it is "hello"`},
		"fits":             {"cloud-hypervisor v52.0", ""},
		"of cargo":         {"cloud-hypervisor v53.0.0", ""},
		"between releases": {"cloud-hypervisor v53.0-12-g0123abc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cloud-hypervisor")
			if c.line != "" {
				says(t, path, c.line)
			}
			var r runtime.Report
			p := findCloudHypervisor(t.Context(), &r, path)
			if (p == nil) != (c.cause != "") || !strings.Contains(r.Cause, c.cause) || (r.Cure == "") != (p != nil) {
				t.Errorf("found is %+v, and reported %+v", p, r)
			}
		})
	}
}

// TestWhatCloudHypervisorIsTold is the command of a machine.
func TestWhatCloudHypervisorIsTold(t *testing.T) {
	t.Chdir(t.TempDir()) // as vm-run in the task's directory
	mac, _ := net.ParseMAC("02:00:00:00:00:07")
	m := &machine{
		RAM: 160 << 20, CPUs: 2, Cmdline: "quiet", Kernel: os.Stdin, Initrd: os.Stdin, Files: os.Stdin, Console: os.Stdout,
		Disks: []disk{{Serial: rootLabel, ReadOnly: true, File: os.Stdin}, {Serial: scratchLabel, ReadOnly: true, File: os.Stdin}},
		NIC:   &nic{MAC: mac, Tap: os.Stdin}, Rates: rates{ReadBps: 1000, ReadIOPS: 7},
		User: &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())},
	}
	c := &cloudHypervisor{program: "/opt/cloud-hypervisor"}
	var files opened
	defer files.close()
	var cmd *exec.Cmd
	err := thread.Do(func() error {
		if err := (&vm{setup: &setup{}}).isolate(); err != nil {
			return err
		}
		channel, err := c.channel(m, &files)
		if err != nil {
			return err
		}
		defer channel.Close()
		cmd, err = c.command(m)
		return err
	})
	if err != nil {
		t.Fatalf("make its command: %v", err)
	}
	want := `/opt/cloud-hypervisor
--seccomp true
--cpus boot=2
--memory size=167772160,shared=on
--kernel /proc/self/fd/3
--cmdline quiet
--console off
--serial tty
--vsock cid=3,socket=/proc/self/fd/4/vsock
--event-monitor fd=5
--initramfs /proc/self/fd/6
--disk path=/proc/self/fd/7,image_type=raw,readonly=on,serial=skerry_root,bw_size=1000,bw_refill_time=1000,ops_size=7,ops_refill_time=1000
--disk path=/proc/self/fd/8,image_type=raw,readonly=on,serial=skerry_scratch,bw_size=1000,bw_refill_time=1000,ops_size=7,ops_refill_time=1000
--fs tag=skerry,socket=/proc/self/fd/9
--net fd=10,mac=02:00:00:00:00:07`
	if got := strings.ReplaceAll(strings.Join(cmd.Args, " "), " --", "\n--"); got != want {
		t.Errorf("got\n%s", got)
	}
	if len(cmd.ExtraFiles) != 8 || cmd.Stdout != os.Stdout {
		t.Errorf("it is given %d files, and %v", len(cmd.ExtraFiles), cmd.Stdout)
	}
}

const bootedThenReset = `{
  "timestamp": {"secs": 0, "nanos": 5},
  "source": "vm",
  "event": "booted",
  "properties": null
}

{
  "timestamp": {"secs": 9, "nanos": 5},
  "source": "virtio-device",
  "event": "reset",
  "properties": {"id": "_disk0"}
}

{"source": "vm", "event": "rebooting"}`

// TestResetOfCloudHypervisor ends a machine that resets itself, which would start again.
func TestResetOfCloudHypervisor(t *testing.T) {
	ours, theirs := net.Pipe()
	c := &cloudHypervisor{events: ours, cmd: exec.Command("sleep", "1000")}
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start what stands for it: %v", err)
	}
	m := &machine{}
	if err := c.begin(m, nil); err != nil {
		t.Fatalf("begin: %v", err)
	}
	if _, err := theirs.Write([]byte(bootedThenReset)); err != nil {
		t.Fatalf("tell of the reset: %v", err)
	}
	err := c.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	// Nobody killed the program in it: it has failed, as one has whose machine another monitor ends with the guest.
	if code, err := (&vm{maker: c, machine: m}).broken(err); code != 1 || !strings.Contains(err.Error(), "reset") {
		t.Errorf("the program ends with %d, %v", code, err)
	}
}

// FuzzEvents has Cloud Hypervisor, which what runs in a machine may have taken over, tell anything.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{bootedThenReset, `{"source": "vm"`, `[]`, "\x00", strings.Repeat("[", 20_000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if rebooting(strings.NewReader(data)) && !strings.Contains(strings.ToLower(data), "rebooting") && !strings.Contains(data, `\u`) {
			t.Errorf("%q ends a machine", data)
		}
	})
}

// TestEndlessEvent gives up one that does not end, however much is told.
func TestEndlessEvent(t *testing.T) {
	text := `{"source": "` + strings.Repeat("a", 2*longestAnswer) + `"}` + bootedThenReset
	if rebooting(strings.NewReader(text)) {
		t.Error("what follows an event of 128 KiB was read")
	}
}

// TestCloudHypervisor boots a kernel of some 200 bytes: any KVM runs that, also one that runs no Linux.
func TestCloudHypervisor(t *testing.T) {
	path := testenv.Monitor(t, MonitorCloudHypervisor)
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a machine of Cloud Hypervisor", Why: err.Error()})
	} else {
		kvm.Close()
	}
	bundle := t.TempDir()
	t.Chdir(bundle)
	kernelFile, disk0 := filepath.Join(bundle, "probe"), filepath.Join(bundle, "disk")
	if err := errors.Join(os.WriteFile(kernelFile, shortKernel(t), 0o644), os.WriteFile(disk0, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, inner, _ := cable(t)
	v := &vm{bundle: bundle, setup: &setup{CloudHypervisor: path, Accel: "kvm", NetNS: inner}, console: &tail{}}
	inside(t, inner, func() error {
		defer v.kill()
		if err := bootProbe(t, v, &cloudHypervisor{program: path}, kernelFile, disk0); err != nil {
			return fmt.Errorf("%w%s", err, v.lastWords())
		}
		isNobody(t, v, "cloud-hypervis", 1) // the kernel keeps 15 letters of a name
		if _, err := os.Stat(filepath.Join(socketsDir, vsockName)); err != nil {
			return err
		}
		return nil
	})
	// One that was taken over may write where its sockets are, which is no disk: what it makes there would fill that, and stay.
	if left, err := os.ReadDir(socketsDir); err != nil || len(left) > 0 {
		t.Errorf("on the disk are %v, %v", left, err)
	}
	if st, err := os.Stat(disk0); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the disk is %v, %v", st, err)
	}
}

// TestWithoutKVM says of a machine that a KVM ended that this KVM does not work, and what does; a reason that has its own way out keeps it.
func TestWithoutKVM(t *testing.T) {
	ended := &runtime.StartError{Err: errors.New("the machine ended by itself (<nil>)")}
	full := &runtime.StartError{Err: errors.New("no space left on device"), Hint: "free space below /var"}
	for _, x := range []struct {
		err  error
		cure string
	}{{ended, "--microvm-monitor qemu"}, {errors.New("a guest did not come up within 8s"), "--microvm-monitor qemu"}, {full, full.Hint}} {
		var r runtime.Report
		(&checking{r: &r}).withoutKVM(x.err)
		if !strings.HasPrefix(r.Cause, "no working KVM: ") || !strings.Contains(r.Cure, x.cure) {
			t.Errorf("of %v it is reported %q, and the way out %q", x.err, r.Cause, r.Cure)
		}
	}
}

// TestConformanceOfCloudHypervisor runs the suite with Linux guests of Cloud Hypervisor. It needs a KVM that runs these.
func TestConformanceOfCloudHypervisor(t *testing.T) {
	testenv.Monitor(t, MonitorCloudHypervisor)
	conformsMonitor(t, MonitorCloudHypervisor, runtimetest.Options{})
}
