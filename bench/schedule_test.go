package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestScheduleHasItsShape(t *testing.T) {
	opt := ScheduleOptions{Small: true}
	list := splits(opt, 45, []int{1, 3, 45})
	for _, x := range list {
		// 45 machines of 1, 2, 4 or 8 cores hold 100 services of one core each; the root's three best clusters may not.
		if x.Placed < 50 || len(x.Root) != 2 || x.Both[0] < x.Root[0] {
			t.Errorf("a split is %+v", x)
		}
	}
	if sizes := sizesOf(opt); len(sizes) != 4 || sizes[3].Workers != 500 {
		t.Errorf("sizes are %+v", sizes)
	} else {
		for _, x := range sizes {
			if len(x.ROM) == 0 || len(x.LDP) != len(x.ROM) || x.LDPPlaced > x.ROMPlaced || x.LDPMeets < x.ROMMeets && x.LDPPlaced > 0 {
				t.Errorf("a size is %+v", x)
			}
		}
	}
	fleet, quality := qualities(opt)
	_, distances := optimum(opt)
	if n := len(spec.PolicyNames()); len(quality) != n || len(distances) != n {
		t.Fatalf("%d policies have %d qualities, %d distances", n, len(quality), len(distances))
	}
	for i, x := range distances {
		if x.Score != 0 {
			t.Errorf("%s misses the best by %v", x.Policy, x.Score)
		}
		if x.Placed > 1 || x.Used < -1e-9 || x.Watts < -1e-9 || x.Slowdown < -1e-9 {
			t.Errorf("better than the optimum: %+v", x)
		}
		if q := quality[i]; q.Policy != x.Policy || q.Placed > q.Asked || q.PlacedFull > q.AskedFull || q.Meet > 1 || q.Used > fleet || q.Stranded > 1 {
			t.Errorf("a quality is %+v", q)
		}
	}
	if m := indexMemory(opt); m.All <= m.Index || m.Names <= 0 {
		t.Errorf("the memory is %+v", m)
	}
}

// All of it is in the report: tables, plots, and a round for each step.
func TestMeasureSchedule(t *testing.T) {
	r, err := MeasureSchedule(t.Context(), ScheduleOptions{Small: true})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"45 X 1", "5 X 9", "worst-fit", "memory of the index of 2000 workers",
		"Not in the times: the network", "500 WORKERS"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
	if r.Rounds != 8 || r.Quiet != nil {
		t.Errorf("%d rounds, the record is %+v", r.Rounds, r.Quiet)
	}
	drawings := r.Drawings()
	for _, name := range []string{"one-decision-45-workers-split-into-clusters-figure-2", "one-decision-in-one-cluster-figure-10"} {
		if drawings[name] == "" {
			t.Errorf("there is no plot %s of %d", name, len(drawings))
		}
	}
	for name, drawing := range drawings {
		wellFormed(t, name, []byte(drawing))
	}
}

// wellFormed reads a drawing as XML; it must need nothing from elsewhere and hold no number that is none.
func wellFormed(t *testing.T, name string, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "href", "<script"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("%s holds %s", name, bad)
		}
	}
}

// The exhaustive search has a small case whose answer is known.
func TestExhaust(t *testing.T) {
	w := func(name string, cores int64, idle float64) *sched.Worker {
		r := spec.Resources{CPU: skerry.MilliCPU(1000 * cores), Memory: skerry.GiB}
		return &sched.Worker{Name: name, Capacity: r, Available: r, Power: &wire.Power{Idle: idle, Busy: idle + 10}}
	}
	need := func(cpu skerry.MilliCPU, c spec.Contention) *sched.Request {
		return &sched.Request{Need: spec.Resources{CPU: cpu}, Contention: c, Spec: &spec.ServiceSpec{}}
	}
	disk := loads[1]
	least, most := exhaust([]*sched.Worker{w("small", 1, 1), w("large", 4, 100)}, []*sched.Request{need(3000, disk), need(500, disk), need(500, disk), need(500, disk), need(4000, disk)})
	// The one of four cores has no place beside the others: three small ones and that of three cores.
	if most != 4 || least.used != 2 {
		t.Errorf("%d placed, %+v", most, least)
	}
	// By slow-down two on the small machine and two on the large: one pair each.
	if want := 2 * sched.Slowdown(disk, disk); math.Abs(least.slowdown-want) > 1e-9 {
		t.Errorf("slow-down %v, want %v", least.slowdown, want)
	}
	// By watts one on the small and all else on the large.
	if want := (1 + 5.0) + (100 + 10.0); math.Abs(least.watts-want) > 1e-9 {
		t.Errorf("%v watts, want %v", least.watts, want)
	}
}

func TestPlacementBudgets(t *testing.T) {
	r := newBudgets("")
	if err := placementBudgets(t.Context(), r, ScheduleOptions{Small: true}); err != nil {
		t.Fatal(err)
	}
	r.Fold()
	for _, name := range []string{"place.ldp", "place.ldp.p99", "place.rate"} {
		if f := r.Find("", name, ""); f.Value == nil || f.Value.N != 2 || !(f.Value.Value > 0) || f.About == "" {
			t.Errorf("%s is %+v, %q", name, f.Value, f.About)
		}
	}
}

func TestScheduleCommand(t *testing.T) {
	for _, args := range [][]string{{"--full", "--quick"}, {"-o", "yaml"}, {"extra"}} {
		cmd := scheduleCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
