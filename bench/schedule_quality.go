package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
)

// Quality is what a policy makes of one stream of instances on one fleet, of which each three are of one service. Every
// second has a user with the paper's limits.
type Quality struct {
	Policy string
	// At about half load: all services fit somewhere but for limits.
	Placed   int // of Asked
	Asked    int
	Limited  int     // placed services with a user
	Meet     float64 // share of those that really meet both limits
	Used     int     // workers
	Together int     // instances on a worker that had one of the same service
	Slowdown float64 // mean over placed services, predicted; 0 is none
	Watts    float64 // predicted
	// After more was asked for than there is.
	PlacedFull int // of AskedFull
	AskedFull  int
	Stranded   float64 // share of all CPU that is free where the mean service does not fit
}

// replicas is how many instances of each service the stream has.
const replicas = 3

// kinds of load (thesis, chapter 2): each takes and suffers on another resource.
var loads = []spec.Contention{
	{Intensity: spec.Shares{Cache: 0.4, MemoryBandwidth: 0.3}, Sensitivity: spec.Shares{Cache: 0.6, MemoryBandwidth: 0.3}},
	{Intensity: spec.Shares{Disk: 0.5}, Sensitivity: spec.Shares{Disk: 0.7}},
	{Intensity: spec.Shares{Network: 0.4}, Sensitivity: spec.Shares{Network: 0.5}},
	{Intensity: spec.Shares{CPU: 0.1}, Sensitivity: spec.Shares{CPU: 0.1}},
}

// meanService is about the middle of what service makes.
var meanService = spec.Resources{CPU: 900, Memory: 500 * skerry.MiB}

// service makes the i-th service of a stream; u is nil for those without a user.
func (f *fleet) service(i int) (r *sched.Request, u *spot) {
	load := loads[f.rng.IntN(len(loads))]
	r = requestOf(&spec.ServiceSpec{Name: "s", Resources: spec.Resources{CPU: skerry.MilliCPU(100 + f.rng.IntN(1600)),
		Memory: skerry.Bytes(64+f.rng.IntN(900)) * skerry.MiB}, Placement: spec.Placement{Contention: &load}})
	r.Instance = skerry.InstanceID(fmt.Sprintf("s-%05d", i))
	if i%2 == 0 {
		at := f.user(f.truths[f.rng.IntN(len(f.truths))])
		f.nearUser(r, at)
		u = &at
	}
	return r, u
}

// ground is a site with what is placed there.
type ground struct {
	site    *sched.Site
	workers []*sched.Worker
	by      map[string]int
	on      [][]*sched.Request // by worker
	left    []spec.Resources
	sum     []spec.Contention
}

func newGround(workers []*sched.Worker) *ground {
	g := &ground{site: sched.NewSite(), workers: workers, by: map[string]int{}, on: make([][]*sched.Request, len(workers)),
		sum: make([]spec.Contention, len(workers))}
	for i, w := range workers {
		g.site.Set(w)
		g.by[w.Name] = i
		g.left = append(g.left, w.Available)
	}
	return g
}

// put places a service as a cluster would and gives the worker's number, or -1.
func (g *ground) put(p sched.Policy, r *sched.Request, seed uint64) int {
	d := g.site.Place(bornAt, p, r, seed)
	if d.Chosen == "" {
		return -1
	}
	n := g.by[d.Chosen]
	g.take(n, r)
	g.site.Take(d.Chosen, r)
	g.site.SetLoad(d.Chosen, g.sum[n])
	return n
}

func (g *ground) take(n int, r *sched.Request) {
	g.left[n] = g.left[n].Sub(r.Need)
	g.on[n] = append(g.on[n], r)
	g.sum[n] = spec.Contention{Intensity: plus(g.sum[n].Intensity, r.Contention.Intensity),
		Sensitivity: plus(g.sum[n].Sensitivity, r.Contention.Sensitivity)}
}

func plus(a, b spec.Shares) spec.Shares {
	x, y := a.Vector(), b.Vector()
	for i := range x {
		x[i] += y[i]
	}
	return spec.SharesOf(x)
}

// costs are what a placement of services comes to.
type costs struct {
	used            float64
	slowdown, watts float64 // slowdown summed over services
}

