package core

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// listed gives a root with sites and as many applications of two services, each with instances at sites, unless there are no sites.
func listed(tb testing.TB, sites, applications int) *Core {
	tb.Helper()
	c := New(Options{Incarnation: "a"})
	now := time.Unix(1e9, 0)
	step := func(msg any) {
		tb.Helper()
		if fx := c.Step(now, msg); fx.Err != nil {
			tb.Fatal(fx.Err)
		}
	}
	c.Start(now)
	step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	for n := range sites {
		site := fmt.Sprintf("site-%04d", n)
		step(ChildUp{Hello: &wire.Hello{Name: site}})
		report := wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"},
			Features: spec.AgentFeatures()}, Workers: 10}}}
		for at := range report.Classes[0].Available {
			report.Classes[0].Available[at] = wire.Moments{Sum: 1e13, Mean: 1e12}
		}
		step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&report)}})
	}
	for n := range applications {
		app, err := spec.DecodeApplication(fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application",
			"metadata":{"namespace":"acme","name":"app-%04d"},
			"spec":{"services":[{"name":"a","image":"x:1","replicas":3},{"name":"b","image":"x:1"}]}}`, n))
		if err != nil {
			tb.Fatal(err)
		}
		step(apps.Apply{App: *app})
	}
	return c
}

// BenchmarkLists makes lists, and a page of the longest one, at a root with 1,000 sites and as many applications. Nothing else is done at
// the core meanwhile.
func BenchmarkLists(b *testing.B) {
	const many = 1000
	c := listed(b, many, many)
	for name, list := range map[string]struct {
		get  func() int
		want int
	}{
		"applications": {func() int { list, _ := c.Views().AppPage(&apps.AppPage{}); return len(list) }, many},
		"page": {func() int {
			list, _ := c.Views().AppPage(&apps.AppPage{Limit: 100, After: "acme/app-0500"})
			return len(list)
		}, 100},
		"clusters": {func() int { return len(c.Views().Sites()) }, many},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := list.get(); got != list.want {
					b.Fatalf("%s: got %d, want %d", name, got, list.want)
				}
			}
		})
	}
}

// TestPageOfApplications has a page sum up the applications of the page, however many there are beside them.
func TestPageOfApplications(t *testing.T) {
	const limit = 50
	cost := func(many int) float64 {
		c := listed(t, 0, many)
		return testing.AllocsPerRun(5, func() {
			if list, more := c.Views().AppPage(&apps.AppPage{Limit: limit, After: "acme/app-0010"}); len(list) != limit || !more {
				t.Fatalf("a page of %d out of %d applications: got %d, more: %v", limit, many, len(list), more)
			}
		})
	}
	few, many := cost(2*limit), cost(20*limit)
	if few < limit || many > few*1.02 {
		t.Errorf("a page of %d applications: got %.0f allocations out of %d, and %.0f out of %d; want no more", limit, few, 2*limit, many, 20*limit)
	}
}
