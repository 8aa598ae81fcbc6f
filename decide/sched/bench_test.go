package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// benchSite is a site over Germany: places, coordinates that go with them, four sizes of machines, any fullness or empty.
func benchSite(workers int, empty bool) *Site {
	rng := rand.New(rand.NewPCG(1, uint64(workers)))
	s := NewSite()
	for i := range workers {
		size := int64(1) << rng.IntN(4)
		w := &Worker{Name: fmt.Sprintf("worker-%07d", i), Arch: "amd64", Runtimes: []string{"oci"}, Reported: epoch,
			Capacity: spec.Resources{CPU: skerry.MilliCPU(1000 * size), Memory: skerry.Bytes(size) * skerry.GiB}}
		x, y := rng.Float64(), rng.Float64()
		w.Location = &spec.Location{Lat: 47.5 + 7*x, Lon: 6 + 9*y}
		w.Coordinate = &spec.Coordinate{Vec: [3]float64{170 * x, 170 * y, 10 * rng.Float64()}, Height: 1 + 4*rng.Float64()}
		w.Power = &wire.Power{Idle: float64(2 * size), Busy: float64(8 * size)}
		w.Available = w.Capacity
		if !empty {
			w.Available = spec.Resources{CPU: skerry.MilliCPU(rng.Int64N(1000*size + 1)), Memory: skerry.Bytes(rng.Int64N(size * int64(skerry.GiB)))}
		}
		s.Set(w)
	}
	s.refresh()
	return s
}

// paperRequests asks for what the paper's section 5.4 asks for, in any runtime; near adds a user, 20 ms and 120 km away at
// most, beside a worker that has room.
func paperRequests(s *Site, near bool) (list [64]*Request) {
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range list {
		r := request(1000, 100*skerry.MiB)
		r.Spec.Runtime = ""
		if near {
			n := rng.IntN(s.Len())
			for !hasRoom(s, n, r) {
				n = rng.IntN(s.Len())
			}
			at, net := s.at[n], s.net[n]
			const degree = math.Pi / 180
			r.Spec.Placement.Users = []spec.User{{MaxDistance: 120, Address: "192.0.2.1", MaxLatency: new(spec.Duration(20 * time.Millisecond)),
				Location: &spec.Location{Lat: math.Asin(float64(at[2])) / degree, Lon: math.Atan2(float64(at[1]), float64(at[0])) / degree}}}
			r.Users = []wire.UserPosition{{Coordinate: spec.Coordinate{Vec: [3]float64{float64(net[0]), float64(net[1]), 5}, Height: 1}}}
		}
		list[i] = r
	}
	return list
}

func hasRoom(s *Site, n int, r *Request) bool {
	for i, v := range s.needOn(n, r).Vector() {
		if s.avail[i][n] < v {
			return false
		}
	}
	return true
}

// mustPlace is the worker that a decision chose; a benchmark of refusals measures something else.
func mustPlace(b *testing.B, d wire.Decision) string {
	if d.Chosen == "" {
		b.Fatalf("nobody fits: %+v", d.Why)
	}
	return d.Chosen
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		for _, empty := range []bool{false, true} {
			s := benchSite(n, empty)
			for _, p := range policiesByName() {
				if n > 10_000 && p.Name != spec.PolicyROM && p.Name != spec.PolicyLDP {
					continue
				}
				b.Run(fmt.Sprintf("workers=%d/empty=%v/%s", n, empty, p.Name), func(b *testing.B) {
					list := paperRequests(s, p.Name == spec.PolicyLDP)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						mustPlace(b, s.Place(epoch, p, list[i%len(list)], uint64(i)))
					}
				})
			}
		}
	}
}

// BenchmarkPlaceAndTake is a placement with what it costs to write it down in the index, and to give up the one of
// 1,024 placements before, so that the site stays as full.
func BenchmarkPlaceAndTake(b *testing.B) {
	for _, p := range policiesByName() {
		b.Run(p.Name, func(b *testing.B) {
			s := benchSite(10_000, false)
			list := paperRequests(s, p.Name == spec.PolicyLDP)
			var last [1024]string
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, old := list[i%len(list)], &last[i%len(last)]
				if *old != "" {
					s.Give(*old, r)
				}
				*old = mustPlace(b, s.Place(epoch, p, r, uint64(i)))
				s.Take(*old, r)
			}
		})
	}
}

func BenchmarkNobodyFits10000(b *testing.B) {
	s := benchSite(10_000, false)
	r := request(1_000_000, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Place(epoch, ROM(), r, uint64(i))
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		benchSite(100_000, false)
	}
}

func BenchmarkRankClusters10000(b *testing.B) {
	var sites []*cluster
	for i := range 10_000 {
		sites = append(sites, clusterOf(fmt.Sprint("c", i), 3+i%50, float64(500+i%3000), float64(i%700)))
	}
	r := request(1000, skerry.GiB)
	f := federation(r, sites)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Rank(time.Time{}, r, uint64(i), 1)
	}
}

func BenchmarkExplain10000(b *testing.B) {
	s := benchSite(10_000, false)
	r := paperRequests(s, true)[0]
	b.ReportAllocs()
	for b.Loop() {
		s.Explain(epoch, LDP(), r)
	}
}
