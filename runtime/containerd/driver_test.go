//go:build linux

package containerd

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/spec"
)

// What the agents inherit that the suite starts and kills.
const (
	socketEnv = "SKERRY_CONTAINERD_TEST_SOCKET"
	binaryEnv = "SKERRY_CONTAINERD_TEST_BINARY"
	classEnv  = "SKERRY_CONTAINERD_TEST_CLASS" // ISOLATION/NAME
	shimEnv   = "SKERRY_CONTAINERD_TEST_SHIM"
	snapEnv   = "SKERRY_CONTAINERD_TEST_SNAPSHOTTER"
)

func options(dir string) Options {
	isolation, class, _ := strings.Cut(os.Getenv(classEnv), "/")
	return Options{Dir: dir, CgroupParent: runtimetest.CgroupParent(), Socket: os.Getenv(socketEnv), Binary: os.Getenv(binaryEnv),
		Keeper: []string{runtimetest.Program()},
		Class:  class, Isolation: spec.Isolation(isolation), Shim: os.Getenv(shimEnv), Snapshotter: os.Getenv(snapEnv),
		Log: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn}))}
}

func open(dir string) (runtime.Driver, error) { return New(options(dir)) }

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	runtimetest.Alone()
	runtimetest.Main(m, "containerd", "skerry.dev/skerry/runtime/containerd/testdata/keeper", open)
}

func TestConformance(t *testing.T) {
	t.Setenv(socketEnv, testenv.NewContainerd(t).Socket)
	for _, name := range []string{"runc", "crun", "crun on a hybrid host"} {
		t.Run(name, func(t *testing.T) {
			binary, _, hybrid := strings.Cut(name, " ")
			if monitor.LookPath(binary) == "" {
				t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: binary + " is not installed"})
			}
			if binary == "crun" {
				runtimetest.Hybrid(t, hybrid)
			}
			t.Setenv(binaryEnv, binary)
			if binary == "crun" { // beside the one without a class
				t.Setenv(classEnv, "shared/crun")
			}
			if name == "crun" {
				t.Setenv(snapEnv, "overlayfs")
			}
			runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), Slow: true, Brief: binary == "crun"})
			c := NewClient(os.Getenv(socketEnv))
			defer c.Close()
			b, err := c.call(t.Context(), containers, "List", nil)
			if left, err2 := parseContainers(b); err != nil || err2 != nil || len(left) > 0 {
				t.Errorf("left at the daemon: %v, %v", left, errors.Join(err, err2))
			}
			if b, err := c.call(t.Context(), tasks, "List", nil); err != nil || len(b) > 0 {
				t.Errorf("tasks are left at the daemon: %q, %v", b, err)
			}
		})
	}
}

// What keeps a daemon from running anything is told with cause and cure.
func TestCheckTellsWhy(t *testing.T) {
	socket := testenv.NewContainerd(t).Socket
	dir := t.TempDir()
	silent, closed := filepath.Join(dir, "silent"), filepath.Join(dir, "closed")
	ln, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 welcome\r\n"))
			conn.Close()
		}
	}()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: closed, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	for name, c := range map[string]struct {
		o           Options
		cause, cure string
	}{
		"none named":   {Options{}, "no containerd is configured", "--containerd /run/containerd/containerd.sock"},
		"no socket":    {Options{Socket: filepath.Join(dir, "nothing")}, "there is no containerd at " + dir, "apt-get install containerd"},
		"not absolute": {Options{Socket: "sock"}, "is no absolute path", "--containerd /run/"},
		"nobody":       {Options{Socket: closed}, "no process listens", "systemctl start containerd"},
		"another":      {Options{Socket: silent}, silent, "make sure that it is containerd"},
		"no shim":      {Options{Socket: socket, Shim: "io.containerd.absent.v1"}, "io.containerd.absent.v1", "containerd-shim-absent-v1 on its PATH"},
		"no binary":    {Options{Socket: socket, Binary: "no-such-runtime"}, "no-such-runtime", "--containerd-binary"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Dir, c.o.CgroupParent, c.o.Keeper = filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), runtimetest.CgroupParent(), []string{runtimetest.Program()}
			d, err := New(c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			r := d.Check(t.Context())
			if r.Passed || r.Absent != (c.o.Socket == "") || !strings.Contains(r.Cause, c.cause) || !strings.Contains(r.Cure, c.cure) {
				t.Errorf("%+v", r)
			}
			if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
			_, err = d.Start(t.Context(), runtime.Spec{ID: "x.main.1", Args: []string{"x"}, RootFS: []runtime.Mount{{Type: "bind", Source: dir}}})
			if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Hint != r.Cure {
				t.Errorf("start: %v", err)
			}
		})
	}
}

// A daemon that is restarted, as for its upgrade, holds nothing up: what runs runs on, an end is learned of later, and what was removed meanwhile is
// forgotten by the daemon, too.
func TestDaemonIsAway(t *testing.T) {
	x := testenv.NewContainerd(t)
	t.Setenv(socketEnv, x.Socket)
	image := runtimetest.Image(t, runtimetest.Workload(t))
	d, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var hs []runtime.Handle
	for _, id := range []runtime.TaskID{"away.main.1", "away.main.2"} {
		h, err := d.Start(t.Context(), runtime.Spec{ID: id, Args: []string{"workload", "sleep"}, RootFS: []runtime.Mount{runtime.Overlay(image)}})
		if err != nil {
			t.Fatal(err)
		}
		lines, err := d.(runtime.Logger).OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := lines.Next(); err != nil || e.Line != "ready" {
			t.Fatalf("%+v, %v", e, err)
		}
		lines.Close()
		hs = append(hs, h)
	}
	x.Stop()
	for _, h := range hs {
		if st, err := d.Status(t.Context(), h); err != nil || st.State != runtime.StateRunning {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if err := d.Remove(t.Context(), hs[1]); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(hs[0].PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.Start(t)
	if e, err := d.Wait(t.Context(), hs[0]); err != nil || e.Code != 3 || e.Lost {
		t.Errorf("%+v, %v", e, err)
	}
	if r := d.Check(t.Context()); !r.Passed {
		t.Errorf("%+v", r)
	}
	c := d.(*Driver).client(x.Socket)
	left, err := c.Containers(t.Context(), labelDir, d.(*Driver).Options.Dir)
	if err != nil || len(left) != 1 || left[0].Labels[labelTask] != string(hs[0].ID) {
		t.Errorf("the daemon knows %v, %v", left, err)
	}
	if err := d.(*Driver).CleanUp(t.Context()); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Error(err)
	}
	if left, err := c.Containers(t.Context(), labelDir, d.(*Driver).Options.Dir); err != nil || len(left) > 0 {
		t.Errorf("after the clean-up the daemon knows %v, %v", left, err)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []runtime.TaskID{"a.main.1", "a-main.1", "a--b", "a__", runtime.TaskID(strings.Repeat("x.", 100))} {
		for _, dir := range []string{"/a", "/b"} {
			name := containerID(dir, id)
			if seen[name] || len(name) > 76 || !regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`).MatchString(name) {
				t.Errorf("%s in %s is %q", id, dir, name)
			}
			seen[name] = true
		}
	}
	for v, want := range map[string]bool{"1.6.20~ds1": true, "v1.7": true, "2.0.1": true, "1.5.9": false, "0.9": false, "devel": true} {
		if atLeast(v, oldest) != want {
			t.Error(v)
		}
	}
}
