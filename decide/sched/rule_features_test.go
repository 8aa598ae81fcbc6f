package sched

import (
	"slices"
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

// A site without workers that mount NFS servers says so, and not that its agents are old.
func TestSitesWithoutNFS(t *testing.T) {
	federation := NewFederation()
	known := slices.DeleteFunc(spec.AgentFeatures(), func(feature string) bool { return feature == spec.FeatureNFS })
	class := wire.ClassAggregate{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"}, Features: known}, Workers: 3}
	for i := range class.Available {
		class.Available[i] = wire.Moments{Sum: 3e12, Mean: 1e12}
	}
	federation.SetConnected("s", true)
	federation.SetReport("s", &wire.ClusterReport{Classes: []wire.ClassAggregate{class}})
	service := spec.ServiceSpec{Name: "web", Volumes: []spec.Volume{{Name: "v", NFS: &spec.NFSVolume{Server: "nas", Path: "/x"}}}}
	service.Image = "web:1"
	_, decision := federation.Rank(epoch, &Request{Instance: "i", Spec: &service, Need: service.Need()}, 1, 10)
	const want = "none of its workers mounts NFS servers for instances"
	if len(decision.Why) == 0 || !strings.Contains(decision.Why[0].Text, want) {
		t.Errorf("chosen %q because of %+v, expected none: %s", decision.Chosen, decision.Why, want)
	}
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
