//go:build linux

// Package runtimetest is the conformance suite of runtime.Driver: every driver passes it, or says by *runtime.Unsupported
// what it cannot do. Only tests import it.
package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

// Options tell the suite what it cannot know of a driver.
type Options struct {
	// New opens the driver on a state directory. TestMain must call ChildMain with the same function.
	New func(dir string) (runtime.Driver, error)
	// CgroupParent is where the driver makes its groups.
	CgroupParent string
	// HostRoot says that tasks see the host's root directory instead of an image.
	HostRoot bool
	// WASI says that tasks are WebAssembly modules. Their programs get no signals, which end them instead; what goes beyond
	// their memory fails in them, before the kernel would kill; and their root is read-only.
	WASI bool
	// OwnKernel says that tasks see a kernel that is not the host's, and not Linux in all that it tells.
	OwnKernel bool
	// Beside is the most memory that the driver takes of a task's cgroup for itself.
	Beside skerry.Bytes
	// Machine says that tasks are virtual machines: they have a kernel of their own, and a start takes seconds. Where the suite
	// starts many tasks, it starts a few, and what does not depend on each other at the same time.
	Machine bool
	// System says that tasks are systems of their own, which nothing of ours is in; nil: they are programs.
	System *System
	// Users has each task run in this user namespace.
	Users *runtime.UserNamespace
	// Copied has images and volumes belong to these users on the disk, as a driver needs them that lists AbilityUserNSCopies.
	Copied bool
	// Slow says that a start goes through a daemon and takes a tenth of a second and more.
	Slow bool
	// Unfit says by the driver's self-test why this machine cannot run the suite, or nothing; nil: all can.
	Unfit func(runtime.Report) string
	// Copies says that tasks get copies of what they mount from the host, which follow it and cannot be written to.
	Copies bool
	// Brief leaves out what the driver does itself, since it was tested with another of its runtimes. Of a Machine it leaves out what is the
	// supervisor's, which others test, and looks at what a task is given in one of them instead of one for each thing.
	Brief bool
}

// Run runs the suite.
func Run(t *testing.T, opt Options) {
	if os.Geteuid() != 0 {
		t.Fatal("the suite needs root: it makes cgroups and mounts")
	}
	s := &suite{o: opt, bin: build(t, opt.WASI)}
	s.root = Image(t, s.bin)
	if opt.System != nil {
		s.root = opt.System.Image
	}
	if opt.Copied {
		s.root = Copied(t, s.root, opt.Users.First)
	}
	dir := filepath.Join(t.TempDir(), `1,2:3`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.d = s.open(t, dir)
	rep := s.d.Check(t.Context())
	if s.can = rep.Abilities; opt.Unfit != nil {
		if why := opt.Unfit(rep); why != "" {
			t.Skip(&testenv.Unsupported{What: "the suite", Why: why})
		}
	}
	t.Run("check", s.check)
	t.Run("life", s.life)
	t.Run("refusals", s.refusals)
	t.Run("lacks", s.lacks)
	if s.shares() {
		t.Run("one machine", s.oneMachine)
	} else {
		t.Run("isolation", s.isolation)
	}
	t.Run("limits", s.limits)
	t.Run("exec", s.exec)
	t.Run("pause", s.pause)
	t.Run("reattach", s.reattach)
	t.Run("lost", s.lost)
	if s.shares() {
		t.Run("crash", s.crash)
	}
	t.Run("layer", s.layer)
	if !opt.Brief {
		t.Run("environment", s.environment)
		t.Run("resize", s.resize)
		t.Run("checkpoint", s.checkpoint)
		t.Run("logs", s.logs)
		t.Run("many", s.many)
		t.Run("crash", s.crash)
	}
	hs, err := s.d.List(t.Context())
	if err != nil || len(hs) != 0 {
		t.Errorf("left over: %v %v", hs, err)
	}
	if of, err := s.d.ListOf(t.Context(), s.spec("sleep").Instance); err != nil || len(of) != 0 {
		t.Errorf("left over of its instance: %v %v", of, err)
	}
	if err := s.d.Close(); err != nil { // what a driver keeps for its next start goes with it
		t.Error(err)
	}
	s.nothingLeft(t, dir)
}

type suite struct {
	o    Options
	d    runtime.Driver
	can  []runtime.Ability
	bin  string // the workload on the host
	root string // an image that holds it
	next atomic.Int64
}

func (s *suite) open(t *testing.T, dir string) runtime.Driver {
	t.Helper()
	d, err := s.o.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Workload builds the program of the suite.
func Workload(t testing.TB) string { return build(t, false) }

// Module builds the program of the suite as a WebAssembly module.
func Module(t testing.TB) string { return build(t, true) }

func build(t testing.TB, wasi bool) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "workload")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "skerry.dev/skerry/runtime/runtimetest/workload")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if wasi {
		cmd.Env = append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the workload: %v\n%s", err, out)
	}
	return bin
}

