//go:build linux

package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/spec"
)

// Kata's shim, and what it is called as a runtime.
const (
	kataProgram = "containerd-shim-kata-v2"
	kata        = "io.containerd.kata.v2"
)

// TestConformanceOfKata runs the suite with Kata Containers beside runc. Whatever else is called so does not count: the self-test must
// have seen a machine of KVM.
func TestConformanceOfKata(t *testing.T) {
	if monitor.LookPath(kataProgram) == "" {
		t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: "kata is not installed"})
	}
	t.Setenv(socketEnv, testenv.NewContainerd(t).Socket)
	t.Setenv(shimEnv, kata)
	t.Setenv(classEnv, "hardware/kata")
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), Slow: true, Machine: true, OwnKernel: true,
		Beside: spec.RuntimeNamed(spec.ClassRuntime(spec.IsolationHardware, "kata")).Memory})
}

// TestClassesSideBySide has one daemon run containers of two classes: each passes its own self-test, and sees and ends its own alone.
func TestClassesSideBySide(t *testing.T) {
	t.Setenv(socketEnv, testenv.NewContainerd(t).Socket)
	image := runtimetest.Image(t, runtimetest.Workload(t))
	dir := t.TempDir()
	var drivers []*Driver
	for _, binary := range []string{"runc", "crun"} {
		if monitor.LookPath(binary) == "" {
			t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: binary + " is not installed"})
		}
		o := options(filepath.Join(dir, binary))
		o.Class, o.Isolation, o.Binary = binary, spec.IsolationShared, binary
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if d.Name() != "containerd/shared/"+binary {
			t.Error(d.Name())
		}
		if r := d.Check(t.Context()); !r.Passed || !strings.Contains(r.Version, binary) || !strings.Contains(r.Version, "; class "+binary) {
			t.Fatalf("%+v", r)
		}
		drivers = append(drivers, d)
	}
	for _, d := range drivers {
		if _, err := d.Start(t.Context(), runtime.Spec{ID: runtime.TaskID(d.opts.Class + ".main.1"), Args: []string{"workload", "sleep"},
			RootFS: []runtime.Mount{runtime.Overlay(image)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range drivers {
		list, err := d.List(t.Context())
		if err != nil || len(list) != 1 || list[0].Driver != d.Name() {
			t.Fatalf("%v, %v", list, err)
		}
		if err := d.Remove(t.Context(), list[0]); err != nil {
			t.Error(err)
		}
		if i == 0 {
			other, err := drivers[1].List(t.Context())
			if err != nil || len(other) != 1 {
				t.Fatalf("%v, %v", other, err)
			}
			if st, err := drivers[1].Status(t.Context(), other[0]); err != nil || st.State != runtime.StateRunning {
				t.Errorf("%+v, %v", st, err)
			}
		}
	}
}

// TestStandInIsNoMachine has runc's shim stand in for Kata's, by name and by what is declared of it: the self-test sees the host's kernel,
// and the class is not offered, nor are containers started in it.
func TestStandInIsNoMachine(t *testing.T) {
	t.Setenv(socketEnv, testenv.NewContainerd(t).Socket)
	shim := monitor.LookPath("containerd-shim-runc-v2")
	if shim == "" {
		t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: "containerd-shim-runc-v2 is not installed"})
	}
	standIn := filepath.Join(t.TempDir(), kataProgram)
	if err := os.Symlink(shim, standIn); err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir())
	o.Class, o.Isolation, o.Shim, o.Binary = "kata", spec.IsolationHardware, standIn, "runc"
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := d.Check(t.Context())
	if r.Passed || len(r.Abilities) > 0 || !strings.Contains(r.Cause,
		"class kata is declared with isolation "+string(spec.IsolationHardware)+": its containers run on the host's kernel") ||
		!strings.Contains(r.Cure, "isolation=shared") {
		t.Errorf("%+v", r)
	}
	_, err = d.Start(t.Context(), runtime.Spec{ID: "x.main.1", Args: []string{"x"}, RootFS: []runtime.Mount{{Type: "bind",
		Source: t.TempDir()}}})
	if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Hint != r.Cure {
		t.Errorf("start: %v", err)
	}
}

