package sched

import (
	"testing"
	"time"

	"skerry.dev/skerry"
)

// runtimesOf is a site with a worker that has some runtimes, at costs of its own.
func runtimesOf(memory skerry.Bytes, costs skerry.RuntimeCosts, has ...string) *Site {
	s := NewSite()
	full := skerry.Resources{CPU: 4000, Memory: memory}
	s.Set(&Worker{Name: "w", Arch: "amd64", Runtimes: has, Costs: costs, Capacity: full, Available: full})
	return s
}

// What an instance gives back is what its own runtime takes, although its worker would run it in another by now.
func TestGiveTakesTheRuntimeThatItHas(t *testing.T) {
	spec := &skerry.ServiceSpec{Runtime: "auto", Isolation: skerry.IsolationShared}
	s := runtimesOf(skerry.GiB, nil, "microvm")
	r := &Request{Spec: spec, Need: skerry.Resources{CPU: 500, Memory: 64 * skerry.MiB}, Runtime: skerry.RuntimeOCI}
	s.Give("w", r)
	if left, _ := s.Available("w"); left.Memory != skerry.GiB+64*skerry.MiB+spec.Overhead("oci").Memory || left.CPU != 4500 {
		t.Errorf("%v is left", left)
	}
	r.Runtime = ""
	s = runtimesOf(skerry.GiB, nil, "microvm")
	s.Give("w", r)
	if left, _ := s.Available("w"); left.Memory != skerry.GiB+64*skerry.MiB+spec.Overhead("microvm").Memory {
		t.Errorf("%v is left", left)
	}
}

// What a worker is charged is that of the runtime which an expected rate leads to there: by what was measured, where it was.
func TestRoomForTheRuntimeByItsRate(t *testing.T) {
	spec := &skerry.ServiceSpec{Runtime: "auto", Isolation: skerry.IsolationSandboxed, ExpectedRate: 12, Resources: skerry.Resources{CPU: 1000, Memory: 64 * skerry.MiB}}
	policy := Policies()[skerry.PolicyROM]
	for _, tt := range []struct {
		costs  skerry.RuntimeCosts
		memory skerry.Bytes
		fits   bool
	}{
		{nil, 200 * skerry.MiB, false}, // a microVM, of which it is known
		{nil, 300 * skerry.MiB, true},
		{skerry.RuntimeCosts{"gvisor": 1.5}, 200 * skerry.MiB, true},
		{skerry.RuntimeCosts{"gvisor": 4}, 200 * skerry.MiB, false},
	} {
		s := runtimesOf(tt.memory, tt.costs, "gvisor", "microvm")
		d := s.Place(time.Time{}, policy, &Request{Spec: spec, Need: spec.Need()}, 1)
		if (d.Chosen != "") != tt.fits {
			t.Errorf("%v with %s: %q, %v", tt.costs, tt.memory, d.Chosen, d.Why)
		}
	}
}
