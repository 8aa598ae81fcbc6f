package device

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/bench"
	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

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
	for _, args := range []string{"stream 100000 2 2", "linpack 100", "syscall 1000", "switch 100", "ipc pipe 64 100", "ipc fifo 4096 100", "ipc unix 100000 10", "ipc tcp 64 100", "fork 10", "exec 10", "thread 10",
		"files 10 1024 " + t.TempDir(), "malloc 10000", "mutex 10000", "sem 100", "memory 4"} {
		run(strings.Fields(args)...)
	}
	for _, args := range []string{"", "primes", "ipc carrier-pigeon 64 10", "files 1 0 /none", "stream 0 1 1"} {
		if out, err := exec.Command(k.path, strings.Fields(args)...).CombinedOutput(); err == nil {
			t.Errorf("%q works: %s", args, out)
		}
	}
}

// The same programs run on the machine, in what is made by hand, and in containers; a run that is interrupted goes on where it was.
func TestRun(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "report.json")
	o := Options{Rounds: 2, Quick: true, Only: []string{"os.syscall", "os.oom", "disk.files.empty.mount", "start", "footprint"}, Places: []string{"manual", "oci"}}
	ctx, interrupt := context.WithCancel(t.Context())
	o.Keep = func(r *Report) error {
		interrupt()
		return bench.ReplaceFile(kept, r.WriteJSON)
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Done != 1 {
		t.Fatalf("%d rounds are complete", r.Done)
	}
	if o.Resume, err = readFile(kept); err != nil {
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
	if len(r.Starts) != 3 || len(r.Footprints) != 6 || len(r.Profile) != 2 || r.Profile[1].Place != "oci" {
		t.Errorf("%+v %+v", r.Starts, r.Profile)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "skerry-bench-runtime-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
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
