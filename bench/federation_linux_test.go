package bench

import (
	"strings"
	"testing"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/testenv"
)

// TestFederation measures a real root with the links of one cluster, and then of three: each figure of each size is there, and what the
// clusters hold is what the root wanted, or it would not have come to an end.
func TestFederation(t *testing.T) {
	o := FederationOptions{Program: testenv.Program(t), Clusters: []int{1, 3}, Instances: 20, Rate: 20, Small: true,
		Measuring: report.Measuring{Progress: func(text string) { t.Log(text) }}}
	r, err := Federation(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfinished || r.Rounds != 2 {
		t.Errorf("unfinished %v after %d rounds, want a whole report of 2", r.Unfinished, r.Rounds)
	}
	const last = "3 clusters"
	for _, name := range []string{"placements", "memory", "a page of instances, p99", "get an application, p99", "apply, p99", "changes",
		"get an instance beside changes, p99", "start", "all are back"} {
		for _, place := range []string{"1 cluster", last} {
			if f := r.Find(o.group(), name, place); f == nil || f.Value == nil || f.Value.Value <= 0 {
				t.Errorf("%s of %s: got %+v, want a figure above 0", name, place, f)
			}
		}
	}
	if f := r.Find(o.group(), "memory", last); f.Goal == nil || *f.Goal != 700 {
		t.Errorf("the goal of memory at the last size: got %v, want 700", f.Goal)
	}
	if f := r.Find(o.group(), "a watch of everything", last); f == nil || !strings.Contains(f.About, ": ") {
		t.Errorf("a watch of everything: got %+v, want it with the number of messages", f)
	}
}

// Sizes and rates that cannot be are refused before anything is started.
func TestFederationRefuses(t *testing.T) {
	for want, o := range map[string]FederationOptions{
		"from 1 to 5000": {Instances: 100, Rate: 1},
		"larger than":    {Clusters: []int{10, 1}, Instances: 100, Rate: 1},
		"multiple of 10": {Clusters: []int{1}, Instances: 7, Rate: 1},
		"--rate 0":       {Clusters: []int{1}, Instances: 100},
	} {
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", o, err, want)
		}
	}
}
