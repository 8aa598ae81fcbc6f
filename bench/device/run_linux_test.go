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
	for _, c := range [][2]string{{"os", "malloc"}, {"memory", "copy.1"}, {"disk", "files.empty.mount"}, {"os", "fork"}} {
		f, can := r.Find(c[0], c[1], spec.RuntimeWasm), c[1] != "fork"
		if _, err := exec.LookPath("clang"); err != nil {
			if !strings.Contains(f.Skip, "clang") && can {
				t.Errorf("%s: %+v", c, f)
			}
			continue
		}
		if can != (len(f.Samples) == 1) || can == (f.Skip != "") {
			t.Errorf("%s: %+v", c, f)
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
	o.Keep = func(r *report.Report) error {
		interrupt()
		return report.ReplaceFile(kept, r.WriteJSON)
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Rounds != 1 || !r.Unfinished {
		t.Fatalf("%d rounds are complete, unfinished %v", r.Rounds, r.Unfinished)
	}
	if o.Resume, err = report.Load(kept); err != nil {
		t.Fatal(err)
	}
	o.Keep = nil
	if r, err = Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if r.Rounds != 2 || r.Unfinished {
		t.Errorf("%d rounds are complete, unfinished %v", r.Rounds, r.Unfinished)
	}
	_, strace := exec.LookPath("strace")
	for _, p := range []string{Bare, "manual", "oci"} {
		for _, c := range [][2]string{{"os", "syscall"}, {"disk", "files.empty.mount"}, {"net", "rr.64.plain"}, {startCase, "from the call to the first line"},
			{footprintCase, "memory of each of 4 idle instances"}, {"whole machine, cases of os", "user"}} {
			if f := r.Find(c[0], c[1], p); f == nil || f.Skip != "" || !slices.Equal(f.Rounds, []int{1, 2}) || f.Against == nil && p != Bare && c[0] == "os" {
				t.Errorf("%s in %s: %+v", c, p, f)
			}
		}
		oom := r.Find("os", "oom", p)
		if p == Bare {
			if oom.Skip == "" {
				t.Error("what has a limit ran where nothing limits it")
			}
		} else if !slices.Equal(oom.Samples, []float64{1, 1}) {
			t.Errorf("it was not killed in %s: %+v", p, oom)
		}
		// A container's program reaches what it asks for, but for what its seccomp profile refuses; what a runtime does at its start is
		// not among it.
		reach := r.Find(reachCase, "system calls of the host", p)
		if strace != nil {
			if !strings.Contains(reach.Skip, "apt install strace") {
				t.Errorf("%+v", reach)
			}
			continue
		}
		head := "System calls of the host from " + p + ": "
		n := slices.IndexFunc(r.Notes, func(s string) bool { return strings.HasPrefix(s, head) })
		if n < 0 {
			t.Errorf("no note says what %s reaches: %q", p, r.Notes)
			continue
		}
		calls := strings.Fields(strings.TrimPrefix(r.Notes[n], head))
		if len(reach.Samples) != 1 || int(reach.Samples[0]) != len(calls) || !slices.Contains(calls, "accept") || !slices.Contains(calls, "execve") || slices.Contains(calls, "pivot_root") || slices.Contains(calls, "mount") {
			t.Errorf("%+v: %q", reach, calls)
		}
	}
	if f := r.Find(profileGroup, "os", "oci"); f == nil || len(f.Samples) != 2 || r.Find(profileGroup, "os", Bare) != nil {
		t.Errorf("the profile is %+v", f)
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
