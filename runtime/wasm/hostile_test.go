//go:build linux

package wasm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// TestHostile: whatever a module is, its end is told, and nothing is left (the package's cgroup must be empty in the end).
func TestHostile(t *testing.T) {
	fine := wasmcode.Module{Text: "ready\n", Body: wasmcode.Print}.Encode()
	r := newRig(t, map[string][]byte{
		"text":      []byte("#!/bin/sh\nexit 0\n"),
		"empty":     {},
		"cut":       fine[:len(fine)-9],
		"component": []byte("\x00asm\x0d\x00\x01\x00"),
		"tables":    wasmcode.Module{Tables: []byte{1, 0x70, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}}.Encode(),
		"library":   wasmcode.Module{Start: "run"}.Encode(),
		"foreign":   wasmcode.Module{From: "env", Body: wasmcode.Print}.Encode(),
		"loop":      wasmcode.Module{Text: "ready\n", Body: slices.Concat(wasmcode.Print, wasmcode.Hang)}.Encode(),
		"flood":     wasmcode.Module{Text: "ready\n", Body: wasmcode.Forever(wasmcode.Print)}.Encode(),
		"crash":     wasmcode.Module{Body: wasmcode.Crash}.Encode(),
		"deep":      wasmcode.Module{Body: wasmcode.Deep}.Encode(),
		"large":     wasmcode.Module{Pages: 65535, Body: wasmcode.Exit(0)}.Encode(),
		"grows":     wasmcode.Module{Body: slices.Concat(wasmcode.Grow, wasmcode.Exit(5))}.Encode(),
		"table":     wasmcode.Module{Tables: []byte{1, 0x70, 0, 1}, Body: slices.Concat(wasmcode.GrowTable, wasmcode.Exit(5))}.Encode(),
		"fine":      fine,
	})
	if err := os.Mkdir(filepath.Join(r.root, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(r.root, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"text": "not a WebAssembly module", "empty": "not a WebAssembly module", "cut": "not a WebAssembly module", "component": "component", "tables": "more than 1048576 entries",
		"library": "has no _start", "foreign": `"fd_write" from "env"`, "folder": "no such file", "link": "no such file", "../fine/../../../../etc/passwd": "no such file",
	} {
		_, err := r.Start(t.Context(), r.spec("/"+name))
		if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Field != "args[0]" || se.Hint == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(r.Options.Dir, "modules", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("modules that could not be compiled left %v, %v", left, err)
	}
	for _, c := range []struct {
		name   string
		memory skerry.Bytes
		code   int
		oom    bool
		log    string
	}{
		{"crash", 64 * skerry.MiB, exitCrash, false, "wasm error: unreachable"},
		{"deep", 64 * skerry.MiB, 137, true, ""}, // its stack counts, too
		{"large", 64 * skerry.MiB, exitBroken, false, "begins with 4194240Ki of memory"},
		{"grows", 64 * skerry.MiB, exitCrash, false, "wasm error: unreachable"},
		{"grows", 0, 5, false, ""},
		{"table", 64 * skerry.MiB, 5, false, ""},
		{"fine", 2 * skerry.MiB, 137, true, ""}, // less than wasm-run itself takes
	} {
		sp := r.spec("/" + c.name)
		sp.Resources.Memory = c.memory
		h := r.start(sp)
		e, err := r.Wait(t.Context(), h)
		if log := r.log(h); err != nil || e.Code != c.code || e.OOMKilled != c.oom || !strings.Contains(log, c.log) {
			t.Errorf("%s: %+v, %v, %q", c.name, e, err, log)
		}
	}
	for _, name := range []string{"loop", "flood"} {
		sp := r.spec("/" + name)
		sp.Resources, sp.LogMaxBytes = runtime.Resources{CPU: 100, Memory: 64 * skerry.MiB}, 64*skerry.KiB
		h := r.start(sp)
		log, err := r.OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := log.Next(); e.Line != "ready" {
			t.Errorf("%s: %q, %v", name, e.Line, err)
		}
		log.Close()
		if err := r.Stop(t.Context(), h, time.Minute); err != nil {
			t.Fatal(err)
		}
		if e, err := r.Wait(t.Context(), h); e.Signal != 15 || err != nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// TestSandbox looks from inside: nothing of the host is there, and the process has no privileges.
func TestSandbox(t *testing.T) {
	code, err := os.ReadFile(runtimetest.Module(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string][]byte{"m": code, "note": []byte("from the image\n")})
	for link, to := range map[string]string{"out": "../../../../../../etc/passwd", "abs": "/note", "up": "/../../../etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(r.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/note": "from the image\n", "/abs": "from the image\n", "/out": "", "/up": "", "/../../../../etc/passwd": "", "/proc/self/status": "", "/dev/null": ""} {
		h := r.start(r.spec("/m", "read", path))
		e, err := r.Wait(t.Context(), h)
		if log := r.log(h); err != nil || want != "" && log != want || want == "" && e.Code != 90 {
			t.Errorf("%s: %+v, %v, %q", path, e, err, log)
		}
	}
	h := r.start(r.spec("/m", "sleep"))
	log, err := r.OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if e, err := log.Next(); e.Line != "ready" {
		t.Fatal(e, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%q is not in %s", want, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", h.PID))
	if n := strings.Count(string(mounts), "\n"); err != nil || n != 1 {
		t.Errorf("it has %d mounts, not the root alone: %v\n%s", n, err, mounts)
	}
}

// TestCache: a module is compiled once, another one's code is not used for it, and what is half-made is made again.
func TestCache(t *testing.T) {
	say := func(text string) []byte { return wasmcode.Module{Text: text + "\n", Body: wasmcode.Print}.Encode() }
	r := newRig(t, map[string][]byte{"a": say("one"), "b": say("two"), "same": say("one")})
	run := func(name string) string {
		h := r.start(r.spec("/" + name))
		if e, err := r.Wait(t.Context(), h); e.Code != 0 || err != nil {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		return r.log(h)
	}
	modules := func() (out []string) {
		out, err := filepath.Glob(filepath.Join(r.Options.Dir, "modules", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, want := range map[string]string{"a": "one\n", "b": "two\n", "same": "one\n"} {
		if got := run(name); got != want {
			t.Errorf("%s printed %q", name, got)
		}
	}
	dirs := modules()
	if len(dirs) != 2 {
		t.Fatalf("two modules were compiled into %v", dirs)
	}
	for _, d := range dirs {
		files, err := filepath.Glob(filepath.Join(d, "code", "*", "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		if st, err := os.Stat(files[0]); err != nil || st.Mode() != 0o444 {
			t.Errorf("%v, %v: who runs may write it", st.Mode(), err)
		}
	}
	// The image has a file of the same name and size at the next start: it is told from the old one.
	if err := os.WriteFile(filepath.Join(r.root, "a"), say("six"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := run("a"); got != "six\n" {
		t.Errorf("it printed %q", got)
	}
	// What was not used for long goes when the cache is full; what was used lately stays.
	long := time.Now().Add(-2 * cacheStay)
	for i, d := range modules() {
		f, err := os.Create(filepath.Join(d, "ballast")) // of nothing but holes
		if err == nil {
			err = errors.Join(f.Truncate(int64(cacheSize)), f.Close())
		}
		if err == nil && i > 0 {
			err = os.Chtimes(d, long, long)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := modules()[0]
	r.cache.prune()
	if got := modules(); !slices.Equal(got, []string{kept}) {
		t.Errorf("%v are there, not %s", got, kept)
	}
	if got := run("b"); got != "two\n" {
		t.Errorf("compiled again it printed %q", got)
	}
	// An agent died while it compiled.
	half := filepath.Join(r.Options.Dir, "modules", newPrefix+"1")
	if err := os.Mkdir(half, 0o755); err != nil {
		t.Fatal(err)
	}
	again, err := openDriver(r.Options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := modules(); len(got) < 1 || slices.Contains(got, half) {
		t.Errorf("%v are there", got)
	}
}
