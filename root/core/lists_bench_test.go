package core

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// BenchmarkLists makes the lists that a page of the API is cut out of, at a root with 1,000 sites and as many applications of two services,
// each with instances at sites. Nothing else is done at the core meanwhile.
func BenchmarkLists(b *testing.B) {
	const many = 1000
	c := New(Options{Incarnation: "a"})
	now := time.Unix(1e9, 0)
	step := func(msg any) {
		b.Helper()
		if fx := c.Step(now, msg); fx.Err != nil {
			b.Fatal(fx.Err)
		}
	}
	c.Start(now)
	step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	for n := range many {
		site := fmt.Sprintf("site-%04d", n)
		step(ChildUp{Hello: &wire.Hello{Name: site}})
		report := wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"},
			Features: spec.AgentFeatures()}, Workers: 10}}}
		for at := range report.Classes[0].Available {
			report.Classes[0].Available[at] = wire.Moments{Sum: 1e13, Mean: 1e12}
		}
		step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&report)}})
	}
	for n := range many {
		app, err := spec.DecodeApplication(fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application",
			"metadata":{"namespace":"acme","name":"app-%04d"},
			"spec":{"services":[{"name":"a","image":"x:1","replicas":3},{"name":"b","image":"x:1"}]}}`, n))
		if err != nil {
			b.Fatal(err)
		}
		step(apps.Apply{App: *app})
	}
	for name, list := range map[string]func() int{
		"applications": func() int { return len(c.Views().AppViews()) },
		"clusters":     func() int { return len(c.Views().Sites()) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := list(); got != many {
					b.Fatalf("list: got %d, want %d", got, many)
				}
			}
		})
	}
}
