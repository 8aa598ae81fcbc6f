package sched

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A service at another site stands at the end of the way from the middle of this one.
func TestLinksToOtherSites(t *testing.T) {
	gateway := &spec.Coordinate{Error: 0.1}
	at := func(name string, ms float64, lon float64) *Worker {
		w := worker(name, 4000, 4*skerry.GiB)
		w.Coordinate, w.Location = &spec.Coordinate{Vec: [3]float64{ms}, Error: 0.1}, &spec.Location{Lon: lon}
		return w
	}
	far := func(service string, links []spec.Link, sites ...wire.FarSite) wire.Far {
		return wire.Far{Service: skerry.ServiceKey{Service: service}, Links: links, At: sites}
	}
	link := spec.Link{Service: "db", MaxLatency: limit(20)}
	linked := func(s *spec.ServiceSpec) { s.Links = []spec.Link{link} }
	for _, c := range []struct {
		name    string
		edit    func(*Request)
		workers []*Worker
		want    string
	}{
		{"the worker near the gateway", func(r *Request) { r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 12})} },
			[]*Worker{at("near", 7, 0), at("off", 9, 0)}, "near"},
		{"nobody is near enough", func(r *Request) { r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 12})} },
			[]*Worker{at("off", 9, 0)}, "latency: it is about 21.0 ms from db at site b, at most 20.0 ms are allowed"},
		{"one of two sites is enough", func(r *Request) {
			r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 200}, wire.FarSite{Site: "c", Ms: 3})}
		}, []*Worker{at("off", 9, 0)}, "off"},
		{"one here is enough", func(r *Request) {
			r.Far, r.Peers = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 200})}, []Peer{{Worker: "off", Service: "db"}}
		}, []*Worker{at("off", 9, 0)}, "off"},
		{"the way is not known", func(r *Request) { r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b"})} },
			[]*Worker{at("off", 9, 0)}, "latency: its round trip to db at site b is not known yet"},
		{"the middle is not known", func(r *Request) {
			r.Far, r.Gateway = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 1})}, nil
		}, []*Worker{at("off", 9, 0)}, "latency: its round trip to db at site b is not known yet"},
		{"the limit of the other end", func(r *Request) {
			r.Spec.Links, r.Service = nil, "db"
			r.Far = []wire.Far{far("web", []spec.Link{link}, wire.FarSite{Site: "b", Ms: 15})}
		}, []*Worker{at("near", 4, 0), at("off", 9, 0)}, "near"},
		{"by distance", func(r *Request) {
			r.Spec.Links[0] = spec.Link{Service: "db", MaxDistance: 120}
			r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Location: &spec.Location{Lon: 2}})}
		}, []*Worker{at("near", 0, 1), at("off", 0, 0)}, "near"},
		{"by distance, to nowhere", func(r *Request) {
			r.Spec.Links[0] = spec.Link{Service: "db", MaxDistance: 120}
			r.Far = []wire.Far{far("db", nil, wire.FarSite{Site: "b", Ms: 1})}
		}, []*Worker{at("off", 0, 0)}, "location: where it or db at site b runs is not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(500, skerry.GiB, linked)
			r.Service, r.Gateway = "web", gateway
			c.edit(r)
			s := NewSite()
			for _, w := range c.workers {
				s.Set(w)
			}
			d := s.Place(epoch, LDP(), r, 1)
			got := d.Chosen
			if got == "" {
				got = d.Why[0].What + ": " + d.Why[0].Text
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if d.Chosen == "" && (d.Why[0].Link == "" || !strings.Contains(c.want, d.Why[0].Link)) {
				t.Errorf("it is about the link to %q", d.Why[0].Link)
			}
			// Pruning by summaries changes nothing.
			if e := s.place(epoch, LDP(), r, 1, 1, false); e.Chosen != d.Chosen {
				t.Errorf("a scan gives %q", e.Chosen)
			}
		})
	}
}
