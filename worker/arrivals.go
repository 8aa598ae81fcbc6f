package worker

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/ingress"
	"skerry.dev/skerry/wire"
)

// arrivals turns the counters of the ingress into rates by service. Only measure touches it.
type arrivals struct {
	at   time.Time
	by   map[string]arrivalsTotal
	last []wire.IngressUse
}

type arrivalsTotal struct{ total, ended, took, active int64 }

// arrivalsSpan is the least time over which a rate is worked out.
const arrivalsSpan = 2 * time.Second

// look gives the rates since it was asked last, or the last ones if that was just now. What is under way is that of now.
func (c *arrivals) look(now time.Time, routes []ingress.RouteStats) []wire.IngressUse {
	by := map[string]arrivalsTotal{}
	for _, r := range routes {
		t := by[r.Name]
		by[r.Name] = arrivalsTotal{t.total + r.Total, t.ended + r.Ended, t.took + r.Took, t.active + r.Active}
	}
	span := now.Sub(c.at)
	if span < arrivalsSpan && !c.at.IsZero() {
		out := slices.Clone(c.last)
		for i := range out {
			out[i].Active = float64(by[out[i].Service.String()].active)
		}
		return out
	}
	first := c.at.IsZero()
	var out []wire.IngressUse
	for _, name := range slices.Sorted(maps.Keys(by)) {
		k, ok := skerry.ParseServiceKey(name)
		if !ok {
			continue
		}
		t, was := by[name], c.by[name]
		u := wire.IngressUse{Service: k, Active: float64(t.active)}
		if !first && t.total >= was.total {
			u.Requests = float64(t.total-was.total) / span.Seconds()
			if n := t.ended - was.ended; n > 0 {
				u.Ms = float64(t.took-was.took) / float64(n) / 1000
			}
		}
		out = append(out, u)
	}
	c.at, c.by, c.last = now, by, out
	return out
}
