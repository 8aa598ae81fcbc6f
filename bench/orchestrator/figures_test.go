package orchestrator

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// What a turn tells is in the report: by size and adapter, against the first, with what 002 claims; what failed or cannot be has its
// reason, and what was not measured is no 0.
func TestTurns(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := report.New("orchestrator", "", "")
	r.Baseline, r.Places = "a", []report.Place{{Name: "a"}, {Name: "b"}, {Name: "kubernetes", Skip: "no server answers"}}
	for round := range 3 {
		x := float64(round + 1)
		use := func(pss float64) map[Kind]Use {
			return map[Kind]Use{Control: {CPU: 0.01, PSS: 50 * mib, Processes: 1}, Worker: {CPU: 0.02, PSS: pss * mib, Processes: 2}}
		}
		rest := &Turn{Adapter: "a", Resting: use(20)}
		rest.add(r, nil, set)
		for _, turn := range []*Turn{
			{Adapter: "a", Replicas: 10, Ready: x, Gone: 1, Deploying: map[Kind]float64{Control: 0.5, Worker: 1.5}, Resting: use(25)},
			{Adapter: "a", Replicas: 1, Ready: x, Gone: 1},
			{Adapter: "b", Replicas: 1, Cannot: "one is too few"},
		} {
			turn.add(r, rest, set)
		}
		b := &Turn{Adapter: "b", Replicas: 10, Ready: 3 * x, Gone: 2}
		if round == 1 {
			b = &Turn{Adapter: "b", Replicas: 10, Failed: "wait: exit status 1: 3 of 10 run"}
		}
		b.add(r, nil, set)
		r.Rounds++
	}
	r.Finish(t.Context(), report.Measuring{})
	for _, c := range []struct {
		replicas int
		metric   string
		want     float64
	}{{10, "ready", 2}, {10, "deploy.cpu.control", 50}, {10, "deploy.cpu.worker", 150}, {10, "deploy.cpu.all", 200}, {10, "running.memory.worker", 0.5},
		{10, "running.memory.control", 0}, {10, "running.cpu.all", 3}, {0, "idle.cpu.worker", 2}, {0, "idle.memory.all", 70}} {
		if f := r.Find(size(c.replicas), c.metric, "a"); f == nil || f.Value.N != 3 || math.Abs(f.Value.Value-c.want) > 1e-9 {
			t.Errorf("%s of %d is %+v, not %v", c.metric, c.replicas, f, c.want)
		}
	}
	b := r.Find("10 replicas", "ready", "b")
	if !slices.Equal(b.Rounds, []int{1, 3}) || b.Against == nil || b.Against.Times != 3 || b.Against.Significant || r.Find("10 replicas", "deploy.cpu.all", "b") != nil {
		t.Errorf("%+v", b)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Not run: kubernetes: no server answers", "Not measured: 1 replicas ready in b: one is too few",
		"Failed: round 2 of 10 replicas in b: wait: exit status 1: 3 of 10 run", "kubernetes: 2-3 times as long as oakestra (figure 5a)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}

// Every claim is one that 002 has.
func TestClaims(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims() {
		if n := len(set.Find(published.Query{Document: "002", Table: c.table, Row: c.row})); n != 1 {
			t.Errorf("%s, %s is there %d times", c.table, c.row, n)
		}
	}
}

// The values of a cell are in the order of the metrics, whatever a part and a setting are called, with what 002 claims of them.
func TestCellFigures(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := report.New("orchestrator lab", "", "")
	r.Baseline = report.FirstPlace
	for i, setting := range []string{"2 workers", "10 workers"} {
		cellFigures(r, set, "deploy", setting, map[string]float64{"root.cpu": 5, "ready": float64(i + 1)})
	}
	cellFigures(r, set, "loss", "50 %", map[string]float64{"ready": 3})
	r.Rounds++
	r.Finish(t.Context(), report.Measuring{})
	var names []string
	for _, f := range r.Figures {
		names = append(names, f.Group+" "+f.Name+" "+f.Place)
		if f.Unit == "" || (f.Name == "ready") != (f.About != "") {
			t.Errorf("%+v", f)
		}
	}
	if want := []string{"deploy ready 2 workers", "deploy root.cpu 2 workers", "deploy ready 10 workers", "deploy root.cpu 10 workers", "loss ready 50 %"}; !slices.Equal(names, want) {
		t.Errorf("the figures are %q", names)
	}
	ten := r.Find("deploy", "ready", "10 workers")
	if ten.Against == nil || ten.Against.Times != 2 || !strings.Contains(ten.Published, "kubernetes: 2-3 times as long as oakestra") || !strings.Contains(r.Figures[4].Published, "oakestra") {
		t.Errorf("%+v, %q", ten, r.Figures[4].Published)
	}
	for _, part := range LabParts() {
		if labAbout(part) == "" {
			t.Errorf("%s says nothing of itself", part)
		}
	}
}
