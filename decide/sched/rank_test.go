package sched

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// order asks a ranking alone and gives the workers best first; ties are written with =.
func order(rank Ranking, r *Request, list ...*Worker) string {
	d := siteOf(list).place(epoch, Policy{Rank: rank, ByName: true}, r, 1, len(list), true)
	var b strings.Builder
	for i, c := range d.Top {
		if i > 0 {
			b.WriteString(map[bool]string{true: "=", false: " "}[c.Score == d.Top[i-1].Score])
		}
		b.WriteString(c.Name)
	}
	return b.String()
}

// peer is an instance on a worker.
func peer(worker, service string) Peer { return Peer{Worker: worker, Service: service} }

func withPeers(r *Request, list ...Peer) *Request {
	r.Service, r.Peers = "web", list
	return r
}

func checkOrder(t *testing.T, name, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", name, got, want)
	}
}

// Old numbers count for less.
func TestFreshNumbersFirst(t *testing.T) {
	age := func(s int) func(*Worker) {
		return func(w *Worker) { w.Reported = epoch.Add(-time.Duration(s) * time.Second) }
	}
	list := []*Worker{worker("old", 2000, skerry.GiB, age(150)), worker("new", 2000, skerry.GiB, age(10)), worker("quiet", 2000, skerry.GiB, age(90)), worker("ahead", 2000, skerry.GiB, age(-100))}
	d := siteOf(list).Best(epoch, ROM(), request(1000, skerry.MiB), 1, 4)
	score := map[string]float64{}
	for _, c := range d.Top {
		score[c.Name] = c.Score
	}
	if score["old"] != score["new"]/2 || score["quiet"] != score["new"] || score["ahead"] != score["new"] {
		t.Errorf("%v", score)
	}
	if d.Top[3].Name != "old" {
		t.Errorf("%v", d.Top)
	}
}
