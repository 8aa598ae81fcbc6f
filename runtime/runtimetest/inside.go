//go:build linux

package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

func (s *suite) refusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runtime.Spec)
		field  string
	}{
		"no program":      {func(sp *runtime.Spec) { sp.Args = nil }, "args"},
		"missing program": {func(sp *runtime.Spec) { sp.Args = []string{"/no/such/program"} }, "args[0]"},
		"not on the path": {func(sp *runtime.Spec) { sp.Args = []string{"no-such-program"} }, "args[0]"},
		"not executable":  {func(sp *runtime.Spec) { sp.Args = []string{filepath.Dir(s.program()) + "/noexec"} }, "args[0]"},
		"missing source": {func(sp *runtime.Spec) {
			sp.Mounts = []runtime.Mount{{Type: "bind", Source: "/no/such", Target: "/data"}}
		}, "mounts[0].source"},
		"unknown user":    {func(sp *runtime.Spec) { sp.User = "nobody-knows" }, "user"},
		"relative dir":    {func(sp *runtime.Spec) { sp.Dir = "tmp" }, "dir"},
		"bad id":          {func(sp *runtime.Spec) { sp.ID = "../escape" }, "id"},
		"bad capability":  {func(sp *runtime.Spec) { sp.CapAdd = []string{"FLY"} }, "capAdd[0]"},
		"missing layer":   {func(sp *runtime.Spec) { sp.RootFS = []runtime.Mount{{Type: "bind", Source: "/no/such"}} }, "rootfs[0]"},
		"negative memory": {func(sp *runtime.Spec) { sp.Resources.Memory = -1 }, "resources"},
		"missing netns":   {func(sp *runtime.Spec) { sp.Network = &skerry.Attachment{NetNS: "/no/such"} }, "network.netns"},
	} {
		t.Run(name, func(t *testing.T) {
			sp := s.spec("exit", "0")
			c.change(&sp)
			h, err := s.d.Start(t.Context(), sp)
			if err == nil {
				_ = s.d.Remove(t.Context(), h)
				t.Fatal("it was started")
			}
			field := ""
			if e, ok := errors.AsType[*runtime.InvalidSpec](err); ok {
				field = e.Field
			} else if e, ok := errors.AsType[*runtime.StartError](err); ok {
				field = e.Field
				if e.Hint == "" {
					t.Errorf("no hint in %q", err)
				}
			}
			if !strings.HasPrefix(field, c.field) {
				t.Errorf("field %q, not %q, in %T %q", field, c.field, err, err)
			}
			if hs, _ := s.d.List(t.Context()); len(hs) != 0 {
				t.Errorf("left over: %v", hs)
			}
		})
	}
}

func (s *suite) environment(t *testing.T) {
	t.Run("args", func(t *testing.T) {
		want := []string{"", "a b", "$HOME", "ü\t'\""}
		if _, out := s.run(t, s.spec(append([]string{"print"}, want...)...)); out != strings.Join(want, "\n")+"\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("env", func(t *testing.T) {
		sp := s.spec("env")
		sp.Env = []string{"A=1", "B=two words"}
		_, out := s.run(t, sp)
		lines := strings.Split(out, "\n")
		if !slices.Contains(lines, "A=1") || !slices.Contains(lines, "B=two words") || !strings.Contains(out, "PATH=") {
			t.Errorf("got %q", out)
		}
	})
	t.Run("dir", func(t *testing.T) {
		sp := s.spec("cwd")
		sp.Dir = "/tmp"
		if _, out := s.run(t, sp); out != "/tmp\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("user by number", func(t *testing.T) {
		sp := s.spec("id")
		sp.User = "4321:8765"
		if _, out := s.run(t, sp); !strings.HasPrefix(out, "4321 8765 ") {
			t.Errorf("got %q", out)
		}
	})
	t.Run("user by name", func(t *testing.T) {
		sp, want := s.spec("id"), "1234 5678 [777]\n"
		sp.User = "mule"
		if s.o.HostRoot {
			sp.User, want = "nobody", "65534 65534 []\n"
		}
		if _, out := s.run(t, sp); out != want {
			t.Errorf("got %q, not %q", out, want)
		}
	})
	t.Run("hostname", func(t *testing.T) {
		sp := s.spec("hostname")
		sp.Hostname = "islet"
		if _, out := s.run(t, sp); out != "islet\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("mounts", func(t *testing.T) {
		dir := filepath.Join(s.root, "..", "shared")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		target := "/mnt"
		sp := s.spec("read", target+"/file")
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: dir, Target: target}}
		if e, out := s.run(t, sp); out != "from the host\n" {
			t.Errorf("got %q, %+v", out, e)
		}
		sp = s.spec("write", target+"/new", "x")
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: dir, Target: target, ReadOnly: true}}
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "read-only") {
			t.Errorf("got %q, %+v", out, e)
		}
		sp = s.spec("write", target+"/new", "x")
		sp.Mounts = []runtime.Mount{{Type: "tmpfs", Target: target, Options: []string{"size=1m"}}}
		if e, out := s.run(t, sp); out != "written\n" {
			t.Errorf("got %q, %+v", out, e)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("what was written to a tmpfs is on the host")
		}
	})
	t.Run("terminal", func(t *testing.T) {
		sp := s.spec("tty")
		sp.TTY = true
		if e, out := s.run(t, sp); !strings.HasPrefix(out, "tty ") {
			t.Errorf("got %q, %+v", out, e)
		}
	})
}

