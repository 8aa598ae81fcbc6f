package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/wire"
)

// shimArg makes the test binary the shim of programs.
const shimArg = "plugin-shim"

func cgroupParent() string { return fmt.Sprintf("skerry-plugins-test-%d", os.Getpid()) }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == shimArg {
		os.Exit(ShimMain(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{Cgroup: cgroupParent()}))
}

// logs keeps what is logged.
type logs struct {
	mu    sync.Mutex
	b     strings.Builder
	wrote chan struct{}
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

// await waits until a text was logged so often.
func (l *logs) await(t testing.TB, text string, times int) {
	t.Helper()
	late := time.After(60 * time.Second)
	for strings.Count(l.String(), text) < times {
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("%q is missing in the log:\n%s", text, l.String())
		}
	}
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// site is a directory of plugins.
type site struct {
	t   testing.TB
	dir string
	log logs
	opt Options
}

func newSite(t testing.TB) *site {
	s := &site{t: t, dir: t.TempDir(), log: logs{wrote: make(chan struct{}, 1)}}
	for _, d := range []string{s.dir, filepath.Dir(s.dir)} { // nobody finds the way to the program
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.opt = Options{Dir: s.dir, Shim: []string{self, shimArg}, CgroupParent: cgroupParent(), Poll: 10 * time.Millisecond, slack: 15 * time.Second,
		Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	return s
}

// write replaces a file as an editor does: whole, at once.
func (s *site) write(name, content string) {
	s.t.Helper()
	tmp := filepath.Join(s.dir, "."+name+".new")
	if err := os.WriteFile(tmp, []byte(content), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) wasm(name string, m wasmcode.Module, more ...string) {
	s.t.Helper()
	s.write(name+".wasm", string(m.Encode()))
	s.write(name+".yaml", "kind: wasm\nfile: "+name+".wasm\ntimeout: 1s\n"+strings.Join(more, "\n"))
}

// shell makes a program of the shell that answers each query by what loop prints.
func (s *site) shell(name, script string, more ...string) {
	s.t.Helper()
	s.write(name+".sh", "#!/bin/sh\n"+script+"\n")
	s.write(name+".yaml", "kind: exec\nfile: "+name+".sh\ntimeout: 1s\n"+strings.Join(more, "\n"))
}

func (s *site) open() *Host {
	s.t.Helper()
	h, err := Open(s.t.Context(), s.opt)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { h.Close() })
	return h
}

func ask(t testing.TB, h *Host, name string) wire.PluginAnswer {
	t.Helper()
	a := h.Ask(context.Background(), []string{name}, query())
	if len(a) != 1 || a[0].Plugin != name {
		t.Fatalf("answers: %+v", a)
	}
	return a[0]
}

// good asks a plugin that answers well.
func good(t testing.TB, h *Host, name string) wire.PluginAnswer {
	t.Helper()
	a := ask(t, h, name)
	if a.Skipped != "" {
		t.Fatalf("%s: %s", name, a.Skipped)
	}
	return a
}

// until waits for a state of the host, which calls back when it changes.
func until(t testing.TB, h *Host, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	found := false
	h.Watch(ctx, func() {
		if ok() {
			found = true
			cancel()
		}
	})
	if !found {
		t.Fatal("never: " + what)
	}
}

func says(text string) wasmcode.Module { return wasmcode.Module{Text: text, Body: wasmcode.Print} }