// Image makes a root directory with the workload in /bin.
func Image(t testing.TB, bin string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), `an image 1,2:3`)
	for _, d := range []string{"bin", "etc", "tmp", "data"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"bin/workload": data,
		"bin/noexec":   []byte("no program"),
		"etc/passwd":   []byte("root:x:0:0:root:/root:/bin/sh\nmule:x:1234:5678:Mule:/:/bin/workload\n"),
		"etc/group":    []byte("root:x:0:\nstable:x:5678:\nherd:x:777:mule\n"),
	} {
		mode := os.FileMode(0o644)
		if name == "bin/workload" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(root, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	// Test directories are for root alone; the tasks' users must be able to enter.
	for d := root; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Copied makes a copy of an image that belongs to the users from first on.
func Copied(t testing.TB, image string, first uint32) string {
	t.Helper()
	root := image + "-copied"
	if err := errors.Join(os.Mkdir(root, 0o755), owners.Copy(context.Background(), image, root, first)); err != nil {
		t.Fatal(err)
	}
	return root
}

// volume is what a worker does to a directory before it is mounted.
func (s *suite) volume(t *testing.T, m runtime.Mount) runtime.Mount {
	t.Helper()
	if s.o.Copied {
		m.Shifted = true
		if err := owners.Change(t.Context(), m.Source, owners.Map{To: s.o.Users.First}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// spec is a task that runs the workload.
func (s *suite) spec(args ...string) runtime.Spec {
	sp := runtime.Spec{
		ID:        runtime.TaskID(fmt.Sprintf("suite-%d-%d.main.1", os.Getpid(), s.next.Add(1))),
		Instance:  "suite-1",
		Container: "main",
		Args:      append([]string{"workload"}, args...),
		Labels:    map[string]string{"suite": "yes"},
		UserNS:    s.o.Users,
	}
	if s.o.System != nil {
		s.o.System.Tell(&sp, args)
	}
	if s.o.HostRoot {
		sp.RootFS = []runtime.Mount{{Type: "bind", Source: s.root}}
	} else {
		root := runtime.Overlay(s.root)
		root.Shifted = s.o.Copied
		sp.RootFS = []runtime.Mount{root}
	}
	return sp
}

// program is the path of the workload inside a task.
func (s *suite) program() string {
	if s.o.HostRoot {
		return filepath.Join(s.root, "bin/workload")
	}
	return "/bin/workload"
}

// start starts a task that is removed when the test ends. A driver that cannot do it skips the test.
func (s *suite) start(t *testing.T, sp runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := s.d.Start(t.Context(), sp)
	s.skipUnsupported(t, err)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.d.Remove(context.Background(), h); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return h
}

// together lets a test run beside others where each start takes long.
func (s *suite) together(t *testing.T) {
	if s.o.Machine {
		t.Parallel()
	}
}

// needs skips a test of an ability that the driver's self-test does not list.
func (s *suite) needs(t *testing.T, a runtime.Ability) {
	t.Helper()
	if !slices.Contains(s.can, a) {
		t.Skip(&runtime.Unsupported{Ability: a, Driver: s.d.Name(), Reason: "its self-test does not list it"})
	}
}

// hostKernel skips a test that asks the host's kernel from inside.
func (s *suite) hostKernel(t *testing.T) {
	t.Helper()
	if s.o.OwnKernel {
		t.Skip(&runtime.Unsupported{Driver: s.d.Name(), Reason: "its tasks see a kernel of their own, which does not tell"})
	}
}

// skipUnsupported skips a test of what the driver refuses, which must not be what its self-test lists.
func (s *suite) skipUnsupported(t *testing.T, err error) {
	t.Helper()
	if u, ok := errors.AsType[*runtime.Unsupported](err); ok {
		if u.Driver != s.d.Name() || u.Ability == "" || u.Reason == "" || slices.Contains(s.can, u.Ability) {
			t.Fatalf("it lists %v, and refuses by %+v", s.can, u)
		}
		t.Skip(u)
	}
}

// processes skips a test of what a program does beside itself.
func (s *suite) processes(t *testing.T) {
	t.Helper()
	if s.o.System != nil {
		t.Skip(&runtime.Unsupported{Driver: s.d.Name(), Reason: "its tasks are systems, in which nothing of ours runs"})
	}
}

// run runs a task to its end and gives what it printed.
func (s *suite) run(t *testing.T, sp runtime.Spec) (runtime.Exit, string) {
	t.Helper()
	h := s.start(t, sp)
	e := s.wait(t, s.d, h)
	out := s.output(t, s.d, h)
	if s.o.WASI && e.Code == wasiHasNot {
		t.Skip(&runtime.Unsupported{Driver: s.d.Name(), Reason: strings.TrimSpace(out)})
	}
	return e, out
}

// wasiHasNot is the exit status of a workload that was asked for what WASI does not have.
const wasiHasNot = 93

// terminated checks how a task that waited for the end, and that nothing else has ended, ended by SIGTERM.
func (s *suite) terminated(t *testing.T, e runtime.Exit, code int) {
	t.Helper()
	sig := 0
	if s.o.WASI {
		code, sig = 128+15, 15
	}
	if e.Code != code || e.Signal != sig || e.OOMKilled || e.Lost {
		t.Errorf("it ended as %+v, not as after SIGTERM", e)
	}
}

func (s *suite) wait(t *testing.T, d runtime.Driver, h runtime.Handle) runtime.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	e, err := d.Wait(ctx, h)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return e
}

func (s *suite) output(t *testing.T, d runtime.Driver, h runtime.Handle) string {
	t.Helper()
	var b strings.Builder
	for _, e := range s.entries(t, d, h, runtime.LogOptions{}) {
		b.WriteString(strings.TrimSuffix(e.Line, "\r") + "\n")
	}
	return b.String()
}

func (s *suite) entries(t *testing.T, driver runtime.Driver, handle runtime.Handle, o runtime.LogOptions) []runtime.LogEntry {
	t.Helper()
	l, ok := driver.(runtime.Logger)
	if !ok {
		s.without(t, runtime.AbilityLogs, "no Logger")
	}
	st, err := l.OpenLog(t.Context(), handle, o)
	if err != nil {
		t.Fatalf("log: %v", err)
	}
	defer st.Close()
	var es []runtime.LogEntry
	for {
		e, err := st.Next()
		if err == io.EOF {
			return es
		}
		if err != nil {
			t.Fatalf("log: %v", err)
		}
		es = append(es, e)
	}
}

// ready waits until the task has printed its first line, and gives a function for the next ones.
func (s *suite) ready(t *testing.T, d runtime.Driver, h runtime.Handle) (next func() (string, error)) {
	t.Helper()
	st, err := d.(runtime.Logger).OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
	if err != nil {
		t.Fatalf("log: %v", err)
	}
	t.Cleanup(func() { st.Close() })
	e, err := st.Next()
	if err != nil || e.Line != "ready" {
		t.Fatalf("waited for ready, got %q, %v; the task printed %q", e.Line, err, s.output(t, d, h))
	}
	return func() (string, error) {
		e, err := st.Next()
		return e.Line, err
	}
}

// processesBelow lists processes that name a path below a directory.
func processesBelow(dir string) (out []string) {
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range cmdlines {
		if data, _ := os.ReadFile(c); bytes.Contains(data, []byte(dir+"/")) {
			out = append(out, fmt.Sprintf("%s %s", filepath.Dir(c), bytes.ReplaceAll(data, []byte{0}, []byte(" "))))
		}
	}
	return out
}

// nothingLeft looks for processes, mounts and cgroups that belong to a state directory.
func (s *suite) nothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir+"/") {
			t.Errorf("a mount is left: %s", line)
		}
	}
	// A supervisor whose agent was killed before it let it go on ends by itself, when it is given a processor.
	left := processesBelow(dir)
	for end := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(end); left = processesBelow(dir) {
		time.Sleep(20 * time.Millisecond)
	}
	for _, p := range left {
		t.Errorf("a process is left: %s", p)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/%s/suite-%d-*", "/sys/fs/cgroup/*/%s/suite-%d-*"} {
		left, _ := filepath.Glob(fmt.Sprintf(pattern, s.o.CgroupParent, os.Getpid()))
		for _, l := range left {
			t.Errorf("a cgroup is left: %s", l)
		}
	}
}
