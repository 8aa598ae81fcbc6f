package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func resident(id string, priority int, cpu skerry.MilliCPU) Resident {
	return Resident{Instance: skerry.InstanceID(id), Priority: priority, Need: spec.Resources{CPU: cpu, Memory: skerry.Bytes(cpu)}}
}

func ids(list []Resident) (out []string) {
	for _, r := range list {
		out = append(out, string(r.Instance))
	}
	slices.Sort(out)
	return out
}

func TestMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name      string
		free      skerry.MilliCPU
		need      skerry.MilliCPU
		residents []Resident
		want      []string
	}{
		{"the least important goes", 0, 100, []Resident{resident("a", 1, 100), resident("b", 0, 100)}, []string{"b"}},
		{"one large rather than some small", 0, 300, []Resident{resident("s1", 0, 100), resident("s2", 0, 100), resident("large", 0, 300)}, []string{"large"}},
		{"whoever is not in the way stays", 100, 400, []Resident{resident("little", 0, 50), resident("large", 1, 300)}, []string{"large"}},
		{"equal priority never goes", 0, 100, []Resident{resident("same", 5, 1000), resident("higher", 6, 1000)}, nil},
		{"not enough of lower priority", 0, 500, []Resident{resident("low", 0, 400), resident("same", 5, 1000)}, nil},
		{"several", 0, 500, []Resident{resident("a", 0, 200), resident("b", 0, 200), resident("c", 0, 200)}, []string{"a", "b", "c"}},
		{"nobody there", 0, 100, nil, nil},
		{"room without", 500, 100, []Resident{resident("a", 0, 200)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			free, need := spec.Resources{CPU: c.free, Memory: skerry.Bytes(c.free)}, spec.Resources{CPU: c.need, Memory: skerry.Bytes(c.need)}
			if got := ids(makeRoom(free, need, 5, c.residents)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// Whatever the residents are: those chosen are of lower priority, make room, and none of them could stay.
func TestMakeRoomEvictsNobodyInVain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	made := 0
	for round := range 5000 {
		var list []Resident
		for i := range rng.IntN(8) {
			list = append(list, Resident{Instance: skerry.InstanceID(fmt.Sprint(i)), Priority: rng.IntN(4), Need: spec.Resources{CPU: skerry.MilliCPU(rng.IntN(1000)), Memory: skerry.Bytes(rng.IntN(1000))}})
		}
		free := spec.Resources{CPU: skerry.MilliCPU(rng.IntN(800) - 300), Memory: skerry.Bytes(rng.IntN(800))}
		need := spec.Resources{CPU: skerry.MilliCPU(rng.IntN(1500)), Memory: skerry.Bytes(rng.IntN(1500))}
		priority := rng.IntN(5)
		out := makeRoom(free, need, priority, list)
		all, some := free, free
		for _, r := range list {
			if r.Priority < priority {
				all = all.Add(r.Need)
			}
		}
		for _, r := range out {
			some = some.Add(r.Need)
			if r.Priority >= priority {
				t.Fatalf("round %d: %v goes for priority %d", round, r, priority)
			}
		}
		if possible := all.Fits(need); possible != (len(out) > 0 || free.Fits(need)) {
			t.Fatalf("round %d: possible %v, %v go", round, possible, out)
		}
		if len(out) == 0 {
			continue
		}
		made++
		if !some.Fits(need) {
			t.Fatalf("round %d: %v make no room", round, out)
		}
		for _, r := range out {
			if some.Sub(r.Need).Fits(need) {
				t.Fatalf("round %d: %v could stay", round, r)
			}
		}
	}
	if made < 500 {
		t.Errorf("%d cases", made)
	}
}

func TestPreempt(t *testing.T) {
	important := func(p int) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Priority = p }
	}
	workers := []*Worker{worker("a", 0, 0), worker("b", 0, 0), worker("c", 0, 0, func(w *Worker) { w.Arch = "arm64" }), worker("d", 0, 0, func(w *Worker) { w.Lost = true })}
	on := map[string][]Resident{
		"a": {resident("a1", 3, 1000)},
		"b": {resident("b1", 1, 500), resident("b2", 1, 500)},
		"c": {resident("c1", 0, 4000)},
		"d": {resident("d1", 0, 4000)},
	}
	ask := func(s *Site, r *Request) (string, string) {
		d, out, ok := s.Preempt(epoch, ROM(), r, 1, func(w string) []Resident { return on[w] })
		if !ok {
			return "", ""
		}
		return d.Chosen, fmt.Sprint(out)
	}
	s := siteOf(workers)
	for _, c := range []struct {
		name     string
		req      *Request
		who, out string
	}{
		{"the least important, then the fewest", request(400, 400, important(5)), "c", "[c1]"},
		{"the other rules hold", request(400, 400, important(5), func(s *spec.ServiceSpec) { s.Placement.Arch = []string{""} }), "b", "[b1]"},
		{"two less important ones rather than one more important", request(1000, 1000, important(5), func(s *spec.ServiceSpec) { s.Placement.Arch = []string{""} }), "b", "[b1 b2]"},
		{"equal priority never goes", request(400, 400, important(0)), "", ""},
		{"higher priority never goes", request(4000, 4000, important(-1)), "", ""},
		{"a pinned worker", request(400, 400, important(5), func(s *spec.ServiceSpec) { s.Placement.Worker = "a" }), "a", "[a1]"},
		{"a pinned worker that is not there", request(400, 400, important(5), func(s *spec.ServiceSpec) { s.Placement.Worker = "z" }), "", ""},
		{"too large for any", request(9000, 400, important(5)), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if who, out := ask(s, c.req); who != c.who || out != c.out {
				t.Errorf("%s without %s, want %s without %s", who, out, c.who, c.out)
			}
		})
	}
}
