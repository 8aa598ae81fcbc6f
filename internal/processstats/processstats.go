// Package processstats writes what Prometheus' dashboards expect of each process: its use of processors, memory and descriptors, and of
// Go's run time. Each family has its HELP and TYPE.
package processstats

import (
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
)

// family is a group of samples with one name; all of these have one sample.
type family struct {
	name, kind, help string
	value            float64
}

// goFamilies are those of Go's run time, by their names there.
var goFamilies = []struct{ from, name, kind, help string }{
	{"/sched/gomaxprocs:threads", "go_sched_gomaxprocs_threads", "gauge", "Threads that may run Go code at once."},
	{"/memory/classes/total:bytes", "go_memstats_sys_bytes", "gauge", "Memory that was taken from the system."},
	{"/memory/classes/heap/objects:bytes", "go_memstats_heap_alloc_bytes", "gauge", "Memory of objects on the heap."},
	{"/gc/heap/objects:objects", "go_memstats_heap_objects", "gauge", "Objects on the heap."},
	{"/gc/heap/allocs:bytes", "go_memstats_alloc_bytes_total", "counter", "Memory that was ever allocated on the heap."},
	{"/gc/cycles/total:gc-cycles", "go_gc_cycles_total", "counter", "Collections of garbage."},
	{"/cpu/classes/gc/total:cpu-seconds", "go_gc_cpu_seconds_total", "counter", "Processor time of collections, as estimated."},
}

// Write writes the families of this process.
func Write(out io.Writer) {
	list := append(processFamilies(), family{"go_goroutines", "gauge", "Goroutines that there are.", float64(runtime.NumGoroutine())})
	samples := make([]metrics.Sample, len(goFamilies))
	for i := range samples {
		samples[i].Name = goFamilies[i].from
	}
	metrics.Read(samples)
	for i, of := range goFamilies {
		add := func(value float64) { list = append(list, family{of.name, of.kind, of.help, value}) }
		switch v := samples[i].Value; v.Kind() {
		case metrics.KindUint64:
			add(float64(v.Uint64()))
		case metrics.KindFloat64:
			add(v.Float64())
		}
	}
	for _, f := range list {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", f.name, f.help, f.name, f.kind, f.name, f.value)
	}
}