func (s *suite) isolation(t *testing.T) {
	t.Run("no new privileges", func(t *testing.T) {
		if _, out := s.run(t, s.spec("status", "NoNewPrivs")); out != "1\n" {
			t.Errorf("got %q", out)
		}
		sp := s.spec("status", "NoNewPrivs")
		sp.AllowNewPrivileges = true
		if _, out := s.run(t, sp); out != "0\n" {
			t.Errorf("got %q when they are allowed", out)
		}
	})
	t.Run("dropped capabilities", func(t *testing.T) {
		sp := s.spec("mount")
		if s.o.HostRoot {
			sp.CapDrop = []string{"ALL"}
		}
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "not permitted") {
			t.Errorf("mount: %q, %+v", out, e)
		}
		sp = s.spec("chroot")
		sp.CapDrop = []string{"sys_chroot"}
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "not permitted") {
			t.Errorf("chroot: %q, %+v", out, e)
		}
		if e, out := s.run(t, s.spec("chroot")); e.Code != 0 {
			t.Errorf("chroot without drop: %q, %+v", out, e)
		}
	})
	t.Run("seccomp", func(t *testing.T) {
		sp := s.spec("status", "Seccomp")
		sp.Seccomp = runtime.SeccompDefault
		// Twice: the second start may use what the first one compiled.
		for range 2 {
			if _, out := s.run(t, sp); out != "2\n" {
				t.Errorf("got %q", out)
			}
			sp.ID += "x"
		}
		sp.Seccomp = runtime.SeccompUnconfined
		if _, out := s.run(t, sp); out != "0\n" {
			t.Errorf("got %q without", out)
		}
	})
	t.Run("read-only root", func(t *testing.T) {
		sp := s.spec("write", "/data/x", "x")
		sp.ReadOnlyRoot = true
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "read-only") {
			t.Errorf("got %q, %+v", out, e)
		}
	})
	t.Run("own root", func(t *testing.T) {
		if s.o.HostRoot {
			t.Skip(&runtime.Unsupported{Ability: runtime.AbilityImages, Driver: s.d.Name(), Reason: "tasks see the host's root"})
		}
		if e, out := s.run(t, s.spec("write", "/data/x", "x")); out != "written\n" {
			t.Errorf("got %q, %+v", out, e)
		}
		if _, err := os.Stat(filepath.Join(s.root, "data/x")); err == nil {
			t.Error("a task wrote into its image")
		}
	})
	t.Run("no network", func(t *testing.T) {
		if s.o.HostRoot {
			t.Skip(&runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: s.d.Name(), Reason: "the host's network is the default"})
		}
		if _, out := s.run(t, s.spec("links")); out != "1\n" {
			t.Errorf("%s interfaces, not loopback alone", out)
		}
	})
}

