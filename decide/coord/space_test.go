package coord

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// federated has each of n sites measure the next few of a ring, some of them several times, and gives the space.
func federated(m matrix, each int, say func(from int, heard map[string]float64)) *Space {
	s := NewSpace()
	for range 12 {
		for i := range m {
			heard := map[string]float64{}
			for k := 1; k <= each; k++ {
				j := (i + k*(k+1)/2) % len(m)
				if j != i {
					heard[fmt.Sprint("s", j)] = m[i][j]
				}
			}
			if say != nil {
				say(i, heard)
			}
			s.Hear(fmt.Sprint("s", i), heard)
			for range 5 {
				s.Settle(fmt.Sprint("s", i))
			}
		}
	}
	return s
}

// misses gives the relative errors of all pairs among sites from the first one on, in order.
func misses(t *testing.T, s *Space, m matrix, first int) (all []float64) {
	t.Helper()
	for i := first; i < len(m); i++ {
		for j := first; j < i; j++ {
			ms, ok := s.RTT(fmt.Sprint("s", i), fmt.Sprint("s", j))
			if !ok {
				t.Fatalf("nothing is known of s%d and s%d", i, j)
			}
			all = append(all, math.Abs(ms-m[i][j])/m[i][j])
		}
	}
	slices.Sort(all)
	return all
}

// Round trips that were measured are what they are; those that nobody measured follow from the others'.
func TestSpaceOfGateways(t *testing.T) {
	m := plane(60, rand.New(rand.NewPCG(1, 2)))
	all := misses(t, federated(m, 12, nil), m, 0)
	if median, p90 := all[len(all)/2], all[len(all)*9/10]; median > 0.1 || p90 > 0.4 {
		t.Errorf("median %.2f, 90th percentile %.2f", median, p90)
	}
	small := plane(8, rand.New(rand.NewPCG(1, 2)))
	if all := misses(t, federated(small, 12, nil), small, 0); all[len(all)/2] != 0 {
		t.Errorf("of a few, most are measured: %v", all)
	}
}

// Whatever some sites say, and however late they answer, what was measured among the others stays as it is, and what was not is
// little worse.
func TestHostileSitesDistortThemselves(t *testing.T) {
	const liars = 6
	m := plane(60, rand.New(rand.NewPCG(1, 2)))
	rng := rand.New(rand.NewPCG(8, 8))
	honest := misses(t, federated(m, 12, nil), m, liars)
	lied := federated(m, 12, func(from int, heard map[string]float64) {
		for to := range heard {
			var j int
			fmt.Sscanf(to, "s%d", &j)
			switch {
			case from < liars: // near to all, or far, or neither number
				heard[to] = []float64{0.01, 9000, 2000 * rng.Float64(), math.NaN(), math.Inf(1), -4}[from]
			case j < liars:
				heard[to] += 300 * rng.Float64() // it answers late
			}
		}
	})
	all := misses(t, lied, m, liars)
	if was, is := honest[len(honest)/2], all[len(all)/2]; is > was+0.1 {
		t.Errorf("median %.2f with liars, %.2f without", is, was)
	}
	for i := liars; i < len(m); i++ {
		for j := liars; j < i; j++ {
			a, b := fmt.Sprint("s", i), fmt.Sprint("s", j)
			if ms, _ := lied.measured(a, b); ms > 0 && ms != m[i][j] {
				t.Errorf("%s and %s measured %v, and it is %v", a, b, m[i][j], ms)
			}
		}
	}
	// Who says that it is near to all is where the others measure it to be.
	for j := liars; j < len(m); j++ {
		there := lied.sites[fmt.Sprint("s", j)].heard["s0"]
		if ms, _ := lied.RTT("s0", fmt.Sprint("s", j)); there > 0 && ms != there {
			t.Errorf("s%d measured %v, and %v counts", j, there, ms)
		}
	}
}

func TestSpaceRefusesNonsense(t *testing.T) {
	s := NewSpace()
	if n := s.Hear("a", map[string]float64{"b": math.NaN(), "c": math.Inf(1), "d": -1, "e": 0, "f": 1e300, "a": 4, "g": 5}); n != 6 {
		t.Errorf("%d are ignored", n)
	}
	if _, ok := s.RTT("a", "b"); ok {
		t.Error("something is known of b")
	}
	if ms, ok := s.RTT("g", "a"); !ok || ms != 5 {
		t.Errorf("g: %v %v", ms, ok)
	}
	many := map[string]float64{}
	for i := range 100 {
		many[fmt.Sprint(i)] = 5
	}
	if n := s.Hear("a", many); n != 100-MostGateways {
		t.Errorf("%d are ignored", n)
	}
	if _, ok := s.RTT("a", "g"); ok {
		t.Error("it remembers what is no longer told")
	}
	s.Link("x", math.NaN())
	s.Link("y", -1)
	if _, ok := s.RTT("x", "y"); ok {
		t.Error("a link that cannot be counts")
	}
}

// Before anybody has measured, the way by the root counts; a measurement replaces it, and the longer of two.
func TestWayByTheRoot(t *testing.T) {
	s := NewSpace()
	s.Link("a", 30)
	if _, ok := s.RTT("a", "b"); ok {
		t.Error("b is nowhere")
	}
	s.Link("b", 12)
	if ms, ok := s.RTT("a", "b"); !ok || ms != 42 {
		t.Errorf("%v %v", ms, ok)
	}
	s.Hear("b", map[string]float64{"a": 7})
	s.Hear("a", map[string]float64{"b": 9})
	if ms, ok := s.RTT("a", "b"); !ok || ms != 9 {
		t.Errorf("%v %v", ms, ok)
	}
	s.Remove("b")
	if _, ok := s.RTT("a", "b"); ok || !s.Linked("a") || s.Linked("b") {
		t.Error("b is still there")
	}
}

func FuzzSpace(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, uint8(3))
	f.Add(math.NaN(), math.Inf(1), -1.0, uint8(9))
	f.Add(1e-300, 1e300, 9999.0, uint8(200))
	f.Fuzz(func(t *testing.T, x, y, z float64, n uint8) {
		s := NewSpace()
		names := []string{"a", "b", "c", "d"}
		for i := range int(n)%40 + 1 {
			from := names[i%4]
			s.Hear(from, map[string]float64{names[(i+1)%4]: x, names[(i+2)%4]: y, names[(i+3)%4]: z, from: x})
			s.Link(names[(i*7)%4], z)
		}
		for _, a := range names {
			for _, b := range names {
				if ms, ok := s.RTT(a, b); ok && !(ms >= 0 && !math.IsInf(ms, 0)) {
					t.Fatalf("%s to %s: %v", a, b, ms)
				}
			}
			if c := s.Coordinate(a); c != nil && !c.Valid() {
				t.Fatalf("%s is at %+v", a, c)
			}
		}
	})
}
