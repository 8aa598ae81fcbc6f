//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
)

// Meter reads what a group uses, again and again, and keeps the files open that say so. A group that is removed is noticed by its
// files, and one that is made in its place is read by new ones. It may be used by several at a time.
type Meter struct {
	g  Group
	mu sync.Mutex // protects the rest
	// files are the group's, each closed until it is first read, and where there is none.
	files  [meterFiles]files.Kept
	closed bool // keeps nothing any more
	// last is the last reading of all files, of version 1, and since when the processor time and the memory are what they are in it. Both
	// are zero before.
	last  runtime.Stats
	since time.Time
}

// settled is for how long after a group did something all is read: the kernel adds up the statistics of memory every two seconds, and those
// of few pages no sooner.
const settled = 5 * time.Second

// What a meter reads. Version 1 has a file for each; in version 2, cpuFile says what throttleFile does.
const (
	cpuFile = iota
	waitFile
	throttleFile
	memoryFile
	peakFile
	limitFile
	memoryStatFile
	oomFile
	pidsFile
	ioFile
	meterFiles
)

// maxKept and its share of the descriptors that the process may have bound those that the meters of a tree keep. A worker has a tree for
// each of its drivers, of which there are less than ten, and needs descriptors for other things. The kernel takes a page of memory for
// each. Files beyond them are opened for each reading.
const (
	maxKept   = 1024
	keptShare = 16
)

// mostKept is how many descriptors the meters of a tree of this process may keep.
func mostKept() int32 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int32(min(maxKept, limit.Cur/keptShare))
}

// Meter makes a meter of the group, which need not exist. Close it.
func (g Group) Meter() *Meter { return &Meter{g: g} }

// Of reports whether the meter is one of the group.
func (m *Meter) Of(g Group) bool { return m.g == g }

// Rest closes the meter's files until the next reading.
func (m *Meter) Rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest()
}

// Close closes the meter's files. A reading from then on keeps none.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest()
	m.closed = true
}

func (m *Meter) rest() {
	m.last = runtime.Stats{}
	for i := range m.files {
		if f := &m.files[i]; f.Open() {
			_ = f.Close() // only read
			m.g.t.kept.Add(-1)
		}
	}
}

// Stats reads what the group used. A group that is gone gives fs.ErrNotExist.
func (m *Meter) Stats(now time.Time) (runtime.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := reading{m: m}
	s := r.stats(now)
	if r.stale { // another one may be in its place
		m.rest()
		r = reading{m: m}
		s = r.stats(now)
	}
	if r.short != nil {
		return runtime.Stats{}, r.short
	}
	if r.stale || !r.some && !m.g.Exists() {
		m.rest()
		return runtime.Stats{}, fs.ErrNotExist
	}
	return s, nil
}

// reading is one reading of a meter.
type reading struct {
	m     *Meter
	buf   [4 << 10]byte
	some  bool  // of the files were read
	stale bool  // a file that is kept is of a group that is gone
	short error // this process or the machine has no more descriptors or memory
}

// text reads a file, and gives nothing for one that there is not.
func (r *reading) text(n int) []byte {
	f := &r.m.files[n]
	if !f.Open() {
		path := r.m.g.meterFile(n)
		if path == "" {
			return nil
		}
		opened, err := files.Keep(path)
		if errors.Is(err, fs.ErrNotExist) && n == ioFile && !r.m.g.t.unified { // kernels before 5.2
			opened, err = files.Keep(filepath.Join(r.m.g.dir("blkio"), "blkio.throttle.io_service_bytes"))
		}
		if err != nil {
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
				r.short = err
			}
			return nil
		}
		if r.m.keeps(n) {
			*f = opened
		} else {
			defer opened.Close()
			f = &opened
		}
	}
	text, err := f.Read(r.buf[:])
	if errors.Is(err, unix.ENODEV) {
		r.stale = true
	}
	if err != nil {
		return nil
	}
	r.some = true
	return text
}

// keeps reports whether a file that was just opened stays open, and counts it. Version 1 makes the list of a group's threads when it
// is opened: it would stay as it is for as long as somebody reads it more than once a second.
func (m *Meter) keeps(n int) bool {
	if m.closed || n == waitFile && !m.g.t.unified {
		return false
	}
	if m.g.t.kept.Add(1) > m.g.t.mostKept {
		m.g.t.kept.Add(-1)
		return false
	}
	return true
}

func (r *reading) number(n int) uint64 { return number(r.text(n)) }

