package sched

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

func TestLinks(t *testing.T) {
	ms := func(n int) *spec.Duration { return new(spec.Duration(time.Duration(n) * time.Millisecond)) }
	link := func(list ...spec.Link) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Links = list }
	}
	on := func(names ...string) func(*Request) {
		return func(r *Request) {
			for _, n := range names {
				r.Peers = append(r.Peers, Peer{Worker: n, Service: "db"})
			}
		}
	}
	placed := func(name string, lat, x float64) *Worker {
		return worker(name, 1, 1, func(w *Worker) {
			w.Location, w.Coordinate = &spec.Location{Lat: lat, Lon: 11}, &spec.Coordinate{Vec: [3]float64{x}, Height: 1}
		})
	}
	here := func(w *Worker) {
		w.Location, w.Coordinate = &spec.Location{Lat: 48, Lon: 11}, &spec.Coordinate{Height: 1}
	}
	near, far, blind := placed("near", 48.5, 10), placed("far", 52, 200), worker("blind", 1, 1)
	testRule(t, Links{}, []ruleCase{
		{name: "no limit", spec: link(spec.Link{Service: "db"}), ask: on("far"), others: []*Worker{far}, worker: here},
		{name: "near enough", spec: link(spec.Link{Service: "db", MaxDistance: 60, MaxLatency: ms(12)}), ask: on("near"), others: []*Worker{near}, worker: here},
		{name: "too far", spec: link(spec.Link{Service: "db", MaxDistance: 50}), ask: on("near"), others: []*Worker{near}, worker: here, want: "distance: it is 55.6 km from db, at most 50.0 km are allowed"},
		{name: "too slow, heights counted", spec: link(spec.Link{Service: "db", MaxLatency: ms(11)}), ask: on("near"), others: []*Worker{near}, worker: here, want: "latency: it is about 12.0 ms from db, at most 11.0 ms are allowed"},
		{name: "one of two instances", spec: link(spec.Link{Service: "db", MaxDistance: 60}), ask: on("far", "near"), others: []*Worker{near, far}, worker: here},
		{name: "the nearest is told", spec: link(spec.Link{Service: "db", MaxDistance: 50}), ask: on("far", "near"), others: []*Worker{near, far}, worker: here, want: "distance: it is 55.6 km from db, at most 50.0 km are allowed"},
		{name: "where the other is is not known", spec: link(spec.Link{Service: "db", MaxDistance: 50}), ask: on("blind"), others: []*Worker{blind}, worker: here, want: "location: where it or db runs is not known"},
		{name: "the other's coordinate is not known", spec: link(spec.Link{Service: "db", MaxLatency: ms(50)}), ask: on("blind"), others: []*Worker{blind}, worker: here, want: "latency: its round trip to db is not known yet"},
		{name: "on the same worker, nothing known", spec: link(spec.Link{Service: "db", MaxDistance: 1, MaxLatency: ms(0)}), ask: on("w")},
		{name: "at no worker of this site", spec: link(spec.Link{Service: "db", MaxDistance: 1}), ask: on("gone")},
		{name: "the limit of the other end", ask: func(r *Request) {
			r.Peers = []Peer{{Worker: "near", Service: "db", Links: []spec.Link{{Service: "web", MaxDistance: 50}}}}
		}, others: []*Worker{near}, worker: here, want: "distance: it is 55.6 km from db, at most 50.0 km are allowed"},
		{name: "a limit to somebody else", ask: func(r *Request) {
			r.Peers = []Peer{{Worker: "near", Service: "db", Links: []spec.Link{{Service: "cache", MaxDistance: 50}}}}
		}, others: []*Worker{near}, worker: here},
		{name: "to itself", spec: link(spec.Link{Service: "web", MaxDistance: 60}), ask: func(r *Request) { r.Peers = []Peer{{Worker: "near", Service: "web"}} }, others: []*Worker{near}, worker: here},
		{name: "every link must hold", spec: link(spec.Link{Service: "db", MaxDistance: 60}, spec.Link{Service: "db", MaxLatency: ms(5)}), ask: on("near"), others: []*Worker{near}, worker: here, want: "latency: it is about 12.0 ms from db, at most 5.0 ms are allowed"},
	})
}
