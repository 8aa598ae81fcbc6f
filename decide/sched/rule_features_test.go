package sched

import (
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestFeatures(t *testing.T) {
	asks := func(s *spec.ServiceSpec) { s.EnvFields = map[string]spec.EnvField{"NODE": spec.FieldWorker} }
	testRule(t, Features{}, []ruleCase{
		{name: "none are needed"},
		{name: "known", spec: asks, worker: func(w *Worker) { w.Features = spec.AgentFeatures() }},
		{name: "not known", spec: asks, want: "features: its agent does not know envFields, and would leave it out"},
		{name: "no servers", spec: func(s *spec.ServiceSpec) { s.Volumes = []spec.Volume{{NFS: &spec.NFSVolume{}}} },
			want: "features: it mounts no NFS servers for instances"},
		{name: "others are known", spec: asks, worker: func(w *Worker) { w.Features = []string{"other"} },
			want: "features: its agent does not know envFields, and would leave it out"},
	})
}

// The root gives a service to no site whose agents would leave out a part of its manifest, such as one of an earlier version.
func TestFeaturesOfSites(t *testing.T) {
	fields := map[string]spec.EnvField{"NODE": spec.FieldWorker}
	for want, features := range map[string][]string{"s": spec.AgentFeatures(), "": nil} {
		f := NewFederation()
		c := wire.ClassAggregate{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"}, Features: features}, Workers: 3}
		for i := range c.Available {
			c.Available[i] = wire.Moments{Sum: 3e12, Mean: 1e12}
		}
		f.SetConnected("s", true)
		f.SetReport("s", &wire.ClusterReport{Classes: []wire.ClassAggregate{c}})
		spec := spec.ServiceSpec{Name: "web"}
		spec.Image, spec.EnvFields = "web:1", fields
		_, d := f.Rank(epoch, &Request{Instance: "i", Spec: &spec, Need: spec.Need()}, 1, 10)
		if d.Chosen != want || want == "" && (len(d.Why) == 0 || !strings.Contains(d.Why[0].Text, "knows all of these: envFields")) {
			t.Errorf("%v: chosen %q, %+v", features, d.Chosen, d.Why)
		}
	}
}
