//go:build linux && amd64

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

// says writes a program that prints a line.
func says(t *testing.T, path, line string) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\n", line), 0o755); err != nil {
		t.Fatal(err)
	}
}

// said are programs, and what they say.
type said map[string]string

// TestFindFirecracker refuses what cannot be used, with the way out.
func TestFindFirecracker(t *testing.T) {
	for name, c := range map[string]struct {
		files said // by name: what they say
		named string
		cause string
	}{
		"absent":         {nil, "firecracker", "is not installed"},
		"no jailer":      {said{"firecracker": "Firecracker v1.16.1"}, "firecracker", "its jailer is not installed"},
		"too old":        {said{"firecracker": "Firecracker v1.7.9", "jailer": "Jailer v1.7.9"}, "firecracker", "which is too old"},
		"another jailer": {said{"firecracker": "Firecracker v1.16.1", "jailer": "Jailer v1.16.0"}, "firecracker", "and its jailer"},
		"something else": {said{"firecracker": "hello", "jailer": "Jailer v1.16.0"}, "firecracker", `says it is "hello"`},
		"fits":           {said{"firecracker": "Firecracker v1.16.1", "jailer": "Jailer v1.16.1"}, "firecracker", ""},
		"of a release": {said{"firecracker-v1.16.1-x86_64": "Firecracker v1.16.1", "jailer-v1.16.1-x86_64": "Jailer v1.16.1"},
			"firecracker-v1.16.1-x86_64", ""},
		"between releases": {said{"firecracker": "Firecracker v1.17.0-dev", "jailer": "Jailer v1.17.0-dev"}, "firecracker", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir+":/usr/bin:/bin")
			for file, line := range c.files {
				says(t, filepath.Join(dir, file), line)
			}
			var r runtime.Report
			p := findFirecracker(t.Context(), &r, filepath.Join(dir, c.named))
			if (p == nil) != (c.cause != "") || !strings.Contains(r.Cause, c.cause) || (r.Cure == "") != (p != nil) {
				t.Errorf("%+v, %+v", p, r)
			}
		})
	}
}

