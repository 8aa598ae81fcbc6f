package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func small(t *testing.T) *Schedule {
	t.Helper()
	s, err := MeasureSchedule(t.Context(), ScheduleOptions{Small: true, Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScheduleHasItsShape(t *testing.T) {
	s := small(t)
	if len(s.Splits) != 6 || s.Splits[0].Clusters != 1 || s.Splits[5].Clusters != 45 {
		t.Errorf("splits: %+v", s.Splits)
	}
	for _, x := range s.Splits {
		// 45 machines of 1, 2, 4 or 8 cores hold 100 services of one core each; the root's three best clusters may not.
		if x.Placed < 50 || x.Root.N != 200 || x.Both.Median < x.Root.Median {
			t.Errorf("%+v", x)
		}
	}
	if len(s.Sizes) != 4 || s.Sizes[3].Workers != 500 {
		t.Errorf("sizes: %+v", s.Sizes)
	}
	for _, x := range s.Sizes {
		if x.ROM.N == 0 || x.LDP.N != x.ROM.N || x.LDPPlaced > x.ROMPlaced || x.LDPMeets < x.ROMMeets && x.LDPPlaced > 0 {
			t.Errorf("%+v", x)
		}
	}
	if len(s.Rates) != len(spec.PolicyNames()) || len(s.Quality) != len(s.Rates) || len(s.Optimum) != len(s.Rates) {
		t.Errorf("%d rates, %d qualities, %d distances", len(s.Rates), len(s.Quality), len(s.Optimum))
	}
	for i, x := range s.Optimum {
		if x.Score != 0 {
			t.Errorf("%s misses the best by %v", x.Policy, x.Score)
		}
		if x.Placed > 1 || x.Used < -1e-9 || x.Watts < -1e-9 || x.Slowdown < -1e-9 {
			t.Errorf("better than the optimum: %+v", x)
		}
		if q := s.Quality[i]; q.Policy != x.Policy || q.Placed > q.Asked || q.PlacedFull > q.AskedFull || q.Meet > 1 || q.Used > s.Fleet || q.Stranded > 1 {
			t.Errorf("%+v", q)
		}
	}
	if s.Memory.All <= s.Memory.Index || s.Memory.Names <= 0 {
		t.Errorf("%+v", s.Memory)
	}

	var text bytes.Buffer
	if err := writeSchedule(&text, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"45 x 1", "5 x 9", "worst-fit", "bytes per worker", "Not in these times: the network"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Schedule
	if err := json.Unmarshal(data, &back); err != nil || len(back.Sizes) != len(s.Sizes) {
		t.Errorf("%v %+v", err, back)
	}

	dir := t.TempDir()
	if err := plotsOf(t, "--svg", dir).Write(t.Context(), plots(s)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"schedule-split-45", "schedule-size", "schedule-objective", "schedule-cost", "schedule-rate"} {
		data, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		wellFormed(t, name, data)
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

func TestChartsPutUpWithAnything(t *testing.T) {
	for name, c := range map[string]chart{
		"nothing":   {title: "a < b & c"},
		"zero":      {logY: true, logX: true, series: []series{{name: "<x>", points: [][2]float64{{0, 0}, {1, 0}}}}},
		"one point": {series: []series{{points: [][2]float64{{5, 5}}}}},
		"powers":    {logY: true, series: []series{{points: [][2]float64{{1, 10}, {2, 10}}}}},
		"bars":      {ticks: []string{"a", "b"}, series: []series{{bars: true, points: [][2]float64{{0, 0}, {1, 0}}}}},
		"negative":  {series: []series{{points: [][2]float64{{-1, -5}, {1, 5}}}}, goal: 3, goalText: "goal"},
	} {
		wellFormed(t, name, []byte(c.svg()))
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
	ldp, rate := placementBudgets(ScheduleOptions{Small: true})
	for name, s := range map[string]sample{"place.ldp": ldp, "place.rate": rate} {
		if len(s.values) == 0 || !(Median(s.values) > 0) || s.context == "" || s.err != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for _, r := range fold(map[string]sample{"place.ldp": ldp, "place.rate": rate}, "") {
		if strings.HasPrefix(r.Name, "place.") && r.Value == nil {
			t.Errorf("%+v", r)
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
