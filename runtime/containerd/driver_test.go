//go:build linux

package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
)

// What the agents inherit that the suite starts and kills.
const (
	socketEnv = "SKERRY_CONTAINERD_TEST_SOCKET"
	binaryEnv = "SKERRY_CONTAINERD_TEST_BINARY"
)

func open(dir string) (runtime.Driver, error) {
	return New(Options{Dir: dir, CgroupParent: runtimetest.CgroupParent(), Socket: os.Getenv(socketEnv), Binary: os.Getenv(binaryEnv), Keeper: []string{runtimetest.Program()},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	runtimetest.Alone()
	runtimetest.Main(m, "containerd", "skerry.dev/skerry/runtime/containerd/testdata/keeper", open)
}

// daemon starts a containerd that the tests have for themselves, and gives its socket.
func daemon(t *testing.T) string {
	t.Helper()
	program := monitor.LookPath("containerd")
	if program == "" {
		t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: "containerd is not installed"})
	}
	dir, err := os.MkdirTemp("", "containerd-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket, config := filepath.Join(dir, "sock"), filepath.Join(dir, "config.toml")
	// Without what speaks with Kubernetes, and the snapshotters, of which none is used.
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.snapshotter.v1.btrfs\", \"io.containerd.snapshotter.v1.devmapper\", "+
		"\"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.aufs\"]\n[grpc]\naddress = %q\n", filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.Command(program, "--config", config, "--log-level", "warn")
	cmd.Stdout, cmd.Stderr = &words, &words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second // a shim may hold its output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, c := range cmdlines {
			if data, _ := os.ReadFile(c); bytes.Contains(data, []byte("shim")) && bytes.Contains(data, []byte(socket)) {
				t.Errorf("a shim is left: %q", data)
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd said:\n%s", words.String())
		}
	})
	c := NewClient(socket)
	defer c.Close()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := c.Version(t.Context())
		if err == nil {
			return socket
		}
		if time.Now().After(end) {
			t.Fatalf("containerd does not answer: %v", err)
		}
	}
}

func TestConformance(t *testing.T) {
	t.Setenv(socketEnv, daemon(t))
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			if monitor.LookPath(binary) == "" {
				t.Skip(&runtime.Unsupported{Driver: "containerd", Reason: binary + " is not installed"})
			}
			t.Setenv(binaryEnv, binary)
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
	socket := daemon(t)
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
		"none named":   {Options{}, "was told of no containerd", "--containerd /run/containerd/containerd.sock"},
		"no socket":    {Options{Socket: filepath.Join(dir, "nothing")}, "there is no containerd at " + dir, "apt-get install containerd"},
		"not absolute": {Options{Socket: "sock"}, "is no absolute path", "--containerd /run/"},
		"nobody":       {Options{Socket: closed}, "nobody listens", "systemctl start containerd"},
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
