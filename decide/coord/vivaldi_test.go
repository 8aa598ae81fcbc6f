package coord

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"skerry.dev/skerry/spec"
)

// matrix holds the round trips between nodes, in milliseconds.
type matrix [][]float64

func newMatrix(n int, rtt func(i, j int) float64) matrix {
	m := make(matrix, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	for i := range m {
		for j := range i {
			m[i][j] = rtt(i, j)
			m[j][i] = m[i][j]
		}
	}
	return m
}

// plane scatters nodes over a square of 100 ms, each with an access delay of 0 to 10 ms.
func plane(n int, rng *rand.Rand) matrix {
	x, y, h := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		x[i], y[i], h[i] = rng.Float64()*100, rng.Float64()*100, rng.Float64()*10
	}
	return newMatrix(n, func(i, j int) float64 { return math.Hypot(x[i]-x[j], y[i]-y[j]) + h[i] + h[j] })
}

// king generates round trips in the style of the King data set: nodes in clusters over the land of a sphere, light in fibre
// on routes that are longer than the great circle by a factor of their own, access delays, and log-normal detours, which
// break the triangle inequality.
func king(n int, rng *rand.Rand) matrix {
	centres := []spec.Location{{Lat: 48, Lon: 10}, {Lat: 52, Lon: 0}, {Lat: 40, Lon: -75}, {Lat: 37, Lon: -120}, {Lat: 35, Lon: 137}, {Lat: 1, Lon: 104}, {Lat: -23, Lon: -46}, {Lat: -34, Lon: 151}, {Lat: 55, Lon: 37}, {Lat: 19, Lon: 73}}
	share := []float64{.2, .12, .2, .16, .1, .05, .05, .04, .05, .03}
	at, access := make([]spec.Location, n), make([]float64, n)
	for i := range n {
		p, c := rng.Float64(), 0
		for c < len(share)-1 && p > share[c] {
			p -= share[c]
			c++
		}
		at[i] = spec.Location{Lat: min(max(centres[c].Lat+rng.NormFloat64()*4, -80), 80), Lon: math.Remainder(centres[c].Lon+rng.NormFloat64()*6, 360)}
		access[i] = math.Exp(math.Log(3) + 0.9*rng.NormFloat64())
	}
	return newMatrix(n, func(i, j int) float64 {
		// Light takes 5 us for a kilometre of fibre; routes are about 1.5 times the great circle.
		way, spread := 2*GreatCircleKm(at[i], at[j])*0.005*1.5, 0.08
		if rng.Float64() < 0.15 {
			spread = 0.5
		}
		return (way+0.3)*math.Exp(spread*rng.NormFloat64()) + access[i] + access[j]
	})
}

// violated is the share of triangles with a side longer than the two others together.
func (m matrix) violated() float64 {
	bad, all := 0, 0
	for i := range m {
		for j := range i {
			for k := range j {
				all++
				a, b, c := m[i][j], m[j][k], m[i][k]
				if a > b+c || b > a+c || c > a+b {
					bad++
				}
			}
		}
	}
	return float64(bad) / float64(all)
}

// swarm simulates nodes of any number of dimensions that measure each other.
type swarm struct {
	m     matrix
	nodes []springs
	peers [][]int
	rng   *rand.Rand
	noise float64 // of each round trip, relative; always adds
	lies  map[int]func(from int) (body, float64)
}

func newSwarm(m matrix, dims, peers int, rng *rand.Rand) *swarm {
	s := &swarm{m: m, rng: rng, nodes: make([]springs, len(m)), peers: make([][]int, len(m))}
	for i := range s.nodes {
		s.nodes[i] = newSprings(dims, rng.Uint64())
		s.peers[i] = s.choose(i, peers)
	}
	return s
}

func (s *swarm) choose(i, k int) (out []int) {
	for len(out) < min(k, len(s.m)-1) {
		if j := s.rng.IntN(len(s.m)); j != i && !slices.Contains(out, j) {
			out = append(out, j)
		}
	}
	return out
}

func (s *swarm) names(i int) (out []string) {
	for _, j := range s.peers[i] {
		out = append(out, strconv.Itoa(j))
	}
	return out
}

