// Package history keeps a day of what a site and its workers use, one point a minute, in memory and in a file. It measures nothing: the
// cluster's server hands in what it knows. A history is for people who look; nothing is decided by it, so losing a part of it does no harm.
// Only package cluster imports it.
package history

import (
	"cmp"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

const (
	// Every is the time between two points, Span how far back they go.
	Every = time.Minute
	Span  = 24 * time.Hour
	// MaxWorkers bounds the workers with a history of their own; with more, those that came first have one. The site's sums have all.
	MaxWorkers = 64

	maxPoints = int(Span / Every)
	maxSeries = MaxWorkers + 1
	// slack is how many points more than that a series may have before the oldest are removed, so that not each minute moves all.
	slack = 64
	// writeEach is how many points there are from one write of the file to the next.
	writeEach = 10
)

// Reading is what a worker, or the whole site, uses at one moment.
type Reading struct {
	CPU             skerry.MilliCPU
	Memory, Storage skerry.Bytes
	Instances       int           // that run
	Restarts        int           // since the reading before
	RTT             time.Duration // to the tier above; 0: not known
	Workers         int           // that are in touch
	// MostCPU and MostMemory are what a worker counts for in the site's sums at most: it may say anything, which must harm only itself.
	MostCPU    skerry.MilliCPU
	MostMemory skerry.Bytes
}

// Columns of a point, in the order of the file. New ones go to the end.
const (
	colCPU     = iota // millicores
	colMemory         // MiB
	colStorage        // MiB
	colInstances
	colRestarts
	colRTT // microseconds; 0: not known
	colWorkers
	columns
)

// point is a reading of one minute, counted from 1970.
type point struct {
	minute uint32
	v      [columns]uint32
}

// bounded gives what a machine can use: a worker may say anything, and sums must not overflow.
func (r Reading) bounded() Reading {
	const most = 1 << 45 // 32 TiB
	r.CPU = min(max(r.CPU, 0), most)
	r.Memory, r.Storage = min(max(r.Memory, 0), most), min(max(r.Storage, 0), most)
	return r
}

func (r *Reading) at(now time.Time) point {
	p := point{minute: minuteOf(now)}
	for i, n := range [columns]int64{int64(r.CPU), int64(r.Memory / skerry.MiB), int64(r.Storage / skerry.MiB), int64(r.Instances),
		int64(r.Restarts), r.RTT.Microseconds(), int64(r.Workers)} {
		p.v[i] = uint32(min(max(n, 0), math.MaxUint32))
	}
	return p
}

func minuteOf(t time.Time) uint32 { return uint32(min(max(t.Unix()/60, 0), math.MaxUint32)) }

// series has the points of one worker, or of the site, in the order in which they were read. A clock that was set back or was wrong makes
// that another order than that of their times; who shows them sorts.
type series struct {
	points []point
	fresh  int // of these, the last ones that the file does not have
	idle   int // readings since the last one that had it, or since the file was read
}

func (s *series) add(p point) {
	if s.points = append(s.points, p); len(s.points) > maxPoints+slack {
		s.points = slices.Delete(s.points, 0, len(s.points)-maxPoints)
	}
}

// site is the name of the whole site's series. No worker has it.
const site = ""

// History keeps the points. Only one process may have the file.
type History struct {
	file string // empty: memory alone
	log  *slog.Logger

	mu     sync.Mutex // not held while the file is read or written
	series map[string]*series
	left   int // workers without a series at the last reading

	// of Run alone
	size, readings int  // of the file
	failed         bool // the last write; it is logged once
}

// New makes a history that is kept in a file, or in memory alone if that is empty. Run reads and writes it.
func New(file string, log *slog.Logger) *History {
	return &History{file: file, log: log, series: map[string]*series{}}
}

// add takes one reading of all workers.
func (h *History) add(now time.Time, workers map[string]Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	h.left = 0
	var all Reading
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		r := workers[name].bounded()
		all.CPU, all.Memory, all.Storage = all.CPU+min(r.CPU, r.MostCPU), all.Memory+min(r.Memory, r.MostMemory), all.Storage+r.Storage
		all.Instances, all.Restarts, all.Workers = all.Instances+r.Instances, all.Restarts+r.Restarts, all.Workers+1
		if r.Workers = 1; name != site && !h.put(name, r.at(now)) {
			h.left++
		}
	}
	if own, ok := workers[site]; ok { // the site's own, which is no worker
		all.RTT, all.Workers = own.RTT, all.Workers-1
	}
	if all.Workers > 0 { // else nothing is known, which is not that nothing is used
		h.put(site, all.at(now))
	}
}

