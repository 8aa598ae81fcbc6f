package sched

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// runtimesOf is a site with a worker that has some runtimes, at costs of its own.
func runtimesOf(memory skerry.Bytes, costs spec.RuntimeCosts, has ...string) *Site {
	s := NewSite()
	full := spec.Resources{CPU: 4000, Memory: memory}
	s.Set(&Worker{Name: "w", Arch: "amd64", Runtimes: has, Costs: costs, Capacity: full, Available: full})
	return s
}

// What an instance gives back is what its own runtime takes, although its worker would run it in another by now.
func TestGiveTakesTheRuntimeThatItHas(t *testing.T) {
	svc := &spec.ServiceSpec{Runtime: "auto", Isolation: spec.IsolationShared}
	s := runtimesOf(skerry.GiB, nil, "microvm")
	r := &Request{Spec: svc, Need: spec.Resources{CPU: 500, Memory: 64 * skerry.MiB}, Runtime: spec.RuntimeOCI}
	s.Give("w", r)
	if left, _ := s.Available("w"); left.Memory != skerry.GiB+64*skerry.MiB+svc.Overhead("oci").Memory || left.CPU != 4500 {
		t.Errorf("%v is left", left)
	}
	r.Runtime = ""
	s = runtimesOf(skerry.GiB, nil, "microvm")
	s.Give("w", r)
	if left, _ := s.Available("w"); left.Memory != skerry.GiB+64*skerry.MiB+svc.Overhead("microvm").Memory {
		t.Errorf("%v is left", left)
	}
}

// What a worker is charged is that of the runtime which an expected rate leads to there: by what was measured, where it was.
func TestRoomForTheRuntimeByItsRate(t *testing.T) {
	svc := &spec.ServiceSpec{Runtime: "auto", Isolation: spec.IsolationSandboxed, ExpectedRate: 12, Resources: spec.Resources{CPU: 1000, Memory: 64 * skerry.MiB}}
	policy := Policies()[spec.PolicyROM]
	for _, tt := range []struct {
		costs  spec.RuntimeCosts
		memory skerry.Bytes
		fits   bool
	}{
		{nil, 200 * skerry.MiB, false}, // a microVM, of which it is known
		{nil, 300 * skerry.MiB, true},
		{spec.RuntimeCosts{"gvisor": 1.5}, 200 * skerry.MiB, true},
		{spec.RuntimeCosts{"gvisor": 4}, 200 * skerry.MiB, false},
	} {
		s := runtimesOf(tt.memory, tt.costs, "gvisor", "microvm")
		d := s.Place(time.Time{}, policy, &Request{Spec: svc, Need: svc.Need()}, 1)
		if (d.Chosen != "") != tt.fits {
			t.Errorf("%v with %s: %q, %v", tt.costs, tt.memory, d.Chosen, d.Why)
		}
	}
}

// Of two workers with the same runtime the one is taken on which a service stays clear of its saturation point, by what they measured, although the other has
// more room; where that one is full, the other has to do.
func TestPlaceByProfile(t *testing.T) {
	svc := &spec.ServiceSpec{Runtime: "auto", Isolation: spec.IsolationSandboxed, ExpectedRate: 12, Resources: spec.Resources{CPU: 1000, Memory: 64 * skerry.MiB}}
	for name, policy := range Policies() {
		if name == spec.PolicyFirstFit {
			continue // it goes by names
		}
		for _, tt := range []struct {
			slow, fast float64
			room       skerry.MilliCPU // of the fast one
			want       string
		}{
			{4, 1.2, 2000, "fast"},
			{4, 1.2, 500, "slow"},
			{4, 3, 2000, ""}, // both are too slow: the ranking decides, as
			{1, 1, 2000, ""}, // where both bear it
		} {
			s := NewSite()
			add := func(name string, cpu skerry.MilliCPU, cost float64) {
				have := spec.Resources{CPU: cpu, Memory: 4 * skerry.GiB}
				costs := spec.RuntimeCosts{}
				if cost > 0 {
					costs["gvisor"] = cost
				}
				s.Set(&Worker{Name: name, Arch: "amd64", Runtimes: []string{"gvisor"}, Costs: costs, Capacity: spec.Resources{CPU: 8000, Memory: 4 * skerry.GiB}, Available: have})
			}
			place := func() string {
				add("slow", 8000, tt.slow)
				add("fast", tt.room, tt.fast)
				return s.Place(time.Time{}, policy, &Request{Spec: svc, Need: svc.Need()}, 1).Chosen
			}
			got := place()
			want := tt.want
			if want == "" { // as if nothing were known
				tt.slow, tt.fast = 0, 0
				want = place()
			}
			if got != want {
				t.Errorf("%s, %+v: %q and not %q", name, tt, got, want)
			}
		}
	}
}

// TestPlaceBySpeed: of two workers that are alike but for how fast their processors were measured to be, a service with an expected rate goes to the one
// that bears it, whatever the policy, and whichever has more room; one that expects nothing goes where it would without.
func TestPlaceBySpeed(t *testing.T) {
	facts := func(rate float64) *wire.WorkerFacts {
		f := &wire.WorkerFacts{Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}}
		if rate > 0 {
			f.Runtimes[0].Profile = &wire.RuntimeProfile{CPU: 1, At: time.Unix(1_700_000_000, 0), Rate: rate, Share: 1}
		}
		return f
	}
	for name, policy := range Policies() {
		if name == spec.PolicyFirstFit {
			continue // it goes by names
		}
		for _, tt := range []struct {
			expected, slow, quick float64
			room                  skerry.MilliCPU // of the slow one; the quick one has 1500
			same                  bool            // as if nothing was measured
		}{
			{expected: 5, slow: 1500, quick: 6000, room: 1500},
			{expected: 5, slow: 1500, quick: 6000, room: 4000},
			{expected: 5, slow: 1500, quick: 0, room: 4000},                 // of which nothing is known: as the published one
			{expected: 5, slow: 5000, quick: 6000, room: 4000, same: true},  // both bear it
			{expected: 50, slow: 1500, quick: 6000, room: 4000, same: true}, // neither does
			{expected: 0, slow: 1500, quick: 6000, room: 4000, same: true},
		} {
			place := func(slow, quick float64) string {
				s := NewSite()
				for _, w := range []struct {
					name string
					cpu  skerry.MilliCPU
					rate float64
				}{{"a", tt.room, slow}, {"b", 1500, quick}} {
					have := spec.Resources{CPU: w.cpu, Memory: 4 * skerry.GiB}
					s.Set(&Worker{Name: w.name, Arch: "amd64", Runtimes: []string{"oci"}, Costs: facts(w.rate).RuntimeCosts(), Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB}, Available: have})
				}
				spec := &spec.ServiceSpec{Runtime: "auto", ExpectedRate: tt.expected, Resources: spec.Resources{CPU: 500, Memory: 64 * skerry.MiB}}
				return s.Place(time.Time{}, policy, &Request{Spec: spec, Need: spec.Need()}, 1).Chosen
			}
			want := "b"
			if tt.same {
				want = place(0, 0)
			}
			if got := place(tt.slow, tt.quick); got != want {
				t.Errorf("%s, %+v: %q and not %q", name, tt, got, want)
			}
		}
	}
}
