package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What the paper's section 5.4 asks its schedulers for.
const (
	paperLatency  = 20 * time.Millisecond
	paperDistance = 120.0 // kilometres
)

// fleetKm is the side of the square over which the machines of a fleet lie, fleetMs the same way through the network: with
// the heights of both ends round trips are 10 to 250 ms.
const (
	fleetKm = 800.0
	fleetMs = 165.0
)

// sizes are the machines of the paper's section 5: S, M, L and XL, with what such machines draw.
var sizes = []struct {
	cores int64
	power wire.Power
}{{1, wire.Power{Idle: 2, Busy: 6}}, {2, wire.Power{Idle: 6, Busy: 20}}, {4, wire.Power{Idle: 15, Busy: 60}},
	{8, wire.Power{Idle: 60, Busy: 180}}}

// bornAt is the time of the simulated fleet.
var bornAt = time.Unix(1_700_000_000, 0)

// fleet makes machines and users, by a seed. What the scheduler is told of the network is off the truth by a little, as
// coordinates are.
type fleet struct {
	rng *rand.Rand
	// filled leaves a random share of each machine free; else all are empty.
	filled bool
	// powered gives machines what they draw.
	powered bool
	truths  []spot // of the machines made
	keep    bool   // the truths
}

// spot is where somebody really is.
type spot struct {
	x, y float64 // kilometres
	net  spec.Coordinate
}

func newFleet(seed uint64) *fleet { return &fleet{rng: rand.New(rand.NewPCG(seed, 45))} }

func (f *fleet) spotAt(x, y, height float64) spot {
	return spot{x, y, spec.Coordinate{Vec: [3]float64{x * fleetMs / fleetKm, y * fleetMs / fleetKm, 5 * f.rng.Float64()}, Height: height,
		Error: 0.1}}
}

func (s spot) location() *spec.Location {
	const kmPerDegree = 111.195
	return &spec.Location{Lat: 50 + (s.y-fleetKm/2)/kmPerDegree, Lon: 10 + (s.x-fleetKm/2)/kmPerDegree/math.Cos(50*math.Pi/180)}
}

// seen gives a coordinate as it was measured, off by so many milliseconds in each dimension.
func (f *fleet) seen(c spec.Coordinate, ms float64) *spec.Coordinate {
	for i := range c.Vec {
		c.Vec[i] += f.rng.NormFloat64() * ms
	}
	return &c
}

func (f *fleet) worker(i int) *sched.Worker {
	size := sizes[f.rng.IntN(len(sizes))]
	at := f.spotAt(f.rng.Float64()*fleetKm, f.rng.Float64()*fleetKm, 5+3*f.rng.Float64())
	w := &sched.Worker{Name: fmt.Sprintf("worker-%07d", i), Arch: "amd64", Runtimes: []string{"oci"}, Reported: bornAt,
		Location: at.location(), Coordinate: f.seen(at.net, 1),
		Capacity: spec.Resources{CPU: skerry.MilliCPU(1000 * size.cores), Memory: skerry.Bytes(size.cores) * skerry.GiB}}
	if f.powered {
		p := size.power
		w.Power = &p
	}
	w.Available = w.Capacity
	if f.filled {
		w.Available = spec.Resources{CPU: skerry.MilliCPU(f.rng.Int64N(int64(w.Capacity.CPU) + 1)),
			Memory: skerry.Bytes(f.rng.Int64N(int64(w.Capacity.Memory) + 1))}
	}
	if f.keep {
		f.truths = append(f.truths, at)
	}
	return w
}

// site makes a site of so many machines.
func (f *fleet) site(workers int) *sched.Site {
	s := sched.NewSite()
	for i := range workers {
		s.Set(f.worker(i))
	}
	return s
}

// resourceRequest is the paper's request without its user: 1 CPU and 100 MB.
func resourceRequest() *sched.Request {
	return requestOf(&spec.ServiceSpec{Name: "s", Resources: spec.Resources{CPU: 1000, Memory: 100_000_000}})
}

func requestOf(s *spec.ServiceSpec) *sched.Request {
	r := &sched.Request{Instance: "s-1", Service: s.Name, Spec: s, Need: s.Need()}
	if s.Placement.Contention != nil {
		r.Contention = *s.Placement.Contention
	}
	return r
}

// user puts a user within 30 km of a spot, and gives where it really is.
func (f *fleet) user(near spot) spot {
	a, d := 2*math.Pi*f.rng.Float64(), 30*math.Sqrt(f.rng.Float64())
	u := f.spotAt(near.x+d*math.Cos(a), near.y+d*math.Sin(a), 2)
	u.net.Vec[2] = near.net.Vec[2]
	return u
}

// nearUser adds the paper's limits to a user to a request.
func (f *fleet) nearUser(r *sched.Request, u spot) {
	r.Spec.Placement.Users = []spec.User{{Location: u.location(), MaxDistance: paperDistance, Address: "192.0.2.1",
		MaxLatency: new(spec.Duration(paperLatency))}}
	r.Users = []wire.UserPosition{{Coordinate: *f.seen(u.net, 1)}}
}

// meets reports whether a machine really is near enough to a user.
func (s spot) meets(u spot) bool {
	return s.net.RTT(u.net) <= float64(paperLatency)/1e6 && math.Hypot(s.x-u.x, s.y-u.y) <= paperDistance
}

// reportOf gives what a cluster tells the root of such machines: they are all of one class.
func reportOf(list []*sched.Worker) *wire.ClusterReport {
	k := wire.ClassAggregate{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"}}, Workers: len(list)}
	for i := range k.Available {
		values := make([]float64, len(list))
		for j, w := range list {
			values[j] = float64(w.Available.Vector()[i])
		}
		k.Available[i] = wire.MomentsOf(values)
	}
	return &wire.ClusterReport{Classes: []wire.ClassAggregate{k}}
}