func (g *ground) costs() (c costs) {
	for n, list := range g.on {
		if len(list) > 0 {
			one := costOf(g.workers[n], list)
			c.used, c.slowdown, c.watts = c.used+one.used, c.slowdown+one.slowdown, c.watts+one.watts
		}
	}
	return c
}

// costOf works out the costs of one machine in use.
func costOf(w *sched.Worker, list []*sched.Request) costs {
	c := costs{used: 1}
	var cpu skerry.MilliCPU
	for i, r := range list {
		cpu += r.Need.CPU
		for _, o := range list[:i] {
			c.slowdown += sched.Slowdown(r.Contention, o.Contention)
		}
	}
	if w.Power != nil {
		c.watts = w.Power.Idle + (w.Power.Busy-w.Power.Idle)*math.Min(1, float64(cpu)/float64(w.Capacity.CPU))
	}
	return c
}

// qualities runs the same stream of services with every policy.
func qualities(opt ScheduleOptions) (int, []Quality) {
	workers, half, full := pickInt(opt, 20, 200, 1000), pickInt(opt, 20, 400, 2000), pickInt(opt, 60, 1500, 7500)
	var out []Quality
	policies := sched.Policies()
	for _, name := range spec.PolicyNames() {
		fleet := newFleet(11)
		fleet.keep, fleet.powered = true, true
		var list []*sched.Worker
		for i := range workers {
			list = append(list, fleet.worker(i))
		}
		g := newGround(list)
		q := Quality{Policy: name, Asked: half, AskedFull: full}
		meet := 0
		var peers []sched.Peer // instances of the same service
		for i := range full {
			req, u := fleet.service(i)
			if i%replicas == 0 {
				peers = nil
			}
			req.Service, req.Peers = fmt.Sprint("s", i/replicas), peers
			n := g.put(policies[name], req, uint64(i))
			if n >= 0 {
				q.PlacedFull++
				at := sched.Peer{Worker: list[n].Name, Service: req.Service}
				if i < half && slices.ContainsFunc(peers, func(p sched.Peer) bool { return p.Worker == at.Worker }) {
					q.Together++
				}
				peers = append(peers, at)
			}
			if i >= half {
				continue
			}
			if n >= 0 {
				q.Placed++
				if u != nil {
					q.Limited++
					if fleet.truths[n].meets(*u) {
						meet++
					}
				}
			}
			if i == half-1 {
				c := g.costs()
				q.Used, q.Watts, q.Slowdown, q.Meet = int(c.used), c.watts, c.slowdown/math.Max(1, float64(q.Placed)), share(meet, q.Limited)
			}
		}
		var all, stranded float64
		for n, w := range g.workers {
			all += float64(w.Capacity.CPU)
			if !g.left[n].Fits(meanService) {
				stranded += float64(g.left[n].CPU)
			}
		}
		q.Stranded = stranded / all
		out = append(out, q)
	}
	return workers, out
}

// Distance is how far a policy is from what exhaustive search finds.
type Distance struct {
	Policy string
	// Score is the largest difference between the score of the worker chosen and the best score of any worker that fits, over
	// all single placements: 0 means that the index never misses the best.
	Score float64
	// Over small batches: the share of the placeable services that were placed, and by how much more than the optimum of the
	// batches that were placed in full each cost comes to, as a share.
	Placed   float64
	Full     int // batches placed in full
	Used     float64
	Slowdown float64 // absolute, per service, because the optimum is often none
	Watts    float64
}

