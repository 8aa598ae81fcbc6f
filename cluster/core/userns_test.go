package core

import (
	"reflect"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A site that requires user namespaces takes a worker's containers for working only where they have them; nothing else changes.
func TestRequireUserNamespaces(t *testing.T) {
	facts := func(abilities ...string) *wire.WorkerFacts {
		return &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{
			{Name: spec.RuntimeOCI, Passed: true, Cause: "no user namespaces: an old kernel", Cure: "a new one", Abilities: abilities},
			{Name: spec.RuntimeNative, Passed: true}, {Name: spec.ClassRuntime(spec.IsolationHardware, "kata"), Passed: true}}}
	}
	without, with := facts("exec"), facts("exec", spec.AbilityUserNS)
	for _, c := range []struct {
		policy Admission
		facts  *wire.WorkerFacts
		passed int
	}{{Admission{}, without, 3}, {Admission{RequireUserNamespaces: true}, with, 3}, {Admission{RequireUserNamespaces: true}, without, 2}} {
		got := c.policy.offered(c.facts)
		if n := len(got.PassedRuntimes()); n != c.passed {
			t.Errorf("%+v: %d runtimes", c.policy, n)
		}
		if c.passed == 3 && got != c.facts {
			t.Error("what is as it was is another")
		}
		if r := got.Runtimes[0]; c.passed == 2 && (!strings.Contains(r.Cause, "requireUserNamespaces") || !strings.Contains(r.Cause, "an old kernel") || r.Cure == "") {
			t.Errorf("%+v", r)
		}
	}
	shim := &wire.WorkerFacts{Runtimes: []wire.RuntimeReport{{Name: spec.RuntimeContainerd, Passed: true},
		{Name: spec.ClassRuntime(spec.IsolationShared, "plain"), Passed: true}}}
	if got := (&Admission{RequireUserNamespaces: true}).offered(shim); len(got.PassedRuntimes()) != 0 || got.Runtimes[0].Cause == "" {
		t.Errorf("containers with the host's users are let in: %+v", got.Runtimes)
	}
	if !reflect.DeepEqual(without, facts("exec")) {
		t.Error("the worker's own words were changed")
	}
}