// TestSnapshotter has a class take root file systems from the daemon: an image is copied once, what a container writes is not the next
// one's, and a snapshot goes with its container.
func TestSnapshotter(t *testing.T) {
	t.Setenv(socketEnv, testenv.NewContainerd(t).Socket)
	if monitor.LookPath("runc") == "" {
		t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: "runc is not installed"})
	}
	newDriver := func(snapshotter string) *Driver {
		o := options(t.TempDir())
		o.Class, o.Isolation, o.Binary, o.Snapshotter = "own", spec.IsolationShared, "runc", snapshotter
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	if r := newDriver("absent").Check(t.Context()); r.Passed || !strings.Contains(r.Cause, "absent") || !strings.Contains(r.Cure,
		"set the snapshotter absent up") {
		t.Errorf("%+v", r)
	}
	d := newDriver("native")
	if r := d.Check(t.Context()); !r.Passed || !strings.HasSuffix(r.Version, "; snapshotter native") {
		t.Fatalf("%+v", r)
	}
	image := runtimetest.Image(t, runtimetest.Workload(t))
	c := d.client(os.Getenv(socketEnv))
	for _, id := range []runtime.TaskID{"own.main.1", "own.main.2"} {
		h, err := d.Start(t.Context(), runtime.Spec{ID: id, Args: []string{"workload", "sleep"}, RootFS: []runtime.Mount{runtime.Overlay(image)}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		run := func(args ...string) int {
			code, err := d.Exec(t.Context(), h, runtime.ExecSpec{Args: append([]string{"workload"}, args...), Stdout: &out, Stderr: &out})
			if err != nil {
				t.Error(err)
			}
			return code
		}
		if run("read", "/left") == 0 {
			t.Errorf("%s has what another wrote", id)
		}
		if run("write", "/left", "by "+string(id)) != 0 || run("read", "/left") != 0 || !strings.HasSuffix(out.String(), "by "+string(id)) {
			t.Errorf("%q", out.String())
		}
		key := containerID(d.Options.Dir, id)
		if _, err := c.PrepareSnapshot(t.Context(), "native", key, ""); !has(err, CodeAlreadyExists) {
			t.Errorf("%s has no snapshot: %v", id, err)
		}
		if _, err := c.PrepareSnapshot(t.Context(), "native", fillingOf(key)+"-of-the-test", imageKey([]string{image})); err != nil {
			t.Errorf("the image has none: %v", err)
		}
		if err := c.RemoveSnapshot(t.Context(), "native", fillingOf(key)+"-of-the-test"); err != nil {
			t.Error(err)
		}
		if l, err := d.Layer(t.Context(), h); err != nil {
			t.Error(err)
		} else if _, err := os.Stat(filepath.Join(l.Dir, "left")); l.Dir == "" || err != nil {
			t.Errorf("what it wrote is not measured: %+v, %v", l, err)
		}
		if n, files, err := c.SnapshotUsage(t.Context(), "native", key); err != nil || n <= 0 || files <= 0 {
			t.Errorf("its snapshot takes %d bytes and %d files, %v", n, files, err)
		}
		if err := d.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
		if _, err := c.PrepareSnapshot(t.Context(), "native", key, ""); err != nil {
			t.Errorf("the snapshot of %s is left: %v", id, err)
		}
		if err := c.RemoveSnapshot(t.Context(), "native", key); err != nil {
			t.Error(err)
		}
	}
}

// TestSnapshotOfADaemonThatWasAway: a start that came no further than to a snapshot, at a daemon that then goes away, leaves none there
// when it is back.
func TestSnapshotOfADaemonThatWasAway(t *testing.T) {
	o := options(t.TempDir())
	o.Class, o.Isolation, o.Snapshotter, o.Socket = "own", spec.IsolationShared, "native", filepath.Join(t.TempDir(), "socket")
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	bring := func(task *monitor.Task) error {
		place, err := json.Marshal(at{o.Socket, "own-1", "native"})
		if err != nil {
			t.Fatal(err)
		}
		task.Update(func(r *monitor.Record) { r.Extra = place })
		return errors.New("that is all")
	}
	if _, err := d.Launch(t.Context(), runtime.Spec{ID: "own.main.1"}, "", bring); err == nil || err.Error() != "that is all" {
		t.Fatal(err)
	}
	removed := make(chan string, 10)
	srv := newServer(t, o.Socket, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		status := "5" // it knows nothing else
		switch path.Base(r.URL.Path) {
		case "List":
			status = "0"
		case "Remove":
			key, err := parseText(body[5:], 2)
			if err != nil {
				t.Error(err)
			}
			removed <- key
		}
		w.Header().Set("Trailer", "grpc-status")
		_, _ = w.Write(make([]byte, 5))
		w.Header().Set("grpc-status", status)
	})
	d.sweep(t.Context())
	d.sweep(t.Context())
	srv.Close()
	close(removed)
	var got []string
	for key := range removed {
		got = append(got, key)
	}
	if want := []string{"own-1", "own-1-filling"}; !slices.Equal(got, want) {
		t.Errorf("%v were removed", got)
	}
}

// TestWrittenIn finds where what is written to a snapshot lies.
func TestWrittenIn(t *testing.T) {
	for want, mounts := range map[string][]Mount{
		"/s/1/fs": {{"overlay", "overlay", []string{"index=off", "workdir=/s/1/work", "upperdir=/s/1/fs", "lowerdir=/s/0/fs"}}},
		"/s/2":    {{"overlay", "overlay", []string{"upperdir=/s/1/fs"}}, {"bind", "/s/2", []string{"rbind", "rw"}}},
		"":        {{"ext4", "/dev/mapper/skerry-snap-1", []string{"upperdir=/x"}}},
	} {
		if got := writtenIn(mounts); got != want {
			t.Errorf("%+v: %q", mounts, got)
		}
	}
	if got := writtenIn(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

// TestEvidence holds what was seen of a container against what its class promises.
func TestEvidence(t *testing.T) {
	for _, tt := range []struct {
		name string
		evidence
		want string // of hardware and of sandboxed, by a comma; empty: nothing contradicts it
	}{
		{"a machine", evidence{host: "a", inside: "b", machine: "qemu-system-x86_64"}, ","},
		{"gVisor, whose kernel has no such file", evidence{host: "a"}, "holds a virtual machine,"},
		{"a machine that nobody saw", evidence{host: "a", inside: "b"}, "holds a virtual machine,"},
		{"a container", evidence{host: "a", inside: "a", process: true}, "host's kernel,host's kernel"},
		{"one that hides the kernel", evidence{host: "a", inside: "b", process: true, machine: "kvm"}, "host's kernel,host's kernel"},
		{"one whose process is not seen", evidence{host: "a", inside: "a", machine: "kvm"}, "host's kernel,host's kernel"},
		{"a host that does not tell", evidence{inside: "b", machine: "kvm"}, "does not say,does not say"},
	} {
		hardware, sandboxed, _ := strings.Cut(tt.want, ",")
		for isolation, want := range map[spec.Isolation]string{spec.IsolationHardware: hardware, spec.IsolationSandboxed: sandboxed} {
			if err := tt.refute(isolation); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v", tt.name, isolation, err)
			}
		}
	}
}

// TestMachineIsFound finds a process that holds a machine of KVM, where this machine has any.
func TestMachineIsFound(t *testing.T) {
	if holdsMachine("/proc/self") {
		t.Fatal("nobody has opened one yet")
	}
	process, machine := findProcesses(os.Args[len(os.Args)-1], "no-container-of-this-name")
	if machine != "" || !process {
		t.Errorf("%v, %q: this process is one of the host", process, machine)
	}
	openMachine(t)
	if !holdsMachine("/proc/self") {
		t.Error("it is not seen")
	}
}

// TestUndeclaredClassStartsNothing: only what was left of it can still be looked after.
func TestUndeclaredClassStartsNothing(t *testing.T) {
	o := options(t.TempDir())
	o.Class, o.Isolation, o.Undeclared = "kata", spec.IsolationHardware, true
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if r := d.Check(t.Context()); r.Passed || !r.Absent || r.Cure != declareIt {
		t.Errorf("%+v", r)
	}
	if _, err := d.Start(t.Context(), runtime.Spec{ID: "x.main.1", Args: []string{"x"}, RootFS: []runtime.Mount{{Type: "bind",
		Source: t.TempDir()}}}); err == nil || !strings.Contains(err.Error(), "any more") {
		t.Error(err)
	}
}

// TestOwnKernelHandsNothingIn lists what containers with a kernel of their own are refused, as their self-test leaves it out.
func TestOwnKernelHandsNothingIn(t *testing.T) {
	o := options(t.TempDir())
	o.Class, o.Isolation = "kata", spec.IsolationHardware
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var got []runtime.Ability
	for _, s := range []runtime.Spec{{Devices: []runtime.Device{{Path: "/dev/null"}}}, {Privileged: true}, {HostNetwork: true},
		{Sysctls: map[string]string{"net.a": "1"}}} {
		s.ID, s.Args, s.RootFS = "x.main.1", []string{"x"}, []runtime.Mount{{Type: "bind", Source: t.TempDir()}}
		_, err := d.Start(t.Context(), s)
		if un, ok := errors.AsType[*runtime.Unsupported](err); ok {
			got = append(got, un.Ability)
		} else {
			t.Errorf("%+v: %v", s, err)
		}
	}
	slices.Sort(got)
	if want := []runtime.Ability{runtime.AbilityDevices, runtime.AbilityHostNetwork, runtime.AbilityPrivileged,
		runtime.AbilitySysctls}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

// openMachine has this process hold a machine of KVM until the test ends.
func openMachine(t *testing.T) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "KVM", Why: err.Error()})
	}
	t.Cleanup(func() { kvm.Close() })
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, kvm.Fd(), 0xae01, 0) // KVM_CREATE_VM
	if errno != 0 {
		t.Skip(&testenv.Unsupported{What: "KVM", Why: errno.Error()})
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
}
