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

// ownersEnv is how files belong to users of user namespaces.
const ownersEnv = "SKERRY_OCI_TEST_OWNERS"

// noMapsEnv is a directory where owners cannot be mapped, which then has the layers of self-tests.
const noMapsEnv = "SKERRY_OCI_TEST_NO_MAPS"

func open(dir string) (runtime.Driver, error) {
	if err := enterable(dir); err != nil {
		return nil, err
	}
	if at := os.Getenv(noMapsEnv); at != "" {
		if _, err := os.Lstat(filepath.Join(dir, "check")); err != nil {
			own, err := os.MkdirTemp(at, "check")
			if err = errors.Join(err, os.MkdirAll(dir, 0o755), os.Symlink(own, filepath.Join(dir, "check"))); err != nil {
				return nil, err
			}
		}
	}
	var rts []string
	if r := os.Getenv(runtimeEnv); r != "" {
		rts = []string{r}
	}
	o := Options{Dir: dir, CgroupParent: cgroupParent(), Runtimes: rts, Owners: Owners(os.Getenv(ownersEnv)), Criu: os.Getenv(criuEnv), Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
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
	h, err := d.Start(t.Context(), runtime.Spec{ID: "changed.main.1", RootFS: []runtime.Mount{runtime.Overlay(layer)}, Args: []string{"/probe"}})
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
		conforms(t, "crun", "crun with user namespaces and copies")
	}
}

func TestConformanceOfRunc(t *testing.T) {
	newCRIU(t)
	conforms(t, "runc with user namespaces")
	if testenv.Systems() {
		conforms(t, "runc", "runc with user namespaces and copies")
	}
}

// TestConformanceWithoutMaps has the self-test find out that owners cannot be mapped: of what user namespaces do then it is the short relative of
// the same suite for both runtimes in TestConformance.
func TestConformanceWithoutMaps(t *testing.T) {
	noMaps(t)
	conforms(t, "crun with user namespaces and copies in brief")
}

// noMaps has the layers of self-tests on a file system of the kernel's that cannot map owners. No such one that is left takes what containers write.
func noMaps(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(enterable(dir), unix.Mount("ramfs", dir, "ramfs", 0, "mode=0755")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(noMapsEnv, dir)
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
			if o.Brief = strings.Contains(how, "in brief"); strings.Contains(how, "copies") {
				o.Copied = true
				if !o.Brief {
					t.Setenv(ownersEnv, string(OwnersCopied))
				}
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
