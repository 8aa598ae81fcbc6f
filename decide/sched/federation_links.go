package sched

import (
	"fmt"
	"math"
	"slices"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// siteLink is a limited link between the service that is placed and one that has instances at sites.
type siteLink struct {
	name  string // of the link, as a reason calls it
	other string // the service at its other end
	km    float64
	limit *spec.Duration
	at    []int // sites that have the other end
}

// partner is a service at the other end of a limited link that has no place yet.
type partner struct {
	q     *fedQuery
	link  siteLink
	fits  []int // the sites that can take it, but for this link
	asked bool  // for these
}

// places gives the sites that can take the service, but for this link. Without it, a service that nobody can take would
// cost the square of the number of sites.
func (p *partner) places() []int {
	if !p.asked {
		p.asked = true
		for i := range p.q.f.list {
			if p.q.check(&p.q.f.list[i]) == possible {
				p.fits = append(p.fits, i)
			}
		}
	}
	return p.fits
}

// SetWays says how to find the round trip between the gateways of two sites, in milliseconds; ok: somebody knows it.
func (f *Federation) SetWays(ways func(a, b string) (ms float64, ok bool)) { f.ways = ways }

// linksOf lists the limited links between a service and another, with the other's instances left out.
func linksOf(service string, s *spec.ServiceSpec, other string, links []spec.Link) (out []siteLink) {
	add := func(name string, l *spec.Link) {
		out = append(out, siteLink{name: name, other: other, km: l.MaxDistance, limit: l.MaxLatency})
	}
	for i := range s.Links {
		if l := &s.Links[i]; l.Limited() && l.Service == other {
			add("its link to "+other, l)
		}
	}
	for i := range links {
		if l := &links[i]; l.Limited() && l.Service == service {
			add("the link from "+other, l)
		}
	}
	return out
}

// prepareLinks finds the limited links of the request whose other ends are at sites, and those that are nowhere yet.
func (q *fedQuery) prepareLinks() {
	seen := map[string]bool{}
	for i := range q.Peers {
		p := &q.Peers[i]
		if p.Service == q.Service || seen[p.Service] {
			continue
		}
		seen[p.Service] = true
		for _, l := range linksOf(q.Service, q.Spec, p.Service, p.Links) {
			for _, o := range q.Peers {
				if j, ok := q.f.index[o.Worker]; ok && o.Service == p.Service && !slices.Contains(l.at, j) {
					l.at = append(l.at, j)
				}
			}
			if len(l.at) > 0 {
				q.links = append(q.links, l)
			}
		}
	}
	for i := range q.Linked {
		r := &q.Linked[i]
		for _, l := range linksOf(q.Service, q.Spec, r.Service, r.Spec.Links) {
			q.without = append(q.without, partner{q: q.f.query(&Request{Service: r.Service, Spec: r.Spec, Peers: q.Peers}), link: l})
		}
	}
}

// span is how far apart two sites are for a link: no pair of workers is nearer than least, none farther than most.
type span struct{ least, most, limit float64 }

// middle is that of their gateways, or of their workers' middles.
func (x span) middle() float64 { return (x.least + x.most) / 2 }

// over is the share by which a limit is exceeded whatever the workers are.
func (x span) over() float64 { return x.least/max(x.limit, 1e-9) - 1 }

// bad orders spans: those that cannot hold come last, of the others those that are surest to hold first.
func (x span) bad() float64 {
	if x.least > x.limit {
		return 1e9 * (1 + x.over())
	}
	return x.most / max(x.limit, 1e-9)
}

// apart compares the way between two sites with a link's limits: what rules the one out for the other, and by which limit, in
// kilometres (distance) or milliseconds (latency): the one that is exceeded most, or else that is nearest to being so.
func (q *fedQuery) apart(l *siteLink, s, t *site) (v verdict, x span, what string) {
	x.limit = 1
	if s == t {
		return possible, x, ""
	}
	if l.km > 0 {
		if s.at == ([3]float32{}) || t.at == ([3]float32{}) {
			return noPlaceOfLink, x, "location"
		}
		d, r := kmOf(distance2(s.at, t.at)), s.radiusKm+t.radiusKm
		x, what = span{max(0, d-r-rounding), d + r, l.km}, "distance"
	}
	if l.limit != nil {
		ms, ok := 0.0, false
		if q.f.ways != nil {
			ms, ok = q.f.ways(s.name, t.name)
		}
		if !ok {
			return noWayOfLink, x, "latency"
		}
		r := s.netMs + t.netMs
		if y := (span{max(0, ms-r), ms + r, float64(*l.limit) / 1e6}); what == "" || y.bad() > x.bad() {
			x, what = y, "latency"
		}
	}
	if x.least > x.limit {
		return farOfLink, x, what
	}
	return possible, x, what
}

// linked applies the limited links to a site: for each of them, some site that has the other end must be near enough.
func (q *fedQuery) linked(s *site) verdict {
	for i := range q.links {
		if v, _, _, _ := q.nearest(&q.links[i], s); v != possible {
			return v
		}
	}
	return possible
}

// nearest finds the site with the other end of a link that comes nearest to its limits. What is not known is farthest.
func (q *fedQuery) nearest(l *siteLink, s *site) (v verdict, x span, what string, at *site) {
	best := math.Inf(1)
	for _, j := range l.at {
		t := &q.f.list[j]
		w, y, name := q.apart(l, s, t)
		bad := y.bad()
		if w == noWayOfLink || w == noPlaceOfLink {
			bad = math.MaxFloat64
		}
		if bad < best {
			best, v, x, what, at = bad, w, y, name, t
		}
	}
	return v, x, what, at
}

// nearness is 1 where every limited link to another site holds whichever workers it is between, and less the further that may be exceeded.
func (q *fedQuery) nearness(s *site) float64 {
	worst := 1.0
	for i := range q.links {
		if _, x, _, _ := q.nearest(&q.links[i], s); x.most > x.limit {
			worst = min(worst, x.limit/x.most)
		}
	}
	return worst
}

// leaves counts the services at other ends, as yet without a place, to which a site leaves one within the limits: at another site, or
// beside this service if there is room for both.
func (q *fedQuery) leaves(s *site) (n int) {
	for i := range q.without {
		p := &q.without[i]
		both := q.Need.Add(p.q.Need).Vector()
		found := fitsIn(&both, &s.sum) && p.q.check(s) == possible
		for _, j := range p.places() {
			if found {
				break
			}
			t := &q.f.list[j]
			if t == s {
				continue
			}
			v, _, _ := q.apart(&p.link, s, t)
			found = v == possible
		}
		if found {
			n++
		}
	}
	return n
}

// linkReason says why a site is too far from the other end of a link, and by which share its limit is exceeded.
func (q *fedQuery) linkReason(s *site) (r wire.Reason, over float64) {
	for i := range q.links {
		l := &q.links[i]
		v, x, what, t := q.nearest(l, s)
		switch {
		case v == possible:
			continue
		case v == noPlaceOfLink:
			return wire.Reason{What: what,
				Text: fmt.Sprintf("where its workers or those of %s are is not known, and %s limits the distance", t.name, l.name),
				Hint: "workers need --location LAT,LON"}, math.Inf(1)
		case v == noWayOfLink:
			return wire.Reason{What: what, Text: fmt.Sprintf("the round trip from there to %s, where %s runs, is not known yet", t.name, l.other),
				Hint: "sites measure each other by their relays; see that these reach each other by UDP"}, math.Inf(1)
		case what == "distance":
			return wire.Reason{What: what,
				Text: fmt.Sprintf("it is about %.0f km from %s, where %s runs, and %s allows %.0f km", x.middle(), t.name, l.other, l.name, x.limit),
				Hint: fmt.Sprintf("raise the link's maxDistance to %.0f, or have both run at one site", math.Ceil(x.middle()))}, x.over()
		}
		return wire.Reason{What: what,
			Text: fmt.Sprintf("it is about %.0f ms from %s, where %s runs, and %s allows %s", x.middle(), t.name, l.other, l.name, l.limit),
			Hint: fmt.Sprintf("raise the link's maxLatency to %.0fms, or have both run at one site", math.Ceil(x.middle()))}, x.over()
	}
	return wire.Reason{What: "latency"}, 0
}

// nearMiss is the site that comes nearest to the limits of a link among those that these alone rule out.
type nearMiss struct {
	site *site
	over float64
	why  wire.Reason
}

func (m *nearMiss) see(q *fedQuery, s *site) {
	if r, over := q.linkReason(s); m.site == nil || over < m.over || over == m.over && s.name < m.site.name {
		m.site, m.over, m.why = s, over, r
	}
}

// first has a decision that chose nobody begin with the nearest miss: whoever reads it can do most about that.
func (m *nearMiss) first(d *wire.Decision) {
	if m.site == nil || d.Chosen != "" {
		return
	}
	m.why.Count, m.why.Text = 1, m.site.name+": "+m.why.Text
	d.Why = slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.Text == m.why.Text })
	d.Why = slices.Insert(d.Why, 0, m.why)
}
