//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// foreign are architectures whose programs this kernel runs through an emulator: where that is, and the ELF machine number.
var foreign = map[string]struct {
	emulator string
	machine  byte
}{"amd64": {"qemu-x86_64-static", 0x3e}, "arm64": {"qemu-aarch64-static", 0xb7}, "riscv64": {"qemu-riscv64-static", 0xf3}}

// TestWorkersOfOtherArchitectures has agents for other processors, each the whole program under an emulator, join a site. They speak with a
// cluster of this machine's architecture, say what they are, run what is built for them as real processes, and get nothing else.
func TestWorkersOfOtherArchitectures(t *testing.T) {
	testenv.Long(t, "TestImageOfAnotherArchitecture, and scripts/check, which checks the types of everything for arm64")
	d := newDevices(t, 0)
	var archs []string
	for _, arch := range []string{"arm64", "riscv64"} {
		if arch != runtime.GOARCH {
			archs = append(archs, arch)
			handled(t, arch)
			d.emulated(arch)
		}
	}
	views := func() map[string]view.WorkerView {
		out := map[string]view.WorkerView{}
		list, _ := d.Cluster.Workers(t.Context())
		for _, w := range list {
			if w.Connected && w.Facts != nil {
				out[string(w.Name)] = w
			}
		}
		return out
	}
	d.await("all have joined", func() bool { return len(views()) == len(archs) })
	for name, w := range views() {
		if f := w.Facts; f.Arch != name || f.OS != "linux" || f.Capacity.Memory == 0 || !slices.Contains(f.PassedRuntimes(), spec.RuntimeNative) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	own := d.platformImage("test/own:1", runtime.GOARCH)
	all := d.platformImage("test/all:1", append(archs, runtime.GOARCH)...)
	everywhere := service("everywhere", all, func(s *spec.ServiceSpec) {
		s.Mode, s.Runtime, s.Args = spec.ModePerWorker, spec.RuntimeNative, []string{"sleep"}
	})
	d.do(app("shop", everywhere, service("web", own, func(s *spec.ServiceSpec) { s.Runtime, s.Args = spec.RuntimeNative, []string{"sleep"} })))
	d.await("the reason is told", func() bool {
		list, _ := d.Root.Instances(t.Context())
		return slices.ContainsFunc(list, func(i wire.Instance) bool {
			return i.Service.Service == "web" && slices.ContainsFunc(i.Why, func(r wire.Reason) bool { return r.What == "arch" && strings.Contains(r.Text, runtime.GOARCH) })
		})
	})
	d.await("each worker runs what is built for it", func() bool {
		list, _ := d.Cluster.Instances(t.Context())
		running := map[skerry.WorkerName]bool{}
		for _, i := range list {
			running[i.Worker] = running[i.Worker] || i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
		}
		for _, arch := range archs {
			if !running[skerry.WorkerName(arch)] {
				return false
			}
		}
		return true
	})
	if _, err := d.Root.Do(t.Context(), apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	d.await("nothing is left", func() bool { list, _ := d.Cluster.Instances(t.Context()); return len(list) == 0 })
}

// platformImage makes an image of the workload for some architectures.
func (d *devices) platformImage(tag string, archs ...string) string {
	d.t.Helper()
	for _, arch := range archs {
		bin := filepath.Join(d.t.TempDir(), "program")
		buildFor(d.t, arch, bin, workload)
		if _, err := d.Root.Images.Store.Build(d.t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + tag, Index: len(archs) > 1}); err != nil {
			d.t.Fatal(err)
		}
	}
	return tag
}

func buildFor(t *testing.T, arch, out, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s for %s: %v\n%s", pkg, arch, err, text)
	}
}

// handled has the kernel run programs of an architecture by its emulator until the end of the test.
func handled(t *testing.T, arch string) {
	t.Helper()
	emulator, err := exec.LookPath(foreign[arch].emulator)
	if err != nil {
		t.Fatalf("%v: scripts/deps installs it", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("binfmt_misc", dir, "binfmt_misc", 0, ""); err != nil {
		t.Skip(&testenv.Unsupported{What: "programs for " + arch, Why: "binfmt_misc: " + err.Error()})
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	name := fmt.Sprintf("skerry-test-%d-%s", os.Getpid(), arch)
	// An executable (2) or one that may lie anywhere (3) of 64 bits, the least byte first. F: the emulator is opened now, so that it is there for
	// containers too.
	rule := fmt.Sprintf(`:%s:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x%02x\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:%s:F`, name, foreign[arch].machine, emulator)
	if err := os.WriteFile(filepath.Join(dir, "register"), []byte(rule), 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "programs for " + arch, Why: "binfmt_misc: " + err.Error()})
	}
	t.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("-1"), 0); err != nil {
			t.Error(err)
		}
	})
}

// emulated starts a worker's agent for another architecture, whose name it takes.
func (d *devices) emulated(arch string) {
	d.t.Helper()
	dir := filepath.Join(d.dir, arch)
	program := filepath.Join(d.dir, "skerry-"+arch)
	buildFor(d.t, arch, program, "skerry.dev/skerry/cmd/skerry")
	token, _, err := d.Cluster.Authority().CreateToken(d.t.Context(), auth.TokenOptions{Tier: wire.TierWorker, Name: arch})
	if err != nil {
		d.t.Fatal(err)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		d.t.Fatal(err)
	}
	agent := exec.Command(program, "worker", "--cluster", d.Cluster.LinkAddr().String(), "--name", arch, "--join", token, "--data", filepath.Join(dir, "data"), "--run-dir", filepath.Join(dir, "run"),
		"--cgroup-parent", cgroupParent(dir), "--http", "", "--no-network", "--no-overlay", "--ingress=false", "--probe-address", "off")
	agent.Stdout, agent.Stderr = log, log
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		_ = agent.Wait()
		// By this program: the emulators cannot tell one network namespace from another.
		if err := node.CleanMachine(context.Background(), node.WorkerConfig{Common: node.Common{Dir: filepath.Join(dir, "data"), Log: d.log}}); err != nil {
			d.t.Error("clean up:", err)
		}
		log.Close()
		if text, err := os.ReadFile(dir + ".log"); err == nil && d.t.Failed() {
			d.t.Logf("agent for %s:\n%s", arch, text)
		}
	})
}