func (r *reading) stats(now time.Time) (use runtime.Stats) {
	use = runtime.Stats{At: now}
	inactive, oom := "total_inactive_file", "oom_kill"
	if r.m.g.t.unified {
		cpu := r.text(cpuFile)
		use.CPU = time.Duration(value(cpu, "usage_usec")) * time.Microsecond
		use.Periods, use.ThrottledPeriods = value(cpu, "nr_periods"), value(cpu, "nr_throttled")
		use.Throttled = time.Duration(value(cpu, "throttled_usec")) * time.Microsecond
		use.Waiting = stalled(r.text(waitFile))
		use.MemoryLimit = skerry.Bytes(r.number(limitFile)) // "max" reads as 0
		use.DiskRead, use.DiskWrite = parseIOStat(r.text(ioFile))
		inactive = "inactive_file"
	} else {
		use.CPU, use.Memory = time.Duration(r.number(cpuFile)), skerry.Bytes(r.number(memoryFile))
		use.DiskRead, use.DiskWrite = parseBlkio(r.text(ioFile)) // of a loop device, long after what was written
		// One that has ended counts until its parent, which may be elsewhere, has asked for its end.
		use.Pids = int64(r.number(pidsFile))
		if r.m.idle(&use) && r.m.last.At.Sub(r.m.since) >= settled {
			// Nothing ran: no thread began, ended, or came off a queue, at which the kernel counts how long it was there.
			last := &r.m.last
			use.Waiting, use.MemoryPeak, use.MemoryWorkingSet = last.Waiting, last.MemoryPeak, last.MemoryWorkingSet
			use.OOMKills, use.MemoryLimit = last.OOMKills, last.MemoryLimit // whoever changes the limit has the meter rest
			use.Periods, use.ThrottledPeriods, use.Throttled = last.Periods, last.ThrottledPeriods, last.Throttled
			return use
		}
		if n := r.number(limitFile); n < noLimit {
			use.MemoryLimit = skerry.Bytes(n)
		}
		cpu := r.text(throttleFile) // the last period ends after what ran in it, but before it is settled
		use.Periods, use.ThrottledPeriods = value(cpu, "nr_periods"), value(cpu, "nr_throttled")
		use.Throttled = time.Duration(value(cpu, "throttled_time"))
		use.Waiting = runDelay(r.text(waitFile))
		defer func() { r.keep(&use) }()
	}
	use.Memory, use.MemoryPeak = skerry.Bytes(r.number(memoryFile)), skerry.Bytes(r.number(peakFile))
	use.MemoryWorkingSet = max(0, use.Memory-skerry.Bytes(value(r.text(memoryStatFile), inactive)))
	use.OOMKills = value(r.text(oomFile), oom)
	use.Pids = int64(r.number(pidsFile))
	return use
}

// idle reports whether a group has used no processor time since the last reading, and as much memory. A kernel may count no processor time.
func (m *Meter) idle(use *runtime.Stats) bool {
	return use.CPU > 0 && use.CPU == m.last.CPU && use.Memory == m.last.Memory
}

// keep notes a reading of all files for the next one.
func (r *reading) keep(use *runtime.Stats) {
	m := r.m
	if !m.idle(use) {
		m.since = use.At
	}
	if m.last = *use; r.short != nil || r.stale { // there is more than was read
		m.last = runtime.Stats{}
	}
}

// meterFile gives the path of a file of a meter, or nothing.
func (g Group) meterFile(n int) string {
	if g.t.unified {
		name := [meterFiles]string{cpuFile: "cpu.stat", waitFile: "cpu.pressure", memoryFile: "memory.current", peakFile: "memory.peak",
			limitFile: "memory.max", memoryStatFile: "memory.stat", oomFile: "memory.events", pidsFile: "pids.current", ioFile: "io.stat"}[n]
		if name == "" {
			return ""
		}
		return filepath.Join(g.dir(""), name)
	}
	at := [meterFiles][2]string{cpuFile: {"cpuacct", "cpuacct.usage"}, waitFile: {"cpu", "tasks"}, throttleFile: {"cpu", "cpu.stat"},
		memoryFile: {"memory", "memory.usage_in_bytes"}, peakFile: {"memory", "memory.max_usage_in_bytes"},
		limitFile: {"memory", "memory.limit_in_bytes"}, memoryStatFile: {"memory", "memory.stat"}, oomFile: {"memory", "memory.oom_control"},
		pidsFile: {"pids", "pids.current"}, ioFile: {"blkio", "blkio.throttle.io_service_bytes_recursive"}}[n]
	dir := g.dir(at[0])
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, at[1])
}

// value gives the number of a key in lines "key value", or 0.
func value(text []byte, key string) uint64 {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if len(line) > len(key) && line[len(key)] == ' ' && string(line[:len(key)]) == key {
			return number(line[len(key)+1:])
		}
	}
	return 0
}

// number reads a number, and gives 0 for what is none.
func number(text []byte) uint64 {
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return n
}