// round has each node measure one of its peers; now and then a peer is replaced, as the cluster does.
func (s *swarm) round(replace bool) {
	for i := range s.nodes {
		if s.lies[i] != nil {
			continue
		}
		if replace {
			s.peers[i][len(s.peers[i])/2+s.rng.IntN(len(s.peers[i])/2)] = s.choose(i, 1)[0]
			s.nodes[i].keep(s.names(i))
		}
		j := s.peers[i][s.rng.IntN(len(s.peers[i]))]
		rtt := s.m[i][j] * (1 + s.noise*s.rng.ExpFloat64())
		other := s.nodes[j].me
		if lie := s.lies[j]; lie != nil {
			var late float64
			other, late = lie(i)
			rtt += late
		}
		s.nodes[i].update(strconv.Itoa(j), other, rtt)
	}
}

// errors gives the median and 90th percentile of the relative errors of all honest pairs.
func (s *swarm) errors() (median, p90 float64) {
	var all []float64
	for i := range s.nodes {
		for j := range i {
			if s.lies[i] == nil && s.lies[j] == nil {
				d := s.nodes[i].me.rtt(s.nodes[j].me)
				all = append(all, math.Abs(d-s.m[i][j])/s.m[i][j])
			}
		}
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*9/10]
}

// settle gives the number of measurements of each node after which the median error first comes within a tenth of its
// final value.
func settle(m matrix, dims, peers, rounds int, seed uint64) (median, p90 float64, needed int) {
	s := newSwarm(m, dims, peers, rand.New(rand.NewPCG(seed, 9)))
	s.noise = 0.05
	var trail []float64
	for r := range rounds {
		s.round(r%20 == 19)
		if r%4 == 3 {
			e, _ := s.errors()
			trail = append(trail, e)
		}
	}
	median, p90 = s.errors()
	for i, e := range trail {
		if e <= 1.1*median+0.005 {
			return median, p90, 4 * (i + 1)
		}
	}
	return median, p90, rounds
}

const testPeers = 12

var table = flag.Bool("table", false, "TestNetworkCoordinates also for numbers of dimensions that Skerry does not use")

// TestNetworkCoordinates prints the table of docs/results/before-reports.md: go test ./decide/coord -run TestNetworkCoordinates -v -table
func TestNetworkCoordinates(t *testing.T) {
	worlds := []struct {
		name string
		m    matrix
		goal float64 // median relative error, in skerry's dimensions
	}{
		{"plane", plane(200, rand.New(rand.NewPCG(1, 1))), 0.10},
		{"king-like", king(200, rand.New(rand.NewPCG(2, 2))), 0.20},
	}
	fmt.Fprintf(t.Output(), "%-10s %10s %5s %8s %8s %8s\n", "world", "violated", "dims", "median", "p90", "samples")
	for _, w := range worlds {
		violated := w.m.violated()
		for _, dims := range []int{2, 3, 4, 5, 8} {
			if dims != spec.CoordinateDims && !*table {
				continue
			}
			median, p90, needed := settle(w.m, dims, testPeers, 800, 7)
			fmt.Fprintf(t.Output(), "%-10s %9.1f%% %5d %7.1f%% %7.1f%% %8d\n", w.name, 100*violated, dims, 100*median, 100*p90, needed)
			if dims == spec.CoordinateDims && median > w.goal {
				t.Errorf("%s: median relative error %.1f %%", w.name, 100*median)
			}
		}
	}
}

// Nodes that come and go, and forget where they were, do not spoil the rest.
func TestCoordinatesWithChurn(t *testing.T) {
	for _, w := range []struct {
		name string
		m    matrix
		goal float64
	}{
		{"plane", plane(200, rand.New(rand.NewPCG(1, 1))), 0.12},
		{"king-like", king(200, rand.New(rand.NewPCG(2, 2))), 0.25},
	} {
		s := newSwarm(w.m, spec.CoordinateDims, testPeers, rand.New(rand.NewPCG(3, 3)))
		s.noise = 0.05
		for r := range 800 {
			s.round(r%20 == 19)
			if i := s.rng.IntN(len(w.m)); r%8 == 7 && r < 760 { // half of them in the whole
				s.nodes[i] = newSprings(spec.CoordinateDims, s.rng.Uint64())
			}
		}
		median, p90 := s.errors()
		fmt.Fprintf(t.Output(), "%s with churn: median %.1f %%, p90 %.1f %%\n", w.name, 100*median, 100*p90)
		if median > w.goal {
			t.Errorf("%s: median relative error %.1f %%", w.name, 100*median)
		}
	}
}

