package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/sched"
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
	power skerry.Power
}{{1, skerry.Power{Idle: 2, Busy: 6}}, {2, skerry.Power{Idle: 6, Busy: 20}}, {4, skerry.Power{Idle: 15, Busy: 60}}, {8, skerry.Power{Idle: 60, Busy: 180}}}

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
	net  skerry.Coordinate
}

func newFleet(seed uint64) *fleet { return &fleet{rng: rand.New(rand.NewPCG(seed, 45))} }

func (f *fleet) spotAt(x, y, height float64) spot {
	return spot{x, y, skerry.Coordinate{Vec: [3]float64{x * fleetMs / fleetKm, y * fleetMs / fleetKm, 5 * f.rng.Float64()}, Height: height, Error: 0.1}}
}

func (s spot) location() *skerry.Location {
	const kmPerDegree = 111.195
	return &skerry.Location{Lat: 50 + (s.y-fleetKm/2)/kmPerDegree, Lon: 10 + (s.x-fleetKm/2)/kmPerDegree/math.Cos(50*math.Pi/180)}
}

// seen gives a coordinate as it was measured, off by so many milliseconds in each dimension.
func (f *fleet) seen(c skerry.Coordinate, ms float64) *skerry.Coordinate {
	for i := range c.Vec {
		c.Vec[i] += f.rng.NormFloat64() * ms
	}
	return &c
}

func (f *fleet) worker(i int) *sched.Worker {
	size := sizes[f.rng.IntN(len(sizes))]
	at := f.spotAt(f.rng.Float64()*fleetKm, f.rng.Float64()*fleetKm, 5+3*f.rng.Float64())
	w := &sched.Worker{Name: fmt.Sprintf("worker-%07d", i), Arch: "amd64", Runtimes: []string{"oci"}, Reported: bornAt, Location: at.location(), Coordinate: f.seen(at.net, 1),
		Capacity: skerry.Resources{CPU: skerry.MilliCPU(1000 * size.cores), Memory: skerry.Bytes(size.cores) * skerry.GiB}}
	if f.powered {
		p := size.power
		w.Power = &p
	}
	w.Available = w.Capacity
	if f.filled {
		w.Available = skerry.Resources{CPU: skerry.MilliCPU(f.rng.Int64N(int64(w.Capacity.CPU) + 1)), Memory: skerry.Bytes(f.rng.Int64N(int64(w.Capacity.Memory) + 1))}
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
	return requestOf(&skerry.ServiceSpec{Name: "s", Resources: skerry.Resources{CPU: 1000, Memory: 100_000_000}})
}

func requestOf(s *skerry.ServiceSpec) *sched.Request {
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
	r.Spec.Placement.Users = []skerry.User{{Location: u.location(), MaxDistance: paperDistance, Address: "192.0.2.1", MaxLatency: new(skerry.Duration(paperLatency))}}
	r.Users = []skerry.UserPosition{{Coordinate: *f.seen(u.net, 1)}}
}

// meets reports whether a machine really is near enough to a user.
func (s spot) meets(u spot) bool {
	return s.net.RTT(u.net) <= float64(paperLatency)/1e6 && math.Hypot(s.x-u.x, s.y-u.y) <= paperDistance
}

// reportOf gives what a cluster tells the root of such machines: they are all of one class.
func reportOf(list []*sched.Worker) *skerry.ClusterReport {
	k := skerry.ClassAggregate{Class: skerry.Class{Arch: "amd64", Runtimes: []string{"oci"}}, Workers: len(list)}
	for i := range k.Available {
		values := make([]float64, len(list))
		for j, w := range list {
			values[j] = float64(w.Available.Vector()[i])
		}
		k.Available[i] = skerry.MomentsOf(values)
	}
	return &skerry.ClusterReport{Classes: []skerry.ClassAggregate{k}}
}
