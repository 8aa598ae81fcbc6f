package testenv

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Containerd is one that a test has for itself. Whoever is left to it when the test ends fails that.
type Containerd struct {
	Socket  string
	program string
	config  string
	words   bytes.Buffer
	cmd     *exec.Cmd
}

// NewContainerd starts one. Where it is not installed the test is skipped.
func NewContainerd(t testing.TB) *Containerd {
	t.Helper()
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip(&Unsupported{What: "containerd", Why: "it is not installed; apt-get install containerd"})
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
	x := &Containerd{Socket: filepath.Join(dir, "sock"), program: program, config: filepath.Join(dir, "config.toml")}
	// Without what speaks with Kubernetes, and the snapshotters, of which none is used.
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.snapshotter.v1.btrfs\", \"io.containerd.snapshotter.v1.devmapper\", "+
		"\"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.aufs\"]\n[grpc]\naddress = %q\n", filepath.Join(dir, "root"),
		filepath.Join(dir, "state"), x.Socket)
	if err := os.WriteFile(x.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x.Start(t)
	t.Cleanup(func() {
		cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, c := range cmdlines {
			if data, _ := os.ReadFile(c); bytes.Contains(data, []byte("shim")) && bytes.Contains(data, []byte(x.Socket)) {
				t.Errorf("a shim is left: %q", data)
			}
		}
		x.Stop()
		if t.Failed() {
			t.Logf("containerd said:\n%s", x.words.String())
		}
	})
	return x
}

// Start starts it again, and returns when somebody listens.
func (x *Containerd) Start(t testing.TB) {
	t.Helper()
	x.cmd = exec.Command(x.program, "--config", x.config, "--log-level", "warn")
	x.cmd.Stdout, x.cmd.Stderr = &x.words, &x.words
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	x.cmd.WaitDelay = 100 * time.Millisecond // a shim may hold its output
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", x.Socket)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("containerd does not listen: %v", err)
		}
	}
}

// Stop ends it. What it runs runs on.
func (x *Containerd) Stop() {
	_ = x.cmd.Process.Signal(syscall.SIGTERM)
	_ = x.cmd.Wait()
}
