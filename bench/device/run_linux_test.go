package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/bench/cable"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/wasm"
	"skerry.dev/skerry/spec"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == node.ShimCommand {
		os.Exit(native.ShimMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.WasmCommand {
		os.Exit(wasm.RunMain(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{}))
}

// Modules do what they can, and the rest is listed with the reason.
func TestModules(t *testing.T) {
	r, err := Run(t.Context(), Options{Rounds: 1, Quick: true, Places: []string{spec.RuntimeWasm}, Only: []string{"os.malloc", "memory.copy", "disk.files.empty.mount", "os.fork"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Places[1].Skip != "" {
		t.Fatal(r.Places[1].Skip)
	}
	for _, m := range r.Cases {
		res, can := m.Results[spec.RuntimeWasm], m.ID == "os.malloc" || m.ID == "memory.copy.1" || m.ID == "disk.files.empty.mount"
		if _, err := exec.LookPath("clang"); err != nil {
			if !strings.Contains(res.Skip, "clang") && can {
				t.Errorf("%s: %+v", m.ID, res)
			}
			continue
		}
		if can != (len(res.Samples) == 1) || can == (res.Skip != "") {
			t.Errorf("%s: %+v", m.ID, res)
		}
	}
}

// What needs more than a module has is not tried in one.
func TestModular(t *testing.T) {
	for args, can := range map[string]bool{"primes 100 1": true, "stream 100 1 1": true, "stream 100 2 1": false, "fork 10": false, "net rr": false, "index memory 5": true, "sleep": true, "": false} {
		if modular(toolKernels, strings.Fields(args)) != can {
			t.Errorf("%q", args)
		}
	}
	if modular("fio", []string{"memory"}) {
		t.Error("a tool of Debian's is no module")
	}
}

// The kernels give known answers.
func TestKernels(t *testing.T) {
	k, err := compile(t.Context(), t.TempDir())
	if err != nil || k.missing != nil {
		t.Fatal(err, k.missing)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(k.path, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("primes", "1000000", "1"); !strings.Contains(out, "count 78498\n") {
		t.Error(out)
	}
	for _, args := range []string{"stream 100000 2 2", "linpack 100", "index integer 20", "index memory 20", "index floating 20", "lavamd 2 2", "append 10 1024 " + t.TempDir(), "mixed 300 " + t.TempDir(), "syscall 1000", "switch 100", "ipc pipe 64 100", "ipc fifo 4096 100", "ipc unix 100000 10", "ipc tcp 64 100", "fork 10", "exec 10", "thread 10",
		"files 10 1024 " + t.TempDir(), "malloc 10000", "mutex 10000", "sem 100", "memory 4"} {
		run(strings.Fields(args)...)
	}
	server, input, port, err := serve(&cable.Space{}, k)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"stream 127.0.0.1 @ 64 5", "stream 127.0.0.1 @ 4096 5", "rr 127.0.0.1 @ 512 5", "udp 127.0.0.1 @ 4096 5", "connect 127.0.0.1 @ 1 5"} {
		out := run(append([]string{"net"}, strings.Fields(strings.ReplaceAll(args, "@", port))...)...)
		if v, err := field(map[bool]string{true: "rate", false: "mbits"}[args[0] == 'r' || args[0] == 'c'])([]byte(out)); err != nil || v <= 0 {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	for _, args := range []string{"stream 127.0.0.1 @ 65 5", "rr 127.0.0.1 1 64 5", "pigeon 127.0.0.1 @ 64 5"} {
		if out, err := exec.Command(k.path, append([]string{"net"}, strings.Fields(strings.ReplaceAll(args, "@", port))...)...).CombinedOutput(); err == nil {
			t.Errorf("%q works: %s", args, out)
		}
	}
	if err := errors.Join(input.Close(), server.Wait()); err != nil {
		t.Error(err)
	}
	for _, args := range []string{"", "primes", "index moral 5", "ipc carrier-pigeon 64 10", "files 1 0 /none", "stream 0 1 1"} {
		if out, err := exec.Command(k.path, strings.Fields(args)...).CombinedOutput(); err == nil {
			t.Errorf("%q works: %s", args, out)
		}
	}
}

// The same programs run on the machine, in what is made by hand, and in containers; a run that is interrupted goes on where it was.
func TestRun(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "report.json")
	o := Options{Rounds: 2, Quick: true, Only: []string{"os.syscall", "os.oom", "disk.files.empty.mount", "net.rr.64.plain", "start", "footprint", "reach"}, Places: []string{"manual", "oci"}}
	ctx, interrupt := context.WithCancel(t.Context())
	o.Keep = func(r *Report) error {
		interrupt()
		return report.ReplaceFile(kept, r.WriteJSON)
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Done != 1 {
		t.Fatalf("%d rounds are complete", r.Done)
	}
	if _, o.Resume, err = readFile(kept); err != nil {
		t.Fatal(err)
	}
	o.Keep = nil
	if r, err = Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Cases {
		for _, p := range []string{Bare, "manual", "oci"} {
			res := m.Results[p]
			if m.killed && p == Bare {
				if res.Skip == "" {
					t.Errorf("%s ran where nothing limits it", m.ID)
				}
				continue
			}
			if res.Skip != "" || len(res.Samples) != 2 || res.Samples[0] <= 0 {
				t.Errorf("%s in %s: %+v", m.ID, p, res)
			}
			if m.killed && res.Samples[0] != 1 {
				t.Errorf("it was not killed in %s", p)
			}
		}
	}
	for _, f := range r.Footprints {
		if f.Skip != "" || len(f.Samples) != 2 {
			t.Errorf("%+v", f)
		}
	}
	// A container's program reaches what it asks for, but for what its seccomp profile refuses; what a runtime does at its start is not among it.
	if len(r.Reached) != 3 {
		t.Errorf("%+v", r.Reached)
	}
	for _, f := range r.Reached {
		if _, err := exec.LookPath("strace"); err != nil {
			if !strings.Contains(f.Skip, "apt install strace") {
				t.Errorf("%+v", f)
			}
			continue
		}
		if f.Skip != "" || !slices.Contains(f.Calls, "accept") || !slices.Contains(f.Calls, "execve") || slices.Contains(f.Calls, "pivot_root") || slices.Contains(f.Calls, "mount") {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Starts) != 3 || len(r.Footprints) != 6 || len(r.Profile) != 2 || r.Profile[1].Place != "oci" {
		t.Errorf("%+v %+v", r.Starts, r.Profile)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "skerry-bench-runtime-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := netlink.LinkByName(fmt.Sprintf("skbd%d", os.Getpid())); err == nil {
		t.Error("a cable is left")
	}
	for _, made := range []string{"skerry-bench-%d-*", "*/skerry-bench-%d-*", "skerry/bench-%d", "*/skerry/bench-%d"} {
		if left, _ := filepath.Glob(filepath.Join(cgroups, fmt.Sprintf(made, os.Getpid()))); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	o.Places = []string{"moon"}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "moon") {
		t.Error(err)
	}
}