func (s *suite) limits(t *testing.T) {
	st, ok := s.d.(runtime.Statser)
	if !ok {
		t.Skip(&runtime.Unsupported{Ability: runtime.AbilityStats, Driver: s.d.Name(), Reason: "no Statser"})
	}
	t.Run("cpu", func(t *testing.T) {
		sp := s.spec("spin", "120")
		sp.Resources.CPU = 200
		h := s.start(t, sp)
		s.wait(t, s.d, h)
		stats, err := st.Stats(t.Context(), h)
		if err != nil || stats.ThrottledPeriods == 0 || stats.Throttled == 0 || stats.Periods < stats.ThrottledPeriods {
			t.Errorf("it was not held back: %+v, %v", stats, err)
		}
		if stats.CPU < 100*time.Millisecond {
			t.Errorf("processor time: %+v", stats)
		}
	})
	t.Run("memory", func(t *testing.T) {
		sp := s.spec("alloc", "256")
		sp.Resources.Memory = 32 * skerry.MiB
		h := s.start(t, sp)
		e := s.wait(t, s.d, h)
		stats, err := st.Stats(t.Context(), h)
		if !e.OOMKilled || e.Code != 137 || err != nil || stats.OOMKills == 0 || stats.MemoryLimit != 32*skerry.MiB || stats.MemoryPeak > 33*skerry.MiB {
			t.Errorf("%+v %+v %v", e, stats, err)
		}
		sp = s.spec("alloc", "8")
		sp.Resources.Memory = 64 * skerry.MiB
		if e, out := s.run(t, sp); e.OOMKilled || e.Code != 0 {
			t.Errorf("%+v, %q", e, out)
		}
	})
	t.Run("pids", func(t *testing.T) {
		sp := s.spec("fork", "50")
		sp.Resources.Pids = 40
		if e, out := s.run(t, sp); e.Code >= 50 || !strings.HasPrefix(out, "refused") && e.Code != 2 {
			t.Errorf("%+v, %q", e, out)
		}
	})
	t.Run("stats", func(t *testing.T) {
		h := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, h)
		stats, err := st.Stats(t.Context(), h)
		if err != nil || stats.Pids < 1 || stats.Memory <= 0 || stats.MemoryPeak < stats.Memory || stats.CPU <= 0 || stats.At.IsZero() || stats.MemoryLimit != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func (s *suite) exec(t *testing.T) {
	x, ok := s.d.(runtime.Execer)
	if !ok {
		t.Skip(&runtime.Unsupported{Ability: runtime.AbilityExec, Driver: s.d.Name(), Reason: "no Execer"})
	}
	sp := s.spec("sleep")
	sp.Env = []string{"A=task"}
	sp.User = "1234:5678"
	h := s.start(t, sp)
	s.ready(t, s.d, h)
	run := func(t *testing.T, es runtime.ExecSpec) (int, string, error) {
		var out bytes.Buffer
		es.Args = append([]string{s.program()}, es.Args...)
		es.Stdout, es.Stderr = &out, &out
		code, err := x.Exec(t.Context(), h, es)
		return code, strings.ReplaceAll(out.String(), "\r\n", "\n"), err
	}
	for _, c := range []struct {
		name string
		spec runtime.ExecSpec
		code int
		out  string
	}{
		{"exit code", runtime.ExecSpec{Args: []string{"exit", "42"}}, 42, ""},
		{"user", runtime.ExecSpec{Args: []string{"id"}}, 0, "1234 5678 []\n"},
		{"other user", runtime.ExecSpec{Args: []string{"id"}, User: "0:0"}, 0, "0 0 []\n"},
		{"dir", runtime.ExecSpec{Args: []string{"cwd"}, Dir: "/tmp"}, 0, "/tmp\n"},
		{"stdin", runtime.ExecSpec{Args: []string{"cat"}, Stdin: strings.NewReader("hello")}, 0, "hello"},
		{"no new privileges", runtime.ExecSpec{Args: []string{"status", "NoNewPrivs"}}, 0, "1\n"},
		{"terminal", runtime.ExecSpec{Args: []string{"tty"}, TTY: true, Resize: size(24, 80)}, 0, "tty 24 80\n"},
		{"terminal exit code", runtime.ExecSpec{Args: []string{"exit", "7"}, TTY: true}, 7, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, err := run(t, c.spec)
			if err != nil || code != c.code || out != c.out {
				t.Errorf("%d, %q, %v", code, out, err)
			}
		})
	}
	t.Run("env", func(t *testing.T) {
		_, out, err := run(t, runtime.ExecSpec{Args: []string{"env"}, Env: []string{"B=exec"}})
		if err != nil || !strings.Contains(out, "A=task\n") || !strings.Contains(out, "B=exec\n") {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("missing program", func(t *testing.T) {
		var out bytes.Buffer
		code, err := x.Exec(t.Context(), h, runtime.ExecSpec{Args: []string{"/no/such"}, Stderr: &out})
		if err == nil && (code == 0 || out.Len() == 0) {
			t.Errorf("%d, %q, %v", code, out.String(), err)
		}
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		go func() {
			var b [5]byte
			_, _ = io.ReadFull(r, b[:])
			cancel()
			_, _ = io.Copy(io.Discard, r)
		}()
		_, err := x.Exec(ctx, h, runtime.ExecSpec{Args: []string{s.program(), "stubborn"}, Stdout: w})
		w.Close()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("limits", func(t *testing.T) {
		st, ok := s.d.(runtime.Statser)
		if !ok {
			t.Skip("no Statser")
		}
		before, err := st.Stats(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if code, out, err := run(t, runtime.ExecSpec{Args: []string{"spin", "50"}}); code != 0 || err != nil {
			t.Fatal(code, out, err)
		}
		after, err := st.Stats(t.Context(), h)
		if err != nil || after.CPU-before.CPU < 40*time.Millisecond {
			t.Errorf("an exec is not counted with its task: %v, %v", after.CPU-before.CPU, err)
		}
	})
}

func size(rows, cols uint16) <-chan runtime.WinSize {
	c := make(chan runtime.WinSize, 1)
	c <- runtime.WinSize{Rows: rows, Cols: cols}
	return c
}

func (s *suite) pause(t *testing.T) {
	p, ok := s.d.(runtime.Pauser)
	if !ok {
		t.Skip(&runtime.Unsupported{Ability: runtime.AbilityPause, Driver: s.d.Name(), Reason: "no Pauser"})
	}
	h := s.start(t, s.spec("sleep"))
	s.ready(t, s.d, h)
	err := p.Pause(t.Context(), h)
	skipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.d.Status(t.Context(), h); err != nil || st.State != runtime.StatePaused {
		t.Errorf("%+v, %v", st, err)
	}
	if err := p.Resume(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	// A paused task can be stopped.
	if err := s.d.Stop(t.Context(), h, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := s.wait(t, s.d, h); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

func (s *suite) logs(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		h := s.start(t, s.spec("err", "oops"))
		s.wait(t, s.d, h)
		es := s.entries(t, s.d, h, runtime.LogOptions{})
		if len(es) != 1 || es[0].Stream != "stderr" || es[0].Line != "oops" || time.Since(es[0].Time).Abs() > time.Hour {
			t.Errorf("%+v", es)
		}
	})
	t.Run("long line", func(t *testing.T) {
		long := strings.Repeat("x", 100_000)
		if _, out := s.run(t, s.spec("print", long, "end")); out != long+"\nend\n" {
			t.Errorf("%d bytes came back", len(out))
		}
	})
	t.Run("since and tail", func(t *testing.T) {
		h := s.start(t, s.spec("print", "1", "2", "3", "4", "5"))
		s.wait(t, s.d, h)
		all := s.entries(t, s.d, h, runtime.LogOptions{})
		if len(all) != 5 {
			t.Fatalf("%+v", all)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Tail: 2}); len(es) != 2 || es[0].Line != "4" {
			t.Errorf("tail: %+v", es)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Tail: -1}); len(es) != 0 {
			t.Errorf("tail none: %+v", es)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Tail: 2, Follow: true}); len(es) != 2 {
			t.Errorf("tail and follow: %+v", es)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Since: all[2].Time}); len(es) < 3 || es[len(es)-1].Line != "5" {
			t.Errorf("since: %+v", es)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Since: all[4].Time.Add(1)}); len(es) != 0 {
			t.Errorf("since the end: %+v", es)
		}
	})
	t.Run("follow", func(t *testing.T) {
		h := s.start(t, s.spec("sleep"))
		next := s.ready(t, s.d, h)
		go s.d.Stop(context.Background(), h, time.Minute)
		if line, err := next(); line != "terminated" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		if line, err := next(); err != io.EOF {
			t.Errorf("%q, %v", line, err)
		}
	})
	t.Run("follow given up", func(t *testing.T) {
		h := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, h)
		ctx, cancel := context.WithCancel(t.Context())
		st, err := s.d.(runtime.Logger).OpenLog(ctx, h, runtime.LogOptions{Follow: true, Tail: -1})
		if err != nil {
			t.Fatal(err)
		}
		go cancel()
		if _, err := st.Next(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		st.Close()
		st.Close()
	})
	t.Run("size cap", func(t *testing.T) {
		const lines = 30_000
		sp := s.spec("spam", fmt.Sprint(lines))
		sp.LogMaxBytes = 256 * skerry.KiB
		h := s.start(t, sp)
		s.wait(t, s.d, h)
		es := s.entries(t, s.d, h, runtime.LogOptions{})
		total, last := 0, -1
		for _, e := range es {
			total += len(e.Line)
			var n int
			if _, err := fmt.Sscanf(e.Line, "line %07d", &n); err != nil || n <= last {
				t.Fatalf("%q after %d", e.Line, last)
			}
			last = n
		}
		if last != lines-1 || total > int(sp.LogMaxBytes) || total == 0 {
			t.Errorf("%d bytes kept, up to line %d", total, last)
		}
	})
	t.Run("previous", func(t *testing.T) {
		first := s.start(t, s.spec("print", "first"))
		s.wait(t, s.d, first)
		sp := s.spec("print", "second")
		sp.Previous = first.ID
		h := s.start(t, sp)
		s.wait(t, s.d, h)
		if err := s.d.Remove(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if es := s.entries(t, s.d, h, runtime.LogOptions{Previous: true}); len(es) != 1 || es[0].Line != "first" {
			t.Errorf("%+v", es)
		}
		if out := s.output(t, s.d, h); out != "second\n" {
			t.Errorf("%q", out)
		}
	})
}
