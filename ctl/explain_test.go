package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Of a service with an expected rate it is told where each runtime saturates, what that leaves, and where the figure is from.
func TestExplanationTellsOfSaturation(t *testing.T) {
	s := spec.ServiceSpec{Runtime: "auto", Isolation: "sandboxed", ExpectedRate: 15, Resources: spec.Resources{CPU: 1000}}
	list := s.RuntimeChoices("microvm", spec.RuntimeCosts{"gvisor": 3})
	for i := range list {
		list[i].Workers = 2
	}
	var out bytes.Buffer
	printRuntimes(&out, list, true)
	for _, want := range []string{
		"  RUNTIME     ISOLATION   MEMORY OVERHEAD   WORKERS",
		"   SATURATES AT      HEAD-ROOM   VERDICT\n",
		"  2         9.01/s, measured     -66 %       suitable, but 15 requests per second are 166 % of the rate at which runtime gvisor saturates with 1 of a processor, more than 80 %\n",
		"  2         16.2/s, published   8 %         chosen for its headroom, although 15 requests per second are 92 % of",
		"  gvisor takes 3.00 times as long for the same work as a container; measured on its worker\n",
		"  microvm takes 1.67 times as long for the same work as a container; published: thesis, section 5.3.1",
		"  not known",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestExplanationTellsWhatWasAsked(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	e := view.Explanation{Instance: wire.Instance{ID: "web-1"},
		Classes: []wire.ClassVerdict{
			{Class: wire.Class{Arch: "arm64", Runtimes: []string{"native", "oci"}}, Area: "roof", Workers: 3, Fits: 2, Best: 0.5, Least: 0.25,
				Out: []wire.Reason{{What: "memory", Count: 1, Sole: 1, Text: "needs 64Mi of memory, 32Mi is free", Hint: "ask for at most 32Mi of memory"}}},
			{Class: wire.Class{Arch: "amd64"}, Workers: 1, Out: []wire.Reason{{What: "runtime", Count: 1, Text: "it offers no working runtime oci", Hint: "look"}, {What: "area", Count: 1, Text: "elsewhere"}}}},
		Runtimes: []spec.RuntimeChoice{{Runtime: "oci", Isolation: "shared", Memory: 2 * skerry.MiB, Source: "budget container.mem", Workers: 3, Chosen: true}, {Runtime: "wasm", Isolation: "sandboxed", Memory: 24 * skerry.MiB, Source: "measured", Out: "has no users: a module is nobody"}, {Runtime: "gvisor", Isolation: "sandboxed", Memory: 40 * skerry.MiB, Source: "measured on amd64"},
			{Runtime: "native", Unasked: true, Out: "the service names oci"}},
		Decision: &wire.Decision{At: now, Tier: "cluster", Policy: "ldp+plugin/greenest", Considered: 4, Chosen: "w1",
			Users:   []wire.UserPosition{{}, {Probes: 5, Residual: 0.42}, {Unknown: "nobody measured it in time"}},
			Plugins: []wire.PluginAnswer{{Plugin: "greenest", Scores: map[string]float64{"w1": 1, "w2": 0}, Out: map[string]string{"w3": "hot"}}, {Plugin: "slow", Skipped: "it took longer than 200ms"}},
			Top:     []wire.Candidate{{Name: "w1", Score: 1, Chosen: true}}}}
	var out bytes.Buffer
	printExplanation(&out, &e, now.Add(time.Minute))
	for _, want := range []string{
		"arm64 native+oci, area roof: 2 of 3 fit, scores 0.25 to 0.5\n",
		"would allow one more: ask for at most 32Mi of memory\n",
		"  amd64: none of 1 fits\n    runtime: it offers no working runtime oci\n      hint: look\n    area: elsewhere\n",
		"  oci       shared      2Mi, budget       3         chosen\n  wasm      sandboxed   24Mi, measured    -         ruled out: has no users: a module is nobody\n  gvisor    sandboxed   40Mi, measured    -         suitable, but no worker has it\n",
		"  user 1: located by round trips from 5 workers, with a residual of 0.4 ms\n  user 2: nobody measured it in time\n",
		"  plugin greenest: scored 2 candidates and ruled 1 out\n  plugin slow: skipped: it took longer than 200ms\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "user 0") {
		t.Error("a user that was not asked about is told of")
	}
}

// A limit is what may be used at most, which may be more than what is asked for.
func TestLimitsAreTheMost(t *testing.T) {
	r := spec.Resources{CPU: 100, Memory: 64 * skerry.MiB, Limits: spec.Limits{CPU: 500, Memory: 128 * skerry.MiB}}
	if got := limitsText(r); got != "cpu 0.5, memory 128Mi" {
		t.Error(got)
	}
	if got := limitsText(spec.Resources{CPU: 100}); got != "cpu 0.1" {
		t.Error(got)
	}
}

// A root that knows how many workers have a runtime says of no other that it would do.
func TestRuntimeThatNoWorkerHas(t *testing.T) {
	var out strings.Builder
	printRuntimes(&out, []spec.RuntimeChoice{{Runtime: "oci", Workers: 2, Chosen: true}, {Runtime: "gvisor"}}, false)
	if !strings.Contains(out.String(), "suitable, but no worker has it") {
		t.Error(out.String())
	}
}
