package sched

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestAffinity(t *testing.T) {
	db := map[string]string{"app": "db"}
	with := func(over string, preferred bool) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			s.Placement.Affinity = []spec.Affinity{{Labels: db, Over: over, Preferred: preferred}}
		}
	}
	apart := func(over string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			s.Placement.AntiAffinity = []spec.Affinity{{Labels: db, Over: over}}
		}
	}
	on := func(worker string) func(*Request) {
		return func(r *Request) {
			r.Peers = []Peer{{Worker: worker, Service: "db", Labels: map[string]string{"app": "db", "x": "y"}}}
		}
	}
	north := func(w *Worker) { w.Area = "north" }
	x := []*Worker{worker("x", 1, 1, north)}
	testRule(t, Affinity{}, []ruleCase{
		{name: "beside nobody yet", spec: with("", false)},
		{name: "beside", spec: with("", false), ask: on("w")},
		{name: "beside, elsewhere", spec: with("worker", false), ask: on("x"), others: x, want: "affinity: its worker has no instance with labels app=db"},
		{name: "beside, in the same area", spec: with("area", false), ask: on("x"), others: x, worker: north},
		{name: "beside, in another area", spec: with("area", false), ask: on("x"), others: x, want: "affinity: its area has no instance with labels app=db"},
		{name: "beside, preferred only", spec: with("", true), ask: on("x"), others: x},
		{name: "apart", spec: apart(""), ask: on("w"), want: "antiAffinity: its worker has an instance with labels app=db already"},
		{name: "apart, elsewhere", spec: apart(""), ask: on("x"), others: x},
		{name: "apart, in the same area", spec: apart("area"), ask: on("x"), others: x, worker: north, want: "antiAffinity: its area has an instance with labels app=db already"},
		{name: "apart from who is at no worker of this site", spec: apart(""), ask: on("gone")},
	})
}

func TestPreferredAffinity(t *testing.T) {
	db := []spec.Affinity{{Labels: map[string]string{"app": "db"}, Preferred: true}}
	peers := []Peer{{Worker: "b", Service: "db", Labels: map[string]string{"app": "db"}}}
	list := []*Worker{worker("a", 4000, skerry.GiB), worker("b", 4000, skerry.GiB), worker("c", 4000, skerry.GiB)}
	for seed := range uint64(20) {
		r := request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Affinity = db })
		r.Peers = peers
		if d := siteOf(list).Place(epoch, ROM(), r, seed); d.Chosen != "b" {
			t.Errorf("beside: %s", d.Chosen)
		}
		r = request(1, 1, func(s *spec.ServiceSpec) { s.Placement.AntiAffinity = db })
		r.Peers = peers
		if d := siteOf(list).Place(epoch, ROM(), r, seed); d.Chosen == "b" {
			t.Error("apart: b")
		}
		r.Only = "b" // a preference rules nothing out
		if d := siteOf(list).Place(epoch, ROM(), r, seed); d.Chosen != "b" {
			t.Error("preferred anti-affinity ruled out the only worker")
		}
	}
}
