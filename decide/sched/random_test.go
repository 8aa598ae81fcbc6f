package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// epoch is when the tests' decisions are made.
var epoch = time.Unix(1_700_000_000, 0)

func randomLocation(rng *rand.Rand) *spec.Location {
	if rng.IntN(10) == 0 {
		return nil
	}
	return &spec.Location{Lat: 45 + 10*rng.Float64(), Lon: 5 + 15*rng.Float64()}
}

func randomCoordinate(rng *rand.Rand) *spec.Coordinate {
	if rng.IntN(10) == 0 {
		return nil
	}
	return &spec.Coordinate{Vec: [3]float64{200 * rng.Float64(), 200 * rng.Float64(), 20 * rng.Float64()}, Height: 5 * rng.Float64(), Error: 0.1}
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// randomWorker makes a worker of any kind; some are alike, so that ties occur.
func randomWorker(rng *rand.Rand, name string) *Worker {
	w := &Worker{Name: name, Arch: pick(rng, "amd64", "amd64", "arm64"), Runtimes: []string{"oci", plain}, Area: pick(rng, "", "north", "south"),
		Location: randomLocation(rng), Coordinate: randomCoordinate(rng)}
	w.Capacity = spec.Resources{CPU: pick[skerry.MilliCPU](rng, 1000, 4000, 4000, 8000), Memory: pick(rng, skerry.GiB, 4*skerry.GiB, 16*skerry.GiB),
		Storage: 10 * skerry.GiB, GPUs: rng.IntN(3), BandwidthOut: 1 << 20}
	switch rng.IntN(300) { // few, because a block with one of them can tell little
	case 0:
		w.Capacity.CPU = 0
	case 1:
		w.Capacity.Memory = 0
	}
	w.Available = w.Capacity
	if rng.IntN(3) > 0 {
		w.Available.CPU = w.Capacity.CPU / 10 * skerry.MilliCPU(rng.IntN(12)-1)
		w.Available.Memory = w.Capacity.Memory / 1000 * skerry.Bytes(rng.IntN(1001))
	}
	if rng.IntN(4) == 0 {
		w.Runtimes = []string{"native", "oci", plain}
	}
	if rng.IntN(8) == 0 {
		w.Devices = []string{pick(rng, "camera", "gpu")}
	}
	if rng.IntN(8) == 0 {
		w.Taints = []string{pick(rng, "edge", "edge=far")}
	}
	if rng.IntN(8) == 0 {
		w.Limited, w.Abilities = true, []string{pick(rng, "images", "ports")}
	}
	if rng.IntN(5) == 0 {
		w.Labels = map[string]string{"tier": pick(rng, "a", "b")}
	}
	if rng.IntN(5) == 0 {
		w.HostPorts = map[string]bool{"tcp/80": true}
	}
	if rng.IntN(3) == 0 {
		w.Load = spec.Contention{Intensity: spec.Shares{CPU: rng.Float64(), Cache: rng.Float64()}, Sensitivity: spec.Shares{Cache: rng.Float64()}}
	}
	if rng.IntN(2) == 0 {
		w.Power = &wire.Power{Idle: float64(rng.IntN(10)), Busy: float64(rng.IntN(100))}
	}
	if rng.IntN(10) == 0 {
		w.Trust, w.Suspicion = 0.25+0.75*rng.Float64(), "it grew"
	}
	switch rng.IntN(15) {
	case 0:
		w.Lost = true
	case 1:
		w.Refusing = "drained"
	}
	if rng.IntN(2) == 0 {
		w.Reported = epoch.Add(-time.Duration(rng.IntN(300)) * time.Second)
	}
	return w
}

func randomLink(rng *rand.Rand, service string) spec.Link {
	l := spec.Link{Service: service}
	if rng.IntN(2) == 0 {
		l.MaxDistance = 50 + 800*rng.Float64()
	}
	if rng.IntN(2) == 0 {
		l.MaxLatency = new(spec.Duration(time.Duration(10+rng.IntN(190)) * time.Millisecond))
	}
	return l
}

// randomRequest makes a request with any constraint, and peers on some of the workers.
func randomRequest(rng *rand.Rand, names []string) *Request {
	s := &spec.ServiceSpec{Name: "web", Labels: map[string]string{"app": "web"}}
	s.Resources = spec.Resources{CPU: pick[skerry.MilliCPU](rng, 0, 100, 500, 1500), Memory: pick(rng, 0, 100*skerry.MiB, skerry.GiB)}
	p := &s.Placement
	some := func(n int) bool { return rng.IntN(n) == 0 }
	if some(8) {
		s.Resources.GPUs = 1
	}
	if some(10) {
		s.Runtime = "native"
	}
	if some(6) {
		p.Arch = []string{"arm64"}
	}
	if some(10) {
		p.Devices = []string{"gpu"}
	}
	if some(6) {
		p.Area = "north"
	}
	if some(6) {
		p.Labels = map[string]string{"tier": "a"}
	}
	if some(2) {
		p.Tolerations = []spec.Toleration{{Key: "*"}}
	}
	if some(6) {
		s.Ports = []spec.Port{{Port: 80, HostPort: 80}}
	}
	if some(6) {
		if p.Location = randomLocation(rng); p.Location != nil {
			p.MaxDistance = 50 + 500*rng.Float64()
		}
	}
	if some(10) && len(names) > 0 {
		p.Worker = pick(rng, append(names, "nobody")...)
	}
	affinity := func() []spec.Affinity {
		return []spec.Affinity{{Labels: map[string]string{"app": pick(rng, "web", "db")}, Over: pick(rng, "", "worker", "area"), Preferred: some(2)}}
	}
	if some(6) {
		p.Affinity = affinity()
	}
	if some(6) {
		p.AntiAffinity = affinity()
	}
	if some(3) {
		s.Links = append(s.Links, randomLink(rng, "db"))
	}
	r := &Request{Instance: "web-1", Service: "web", Spec: s, Need: s.Need(), Contention: spec.Contention{Intensity: spec.Shares{CPU: rng.Float64()}, Sensitivity: spec.Shares{Cache: rng.Float64()}}}
	for range rng.IntN(3) {
		u := spec.User{Location: randomLocation(rng)}
		if u.Location != nil && some(2) {
			u.MaxDistance = 100 + 600*rng.Float64()
		}
		var at wire.UserPosition
		if some(2) {
			u.Address, u.MaxLatency = "192.0.2.1", new(spec.Duration(time.Duration(20+rng.IntN(180))*time.Millisecond))
			if c := randomCoordinate(rng); c != nil {
				at.Coordinate = *c
			} else {
				at.Unknown = "nobody answered"
			}
		}
		p.Users, r.Users = append(p.Users, u), append(r.Users, at)
	}
	if len(names) > 0 {
		for range rng.IntN(5) {
			peer := Peer{Worker: pick(rng, append(names, "gone")...), Service: pick(rng, "web", "db", "cache")}
			peer.Labels = map[string]string{"app": peer.Service}
			if some(3) {
				peer.Links = []spec.Link{randomLink(rng, "web")}
			}
			r.Peers = append(r.Peers, peer)
		}
		if some(4) {
			r.Avoid = []string{pick(rng, names...)}
		}
	}
	return r
}

func policiesByName() []Policy {
	all := Policies()
	names := spec.PolicyNames()
	slices.Sort(names)
	var out []Policy
	for _, n := range names {
		out = append(out, all[n])
	}
	return out
}

func nameOf(i int) string { return fmt.Sprintf("w%04d", i) }
