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
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// shares says that what can be looked at in one task is.
func (s *suite) shares() bool { return s.o.Machine && s.o.Brief }

// oneMachine gives a task all that it can be given, looks at it from inside, and from outside at what it says and how
// it ends. Where a machine takes seconds to start, this is most of "environment", "isolation" and "logs" at the cost of
// one.
func (s *suite) oneMachine(t *testing.T) {
	dir := t.TempDir()
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sp := s.spec("sleep")
	sp.Env, sp.Dir, sp.User, sp.Hostname = []string{"A=1", "B=two words"}, "/tmp", "mule", "islet"
	sp.ReadOnlyRoot, sp.CapDrop = true, []string{"sys_chroot"}
	sp.Mounts = []runtime.Mount{
		{Type: "bind", Source: dir, Target: "/srv", ReadOnly: s.o.Copies},
		{Type: "bind", Source: dir, Target: "/mnt", ReadOnly: true}, {Type: "tmpfs", Target: "/data", Options: []string{"size=1m"}},
	}
	sp.Ulimits = []runtime.Ulimit{{Name: "nofile", Soft: 99, Hard: 99}}
	sp.Resources.Memory = 64 * skerry.MiB
	sp.Sysctls = map[string]string{"net.ipv4.ip_default_ttl": "77"}
	handle := s.start(t, sp)
	given, giveUp := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := s.d.Wait(given, handle)
		waited <- err
	}()
	next := s.ready(t, s.d, handle)
	giveUp()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up ends with %v", err)
	}
	s.inMachine(t, handle)
	if s.o.Copies {
		s.follows(t, handle, dir)
	} else if data, err := os.ReadFile(filepath.Join(dir, "new")); string(data) != "x" {
		t.Errorf("on the host there is %q, %v", data, err)
	}
	for _, name := range []string{"data/x", "etc/x"} {
		if _, err := os.Stat(filepath.Join(s.root, name)); err == nil {
			t.Errorf("it wrote %s into its image", name)
		}
	}
	stats, err := s.d.(runtime.Statser).Stats(t.Context(), handle)
	if err != nil || stats.Pids < 1 || stats.Memory <= 0 || stats.MemoryPeak < stats.Memory || stats.CPU <= 0 || stats.At.IsZero() ||
		stats.MemoryLimit != 64*skerry.MiB {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
		t.Fatal(err)
	}
	if line, err := next(); line != "terminated" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if line, err := next(); err != io.EOF {
		t.Errorf("%q, %v", line, err)
	}
	if es := s.entries(t, s.d, handle, runtime.LogOptions{Tail: 1}); len(es) != 1 ||
		fmt.Sprint(es[0].Stream, " ", es[0].Line) != "stdout terminated" {
		t.Errorf("%+v", es)
	}
}

// inMachine looks from inside at what the one machine was given.
func (s *suite) inMachine(t *testing.T, handle runtime.Handle) {
	t.Helper()
	writes := struct {
		code int
		said func(string) bool
	}{0, is("written\n")}
	if s.o.Copies {
		writes.code, writes.said = 90, readOnly
	}
	for _, c := range []struct {
		user string
		args []string
		code int
		want func(out string) bool
	}{
		{"", []string{"print", "", "a b", "$HOME", "ü\t'\""}, 0, is("\na b\n$HOME\nü\t'\"\n")},
		{"", []string{"env"}, 0, has("A=1\nB=two words\n")},
		{"", []string{"env"}, 0, has("PATH=")},
		{"", []string{"cwd"}, 0, is("/tmp\n")},
		{"", []string{"id"}, 0, is("1234 5678 [777]\n")},
		{"4321:8765", []string{"id"}, 0, is("4321 8765 []\n")},
		{"", []string{"hostname"}, 0, is("islet\n")},
		{"", []string{"read", "/srv/file"}, 0, is("from the host\n")},
		{"0", []string{"write", "/srv/new", "x"}, writes.code, writes.said},
		{"0", []string{"write", "/mnt/other", "x"}, 90, readOnly},
		{"0", []string{"write", "/data/x", "x"}, 0, is("written\n")},
		{"0", []string{"write", "/etc/x", "x"}, 90, readOnly},
		{"", []string{"nofile"}, 0, is("99 99\n")},
		{"", []string{"read", "/proc/sys/net/ipv4/ip_default_ttl"}, 0, is("77\n")},
		{"", []string{"status", "NoNewPrivs"}, 0, is("1\n")},
		{"0", []string{"mount"}, 90, has("not permitted")},
		{"0", []string{"chroot"}, 90, has("not permitted")},
		{"", []string{"alloc", "8"}, 0, has("allocated")},
		{"", []string{"links"}, 0, is("1\n")},
	} {
		var out bytes.Buffer
		code, err := s.d.(runtime.Execer).Exec(t.Context(), handle,
			runtime.ExecSpec{Args: append([]string{s.program()}, c.args...), User: c.user, Stdout: &out, Stderr: &out})
		if err != nil || code != c.code || !c.want(out.String()) {
			t.Errorf("%s by %q: %d, %q, %v", c.args, c.user, code, out.String(), err)
		}
	}
}

// follows changes, adds and removes files of a directory that a task has a copy of at /srv, and waits until it sees that.
func (s *suite) follows(t *testing.T, handle runtime.Handle, dir string) {
	t.Helper()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("otherwise\n"), 0o644), os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", "new"), []byte("added\n"), 0o644), os.Symlink("sub/new", filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	await := func(file, want string) {
		t.Helper()
		for {
			var out bytes.Buffer
			read := runtime.ExecSpec{Args: []string{s.program(), "read", file}, Stdout: &out, Stderr: &out}
			_, err := s.d.(runtime.Execer).Exec(t.Context(), handle, read)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), want) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	await("/srv/file", "otherwise\n")
	await("/srv/link", "added\n")
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	await("/srv/sub/new", "no such file")
}

func is(want string) func(string) bool { return func(out string) bool { return out == want } }

func has(want string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, want) }
}
