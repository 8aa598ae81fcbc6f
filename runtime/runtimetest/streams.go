//go:build linux

package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

func (s *suite) exec(t *testing.T) {
	x, ok := s.d.(runtime.Execer)
	if !ok {
		s.without(t, runtime.AbilityExec, "no Execer")
	}
	sp := s.spec("sleep")
	sp.Env = []string{"A=task"}
	sp.User = "1234:5678"
	handle := s.start(t, sp)
	s.ready(t, s.d, handle)
	run := func(t *testing.T, es runtime.ExecSpec) (int, string, error) {
		var out bytes.Buffer
		es.Args = append([]string{s.program()}, es.Args...)
		es.Stdout, es.Stderr = &out, &out
		code, err := x.Exec(t.Context(), handle, es)
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
		{"terminal", runtime.ExecSpec{Args: []string{"tty", "sized"}, TTY: true, Resize: size(24, 80)}, 0, "tty 24 80\n"},
		{"terminal exit code", runtime.ExecSpec{Args: []string{"exit", "7"}, TTY: true}, 7, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(c.spec.Args, "NoNewPrivs") {
				s.hostKernel(t)
			}
			if code, out, err := run(t, c.spec); err != nil || code != c.code || out != c.out {
				t.Fatalf("%d, %q, %v", code, out, err)
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
		code, err := x.Exec(t.Context(), handle, runtime.ExecSpec{Args: []string{"/no/such"}, Stderr: &out})
		if err != nil || code != 127 || !strings.Contains(out.String(), "/no/such") {
			t.Errorf("%d, %q, %v; want 127 and the name", code, out.String(), err)
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
		_, err := x.Exec(ctx, handle, runtime.ExecSpec{Args: []string{s.program(), "stubborn"}, Stdout: w})
		w.Close()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("limits", func(t *testing.T) {
		st, ok := s.d.(runtime.Statser)
		if !ok {
			s.without(t, runtime.AbilityStats, "no Statser")
		}
		before, err := st.Stats(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		if code, out, err := run(t, runtime.ExecSpec{Args: []string{"spin", "50"}}); code != 0 || err != nil {
			t.Fatal(code, out, err)
		}
		least := 40 * time.Millisecond
		if s.o.OwnKernel {
			least = 10 * time.Millisecond // a sandbox counts time in which a busy host gave it no processor
		}
		after, err := st.Stats(t.Context(), handle)
		if err != nil || after.CPU-before.CPU < least {
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
		s.without(t, runtime.AbilityPause, "no Pauser")
	}
	handle := s.start(t, s.spec("sleep"))
	s.ready(t, s.d, handle)
	err := p.Pause(t.Context(), handle)
	s.skipUnsupported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.d.Status(t.Context(), handle); err != nil || st.State != runtime.StatePaused {
		t.Errorf("%+v, %v", st, err)
	}
	if err := p.Resume(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	// A paused task can be stopped.
	if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
		t.Fatal(err)
	}
	s.terminated(t, s.wait(t, s.d, handle), 3)
}

func (s *suite) logs(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		s.together(t)
		stream := "stderr"
		if s.o.System != nil {
			stream = "stdout" // a machine has one console
		}
		handle := s.start(t, s.spec("err", "oops"))
		s.wait(t, s.d, handle)
		es := s.entries(t, s.d, handle, runtime.LogOptions{})
		if len(es) != 1 || es[0].Stream != stream || es[0].Line != "oops" || time.Since(es[0].Time).Abs() > time.Hour {
			t.Errorf("%+v", es)
		}
	})
	t.Run("long line", func(t *testing.T) {
		s.together(t)
		long := strings.Repeat("x", 100_000)
		sp := s.spec("print", long, "end")
		if s.o.System != nil {
			sp = s.spec("long", "100000") // it is told less than that
		}
		if _, out := s.run(t, sp); out != long+"\nend\n" {
			t.Errorf("%d bytes came back", len(out))
		}
	})
	t.Run("since and tail", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("print", "1", "2", "3", "4", "5"))
		s.wait(t, s.d, handle)
		all := s.entries(t, s.d, handle, runtime.LogOptions{})
		if len(all) != 5 {
			t.Fatalf("%+v", all)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Tail: 2}); len(es) != 2 || es[0].Line != "4" {
			t.Errorf("tail: %+v", es)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Tail: -1}); len(es) != 0 {
			t.Errorf("tail none: %+v", es)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Tail: 2, Follow: true}); len(es) != 2 {
			t.Errorf("tail and follow: %+v", es)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Since: all[2].Time}); len(es) < 3 || es[len(es)-1].Line != "5" {
			t.Errorf("since: %+v", es)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Since: all[4].Time.Add(1)}); len(es) != 0 {
			t.Errorf("since the end: %+v", es)
		}
	})
	t.Run("follow", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("sleep"))
		next := s.ready(t, s.d, handle)
		go s.d.Stop(context.Background(), handle, time.Minute)
		if line, err := next(); !s.o.WASI && (line != "terminated" || err != nil) {
			t.Errorf("%q, %v", line, err)
		}
		if line, err := next(); err != io.EOF {
			t.Errorf("%q, %v", line, err)
		}
	})
	t.Run("follow given up", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, handle)
		ctx, cancel := context.WithCancel(t.Context())
		st, err := s.d.(runtime.Logger).OpenLog(ctx, handle, runtime.LogOptions{Follow: true, Tail: -1})
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
		s.together(t)
		const lines = 30_000
		sp := s.spec("spam", fmt.Sprint(lines))
		sp.LogMaxBytes = 256 * skerry.KiB
		handle := s.start(t, sp)
		s.wait(t, s.d, handle)
		es := s.entries(t, s.d, handle, runtime.LogOptions{})
		total, last := 0, -1
		for i, e := range es {
			total += len(e.Line)
			var n int
			if i == 0 && len(e.Line) < len("line 0000000 of noise") && strings.HasSuffix("line 0000000 of noise", e.Line[max(0, len(e.Line)-9):]) {
				continue // what is kept begins within a line
			}
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
		s.together(t)
		first := s.start(t, s.spec("print", "first"))
		s.wait(t, s.d, first)
		sp := s.spec("print", "second")
		sp.Previous = first.ID
		handle := s.start(t, sp)
		s.wait(t, s.d, handle)
		if err := s.d.Remove(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if es := s.entries(t, s.d, handle, runtime.LogOptions{Previous: true}); len(es) != 1 || es[0].Line != "first" {
			t.Errorf("%+v", es)
		}
		if out := s.output(t, s.d, handle); out != "second\n" {
			t.Errorf("%q", out)
		}
	})
}