// TestChoiceOfMonitor gives Firecracker what it can run, and QEMU the rest where it is used.
func TestChoiceOfMonitor(t *testing.T) {
	written := runtime.Spec{Mounts: []runtime.Mount{{Type: "bind", Source: "/s", Target: "/data"}}}
	large := runtime.Spec{Resources: runtime.Resources{CPU: 33_000}}
	dir := t.TempDir()
	read := func(source string) runtime.Spec {
		return runtime.Spec{Mounts: []runtime.Mount{{Type: "bind", Source: source, Target: "/c", ReadOnly: true}, {Type: "tmpfs", Target: "/t"}}}
	}
	small, huge, pipe := filepath.Join(dir, "small"), filepath.Join(dir, "huge"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(small, []byte("text"), 0o600), os.WriteFile(huge, nil, 0o600), os.Truncate(huge, int64(copyMax)),
		syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	plain := read(small)
	fc := &firecrackerProgram{Path: "/fc"}
	for name, c := range map[string]struct {
		c    choice
		task runtime.Spec
		want string
	}{
		"QEMU alone":           {choice{qemu: "/q"}, written, "qemu"},
		"Firecracker":          {choice{firecracker: fc}, plain, "firecracker"},
		"Firecracker, of both": {choice{qemu: "/q", firecracker: fc}, plain, "firecracker"},
		"QEMU, of both":        {choice{qemu: "/q", firecracker: fc}, written, "qemu"},
		"QEMU for a large one": {choice{qemu: "/q", firecracker: fc}, large, "qemu"},
		"a volume, refused":    {choice{firecracker: fc}, written, ""},
		"a large one, refused": {choice{firecracker: fc}, large, ""},
		"QEMU for large files": {choice{qemu: "/q", firecracker: fc}, read(huge), "qemu"},
		"large files, refused": {choice{firecracker: fc}, read(huge), ""},
		"QEMU for a pipe":      {choice{qemu: "/q", firecracker: fc}, read(pipe), "qemu"},
		"a pipe, refused":      {choice{firecracker: fc}, read(pipe), ""},
	} {
		got, err := c.c.of(&c.task)
		switch {
		case c.want == "":
			_, unsupported := errors.AsType[*runtime.Unsupported](err)
			_, invalid := errors.AsType[*runtime.InvalidSpec](err)
			if !unsupported && !invalid || !strings.Contains(err.Error(), "--microvm-monitor") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || (got.firecracker != nil) != (c.want == "firecracker") || (got.qemu != "") != (c.want == "qemu"):
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestVerdictsOfMonitors keeps a failure of Firecracker's guests from QEMU, and from another release and kernel.
func TestVerdictsOfMonitors(t *testing.T) {
	s := &selfTest{name: "microvm", dir: t.TempDir()}
	seen := map[[2]string]int{}
	for i, c := range []choice{
		{qemu: "/q"},
		{firecracker: &firecrackerProgram{Version: "1.16.1"}, kernel: kernel{Digest: "a"}},
		{firecracker: &firecrackerProgram{Version: "1.16.2"}, kernel: kernel{Digest: "a"}},
		{firecracker: &firecrackerProgram{Version: "1.16.1"}, kernel: kernel{Digest: "b"}},
	} {
		file, text := s.verdict(&c)
		if other, ok := seen[[2]string{file, text}]; ok {
			t.Errorf("%d has the verdict of %d", i, other)
		}
		seen[[2]string{file, text}] = i
		if (filepath.Base(file) == "kvm-failed") != (c.firecracker == nil) {
			t.Errorf("%d is kept in %s", i, file)
		}
	}
}

// TestAutoWithoutFirecracker runs everything on QEMU, and says why, and what to do about it.
func TestAutoWithoutFirecracker(t *testing.T) {
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a choice between hypervisors", Why: err.Error()})
	} else {
		kvm.Close()
	}
	o, bin := options(t.TempDir()), t.TempDir()
	o.Monitor, o.QEMU, o.FileShare = MonitorAuto, filepath.Join(bin, "qemu"), filepath.Join(bin, "files")
	o.Firecracker = filepath.Join(bin, "firecracker")
	says(t, o.QEMU, "QEMU emulator version 7.2.0")
	says(t, o.FileShare, "")
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var r runtime.Report
	var c choice
	boots := func(context.Context, *choice) error { return nil }
	if !(&checking{d, &r, boots}).run(t.Context(), &c) || c.qemu != o.QEMU || c.firecracker != nil {
		t.Errorf("QEMU does not run all: %+v, %+v", c, r)
	}
	if !strings.Contains(r.Cause, "is not installed") || !strings.Contains(r.Cure, "--firecracker") {
		t.Errorf("the report says %q, %q", r.Cause, r.Cure)
	}
}

// TestMountThatIsGone is no lack of Firecracker's, for which a task would not be tried again.
func TestMountThatIsGone(t *testing.T) {
	gone := runtime.Spec{Mounts: []runtime.Mount{{Type: "bind", Source: filepath.Join(t.TempDir(), "gone"), Target: "/c", ReadOnly: true}}}
	_, err := (&choice{firecracker: &firecrackerProgram{}}).of(&gone)
	if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Field != "mounts[0].source" || se.Hint == "" {
		t.Errorf("it is refused with %v", err)
	}
}

func TestUnknownMonitor(t *testing.T) {
	o := options(t.TempDir())
	o.Monitor = "bochs"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "bochs") {
		t.Errorf("%v", err)
	}
}

// FuzzMonitorVersion reads anything as a version.
func FuzzMonitorVersion(f *testing.F) {
	for _, s := range []string{"1.16.1", "1.17.0-dev", "1.16", "a.b.c", "-1.2.3", "99999999999.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := parseVersion(s)
		if ok && (v[0] < 0 || v[1] < 0 || v[2] < 0) {
			t.Errorf("%q is %v", s, v)
		}
	})
}