// A tenth of the nodes lies about its coordinate, its error and, by answering late, the round trip. The others stay on the
// planet, and keep coordinates that are of use.
func TestLiarsThrowNobodyOff(t *testing.T) {
	s := newSwarm(plane(200, rand.New(rand.NewPCG(1, 1))), spec.CoordinateDims, testPeers, rand.New(rand.NewPCG(4, 4)))
	s.lies = map[int]func(int) (body, float64){}
	for i := range 20 {
		s.lies[i] = func(int) (body, float64) {
			switch i % 4 {
			case 0: // far away, and sure of it
				return body{[]float64{5000, 0, 0}, 0, 0}, 0
			case 1: // somewhere else each time
				return body{[]float64{s.rng.NormFloat64() * 1000, s.rng.NormFloat64() * 1000, s.rng.NormFloat64() * 1000}, 0, 0.01}, 0
			case 2: // here, but late
				return body{make([]float64, 3), 0, 0.01}, 500 * s.rng.Float64()
			}
			return body{make([]float64, 3), 4000, 0.01}, 0 // very high
		}
	}
	for r := range 800 {
		s.round(r%20 == 19)
	}
	median, p90 := s.errors()
	far := 0.0
	for i := range s.nodes {
		far = max(far, s.nodes[i].me.rtt(body{vec: make([]float64, 3)}))
	}
	fmt.Fprintf(t.Output(), "with a tenth of liars: median %.1f %%, p90 %.1f %%, the farthest at %.0f ms\n", 100*median, 100*p90, far)
	if far > 1000 || median > 0.6 {
		t.Errorf("median relative error %.1f %%, the farthest at %.0f ms", 100*median, far)
	}
}

func TestVivaldiRefusesNonsense(t *testing.T) {
	good := spec.Coordinate{Vec: [3]float64{10, 0, 0}, Error: 0.2}
	for _, c := range []struct {
		other spec.Coordinate
		rtt   float64
	}{
		{good, 0}, {good, -1}, {good, math.NaN()}, {good, math.Inf(1)}, {good, 20_000},
		{spec.Coordinate{Vec: [3]float64{math.NaN()}}, 10},
		{spec.Coordinate{Vec: [3]float64{math.Inf(-1)}}, 10},
		{spec.Coordinate{Vec: [3]float64{50_000}}, 10},
		{spec.Coordinate{Vec: [3]float64{1e300}}, 10},
		{spec.Coordinate{Height: -1}, 10},
		{spec.Coordinate{Height: math.NaN()}, 10},
		{spec.Coordinate{Error: math.Inf(1)}, 10},
		{spec.Coordinate{Error: -1}, 10},
	} {
		v := NewVivaldi(1)
		if before := v.Coordinate(); v.Update("a", c.other, c.rtt) || v.Coordinate() != before {
			t.Errorf("%+v at %v ms was believed", c.other, c.rtt)
		}
	}
}

// One round trip moves a coordinate by a quarter of it at most, whatever the other says.
func TestOneSampleMovesLittle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		v := NewVivaldi(rng.Uint64())
		other := spec.Coordinate{Height: rng.Float64() * 1000, Error: rng.Float64() * 2}
		for i := range other.Vec {
			other.Vec[i] = rng.NormFloat64() * 2000
		}
		rtt := rng.Float64() * 200
		before := v.Coordinate()
		v.Update("a", other, rtt)
		after := v.Coordinate()
		after.Height, before.Height = 0, 0
		if d := after.RTT(before); d > stepShare*max(rtt, 1)+0.1 || !v.Coordinate().Valid() {
			t.Fatalf("%+v at %v ms moved it by %v", other, rtt, d)
		}
	}
}

