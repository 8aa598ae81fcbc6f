//go:build linux

package upgrade

import (
	"context"
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
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

// program makes a file that plays a program.
func program(t *testing.T, what string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), what)
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n%s=%s exec %s \"$@\"\n", playEnv, what, self), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// look reads what a played agent says of itself.
func look(data string) func(context.Context) (Seen, error) {
	return func(context.Context) (s Seen, err error) {
		text, err := os.ReadFile(filepath.Join(data, "seen"))
		if err != nil {
			return s, err
		}
		words := strings.Fields(string(text))
		if _, err := fmt.Sscan(words[0], &s.Pid); err != nil {
			return s, err
		}
		s.Connected = slices.Contains(words, "connected")
		if slices.Contains(words, "oci") {
			s.Runtimes = []string{"oci"}
		}
		for _, w := range words {
			if list, ok := strings.CutPrefix(w, "ready="); ok {
				s.Ready = strings.Split(list, ",")
			}
		}
		s.Instances = []string{"a", "b"}
		return s, nil
	}
}

var want = Seen{Connected: true, Runtimes: []string{"oci"}, Ready: []string{"a", "b"}}

// world is a worker's data directory with a store.
type world struct {
	*testing.T
	data string
	dir  *Dir
}

func newWorld(t *testing.T) *world {
	w := &world{t, t.TempDir(), nil}
	file := filepath.Join(w.data, "state.db")
	w.dir = Open(filepath.Join(w.data, "agent"), file)
	st, err := store.Open(t.Context(), "sqlite:"+file, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Commit(t.Context(), []store.Op{{Key: "k", Value: []byte("before")}}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// begin stages a program and makes it the one to try.
func (w *world) begin(what string, window time.Duration) Program {
	w.Helper()
	p, err := w.dir.Stage(w.Context(), program(w.T, what))
	if err != nil {
		w.Fatal(err)
	}
	if p.Version != what {
		w.Fatalf("the version is %q", p.Version)
	}
	if err := w.dir.Begin(Trial{Program: p, From: "v1", Window: spec.Duration(window), Steady: spec.Duration(100 * time.Millisecond), Want: want}); err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) supervisor() *Supervisor { return supervisorOf(w.data) }

// supervisorOf looks at played agents over a data directory.
func supervisorOf(data string) *Supervisor {
	dir := Open(filepath.Join(data, "agent"), filepath.Join(data, "state.db"))
	return &Supervisor{Dir: dir, Args: []string{"skerry", "worker", data}, Look: look(data), Log: slog.New(slog.DiscardHandler), Every: 20 * time.Millisecond}
}

func (w *world) try(ctx context.Context) Outcome {
	w.Helper()
	o, err := w.supervisor().Try(ctx)
	if err != nil {
		w.Fatal(err)
	}
	if s := w.state(); s.Trial != nil || s.Last == nil || s.Last.Why != o.Why || s.Last.Passed != o.Passed {
		w.Errorf("what is kept, %+v, is not the outcome %+v", s, o)
	}
	if pid := w.agent(); pid > 0 && syscall.Kill(pid, 0) == nil {
		w.Errorf("process %d still runs", pid)
	}
	return o
}

func (w *world) state() State {
	w.Helper()
	s, err := w.dir.State()
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// agent gives the process that wrote what is seen, or 0.
func (w *world) agent() int {
	s, err := look(w.data)(w.Context())
	if err != nil {
		return 0
	}
	return s.Pid
}

func TestTrial(t *testing.T) {
	// How long a program takes to start is the machine's business.
	for _, c := range []struct {
		what   string
		window time.Duration
		why    string
	}{
		{"good", time.Minute, ""},
		{"crash", time.Minute, "it ended: exit status 3"},
		{"silent", time.Second, "after 1s: it does not answer: "},
		{"worse", 20 * time.Second, "after 20s: instance b is not ready"},
		{"lonely", 20 * time.Second, "after 20s: it is not connected to its cluster"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.begin(c.what, c.window)
			o := w.try(t.Context())
			if o.Passed != (c.why == "") || !strings.HasPrefix(o.Why, c.why) {
				t.Errorf("passed %v, %q; expected %q", o.Passed, o.Why, c.why)
			}
			w.holds("before")
		})
	}
}

// change edits what is kept.
func (w *world) change(f func(*State)) {
	w.Helper()
	s := w.state()
	f(&s)
	if err := w.dir.save(&s); err != nil {
		w.Fatal(err)
	}
}

// holds checks that the old program's store is as it was.
func (w *world) holds(value string) {
	w.Helper()
	st, err := store.Open(w.Context(), "sqlite:"+filepath.Join(w.data, "state.db"), store.Options{})
	if err != nil {
		w.Fatal(err)
	}
	defer st.Close()
	if r, err := st.Get(w.Context(), "k"); err != nil || string(r.Value) != value {
		w.Errorf("the store holds %q, %v", r.Value, err)
	}
}

// TestSteady lets a program do well for a while and then end: it has not passed.
func TestSteady(t *testing.T) {
	w := newWorld(t)
	w.begin("late", time.Minute)
	w.change(func(s *State) { s.Trial.Steady = spec.Duration(time.Minute) })
	if o := w.try(t.Context()); o.Passed || o.Why != "it ended: exit status 4" {
		t.Errorf("passed %v, %q", o.Passed, o.Why)
	}
}

// TestSchema has a new program bring the store to a schema that the old one cannot read.
func TestSchema(t *testing.T) {
	w := newWorld(t)
	w.begin("schema", time.Minute)
	if o := w.try(t.Context()); o.Passed {
		t.Error("passed")
	}
	if seen, err := os.ReadFile(filepath.Join(w.data, "seen")); err == nil {
		t.Fatalf("the new program failed to do it: %s", seen)
	}
	w.holds("before")
}

// TestChoose follows which program runs on a device over its life.
func TestChoose(t *testing.T) {
	w := newWorld(t)
	installed := program(t, "v1")
	choose := func(self, want string) {
		t.Helper()
		at, err := w.dir.Choose(self)
		if err != nil || at != want {
			t.Errorf("%s gives way to %q, %v; expected %q", self, at, err, want)
		}
	}
	choose(installed, "")
	p := w.begin("v2", time.Minute)
	choose(installed, "") // not before it has passed
	if o := w.try(t.Context()); !o.Passed {
		t.Fatal(o.Why)
	}
	w.change(func(s *State) { s.Base = baseOf(installed) }) // the test binary is the base
	v2 := w.dir.file(&p)
	choose(installed, v2)
	choose(v2, "")

	q := w.begin("v3", time.Minute)
	if o := w.try(t.Context()); !o.Passed {
		t.Fatal(o.Why)
	}
	choose(v2, w.dir.file(&q))
	choose(installed, w.dir.file(&q))
	if _, err := os.Stat(v2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program before is still there: %v", err)
	}
	w.begin("crash", time.Minute)
	if o := w.try(t.Context()); o.Passed {
		t.Error("passed")
	}
	choose(installed, w.dir.file(&q))
	if list, _ := filepath.Glob(filepath.Join(w.data, "agent", "*")); len(list) != 2 {
		t.Errorf("there are %v", list)
	}

	if err := os.WriteFile(w.dir.file(&q), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if at, err := w.dir.Choose(installed); err == nil || at != "" {
		t.Errorf("a damaged program is chosen: %q", at)
	}
	// Another program installed by hand is the worker's.
	if err := os.WriteFile(installed, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	choose(installed, "")
	if s := w.state(); s.Current != nil {
		t.Errorf("%+v is still kept", s.Current)
	}
}

// TestCutShort has the machine fail during a trial: it is begun again, but not for ever, and no agent is left over.
func TestCutShort(t *testing.T) {
	w := newWorld(t)
	w.begin("worse", time.Hour)
	for range maxStarts {
		cmd := exec.Command("/proc/self/exe", "worker", w.data)
		cmd.Env = append(os.Environ(), playEnv+"="+playSupervisor)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(w.data, "seen"))
		for w.agent() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		pid := w.agent()
		cmd.Process.Kill()
		cmd.Wait()
		for range 500 { // the kernel ends it
			if syscall.Kill(pid, 0) != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if syscall.Kill(pid, 0) == nil {
			t.Fatalf("the agent on trial, process %d, outlives the one that looks at it", pid)
		}
	}
	if o := w.try(t.Context()); o.Passed || !strings.Contains(o.Why, "cut short 3 times") {
		t.Errorf("passed %v, %q", o.Passed, o.Why)
	}
}

// TestStopped has the agent asked to end during a trial: that does not count against the new program.
func TestStopped(t *testing.T) {
	w := newWorld(t)
	w.begin("worse", time.Hour)
	for range maxStarts + 2 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for w.agent() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
		if _, err := w.supervisor().Try(ctx); !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
		if pid := w.agent(); syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d still runs", pid)
		}
		os.Remove(filepath.Join(w.data, "seen"))
	}
	if s := w.state(); s.Trial == nil || s.Trial.Starts != 0 {
		t.Errorf("the trial is %+v", s.Trial)
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		dir:                        "is not a file",
		file("garbage", "\x7fELF\x02\x01\x01 of no machine"): "does not run on this machine",
		file("mute", "#!/bin/sh\n"):                          "does not tell a version",
		file("failing", "#!/bin/sh\nexit 1\n"):               "does not run on this machine",
	} {
		if _, err := w.dir.Stage(t.Context(), path); err == nil || skerry.AsError(err).Code != skerry.CodeInvalid || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(w.data, "agent", "*")); len(list) > 0 {
		t.Errorf("%v are left", list)
	}
	w.begin("v2", time.Minute)
	if err := w.dir.Begin(Trial{}); skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("a second upgrade at a time: %v", err)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"current":{"digest":"sha256:` + strings.Repeat("a", 64) + `","version":"v2","size":1}}`))
	f.Add([]byte(`{"trial":{"digest":"sha256:../../../../etc","starts":-1,"window":"1m"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseState(data)
		if err != nil {
			return
		}
		d := Open("/x", "")
		for _, p := range []*Program{s.Current, s.program()} {
			if p != nil && filepath.Dir(d.file(p)) != "/x" {
				t.Errorf("a program at %s", d.file(p))
			}
		}
	})
}

func (s *State) program() *Program {
	if s.Trial == nil {
		return nil
	}
	return &s.Trial.Program
}
