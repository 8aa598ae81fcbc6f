//go:build linux

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
)

// BenchmarkStart measures from Start to the first line read from the log, beside a bare "run" of the same bundle by the
// same runtime from its execution to its first line on a pipe. The two take turns.
func BenchmarkStart(b *testing.B) {
	for _, program := range []string{"crun", "runc", "runsc"} {
		b.Run(program, func(b *testing.B) {
			d, image := benchDriver(b, program)
			spec := benchSpec(image, "print", "up")
			bundle := filepath.Join(b.TempDir(), "bundle")
			var ours, started, bare []time.Duration
			i := 0
			for b.Loop() {
				i++
				spec.ID = runtime.TaskID(fmt.Sprintf("bench.main.%d", i))
				h, start, first := firstLine(b, d, spec)
				started, ours = append(started, start), append(ours, first)
				b.StopTimer()
				if _, err := d.Wait(b.Context(), h); err != nil {
					b.Fatal(err)
				}
				if i == 1 {
					copyBundle(b, filepath.Join(d.Options.Dir, "tasks", string(h.ID)), bundle, image)
				}
				if err := d.Remove(b.Context(), h); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, runBare(b, d.chosen, bundle, fmt.Sprintf("bare%d", i)))
				b.StartTimer()
			}
			o, r := p50(ours), p50(bare)
			b.ReportMetric(o, "first-line-p50-ms")
			b.ReportMetric(p50(started), "start-p50-ms")
			b.ReportMetric(r, "bare-p50-ms")
			b.ReportMetric(o/r, "ratio")
		})
	}
}

// firstLine starts a task and returns the time until Start returned and until the first line was read from the log.
func firstLine(b *testing.B, d *Driver, spec runtime.Spec) (h runtime.Handle, started, first time.Duration) {
	b.Helper()
	began := time.Now()
	h, err := d.Start(b.Context(), spec)
	if err != nil {
		b.Fatal(err)
	}
	started = time.Since(began)
	log, err := d.OpenLog(b.Context(), h, runtime.LogOptions{Follow: true})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Next(); err != nil {
		b.Fatal(err)
	}
	return h, started, time.Since(began)
}

// BenchmarkHybrid compares, in turns, a start with runc and with crun behind its stand-in, as on a hybrid host, and with crun itself on a host
// that is not hybrid. The stand-in does the same work on both.
func BenchmarkHybrid(b *testing.B) {
	runtimetest.Hybrid(b, true)
	runc, image := benchDriver(b, "runc")
	hidden, _ := benchDriver(b, "crun")
	if filepath.Base(filepath.Dir(hidden.chosen)) != "hybrid" {
		b.Skip(&runtime.Unsupported{Driver: "oci", Reason: "this crun does not refuse hybrid hosts"})
	}
	runtimetest.Hybrid(b, false)
	plain, _ := benchDriver(b, "crun")
	drivers := []*Driver{runc, hidden, plain}
	took := make([][]time.Duration, len(drivers))
	spec := benchSpec(image, "print", "up")
	for round := 0; b.Loop(); round++ {
		for i := range drivers {
			i = (i + round) % len(drivers) // so that none always follows the same one
			spec.ID = runtime.TaskID(fmt.Sprintf("bench-hybrid.main.%d-%d", i, round))
			h, _, first := firstLine(b, drivers[i], spec)
			if round > 0 { // the first compiles filters
				took[i] = append(took[i], first)
			}
			if _, err := drivers[i].Wait(b.Context(), h); err != nil {
				b.Fatal(err)
			}
			if err := drivers[i].Remove(b.Context(), h); err != nil {
				b.Fatal(err)
			}
		}
	}
	if len(took[0]) == 0 {
		return
	}
	for i, name := range []string{"runc", "crun-hybrid", "crun-plain"} {
		b.ReportMetric(p50(took[i]), name+"-p50-ms")
	}
	var more []time.Duration
	for i := range took[1] {
		more = append(more, took[1][i]-took[2][i])
	}
	b.ReportMetric(p50(more), "hiding-p50-ms")
}