// A single slow answer is no news; a way that stays slow is.
func TestMedianOfRoundTrips(t *testing.T) {
	p := peer{}
	for i, c := range []struct{ ms, want float64 }{{10, 10}, {90, 10}, {11, 11}, {200, 90}, {10, 11}, {50, 50}, {51, 50}, {52, 51}} {
		p.ms[p.n%window] = c.ms
		p.n++
		if got := p.median(); got != c.want {
			t.Errorf("after %d: %v, want %v", i, got, c.want)
		}
	}
}

func TestPeersAreForgotten(t *testing.T) {
	v := NewVivaldi(1)
	for i := range 100 {
		v.Update(strconv.Itoa(i), spec.Coordinate{Vec: [3]float64{float64(i)}}, 10)
	}
	if n := len(v.s.peers); n != mostPeers || v.s.peers[n-1].name != "99" || !v.Known() {
		t.Errorf("%d peers are remembered", n)
	}
	v.Keep([]string{"99", "98", "7"})
	if n := len(v.s.peers); n != 2 {
		t.Errorf("%d peers are kept", n)
	}
}

func TestRestore(t *testing.T) {
	v := NewVivaldi(1)
	c := spec.Coordinate{Vec: [3]float64{1, 2, 3}, Height: 4, Error: 0.1}
	if v.Known() || !v.Restore(c) || v.Coordinate() != c || !v.Known() {
		t.Errorf("%+v", v.Coordinate())
	}
	if v.Restore(spec.Coordinate{Height: -1}) || v.Coordinate() != c {
		t.Error("a coordinate that cannot be was restored")
	}
}

// A node whose way to all others becomes longer finds its new place sooner when it, and they, hurry.
func TestHurry(t *testing.T) {
	off := func(hurry bool) float64 {
		m := plane(40, rand.New(rand.NewPCG(6, 6)))
		s := newSwarm(m, spec.CoordinateDims, testPeers, rand.New(rand.NewPCG(7, 7)))
		for range 600 {
			s.round(false)
		}
		for i := 1; i < len(m); i++ {
			m[0][i], m[i][0] = m[0][i]+120, m[i][0]+120
		}
		if hurry {
			for i := range s.nodes {
				v := &Vivaldi{s.nodes[i]}
				v.Hurry()
				s.nodes[i] = v.s
			}
		}
		for range 24 {
			s.round(false)
		}
		sum := 0.0
		for i := 1; i < len(m); i++ {
			sum += math.Abs(s.nodes[0].me.rtt(s.nodes[i].me)-m[0][i]) / m[0][i]
		}
		return sum / float64(len(m)-1)
	}
	slow, fast := off(false), off(true)
	fmt.Fprintf(t.Output(), "24 samples after a change: %.1f %% off, in a hurry %.1f %%\n", 100*slow, 100*fast)
	if fast > 0.15 || fast > slow {
		t.Errorf("%.3f off in a hurry, %.3f else", fast, slow)
	}
}

func TestMiddle(t *testing.T) {
	c, ms, ok := Middle([]spec.Coordinate{{Vec: [3]float64{10}, Height: 2, Error: 0.2}, {Vec: [3]float64{-10}, Error: 0.4}, {Vec: [3]float64{math.NaN()}}})
	if !ok || c.Vec != [3]float64{} || math.Abs(ms-12) > 1e-9 || math.Abs(c.Error-0.3) > 1e-9 {
		t.Errorf("%+v %v %v", c, ms, ok)
	}
	if _, _, ok := Middle(nil); ok {
		t.Error("nothing has a middle")
	}
}

func BenchmarkUpdate(b *testing.B) {
	v := NewVivaldi(1)
	peers := make([]spec.Coordinate, testPeers)
	names := make([]string, testPeers)
	for i := range peers {
		peers[i], names[i] = spec.Coordinate{Vec: [3]float64{float64(i * 10), float64(i % 3), 1}, Error: 0.1}, strconv.Itoa(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		v.Update(names[i%testPeers], peers[i%testPeers], 20)
	}
}
