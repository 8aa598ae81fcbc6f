//go:build linux

package oci

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
)

const runtimeEnv = "SKERRY_OCI_TEST_RUNTIME"

const parentEnv = "SKERRY_OCI_TEST_CGROUP"

// criuEnv names another CRIU than the one that is installed.
const criuEnv = "SKERRY_TEST_CRIU"

// cgroupParent is this run's own; the agents that the suite kills inherit it.
func cgroupParent() string { return os.Getenv(parentEnv) }

func open(dir string) (runtime.Driver, error) {
	var rts []string
	if r := os.Getenv(runtimeEnv); r != "" {
		rts = []string{r}
	}
	o := Options{Dir: dir, CgroupParent: cgroupParent(), Runtimes: rts, Criu: os.Getenv(criuEnv), Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if len(rts) > 0 && filepath.Base(rts[0]) == "runsc" {
		o = GVisor(o)
		o.Runtimes = rts
	}
	return New(o)
}

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	if os.Getenv("SKERRY_OCI_TEST_INNER") == "" {
		os.Exit(inner())
	}
	// What follows runs in a mount namespace of its own.
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(parentEnv, fmt.Sprintf("skerry-test-oci-%d", os.Getpid()))
	os.Exit(testenv.Main(checked{m}, testenv.Options{Cgroup: cgroupParent()}))
}

// checked are the tests, after which the cgroup that they share is removed.
type checked struct{ *testing.M }

func (c checked) Run() int {
	code := c.M.Run()
	if err := removeParent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// removeParent fails when a test has left something running.
func removeParent() error {
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	return tree.Group(cgroupParent()).Remove()
}

// inner runs the tests in a mount namespace, so that crun's missing hierarchy can be mounted for them alone, and nothing
// they mount can outlive them.
func inner() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), "SKERRY_OCI_TEST_INNER=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// prepare binds the one controller that crun 1.8 misses on a hybrid machine, as Check advises an operator to do. It does
// so in a copy of the directory of hierarchies, so that the machine's own stays as it is.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const root = "/sys/fs/cgroup"
	var fs unix.Statfs_t
	if err := unix.Statfs(root+"/unified", &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil // not hybrid
	}
	if unix.Statfs(root+"/hugetlb", &fs) == nil && fs.Type == unix.CGROUP_SUPER_MAGIC {
		return nil
	}
	copied, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		return err
	}
	defer os.Remove(copied)
	if err := unix.Mount("tmpfs", copied, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(root, e.Name()), filepath.Join(copied, e.Name())
		if !e.IsDir() || e.Name() == "hugetlb" {
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), unix.Mount(from, to, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(copied+"/hugetlb", 0o755), unix.Mount("cgroup", copied+"/hugetlb", "cgroup", 0, "hugetlb")); err != nil {
		return err
	}
	return unix.Mount(copied, root, "", unix.MS_MOVE, "")
}

// beside gives the path of a program that scripts/beside can fetch, or "".
func beside(t *testing.T, name string) string {
	t.Helper()
	dir := testenv.Beside(t, "../..", name)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// newCRIU has CRIU be one that works with new kernels. Where that cannot be had the one that is installed counts, if any.
func newCRIU(t *testing.T) {
	t.Helper()
	if os.Getenv(criuEnv) == "" {
		t.Setenv(criuEnv, beside(t, "criu"))
	}
}

// A runtime that is refused by a machine that has changed since its self-test gives way to the next one.
func TestMachineChanges(t *testing.T) {
	runc := monitor.LookPath("runc")
	if runc == "" {
		t.Skip("runc is not installed")
	}
	dir := t.TempDir()
	first, changed := filepath.Join(dir, "first"), filepath.Join(dir, "changed")
	script := "#!/bin/sh\nif [ -e " + changed + " ]; then case \"$*\" in *create*) echo cgroups in hybrid mode not supported >&2; exit 1;; esac; fi\nexec " + runc + " \"$@\"\n"
	if err := os.WriteFile(first, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{first, "runc"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if r := d.Check(t.Context()); !r.Passed || d.chosen != first {
		t.Fatalf("%+v", r)
	}
	if err := os.WriteFile(changed, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(d.Options.Dir, "check", "layer")
	h, err := d.Start(t.Context(), runtime.Spec{ID: "changed.main.1", RootFS: []runtime.Mount{{Type: "overlay", Options: []string{"lowerdir=" + layer}}}, Args: []string{"/probe"}})
	if err != nil {
		t.Fatal(err)
	}
	if d.chosen != runc {
		t.Errorf("%s was chosen", d.chosen)
	}
	if err := d.Remove(t.Context(), h); err != nil {
		t.Error(err)
	}
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A CRIU that is missing, or does not work, is told with cause and cure, and containers run all the same.
func TestCheckpointIsRefused(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho Version: 0.1\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cannot := "CRIU 0.1 cannot write a small container"
	if monitor.LookPath("runc") == "" {
		cannot = "runc is not installed, which works with CRIU"
	}
	for criu, why := range map[string]string{"no-such-criu": "no-such-criu is not installed; install CRIU", broken: cannot} {
		d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Criu: criu})
		if err != nil {
			t.Fatal(err)
		}
		r := d.Check(t.Context())
		if !r.Passed || slices.Contains(r.Abilities, runtime.AbilityCheckpoint) || (criu == broken) != strings.Contains(r.Cause, "no checkpoints: "+why) {
			t.Errorf("%+v", r)
		}
		u, ok := errors.AsType[*runtime.Unsupported](d.CanCheckpoint(t.Context()))
		if !ok || !strings.Contains(u.Reason, why) {
			t.Errorf("%+v", u)
		}
		if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConformance(t *testing.T) {
	newCRIU(t)
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) {
			if monitor.LookPath(program) == "" {
				t.Skip(&runtime.Unsupported{Driver: "oci", Reason: program + " is not installed"})
			}
			t.Setenv(runtimeEnv, program)
			runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent()})
		})
	}
	t.Run("runsc", func(t *testing.T) {
		program := cmp.Or(monitor.LookPath("runsc"), beside(t, "runsc"))
		if program == "" {
			t.Skip(&runtime.Unsupported{Driver: "gvisor", Reason: "runsc is not installed, and cannot be fetched"})
		}
		t.Setenv(runtimeEnv, program)
		runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent(), OwnKernel: true, Beside: GVisor(Options{}).Sandbox.Memory})
	})
}