// BenchmarkUserNS compares, in turns, starts without a user namespace and with one.
func BenchmarkUserNS(b *testing.B) {
	for _, program := range []string{"crun", "runc"} {
		b.Run(program, func(b *testing.B) {
			runtimetest.Hybrid(b, false)
			d, image := benchDriver(b, program)
			if err := enterable(d.Options.Dir); err != nil {
				b.Fatal(err)
			}
			d.Check(b.Context()) // again, for now it can
			volume := b.TempDir()
			took := map[bool][]time.Duration{}
			for i := 0; b.Loop(); i++ {
				for _, with := range []bool{i%2 == 0, i%2 != 0} {
					spec := benchSpec(image, "print", "up")
					spec.ID = runtime.TaskID(fmt.Sprintf("bench-users.main.%d-%v", i, with))
					spec.Mounts = []runtime.Mount{{Type: "bind", Source: volume, Target: "/mnt"}}
					if with {
						users := someUsers
						spec.UserNS = &users
					}
					h, _, first := firstLine(b, d, spec)
					if i > 0 { // the first compiles filters
						took[with] = append(took[with], first)
					}
					if _, err := d.Wait(b.Context(), h); err != nil {
						b.Fatal(err)
					}
					if err := d.Remove(b.Context(), h); err != nil {
						b.Fatal(err)
					}
				}
			}
			if len(took[true]) > 0 {
				b.ReportMetric(p50(took[false]), "host-users-p50-ms")
				b.ReportMetric(p50(took[true]), "own-users-p50-ms")
			}
		})
	}
}

// BenchmarkMemory reports what one idle container costs beside its workload: the supervisor's PSS.
func BenchmarkMemory(b *testing.B) {
	d, image := benchDriver(b, "crun")
	const n = 10
	pss := 0
	for i := range n {
		spec := benchSpec(image, "sleep")
		spec.ID = runtime.TaskID(fmt.Sprintf("bench-mem.main.%d", i))
		h, err := d.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		defer d.Remove(b.Context(), h)
	}
	for _, h := range d.Tasks.List() {
		t, err := d.Tasks.Get(h)
		if err != nil {
			b.Fatal(err)
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", t.Record().Supervisor.PID))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var kb int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kb); err == nil {
				pss += kb
			}
		}
	}
	for b.Loop() {
		// The measure is not one of time.
	}
	b.ReportMetric(float64(pss)/n, "KiB/container")
}

func benchDriver(b *testing.B, program string) (*Driver, string) {
	b.Helper()
	if monitor.LookPath(program) == "" {
		b.Skip(&runtime.Unsupported{Driver: "oci", Reason: program + " is not installed"})
	}
	o := Options{Dir: b.TempDir(), CgroupParent: cgroupParent() + "/bench"}
	if program == "runsc" {
		o = GVisor(o)
	}
	o.Runtimes = []string{program}
	d, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.CleanUp(context.Background()); err != nil {
			b.Error(err)
		}
		d.Close()
	})
	if r := d.Check(b.Context()); !r.Passed {
		b.Fatal(r.Cause)
	}
	return d, runtimetest.Image(b, runtimetest.Workload(b))
}

func benchSpec(image string, args ...string) runtime.Spec {
	return runtime.Spec{
		RootFS:    []runtime.Mount{runtime.Overlay(image)},
		Args:      append([]string{"/bin/workload"}, args...),
		Resources: runtime.Resources{CPU: 2000, Memory: 64 << 20, Pids: 64},
	}
}

// copyBundle takes a task's configuration for use without a driver.
func copyBundle(b *testing.B, from, to, image string) {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		b.Fatal(err)
	}
	var c specs.Spec
	if err := json.Unmarshal(data, &c); err != nil {
		b.Fatal(err)
	}
	c.Root.Path, c.Linux.CgroupsPath = image, "/"+cgroupParent()+"/bench/bare"
	if data, err = json.Marshal(c); err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), data, 0o644); err != nil {
		b.Fatal(err)
	}
}

func runBare(b *testing.B, program, bundle, id string) time.Duration {
	b.Helper()
	args := []string{"--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, id}
	if filepath.Base(program) == "runsc" { // its own check refuses every network on new kernels
		args = append([]string{"--platform=systrap", "--network=none"}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var first [1]byte
	if _, err := io.ReadFull(out, first[:]); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	return took
}

// p50 is the median in milliseconds.
func p50(ds []time.Duration) float64 {
	s := slices.Sorted(slices.Values(ds))
	return float64(s[len(s)/2].Microseconds()) / 1000
}
