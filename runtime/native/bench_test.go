//go:build linux

package native

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// BenchmarkStart measures from Start to the first line read from the log, beside the bare program from its execution
// to its first line on a pipe. The two take turns.
func BenchmarkStart(b *testing.B) {
	dr, err := open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	d := dr.(*Driver)
	defer d.Close()
	workload := runtimetest.Workload(b)
	var ours, bare []time.Duration
	i := 0
	for b.Loop() {
		i++
		began := time.Now()
		h, err := d.Start(b.Context(), runtime.Spec{
			ID: runtime.TaskID(fmt.Sprintf("bench.main.%d", i)), Args: []string{workload, "print", "up"},
			Resources: runtime.Resources{CPU: 2000, Memory: 64 << 20, Pids: 64},
		})
		if err != nil {
			b.Fatal(err)
		}
		log, err := d.OpenLog(b.Context(), h, runtime.LogOptions{Follow: true})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := log.Next(); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		b.StopTimer()
		log.Close()
		if err := d.Remove(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(workload, "print", "up")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		var first [1]byte
		if _, err := io.ReadFull(out, first[:]); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		b.StartTimer()
	}
	b.ReportMetric(p50(ours), "first-line-p50-ms")
	b.ReportMetric(p50(bare), "bare-p50-ms")
}

// p50 is the median in milliseconds.
func p50(ds []time.Duration) float64 {
	s := slices.Sorted(slices.Values(ds))
	return float64(s[len(s)/2].Microseconds()) / 1000
}
