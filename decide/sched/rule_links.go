package sched

import (
	"fmt"
	"math"
	"math/bits"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Links rules out workers too far, on the earth or in the network, from the placed instances of the services that this
// one is linked to (Algorithm 2, lines 2 to 6: service to service). One instance within both limits is enough, because
// clients talk to the closest. A limit binds whichever end is placed second; a service with no placed instance binds nobody.
// One at another site stands where the gateway of that site is: behind the way from here to this site's own gateway.
type Links struct{}

func (Links) Name() string { return "links" }

func (Links) Lasting() bool { return true }

func (Links) For(query *Query) Check {
	c := &links{s: query.Site}
	var seen map[limits]bool        // each once: replicas of a service carry the same links
	var targets map[string][]target // by service
	add := func(service string, l *spec.Link) {
		e := end{service: service, limits: limits{service, l.MaxDistance, -1}, chord2: math.Inf(1), ms: math.Inf(1)}
		if l.MaxDistance > 0 {
			e.chord2 = chord2(l.MaxDistance)
		}
		if l.MaxLatency != nil {
			e.ms = float64(*l.MaxLatency) / 1e6
			e.limits.ms = e.ms
		}
		if seen[e.limits] {
			return
		}
		if targets == nil {
			seen, targets = map[limits]bool{}, query.targets()
		}
		seen[e.limits] = true
		if e.targets = append(targets[service][:len(targets[service]):len(targets[service])], query.farTargets(service)...); len(e.targets) > 0 {
			c.ends = append(c.ends, e)
		}
	}
	for i := range query.Spec.Links {
		if l := &query.Spec.Links[i]; l.Limited() {
			add(l.Service, l)
		}
	}
	for i := range query.Peers {
		for j := range query.Peers[i].Links {
			if l := &query.Peers[i].Links[j]; l.Limited() && l.Service == query.Service {
				add(query.Peers[i].Service, l)
			}
		}
	}
	for i := range query.Far {
		for j := range query.Far[i].Links {
			if l := &query.Far[i].Links[j]; l.Limited() && l.Service == query.Service {
				add(query.Far[i].Service.Service, l)
			}
		}
	}
	if len(c.ends) == 0 {
		return nil
	}
	return c
}

type links struct {
	s    *Site
	ends []end
}

// end is one link with where its other end is.
type end struct {
	service string
	limits  limits
	chord2  float64 // infinite: no limit
	ms      float64 // infinite: no limit
	targets []target
}

type target struct {
	slot int // of its worker; -1: it is at another site
	at   [3]float32
	net  [4]float32 // the last is less than 0 where it is not known
	site string     // empty: this one
	more float64    // milliseconds beyond that place
}

// limits is what a link to a service asks for.
type limits struct {
	service string
	km, ms  float64 // km 0, ms -1: no limit
}

// targets gives the workers on which each service of the application has instances, each once.
func (q *Query) targets() map[string][]target {
	type place struct {
		service string
		slot    int
	}
	out, seen := map[string][]target{}, map[place]bool{}
	for _, p := range q.peers {
		if k := (place{p.Service, p.slot}); p.slot >= 0 && !seen[k] {
			seen[k] = true
			out[p.Service] = append(out[p.Service], target{slot: p.slot, at: q.Site.at[p.slot], net: q.Site.net[p.slot]})
		}
	}
	return out
}

// farTargets gives the other sites that have instances of a service.
func (q *Query) farTargets(service string) (out []target) {
	for i := range q.Far {
		if q.Far[i].Service.Service != service {
			continue
		}
		for _, a := range q.Far[i].At {
			t := target{slot: -1, net: [4]float32{3: -1}, site: a.Site, more: a.Ms}
			if a.Location != nil {
				t.at = onSphere(*a.Location)
			}
			if g := q.Gateway; g != nil && a.Ms > 0 {
				t.net = [4]float32{float32(g.Vec[0]), float32(g.Vec[1]), float32(g.Vec[2]), float32(g.Height)}
			}
			out = append(out, t)
		}
	}
	return out
}

// name is a service, and the site of a target at another one.
func (t *target) name(service string) string {
	if t.site == "" {
		return service
	}
	return service + " at site " + t.site
}

func (c *links) Impossible(sum *summary) bool {
	for i := range c.ends {
		e := &c.ends[i]
		possible := false
		for j := range e.targets {
			t := &e.targets[j]
			if near := math.IsInf(e.chord2, 1) || boxDistance2(t.at, sum.atLo, sum.atHi) <= e.chord2; !near {
				continue
			}
			if math.IsInf(e.ms, 1) || t.net[3] >= 0 && sum.leastRTT(t.net)+t.more <= e.ms {
				possible = true
				break
			}
		}
		if !possible && !c.holdsTarget(e, sum) {
			return true
		}
	}
	return false
}

// holdsTarget guards against ruling out the block in which a target itself lies: its own worker is always near enough,
// whatever its coordinate says.
func (c *links) holdsTarget(e *end, sum *summary) bool {
	for j := range e.targets {
		n := e.targets[j].slot
		if n < 0 {
			continue
		}
		if sum == &c.s.blocks[n/64] || sum == &c.s.supers[n/64/superBlocks] {
			return true
		}
	}
	return false
}

func (c *links) Keep(b int, mask uint64) uint64 {
	for i := range c.ends {
		if mask == 0 {
			break
		}
		e := &c.ends[i]
		for left := mask; left != 0; left &= left - 1 {
			bit := bits.TrailingZeros64(left)
			if !c.near(e, b*64+bit) {
				mask &^= 1 << bit
			}
		}
	}
	return mask
}

func (c *links) near(e *end, n int) bool {
	at, net := c.s.at[n], c.s.net[n]
	for j := range e.targets {
		t := &e.targets[j]
		if t.slot == n {
			return true
		}
		if !math.IsInf(e.chord2, 1) && (at == [3]float32{} || t.at == [3]float32{} || distance2(at, t.at) > e.chord2) {
			continue
		}
		if !math.IsInf(e.ms, 1) && (net[3] < 0 || t.net[3] < 0 || rtt(net, t.net)+t.more > e.ms) {
			continue
		}
		return true
	}
	return false
}

// Miss is about the first link that is not met, and the smallest share by which its limits are exceeded.
func (c *links) Miss(n int) (string, float64) {
	for i := range c.ends {
		if e := &c.ends[i]; !c.near(e, n) {
			t, over := c.nearest(e, n)
			return c.lacks(e, t, n), over
		}
	}
	return "latency", 0
}

// lacks names what is wrong between a worker and a link's nearest target.
func (c *links) lacks(e *end, t *target, n int) string {
	if !math.IsInf(e.chord2, 1) {
		if c.s.at[n] == [3]float32{} || t.at == [3]float32{} {
			return "location"
		}
		if distance2(c.s.at[n], t.at) > e.chord2 {
			return "distance"
		}
	}
	return "latency"
}

// nearest gives the target that comes nearest to the limits, and by what share it exceeds them.
func (c *links) nearest(e *end, n int) (*target, float64) {
	var best *target
	least := math.Inf(1)
	for j := range e.targets {
		t := &e.targets[j]
		over := 0.0
		if !math.IsInf(e.chord2, 1) {
			if c.s.at[n] == [3]float32{} || t.at == [3]float32{} {
				over = 1e9
			} else {
				over = kmOf(distance2(c.s.at[n], t.at))/e.limits.km - 1
			}
		}
		if !math.IsInf(e.ms, 1) {
			if c.s.net[n][3] < 0 || t.net[3] < 0 {
				over = 1e9
			} else {
				over = max(over, (rtt(c.s.net[n], t.net)+t.more)/max(e.ms, 1e-9)-1)
			}
		}
		if best == nil || over < least {
			best, least = t, over
		}
	}
	return best, least
}

func (c *links) Reason(n int) wire.Reason {
	for i := range c.ends {
		e := &c.ends[i]
		if c.near(e, n) {
			continue
		}
		t, _ := c.nearest(e, n)
		name := t.name(e.service)
		switch c.lacks(e, t, n) {
		case "location":
			return wire.Reason{Link: e.service, What: "location",
				Text: "where it or " + name + " runs is not known", Hint: "start workers with --location LAT,LON"}
		case "distance":
			km := kmOf(distance2(c.s.at[n], t.at))
			return wire.Reason{Link: e.service, What: "distance",
				Text: fmt.Sprintf("it is %.1f km from %s, at most %.1f km are allowed", km, name, e.limits.km),
				Hint: fmt.Sprintf("raise the link's maxDistance to %.0f or move %s", math.Ceil(km), e.service)}
		}
		if c.s.net[n][3] < 0 || t.net[3] < 0 {
			return wire.Reason{Link: e.service, What: "latency", Text: "its round trip to " + name + " is not known yet",
				Hint: "workers measure it among each other; wait a little, and see that they reach each other by UDP"}
		}
		ms := rtt(c.s.net[n], t.net) + t.more
		return wire.Reason{Link: e.service, What: "latency",
			Text: fmt.Sprintf("it is about %.1f ms from %s, at most %.1f ms are allowed", ms, name, e.ms),
			Hint: fmt.Sprintf("raise the link's maxLatency to %.0fms or move %s", math.Ceil(ms), e.service)}
	}
	return wire.Reason{What: "latency"}
}
