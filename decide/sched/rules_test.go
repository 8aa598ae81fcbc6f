package sched

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// ruleCase asks one rule about the worker "w"; others may stand beside it.
type ruleCase struct {
	name   string
	spec   func(*spec.ServiceSpec)
	ask    func(*Request)
	worker func(*Worker)
	others []*Worker
	want   string // WHAT: TEXT; empty: it passes
}

// testRule asks alone, beside others of every kind, and once more while the worker takes nothing new, which must change
// nothing.
func testRule(t *testing.T, rule Rule, cases []ruleCase) {
	t.Helper()
	p := Policy{Name: "one", Rules: []Rule{rule}, Rank: FirstFit{}, ByName: true}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := worker("w", 4000, 4*skerry.GiB)
			if c.worker != nil {
				c.worker(w)
			}
			r := request(100, skerry.MiB)
			r.Service = "web"
			if c.spec != nil {
				c.spec(r.Spec)
				r.Need = r.Spec.Need()
			}
			if c.ask != nil {
				c.ask(r)
			}
			refusing := *w
			refusing.Refusing = "drained"
			for what, list := range map[string][]*Worker{"alone": {w}, "refusing": {&refusing}, "refusing beside others": {worker("another", 1, 1), &refusing}} {
				s := siteOf(append(append([]*Worker{}, c.others...), list...))
				got, hint := "", ""
				if out := s.Fails(p, r, "w"); out != nil {
					got, hint = out.What+": "+out.Text, out.Hint
				}
				if got != c.want {
					t.Errorf("%s: got %q (%s), want %q", what, got, hint, c.want)
				}
			}
			s := siteOf(append(append([]*Worker{}, c.others...), w))
			only := *r
			only.Only = "w"
			if d := s.Place(epoch, p, &only, 1); (d.Chosen == "w") != (c.want == "") {
				t.Errorf("chosen %q, %+v", d.Chosen, d.Why)
			} else if d.Chosen == "" && d.Why[0].What != strings.SplitN(c.want, ":", 2)[0] {
				t.Errorf("why: %+v, want %s", d.Why, c.want)
			}
			// The index lets nobody through whom the scan stops.
			s.refresh()
			q := s.query(epoch, p, r)
			for _, check := range q.checks {
				n := s.find("w")
				if check.Impossible(&s.blocks[n/64]) && c.want == "" {
					t.Error("the summary says impossible")
				}
				if _, by := check.Miss(n); c.want != "" && !(by >= 0) {
					t.Errorf("misses by %v", by)
				}
			}
		})
	}
}

func TestRuleNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range AllRules() {
		if r.Name() == "" || seen[r.Name()] {
			t.Errorf("rule %T is named %q", r, r.Name())
		}
		seen[r.Name()] = true
	}
	lasting := map[string]bool{"area": true, "distance": true, "links": true, "users": true}
	for _, r := range AllRules() {
		if r.Lasting() != lasting[r.Name()] {
			t.Errorf("%s lasts: %v", r.Name(), r.Lasting())
		}
	}
}

func TestEveryPolicyHasItsName(t *testing.T) {
	all := Policies()
	for _, n := range spec.PolicyNames() {
		if all[n].Name != n || all[n].Rank == nil {
			t.Errorf("policy %s is %+v", n, all[n])
		}
	}
	if len(all) != len(spec.PolicyNames()) {
		t.Errorf("%d policies, %d names", len(all), len(spec.PolicyNames()))
	}
}