// optimum compares every policy with exhaustive search: single placements by asking every worker alone, and small batches
// by trying every assignment. The optimum places as many as can be placed; each cost is then minimal by itself.
func optimum(opt ScheduleOptions) (int, []Distance) {
	batches, workers, services := pickInt(opt, 3, 60, 400), 4, 7
	singles, large := pickInt(opt, 5, 40, 200), pickInt(opt, 20, 500, 500)
	policies := sched.Policies()
	out := make([]Distance, len(spec.PolicyNames()))
	for i, name := range spec.PolicyNames() {
		out[i].Policy = name
		out[i].Score = worstMiss(policies[name], large, singles)
	}
	placed, placeable := make([]int, len(out)), 0
	for batch := range batches {
		fleet := newFleet(uint64(100 + batch))
		fleet.keep, fleet.powered = true, true
		var list []*sched.Worker
		for i := range workers {
			list = append(list, fleet.worker(i))
		}
		var stream []*sched.Request
		for i := range services {
			r, _ := fleet.service(2*i + 1) // without users: of so few machines hardly two are near to one
			stream = append(stream, r)
		}
		slices.SortStableFunc(stream, func(a, b *sched.Request) int { return cmp.Compare(sizeOf(b), sizeOf(a)) }) // as clusters do
		best, most := exhaust(list, stream)
		placeable += most
		for i := range out {
			g, n := newGround(list), 0
			for j, r := range stream {
				if g.put(policies[out[i].Policy], r, uint64(batch*services+j)) >= 0 {
					n++
				}
			}
			placed[i] += n
			if n < most {
				continue
			}
			c := g.costs()
			out[i].Full++
			out[i].Used += c.used/best.used - 1
			out[i].Watts += c.watts/best.watts - 1
			out[i].Slowdown += (c.slowdown - best.slowdown) / float64(n)
		}
	}
	for i := range out {
		d := &out[i]
		d.Placed = share(placed[i], placeable)
		if n := float64(d.Full); n > 0 {
			d.Used, d.Watts, d.Slowdown = d.Used/n, d.Watts/n, d.Slowdown/n
		}
	}
	return batches, out
}

func sizeOf(r *sched.Request) float64 {
	return float64(r.Need.CPU)/1000 + float64(r.Need.Memory)/float64(skerry.GiB)
}

// worstMiss gives the largest amount by which a placement's score falls short of the best score of a worker asked alone.
func worstMiss(p sched.Policy, workers, requests int) (worst float64) {
	fleet := newFleet(5)
	fleet.keep, fleet.powered, fleet.filled = true, true, true
	var list []*sched.Worker
	for i := range workers {
		w := fleet.worker(i)
		w.Load = loads[fleet.rng.IntN(len(loads))]
		list = append(list, w)
	}
	g := newGround(list)
	for i := range requests {
		r, _ := fleet.service(i)
		best := -1.0
		for _, w := range list {
			one := *r
			one.Only = w.Name
			if d := g.site.Place(bornAt, p, &one, uint64(i)); d.Chosen != "" {
				best = math.Max(best, d.Top[0].Score)
			}
		}
		d := g.site.Place(bornAt, p, r, uint64(i))
		switch {
		case d.Chosen != "":
			worst = math.Max(worst, best-d.Top[0].Score)
		case best >= 0:
			worst = 1 // somebody fits, and nobody was found
		}
	}
	return worst
}

// exhaust tries every assignment of services to machines. It gives the largest number that can be placed, and the least
// that placing so many can cost, each cost by itself.
func exhaust(workers []*sched.Worker, stream []*sched.Request) (least costs, most int) {
	left := make([]spec.Resources, len(workers))
	on := make([][]*sched.Request, len(workers))
	for i, w := range workers {
		left[i] = w.Available
	}
	var try func(i, placed int)
	try = func(i, placed int) {
		if placed+len(stream)-i < most {
			return
		}
		if i == len(stream) {
			var c costs
			for n, list := range on {
				if len(list) > 0 {
					one := costOf(workers[n], list)
					c.used, c.slowdown, c.watts = c.used+one.used, c.slowdown+one.slowdown, c.watts+one.watts
				}
			}
			if placed > most {
				most, least = placed, c
			}
			least = costs{math.Min(least.used, c.used), math.Min(least.slowdown, c.slowdown), math.Min(least.watts, c.watts)}
			return
		}
		r := stream[i]
		for n := range workers {
			if left[n].Fits(r.Need) {
				was := left[n]
				left[n], on[n] = was.Sub(r.Need), append(on[n], r)
				try(i+1, placed+1)
				left[n], on[n] = was, on[n][:len(on[n])-1]
			}
		}
		try(i+1, placed)
	}
	least = costs{math.Inf(1), math.Inf(1), math.Inf(1)}
	try(0, 0)
	return least, most
}
