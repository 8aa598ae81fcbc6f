//go:build linux

package wasm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

func benchRig(b *testing.B) (d *Driver, root string) {
	b.Helper()
	shim := testenv.Program(b) // the program itself, whose size is part of what a start costs
	d, err := New(Options{Dir: b.TempDir(), Shim: []string{shim, "shim"}, Run: []string{shim, "wasm-run"}, CgroupParent: runtimetest.CgroupParent()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	root = b.TempDir()
	goModule, err := os.ReadFile(runtimetest.Module(b))
	if err != nil {
		b.Fatal(err)
	}
	small := wasmcode.Module{Text: "up\n", Body: wasmcode.Print}.Encode()
	// One that is nothing but itself until it is stopped.
	idle := wasmcode.Module{Text: "up\n", Body: slices.Concat(wasmcode.Print, wasmcode.Hang)}.Encode()
	for name, code := range map[string][]byte{"small": small, "go": goModule, "idle": idle} {
		if err := os.WriteFile(filepath.Join(root, name), code, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return d, root
}

func benchSpec(root, id, module string, args ...string) runtime.Spec {
	return runtime.Spec{ID: runtime.TaskID("bench." + id), RootFS: []runtime.Mount{{Type: "bind", Source: root}}, Args: append([]string{"/" + module}, args...),
		Resources: runtime.Resources{CPU: 2000, Memory: 64 * skerry.MiB, Pids: 64}}
}

// BenchmarkStart measures from Start to the first line read from the log, in turns: cold (the first start on a machine, which
// compiles), warm with every process begun anew, and warm by a spare, of a module of a hundred bytes and of one that Go made; and what wasm-run by itself takes from its execution to its end.
func BenchmarkStart(b *testing.B) {
	d, root := benchRig(b)
	for _, module := range []string{"small", "go"} {
		b.Run(module, func(b *testing.B) {
			var cold, anew, anewStarted, warm, started, bare []time.Duration
			start := func(id string) (first, ready time.Duration) {
				began := time.Now()
				h, err := d.Start(b.Context(), benchSpec(root, id, module, "print", "up"))
				if err != nil {
					b.Fatal(err)
				}
				ready = time.Since(began)
				log, err := d.OpenLog(b.Context(), h, runtime.LogOptions{Follow: true})
				if err != nil {
					b.Fatal(err)
				}
				defer log.Close()
				if e, err := log.Next(); err != nil || e.Line != "up" {
					b.Fatal(e, err)
				}
				first = time.Since(began)
				if _, err := d.Wait(b.Context(), h); err != nil {
					b.Fatal(err)
				}
				task := filepath.Join(d.Options.Dir, "tasks", string(h.ID))
				if _, err := os.Stat(filepath.Join(task, processFile)); err == nil && len(bare) < 200 {
					bare = append(bare, runBare(b, d.run, task))
				}
				if err := d.Remove(b.Context(), h); err != nil {
					b.Fatal(err)
				}
				return first, ready
			}
			i := 0
			for b.Loop() {
				i++
				if i <= 5 {
					if err := d.cache.remove(); err != nil {
						b.Fatal(err)
					}
					withoutSpare(d)
					first, _ := start(fmt.Sprintf("%s.cold.%d", module, i))
					cold = append(cold, first)
				}
				withoutSpare(d)
				first, ready := start(fmt.Sprintf("%s.anew.%d", module, i))
				anew, anewStarted = append(anew, first), append(anewStarted, ready)
				withSpare(b, d)
				first, ready = start(fmt.Sprintf("%s.warm.%d", module, i))
				warm, started = append(warm, first), append(started, ready)
			}
			b.ReportMetric(p50(cold), "cold-p50-ms")
			b.ReportMetric(p50(anew), "anew-first-line-p50-ms")
			b.ReportMetric(p50(anewStarted), "anew-start-p50-ms")
			b.ReportMetric(p50(warm), "first-line-p50-ms")
			b.ReportMetric(p50(started), "start-p50-ms")
			// On a machine that others use, too, the least is nearest to what it takes by itself.
			b.ReportMetric(float64(slices.Min(anew).Microseconds())/1000, "anew-first-line-min-ms")
			b.ReportMetric(float64(slices.Min(warm).Microseconds())/1000, "first-line-min-ms")
			b.ReportMetric(float64(slices.Min(started).Microseconds())/1000, "start-min-ms")
			b.ReportMetric(p50(bare), "wasm-run-p50-ms")
		})
	}
}

// BenchmarkRequest measures a request to a handler, for which its module begins anew.
func BenchmarkRequest(b *testing.B) {
	d, root := benchRig(b)
	hello := wasmcode.Module{Text: "Content-Type: text/plain\n\nhello", Body: wasmcode.Print}.Encode()
	if err := os.WriteFile(filepath.Join(root, "hello"), hello, 0o644); err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{{"hello"}, {"go", "cgi"}} {
		b.Run(args[0], func(b *testing.B) {
			spec := benchSpec(root, "request."+args[0], args[0], args[1:]...)
			spec.Listen, spec.HostNetwork, spec.Handler = []uint16{port(b)}, true, &runtime.Handler{}
			h, err := d.Start(b.Context(), spec)
			if err != nil {
				b.Fatal(err)
			}
			defer d.Remove(context.Background(), h)
			defer http.DefaultClient.CloseIdleConnections()
			url := fmt.Sprintf("http://127.0.0.1:%d/", spec.Listen[0])
			for !answers(url) {
				time.Sleep(time.Millisecond)
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if !answers(url) {
					b.Fatal("no answer")
				}
				took = append(took, time.Since(began))
			}
			b.ReportMetric(p50(took), "request-p50-ms")
		})
	}
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return err == nil && n > 0
}

// runBare runs a task's module once more without anybody around it, in a mount namespace of its own.
func runBare(b *testing.B, run []string, task string) time.Duration {
	b.Helper()
	if err := os.Remove(filepath.Join(task, rootDir)); err != nil {
		b.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(task, rootDir), 0o755); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("unshare", append([]string{"-m"}, append(slices.Clone(run), task)...)...)
	began := time.Now()
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "up" {
		b.Fatalf("%v %q", err, out)
	}
	return time.Since(began)
}

// BenchmarkMemory reports what an instance takes beside its module's memory: the PSS of wasm-run and conmon.
func BenchmarkMemory(b *testing.B) {
	d, root := benchRig(b)
	for _, c := range []struct{ module, arg string }{{"idle", ""}, {"go", "sleep"}} {
		b.Run(c.module, func(b *testing.B) {
			const n = 10
			pss, linear := 0, 0
			for i := range n {
				spec := benchSpec(root, fmt.Sprintf("mem-%s.%d", c.module, i), c.module, c.arg)
				spec.Resources.CPU = 20
				if c.module == "go" {
					spec.Resources.CPU = 0
				}
				h, err := d.Start(b.Context(), spec)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = d.Remove(context.Background(), h) })
				log, err := d.OpenLog(b.Context(), h, runtime.LogOptions{Follow: true})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := log.Next(); err != nil {
					b.Fatal(err)
				}
				log.Close()
			}
			for _, h := range d.Tasks.List() {
				t, err := d.Tasks.Get(h)
				if err != nil {
					b.Fatal(err)
				}
				for _, pid := range []int{t.Record().Supervisor.PID, h.PID} {
					all, own := pssOf(b, pid)
					pss, linear = pss+all, linear+own
				}
			}
			withSpare(b, d)
			spare, _ := pssOf(b, d.spare.ready.PID())
			for b.Loop() {
				// The measure is not one of time.
			}
			b.ReportMetric(float64(spare), "KiB-spare")
			b.ReportMetric(float64(pss)/n, "KiB/instance")
			b.ReportMetric(float64(linear)/n, "KiB-anonymous/instance")
		})
	}
}

// pssOf is what a process takes of memory, in KiB, and how much of that no file stands behind.
func pssOf(b *testing.B, pid int) (pss, redact int) {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kb int
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kb); err == nil {
			pss = kb
		} else if _, err := fmt.Sscanf(line, "Pss_Anon: %d kB", &kb); err == nil {
			redact = kb
		}
	}
	return pss, redact
}

// p50 is the median in milliseconds.
func p50(ds []time.Duration) float64 {
	s := slices.Sorted(slices.Values(ds))
	return float64(s[len(s)/2].Microseconds()) / 1000
}
