package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ScheduleOptions say how much to measure.
type ScheduleOptions struct {
	Full  bool // more repetitions
	Small bool // sizes for a test of the benchmark itself
	report.Measuring
}

// Split is one split of the same workers into clusters, with the median of each run in microseconds, and for both the p99.
type Split struct {
	Workers  int // in all
	Clusters int
	Root     []float64
	Cluster  []float64
	Both     []float64
	P99      []float64
	Placed   int
}

// Size is one size of a site, with times in microseconds.
type Size struct {
	Workers int
	ROM     []float64
	LDP     []float64
	Sample  []float64 // choosing the workers that measure a user (Algorithm 2, line 11)
	// Shares of the requests that were placed, and of those placed that really meet both limits.
	ROMPlaced float64
	ROMMeets  float64
	LDPPlaced float64
	LDPMeets  float64
}

// Rate is how many placements one core decides and writes into the index in a second.
type Rate struct {
	Policy    string
	Workers   int
	PerSecond float64 // median of the runs

	values []float64 // of the runs
}

// Memory is what the index holds per worker, in bytes, workers without labels and host ports.
type Memory struct {
	Workers int
	Index   float64 // columns, summaries, and the table from names to slots
	Names   float64 // the text of the names
	All     float64
	Busy    float64 // more for a worker with a host port taken, a learned load and a stated power draw
}

// clock measures in microseconds.
func clock(f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds()) / 1e3
}

// splits repeats the paper's figure 2: the same workers in more and more clusters, 100 deployments each; the time of the
// root's and the cluster's decision.
func splits(opt ScheduleOptions, workers int, clusters []int) []Split {
	repeats := pickInt(opt, 2, 10, 50)
	if workers > 1000 {
		repeats = pickInt(opt, 1, 1, 5)
	}
	out := make([]Split, len(clusters))
	// Interleaved, so that whatever else the machine does falls on all.
	for run := range repeats {
		for i, n := range clusters {
			out[i].Workers, out[i].Clusters = workers, n
			f := newFederation(uint64(run), workers, n)
			var root, cluster, both []float64
			for d := range 100 {
				seed := uint64(run*100 + d)
				var names []string
				var chosen string
				r := resourceRequest()
				a := clock(func() { names, _ = f.Rank(bornAt, r, seed, 3) })
				b := 0.0
				for _, c := range names {
					site := f.sites[c]
					b += clock(func() { chosen = site.Place(bornAt, sched.ROM(), r, seed).Chosen })
					if chosen != "" {
						site.Take(chosen, r)
						f.Take(c, r.Need)
						out[i].Placed++
						break
					}
				}
				root, cluster, both = append(root, a), append(cluster, b), append(both, a+b)
			}
			x := &out[i]
			x.Root, x.Cluster = append(x.Root, report.Median(root)), append(x.Cluster, report.Median(cluster))
			x.Both, x.P99 = append(x.Both, report.Median(both)), append(x.P99, report.Quantile(both, 0.99))
		}
	}
	for i := range out {
		out[i].Placed /= repeats
	}
	return out
}

// federation is a root's view with the sites behind it.
type federation struct {
	*sched.Federation
	sites map[string]*sched.Site
}

func newFederation(seed uint64, workers, clusters int) *federation {
	f := &federation{sched.NewFederation(), map[string]*sched.Site{}}
	fleet := newFleet(seed)
	made := 0
	for c := range clusters {
		name, site := fmt.Sprintf("cluster-%05d", c), sched.NewSite()
		var list []*sched.Worker
		for ; made < workers*(c+1)/clusters; made++ {
			w := fleet.worker(made)
			list = append(list, w)
			site.Set(w)
		}
		f.sites[name] = site
		f.SetConnected(name, true)
		f.SetReport(name, reportOf(list))
		site.Place(bornAt, sched.ROM(), resourceRequest(), 0) // sorts the index, which is not part of a decision
	}
	return f
}

// sizesOf repeats the paper's figure 10 and goes on: one decision of ROM and of LDP over more and more workers.
func sizesOf(opt ScheduleOptions) (out []Size) {
	list := []int{10, 50, 100, 500, 10_000, 100_000, 1_000_000}
	if opt.Small {
		list = list[:4]
	}
	rounds := pickInt(opt, 20, 300, 1000)
	for _, n := range list {
		fleet := newFleet(uint64(n))
		fleet.filled, fleet.keep = true, true
		site := fleet.site(n)
		site.Place(bornAt, sched.ROM(), resourceRequest(), 0)
		index := make(map[string]int, n)
		for i := range n {
			index[fmt.Sprintf("worker-%07d", i)] = i
		}
		var rom, ldp, sample []float64
		size := Size{Workers: n}
		var romPlaced, romMeets, ldpPlaced, ldpMeets int
		for round := range rounds {
			plain, near := resourceRequest(), resourceRequest()
			u := fleet.user(fleet.truths[fleet.rng.IntN(n)])
			fleet.nearUser(near, u)
			var d wire.Decision
			rom = append(rom, clock(func() { d = site.Place(bornAt, sched.ROM(), plain, uint64(round)) }))
			count(&romPlaced, &romMeets, d, fleet, index, u)
			sample = append(sample, clock(func() { site.Sample(sched.LDP(), near, uint64(round), 5) }))
			ldp = append(ldp, clock(func() { d = site.Place(bornAt, sched.LDP(), near, uint64(round)) }))
			count(&ldpPlaced, &ldpMeets, d, fleet, index, u)
		}
		size.ROM, size.LDP, size.Sample = rom, ldp, sample
		size.ROMPlaced, size.ROMMeets = share(romPlaced, rounds), share(romMeets, romPlaced)
		size.LDPPlaced, size.LDPMeets = share(ldpPlaced, rounds), share(ldpMeets, ldpPlaced)
		out = append(out, size)
	}
	return out
}