// put adds a point that is not yet in the file. It reports false if there are too many series. The caller holds the lock.
func (h *History) put(name string, p point) bool {
	s := h.open(name)
	if s == nil {
		return false
	}
	s.add(p)
	s.fresh, s.idle = min(s.fresh+1, len(s.points)), 0
	return true
}

// open gives a series, which it makes if there is room; nil: there is none. The caller holds the lock.
func (h *History) open(name string) *series {
	s := h.series[name]
	if s == nil && (name == site || h.workers() < MaxWorkers) {
		s = &series{}
		h.series[name] = s
	}
	return s
}

func (h *History) workers() int {
	n := len(h.series)
	if h.series[site] != nil {
		n--
	}
	return n
}

// forget removes the series of workers that a day of readings did not have. It goes by readings and not by the times of points: a clock
// that is wrong must neither take away what was just read nor keep a place for ever. The caller holds the lock.
func (h *History) forget() {
	maps.DeleteFunc(h.series, func(_ string, s *series) bool {
		s.idle++
		return s.idle > maxPoints
	})
}

// Left is how many workers have no history of their own.
func (h *History) Left() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

// Has reports whether a worker has a history of its own.
func (h *History) Has(worker string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.series[worker] != nil
}

// Show gives what a worker, or the site if the name is empty, used in the time before now: a point for each step in which something was
// read. Times are multiples of the step. An amount is the mean of its step, instances and workers are the fewest, restarts the sum.
func (h *History) Show(worker string, now time.Time, span, step time.Duration) []view.HistoryPoint {
	from, to, width := minuteOf(now.Add(-span))+1, minuteOf(now), uint32(max(step/Every, 1))
	from -= from % width
	h.mu.Lock()
	var all []point
	if s := h.series[worker]; s != nil {
		all = slices.Clone(s.points)
	}
	h.mu.Unlock()
	all = slices.DeleteFunc(all, func(p point) bool { return p.minute < from || p.minute > to })
	slices.SortStableFunc(all, func(a, b point) int { return cmp.Compare(a.minute, b.minute) })
	out := []view.HistoryPoint{}
	for len(all) > 0 {
		begin, n := all[0].minute-all[0].minute%width, 1
		for n < len(all) && all[n].minute < begin+width {
			n++
		}
		out = append(out, fold(begin, all[:n]))
		all = all[n:]
	}
	return out
}

// fold makes one point of those of a step.
func fold(minute uint32, list []point) view.HistoryPoint {
	var sum [columns]uint64
	heard := uint64(0)
	fewest, workers := list[0].v[colInstances], list[0].v[colWorkers]
	for _, p := range list {
		for i, n := range p.v {
			sum[i] += uint64(n)
		}
		if p.v[colRTT] > 0 {
			heard++
		}
		fewest, workers = min(fewest, p.v[colInstances]), min(workers, p.v[colWorkers])
	}
	mean := func(col int) int64 { return int64(sum[col] / uint64(len(list))) }
	return view.HistoryPoint{At: time.Unix(int64(minute)*60, 0).UTC(), CPU: skerry.MilliCPU(mean(colCPU)),
		Memory: skerry.Bytes(mean(colMemory)) * skerry.MiB, Storage: skerry.Bytes(mean(colStorage)) * skerry.MiB,
		Instances: int(fewest), Restarts: int(sum[colRestarts]), RTTMs: float64(sum[colRTT]/max(heard, 1)) / 1000, Workers: int(workers)}
}
