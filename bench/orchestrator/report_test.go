package orchestrator

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/quiet"
)

// sample has two orchestrators in three rounds; the second failed in one, and a third cannot run.
func sample(t *testing.T) *Report {
	t.Helper()
	r := &Report{Schema: Schema, Rounds: 4, Done: 3, Sizes: []int{1, 10}, Watch: 30, Adapters: []Adapter{{Name: "a"}, {Name: "b"}, {Name: "kubernetes", Skip: "no server answers"}}}
	for round := 1; round <= 4; round++ { // the fourth was interrupted
		x := float64(round)
		rest := func(pss float64) map[Kind]Use {
			return map[Kind]Use{Control: {CPU: 0.01, PSS: 50 * mib, Processes: 1}, Worker: {CPU: 0.02, PSS: pss * mib, Processes: 2}}
		}
		r.Turns = append(r.Turns,
			Turn{Adapter: "a", Round: round, Resting: rest(20)},
			Turn{Adapter: "a", Round: round, Replicas: 10, Ready: x, Gone: 1, Deploying: map[Kind]float64{Control: 0.5, Worker: 1.5}, Resting: rest(25)},
			Turn{Adapter: "b", Round: round, Replicas: 10, Ready: 3 * x, Gone: 2})
	}
	r.Turns[5] = Turn{Adapter: "b", Round: 2, Replicas: 10, Failed: "wait: exit status 1: 3 of 10 run"}
	r.Turns = append(r.Turns, Turn{Adapter: "b", Round: 1, Replicas: 1, Cannot: "one is too few"})
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	r.trim()
	r.fold(set)
	return r
}

func row(r *Report, metric string, replicas int) *Row {
	for i := range r.Rows {
		if r.Rows[i].Metric == metric && r.Rows[i].Replicas == replicas {
			return &r.Rows[i]
		}
	}
	return &Row{Results: map[string]*Result{}}
}

func TestFold(t *testing.T) {
	r := sample(t)
	ready := row(r, "ready", 10)
	a, b := ready.Results["a"], ready.Results["b"]
	if a == nil || b == nil || a.Summary.Mean != 2 || a.Summary.N != 3 || a.Ratio != nil {
		t.Fatalf("%+v %+v", a, b)
	}
	// b has no second round, so its ratio is over the first and the third.
	if b.Summary.N != 2 || b.Summary.Mean != 6 || b.Ratio == nil || math.Abs(b.Ratio.Times-3) > 1e-9 || b.Ratio.Significant {
		t.Errorf("%+v %+v", b.Summary, b.Ratio)
	}
	for metric, want := range map[string]float64{"deploy.cpu.control": 50, "deploy.cpu.worker": 150, "deploy.cpu.all": 200, "running.memory.worker": 0.5, "running.memory.control": 0, "running.cpu.all": 3} {
		if res := row(r, metric, 10).Results["a"]; res == nil || math.Abs(res.Summary.Mean-want) > 1e-9 {
			t.Errorf("%s is %+v, not %v", metric, res, want)
		}
	}
	for metric, want := range map[string]float64{"idle.cpu.worker": 2, "idle.memory.all": 70} {
		if res := row(r, metric, 0).Results["a"]; res == nil || math.Abs(res.Summary.Mean-want) > 1e-9 {
			t.Errorf("%s is %+v, not %v", metric, res, want)
		}
	}
	// What was not measured is no 0.
	if res := row(r, "deploy.cpu.all", 10).Results["b"]; res != nil {
		t.Errorf("%+v", res)
	}
	if len(row(r, "ready", 1).Results) != 0 || len(row(r, "ready", 1).Published) != 2 {
		t.Errorf("%+v", row(r, "ready", 1))
	}
}

func TestReport(t *testing.T) {
	r := sample(t)
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	table := ""
	for line := range strings.Lines(out.String()) {
		table += strings.Join(strings.Fields(line), " ") + "\n"
	}
	for _, want := range []string{
		"\nready 1 s - - published: 2-3 times as long as oakestra kubernetes: 2-3 times",
		"\nready 10 s 2 ±50.0% 6 ±70.7% (~3.00x) -\n",
		"\ndeploy.cpu.all 10 ms/replica 200 ±0.0% - -\n",
		"\nnot run: kubernetes: no server answers\n",
		"\nnot run: b, 1 replicas: one is too few\n",
		"\nwent wrong: b, 10 replicas: wait: exit status 1: 3 of 10 run\n",
		"\n3 of 4 rounds",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("there is no %q in\n%s", want, table)
		}
	}
	out.Reset()
	var back Report
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Schema != Schema || len(back.Rows) != len(r.Rows) || len(back.Turns) != 10 {
		t.Error(err, back.Schema, len(back.Rows), len(back.Turns))
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

// What was measured in a disturbed round or cell is kept, and counts nowhere.
func TestDisturbed(t *testing.T) {
	r := sample(t)
	r.Disturbed = []quiet.Mark{{Round: 3, By: "others used 1.90 processors: cc1"}}
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	turns := len(r.Turns)
	r.fold(set)
	if a := row(r, "ready", 10).Results["a"]; len(r.Turns) != turns || a.Summary.N != 2 || a.Summary.Mean != 1.5 {
		t.Errorf("%d turns have a median of %+v", len(r.Turns), a)
	}
	l := labReport(t)
	for i := range l.Cells {
		if c := &l.Cells[i]; c.Part == "delay" || c.Part == "deploy" && c.Setting == "2 workers" && c.Round == 3 {
			c.Disturbed = "others used 1.90 processors: cc1"
		}
	}
	l.fold(set)
	two, delay := l.Rows[0], l.Rows[2]
	if two.Median != 1.5 || two.Failed != 1 || len(delay.Samples) != 0 || !strings.HasPrefix(delay.Why, "disturbed: ") {
		t.Errorf("one disturbed cell of three leaves %+v; one of one %+v", two, delay)
	}
	text, want := strings.Join(l.remarks(), "\n"), "disturbed, and does not count: deploy, 2 workers, round 3: others used"
	if !strings.Contains(text, want) {
		t.Errorf("it remarks %q", text)
	}
}
