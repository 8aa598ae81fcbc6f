package sched

import (
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestEgress(t *testing.T) {
	says := func(s *spec.ServiceSpec) { s.Egress = &spec.Egress{} }
	site := func(r *Request) { r.Egress = true }
	holds := func(w *Worker) { w.Egress = true }
	const no = "egress: it cannot hold the service to its egress policy: it gives instances no network of their own, or its agent is older than that"
	testRule(t, Egress{}, []ruleCase{
		{name: "no policy"},
		{name: "no policy, where one would be held", worker: holds},
		{name: "a manifest's", spec: says, worker: holds},
		{name: "a manifest's that nobody holds", spec: says, want: no},
		{name: "the site's", ask: site, worker: holds},
		{name: "the site's that nobody holds", ask: site, want: no},
	})
}

// The root gives a service with a policy to no site that cannot hold it, such as one of an earlier version.
func TestEgressOfSites(t *testing.T) {
	for egress, want := range map[bool]string{true: "s", false: ""} {
		f := NewFederation()
		c := wire.ClassAggregate{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"}, Egress: egress}, Workers: 3}
		for i := range c.Available {
			c.Available[i] = wire.Moments{Sum: 3e12, Mean: 1e12}
		}
		f.SetConnected("s", true)
		f.SetReport("s", &wire.ClusterReport{Classes: []wire.ClassAggregate{c}})
		spec := spec.ServiceSpec{Name: "web", Egress: &spec.Egress{}}
		spec.Image = "web:1"
		_, d := f.Rank(epoch, &Request{Instance: "i", Spec: &spec, Need: spec.Need()}, 1, 10)
		if d.Chosen != want || want == "" && (len(d.Why) == 0 || !strings.Contains(d.Why[0].Text, "egress policy")) {
			t.Errorf("%v: chosen %q, %+v", egress, d.Chosen, d.Why)
		}
	}
}
