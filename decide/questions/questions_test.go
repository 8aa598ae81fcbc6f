package questions

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

var start = time.Unix(1_700_000_000, 0)

// TestConsult has two workers be the best, one of which comes only after plugins were asked.
func TestConsult(t *testing.T) {
	q := New(sched.Policies())
	q.SetPlugins([]Plugin{{Name: "greenest", All: true}})
	_, plugins, why := q.Policy(&spec.ServiceSpec{}, false)
	if why != nil || len(plugins) != 1 {
		t.Fatalf("plugins %v, %+v", plugins, why)
	}
	best := []string{"a", "b"}
	var rounds []uint64
	k := Case{ID: "web-1", Plugins: plugins,
		Best: func(round uint64) (d wire.Decision) {
			rounds = append(rounds, round)
			for _, name := range best {
				d.Top = append(d.Top, wire.Candidate{Name: name})
			}
			d.Chosen = d.Top[0].Name
			return d
		},
		Query: func(d *wire.Decision) (x sched.PluginQuery) {
			for _, k := range d.Top {
				x.Candidates = append(x.Candidates, sched.PluginCandidate{Name: k.Name})
			}
			return x
		}}
	first := q.Next()
	_, wait, score := q.Consult(start, k)
	if !wait || score == nil || !slices.Equal(score.Plugins, []string{"greenest"}) || !q.Judged("web-1") {
		t.Fatalf("plugins are asked %+v, wait: %v", score, wait)
	}
	if at := q.Until("web-1"); !at.Equal(start.Add(sched.PluginDeadline)) {
		t.Errorf("they have until %s", at)
	}
	q.Next()
	if _, wait, again := q.Consult(start, k); !wait || again != nil {
		t.Errorf("they think, and are asked again: %+v, wait: %v", again, wait)
	}
	q.Scored(Scored{ID: "web-1", Round: first + 1, Answers: []wire.PluginAnswer{{Plugin: "greenest", Out: map[string]string{"b": "no"}}}})
	if q.Until("web-1").IsZero() {
		t.Error("an answer to another round was taken")
	}
	q.Scored(Scored{ID: "web-1", Round: first, Answers: []wire.PluginAnswer{{Plugin: "greenest", Out: map[string]string{"a": "no"}}}})
	best = []string{"c", "a", "b"}
	d, wait, score := q.Consult(start, k)
	if wait || score != nil || d.Chosen != "b" || len(d.Top) != 2 || q.Open("web-1") {
		t.Errorf("of a and b, %q was chosen among %d, wait: %v, still open: %v", d.Chosen, len(d.Top), wait, q.Open("web-1"))
	}
	if last := rounds[len(rounds)-1]; last != first {
		t.Errorf("ties fell as in round %d, and not as in %d", last, first)
	}

	if _, _, score = q.Consult(start, k); score == nil {
		t.Fatal("they are not asked about another place")
	}
	if q.Late(start, "web-1"); q.Until("web-1").IsZero() {
		t.Error("it is too late before it is")
	}
	q.Late(start.Add(sched.PluginDeadline), "web-1")
	best = []string{"x"}
	if _, wait, score = q.Consult(start, k); !wait || score == nil || score.Query.Candidates[0].Name != "x" {
		t.Errorf("of those that were asked about nobody is left, and %+v is asked, wait: %v", score, wait)
	}
	if faults := q.Audit(func(skerry.InstanceID) bool { return false }); len(faults) != 1 {
		t.Errorf("the instance is gone, and the audit says %v", faults)
	}
	if q.Drop("web-1"); q.Open("web-1") {
		t.Error("it is still asked about")
	}
}

func TestMeasurements(t *testing.T) {
	q := New(nil)
	q.Next()
	m := q.Measure(start, "web-1", []string{"a"}, []string{"192.0.2.9"})
	if !q.Measures("web-1") || q.Judged("web-1") || q.Unmeasured(start, "web-1") {
		t.Error("nobody measures")
	}
	if q.Measured(Measured{ID: "web-1", Round: m.Round + 1}) || !q.Measured(Measured{ID: "web-1", Round: m.Round}) || q.Open("web-1") {
		t.Error("the answer to the round counts, and ends it")
	}
	q.Measure(start, "web-1", nil, nil)
	if !q.Unmeasured(start.Add(MeasureTime), "web-1") || q.Open("web-1") {
		t.Error("a measurement does not end")
	}
}

// A link with a limit binds the service that it leads to, unless that names a policy that looks at links anyway.
func TestPolicyOfWhatIsLinked(t *testing.T) {
	q := New(sched.Policies())
	for _, x := range []struct {
		named  string
		linked bool
		is     string
	}{{"", false, spec.PolicyROM}, {"", true, spec.PolicyLDP}, {spec.PolicyROM, true, spec.PolicyLDP}, {spec.PolicySpread, true, spec.PolicySpread}} {
		p, _, why := q.Policy(&spec.ServiceSpec{Placement: spec.Placement{Policy: x.named}}, x.linked)
		if why != nil || p.Name != x.is {
			t.Errorf("policy %q, linked %v: %q, %v; expected %q", x.named, x.linked, p.Name, why, x.is)
		}
	}
}
