package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestExplain(t *testing.T) {
	north := func(w *Worker) { w.Area = "north" }
	arm := func(w *Worker) { w.Arch = "arm64" }
	list := []*Worker{
		worker("fits", 4000, 4*skerry.GiB, north), worker("fits-too", 2000, 4*skerry.GiB, north),
		worker("small", 400, 4*skerry.GiB, north), worker("smaller", 100, 4*skerry.GiB, north),
		worker("small-and-lost", 100, 4*skerry.GiB, north, func(w *Worker) { w.Lost = true }),
		worker("lost", 4000, 4*skerry.GiB, north, func(w *Worker) { w.Lost = true }),
		worker("arm-elsewhere", 4000, 4*skerry.GiB, arm), worker("arm-full", 0, 0, arm),
	}
	s := siteOf(list)
	r := request(500, skerry.GiB, func(s *spec.ServiceSpec) { s.Placement.Area = "north" })
	text := func(list []wire.ClassVerdict) string {
		var b strings.Builder
		for _, k := range list {
			fmt.Fprintf(&b, "%s %s: %d workers, %d fit", k.Class.Arch, k.Area, k.Workers, k.Fits)
			for _, o := range k.Out {
				fmt.Fprintf(&b, "; %s %d sole %d", o.What, o.Count, o.Sole)
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	want := ` north: 6 workers, 2 fit; cpu 3 sole 2; reachable 2 sole 1
arm64 : 2 workers, 0 fit; area 2 sole 1; cpu 1 sole 0
`
	got := s.Explain(epoch, ROM(), r)
	// The resource of which the larger share is missing names the miss of arm-full; either is right.
	if out := strings.ReplaceAll(text(got), "memory 1 sole", "cpu 1 sole"); out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	if k := got[0]; !(k.Best > k.Least && k.Least > 0) {
		t.Errorf("scores from %v to %v", k.Least, k.Best)
	}
	// The hint is of the nearest that fails nothing else.
	if h := got[0].Out[0].Hint; h != "ask for at most 0.4 of cpu, free some, or add a worker" {
		t.Errorf("hint: %s", h)
	}
	if e := s.Explain(epoch, ROM(), &Request{Spec: &spec.ServiceSpec{Placement: spec.Placement{Worker: "gone"}}}); e != nil {
		t.Errorf("a worker that is not there: %+v", e)
	}
}

// What explain says agrees with what place does, and with the rules asked one worker at a time.
func TestExplainAgreesWithPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 16))
	for range testenv.Times(40, 150) {
		m := shadow{}
		for i := range 1 + rng.IntN(80) {
			m[nameOf(i)] = randomWorker(rng, nameOf(i))
		}
		s, r := m.fresh(rng), randomRequest(rng, m.names())
		r.Spec.Placement.Worker = ""
		for _, p := range policiesByName() {
			classes := s.Explain(epoch, p, r)
			fits, workers := 0, 0
			for _, k := range classes {
				fits, workers = fits+k.Fits, workers+k.Workers
				for _, o := range k.Out {
					if o.Count < 1 || o.Sole > o.Count || o.What == "" || o.Text == "" {
						t.Fatalf("%s: %+v", p.Name, o)
					}
				}
			}
			plain := 0
			for n, w := range m {
				if s.Fails(p, r, n) == nil && !w.Lost && w.Refusing == "" {
					plain++
				}
			}
			d := s.Place(epoch, p, r, 1)
			if workers != len(m) || fits != plain || (fits > 0) != (d.Chosen != "") {
				t.Fatalf("%s: %d of %d fit, one by one %d, chosen %q", p.Name, fits, workers, plain, d.Chosen)
			}
			if d.Chosen == "" {
				total := 0
				for _, o := range d.Why {
					total += o.Count
				}
				if total != len(m) {
					t.Fatalf("%s: reasons for %d of %d workers", p.Name, total, len(m))
				}
			}
			if again := m.fresh(rng).Explain(epoch, p, r); !reflect.DeepEqual(classes, again) {
				t.Fatalf("%s: the order in which workers came changes the explanation:\n%+v\n%+v", p.Name, classes, again)
			}
		}
	}
}

func TestFailsOfNobody(t *testing.T) {
	if out := NewSite().Fails(ROM(), request(1, 1), "w"); out != nil {
		t.Errorf("%+v", out)
	}
}

func TestSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 17))
	m := shadow{}
	for i := range 200 {
		m[nameOf(i)] = randomWorker(rng, nameOf(i))
	}
	s := m.fresh(rng)
	r := request(1, 1, func(s *spec.ServiceSpec) {
		s.Placement.Users = []spec.User{{Location: &spec.Location{}, MaxDistance: 1}} // nobody passes this, and it is left out
	})
	got := map[string]int{}
	for seed := range uint64(200) {
		list := s.Sample(LDP(), r, seed, 5)
		if len(list) != 5 {
			t.Fatalf("%d workers", len(list))
		}
		for _, n := range list {
			got[n]++
			if w := m[n]; w.Coordinate == nil || w.Lost || w.Refusing != "" || len(w.Taints) > 0 {
				t.Fatalf("%+v", w)
			}
		}
	}
	if len(got) < 60 {
		t.Errorf("only %d workers are ever asked", len(got))
	}
	if list := NewSite().Sample(LDP(), r, 1, 5); list != nil {
		t.Errorf("%v", list)
	}
}

// Whose word is doubted is placed last, whatever the policy, and the decision says why.
func TestSuspected(t *testing.T) {
	for name, p := range Policies() {
		list := []*Worker{worker("a", 4000, 4*skerry.GiB), worker("b", 4000, 4*skerry.GiB), worker("c", 4000, 4*skerry.GiB)}
		list[0].Trust, list[0].Suspicion = 0.5, "doubted: it grew"
		s := siteOf(list)
		for seed := range uint64(20) {
			d := s.Place(epoch, p, request(500, skerry.GiB), seed)
			last := d.Top[len(d.Top)-1]
			if len(d.Top) != 3 || d.Chosen == "a" || last.Name != "a" || last.Suspicion != "its score counts 50 %: doubted: it grew" {
				t.Fatalf("%s: %+v", name, d.Top)
			}
		}
	}
	f := federation(request(500, 1), []*cluster{clusterOf("a", 10, 2000, 100), clusterOf("b", 10, 2000, 100)})
	f.SetTrust("a", 0.5, "doubted: it refuses", "")
	if names, d := f.Rank(epoch, request(500, 1), 1, 10); names[0] != "b" || d.Top[1].Suspicion == "" {
		t.Errorf("%v, %+v", names, d.Top)
	}
	f.SetTrust("a", 0.5, "doubted: it refuses", "it never runs anything")
	names, d := f.Rank(epoch, request(500, 1), 1, 10)
	if len(names) != 1 || d.Top[1].Out == nil || d.Top[1].Out.What != "quarantine" || !strings.Contains(d.Top[1].Out.Hint, "uncordon cluster/a") {
		t.Errorf("%v, %+v", names, d.Top)
	}
}
