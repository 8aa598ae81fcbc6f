package bench

import (
	"strings"
	"testing"

	"skerry.dev/skerry/bench/report"
)

// Each goal has a figure, with its direction; what has no samples has its reason.
func TestBudgets(t *testing.T) {
	r := newBudgets("--quick")
	for _, v := range []float64{20, 22, 21} {
		r.Add(r.Find("", "agent.mem", ""), v)
		r.Rounds++
	}
	r.Add(r.Find("", "overlay.tcp.mtu", ""), 0.7)
	r.Rounds++
	r.Find("", "agent.disk", "").Skip = "the window is too short"
	unmeasured(r, "--quick leaves it out")
	r.Fold()
	if len(r.Figures) != len(budgets()) {
		t.Errorf("%d figures of %d budgets", len(r.Figures), len(budgets()))
	}
	if f := r.Find("", "agent.mem", ""); f.Value.Value != 21 || !f.Met() || f.Value.N != 3 {
		t.Errorf("agent.mem is %+v, met %v", f.Value, f.Met())
	}
	if f := r.Find("", "overlay.tcp.mtu", ""); f.Met() {
		t.Errorf("%+v of at least 0.75 is met", f.Value)
	}
	for _, f := range r.Figures {
		if (f.Value == nil) == (f.Skip == "") {
			t.Errorf("%s has the value %+v and the reason %q", f.Name, f.Value, f.Skip)
		}
		if f.Better != report.Lower && f.Better != report.Higher || f.Unit == "" {
			t.Errorf("%s is better %q, in %q", f.Name, f.Better, f.Unit)
		}
	}
	text := strings.Join(r.Remarks(), "\n")
	if !strings.Contains(text, "Not measured: agent.disk: the window is too short") || !strings.Contains(text, ": --quick leaves it out") {
		t.Errorf("it remarks %q", text)
	}
}
