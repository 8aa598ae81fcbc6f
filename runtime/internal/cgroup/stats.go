//go:build linux

package cgroup

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// noLimit is where version 1 memory limits mean "none": the largest page-aligned number, less some pages.
const noLimit = 1 << 62

// Stats reads what the group used. A group that is gone gives fs.ErrNotExist.
func (g Group) Stats(now time.Time) (runtime.Stats, error) {
	if !g.Exists() {
		return runtime.Stats{}, fs.ErrNotExist
	}
	if g.t.unified {
		return g.statsV2(now), nil
	}
	s := runtime.Stats{At: now}
	if d := g.dir("cpuacct"); d != "" {
		s.CPU = time.Duration(readUint(filepath.Join(d, "cpuacct.usage")))
	}
	if d := g.dir("cpu"); d != "" {
		s.Waiting = runDelay(readFile(filepath.Join(d, "tasks")))
		m := keyed(filepath.Join(d, "cpu.stat"))
		s.Periods, s.ThrottledPeriods, s.Throttled = m["nr_periods"], m["nr_throttled"], time.Duration(m["throttled_time"])
	}
	if d := g.dir("memory"); d != "" {
		s.Memory = skerry.Bytes(readUint(filepath.Join(d, "memory.usage_in_bytes")))
		s.MemoryPeak = skerry.Bytes(readUint(filepath.Join(d, "memory.max_usage_in_bytes")))
		if n := readUint(filepath.Join(d, "memory.limit_in_bytes")); n < noLimit {
			s.MemoryLimit = skerry.Bytes(n)
		}
		s.MemoryWorkingSet = max(0, s.Memory-skerry.Bytes(keyed(filepath.Join(d, "memory.stat"))["total_inactive_file"]))
	}
	s.OOMKills = g.OOMKills()
	if d := g.dir("pids"); d != "" {
		s.Pids = int64(readUint(filepath.Join(d, "pids.current")))
	}
	if d := g.dir("blkio"); d != "" {
		text := readFile(filepath.Join(d, "blkio.throttle.io_service_bytes_recursive"))
		if text == "" {
			text = readFile(filepath.Join(d, "blkio.throttle.io_service_bytes"))
		}
		s.DiskRead, s.DiskWrite = parseBlkio(text)
	}
	return s, nil
}

func (g Group) statsV2(now time.Time) runtime.Stats {
	s := runtime.Stats{At: now}
	file := func(name string) string { return filepath.Join(g.dir(""), name) }
	cpu := keyed(file("cpu.stat"))
	s.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	s.Periods, s.ThrottledPeriods = cpu["nr_periods"], cpu["nr_throttled"]
	s.Throttled = time.Duration(cpu["throttled_usec"]) * time.Microsecond
	s.Waiting = stalled(readFile(file("cpu.pressure")))
	s.Memory = skerry.Bytes(readUint(file("memory.current")))
	s.MemoryPeak = skerry.Bytes(readUint(file("memory.peak")))
	s.MemoryLimit = skerry.Bytes(readUint(file("memory.max"))) // "max" reads as 0
	s.MemoryWorkingSet = max(0, s.Memory-skerry.Bytes(keyed(file("memory.stat"))["inactive_file"]))
	s.OOMKills = g.OOMKills()
	s.Pids = int64(readUint(file("pids.current")))
	s.DiskRead, s.DiskWrite = parseIOStat(readFile(file("io.stat")))
	return s
}

// runDelay sums what threads have waited on run queues: the second number of schedstat, in nanoseconds.
func runDelay(tids string) time.Duration {
	var sum time.Duration
	for tid := range strings.FieldsSeq(tids) {
		f := strings.Fields(readFile(filepath.Join("/proc", tid, "schedstat")))
		if len(f) < 2 {
			continue // it has just ended, or the kernel does not tell
		}
		if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n > 0 {
			sum += time.Duration(n)
		}
	}
	return sum
}

// stalled reads the total of the line "some" of a pressure file, which is in microseconds.
func stalled(text string) time.Duration {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "some "); ok {
			_, total, _ := strings.Cut(rest, "total=")
			if n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64); err == nil && n > 0 {
				return time.Duration(n) * time.Microsecond
			}
		}
	}
	return 0
}

// OOMKills counts the processes that the kernel killed for the group's memory limit.
func (g Group) OOMKills() uint64 {
	d := g.dir("memory")
	if d == "" {
		return 0
	}
	if g.t.unified {
		return keyed(filepath.Join(d, "memory.events"))["oom_kill"]
	}
	return keyed(filepath.Join(d, "memory.oom_control"))["oom_kill"]
}

// parseBlkio reads lines "8:0 Read 4096" of version 1.
func parseBlkio(text string) (read, write skerry.Bytes) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch f[1] {
		case "Read":
			read += skerry.Bytes(n)
		case "Write":
			write += skerry.Bytes(n)
		}
	}
	return read, write
}

// parseIOStat reads lines "8:0 rbytes=1 wbytes=2 rios=3 ..." of version 2.
func parseIOStat(text string) (read, write skerry.Bytes) {
	for field := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch k {
		case "rbytes":
			read += skerry.Bytes(n)
		case "wbytes":
			write += skerry.Bytes(n)
		}
	}
	return read, write
}
