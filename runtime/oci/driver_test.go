//go:build linux

package oci

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	if err := enterable(dir); err != nil {
		return nil, err
	}
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

// enterable has the users of user namespaces enter a directory of a test, as they do a worker's run directory.
func enterable(dir string) error {
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	runtimetest.Alone()
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

// need gives the path of an OCI runtime that a test is about.
func need(t *testing.T, program string) string {
	t.Helper()
	path := monitor.LookPath(program)
	if path == "" {
		t.Skip(&runtime.Unsupported{Driver: "oci", Reason: program + " is not installed"})
	}
	return path
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
	runc := need(t, "runc")
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

// TestConformance has a process for each runtime, because it takes minutes. Containers have user namespaces where that is the default, and go
// without on a hybrid host; make test-systems has all combinations.
func TestConformance(t *testing.T) {
	newCRIU(t)
	conforms(t, "crun with user namespaces", "crun on a hybrid host")
	if testenv.Systems() {
		conforms(t, "crun")
	}
}

func TestConformanceOfRunc(t *testing.T) {
	newCRIU(t)
	conforms(t, "runc with user namespaces")
	if testenv.Systems() {
		conforms(t, "runc")
	}
}

// conforms runs the suite with a runtime.
func conforms(t *testing.T, names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			program, how, _ := strings.Cut(name, " ")
			need(t, program)
			if program == "crun" {
				runtimetest.Hybrid(t, strings.Contains(how, "hybrid"))
			}
			t.Setenv(runtimeEnv, program)
			o := runtimetest.Options{New: open, CgroupParent: cgroupParent()}
			if strings.Contains(how, "user namespaces") {
				o.Users = &runtime.UserNamespace{First: 0x7100_0000, Size: 1 << 16}
			}
			runtimetest.Run(t, o)
		})
	}
}

func TestConformanceOfGVisor(t *testing.T) {
	program := cmp.Or(monitor.LookPath("runsc"), beside(t, "runsc"))
	if program == "" {
		t.Skip(&runtime.Unsupported{Driver: "gvisor", Reason: "runsc is not installed, and cannot be fetched"})
	}
	t.Setenv(runtimeEnv, program)
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent(), OwnKernel: true, Beside: GVisor(Options{}).Sandbox.Memory})
}