func count(placed, meets *int, d wire.Decision, f *fleet, index map[string]int, u spot) {
	if d.Chosen == "" {
		return
	}
	*placed++
	if f.truths[index[d.Chosen]].meets(u) {
		*meets++
	}
}

func share(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// rates measures placements by every policy with what it costs to write them into the index, on one core: each is decided and taken, and
// the one 1,024 before is given up, so that the site stays as full.
func rates(o ScheduleOptions) (out []Rate) {
	for _, name := range spec.PolicyNames() {
		run, values := placing(o, name), []float64{}
		for range pickInt(o, 3, 7, 15) {
			values = append(values, run())
		}
		out = append(out, Rate{Policy: name, Workers: placingWorkers(o), PerSecond: report.Median(values), values: values})
	}
	return out
}

func placingWorkers(o ScheduleOptions) int { return pickInt(o, 200, 10_000, 10_000) }

// placing gives what measures the rate of a policy, again and again at the same site.
func placing(o ScheduleOptions, name string) (run func() float64) {
	workers, each := placingWorkers(o), pickInt(o, 50, 5000, 10_000)
	fleet := newFleet(7)
	fleet.filled, fleet.keep, fleet.powered = true, true, true
	site, policy := fleet.site(workers), sched.Policies()[name]
	requests := make([]*sched.Request, 256)
	for i := range requests {
		requests[i] = resourceRequest()
		if name == spec.PolicyLDP {
			fleet.nearUser(requests[i], fleet.user(fleet.truths[fleet.rng.IntN(workers)]))
		}
	}
	var last [1024]string
	seed := uint64(0)
	return func() float64 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		return float64(each) / 1e-6 / clock(func() {
			for i := range each {
				r, old := requests[i%len(requests)], &last[i%len(last)]
				if *old != "" {
					site.Give(*old, r)
				}
				if *old = site.Place(bornAt, policy, r, seed).Chosen; *old != "" {
					site.Take(*old, r)
				}
				seed++
			}
		})
	}
}

// rankMany measures the root's ranking of many clusters of one to a hundred workers.
func rankMany(o ScheduleOptions) (int, []float64) {
	n, rounds := pickInt(o, 100, 10_000, 10_000), pickInt(o, 10, 300, 3000)
	f, fleet := sched.NewFederation(), newFleet(3)
	fleet.filled = true
	for c := range n {
		var list []*sched.Worker
		for i := range 1 + fleet.rng.IntN(100) {
			list = append(list, fleet.worker(i))
		}
		name := fmt.Sprintf("cluster-%05d", c)
		f.SetConnected(name, true)
		f.SetReport(name, reportOf(list))
	}
	var values []float64
	r := resourceRequest()
	for i := range rounds {
		values = append(values, clock(func() { f.Rank(bornAt, r, uint64(i), 1) }))
	}
	return n, values
}

// indexMemory measures what the index holds. Names are made beforehand, so that their bytes are told apart.
func indexMemory(opt ScheduleOptions) Memory {
	n := pickInt(opt, 2000, 1_000_000, 1_000_000)
	held := func(make func() any) (float64, any) {
		var before, after runtime.MemStats
		debug.FreeOSMemory()
		runtime.ReadMemStats(&before)
		x := make()
		debug.FreeOSMemory()
		runtime.ReadMemStats(&after)
		return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n), x
	}
	names := make([]string, n)
	text, _ := held(func() any {
		for i := range names {
			names[i] = fmt.Sprintf("worker-%07d", i)
		}
		return nil
	})
	site := func(edit func(*sched.Worker)) float64 {
		size, s := held(func() any {
			f := newFleet(1)
			f.filled = true
			s := sched.NewSite()
			for i := range n {
				w := f.worker(i)
				w.Name = names[i]
				edit(w)
				s.Set(w)
			}
			s.Place(bornAt, sched.ROM(), resourceRequest(), 0) // sorts
			return s
		})
		runtime.KeepAlive(s)
		return size
	}
	ports, power := map[string]bool{"tcp/80": true}, &wire.Power{Idle: 1, Busy: 2} // held by whoever tells of a worker
	index := site(func(*sched.Worker) {})
	busy := site(func(w *sched.Worker) { w.HostPorts, w.Power, w.Load = ports, power, loads[0] })
	runtime.KeepAlive(names)
	return Memory{Workers: n, Index: index, Names: text, All: index + text, Busy: busy - index}
}

func pickInt(o ScheduleOptions, small, quick, full int) int {
	switch {
	case o.Small:
		return small
	case o.Full:
		return full
	}
	return quick
}
