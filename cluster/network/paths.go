package network

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"skerry.dev/skerry"
)

// Paths is which workers exchange packets, because a route of one leads to the other. Both must know each other. All of it follows from the
// routes; nothing is written down. A worker of another site has a name with a slash.
type Paths struct {
	via   map[via][]string           // the workers that each route leads to
	reach map[string]map[string]int  // by worker: how many of its routes lead to another one
	from  map[string]map[string]bool // the same the other way round
	dirty map[string]bool            // workers whose peers must be looked at again
}

// via is a worker's route to a service.
type via struct {
	worker  string
	service skerry.ServiceKey
}

// NewPaths makes a site without routes.
func NewPaths() *Paths {
	return &Paths{via: map[via][]string{}, reach: map[string]map[string]int{}, from: map[string]map[string]bool{}, dirty: map[string]bool{}}
}

// Route takes which workers the route of a service leads a worker to, each once; none, when it has no route.
func (p *Paths) Route(worker string, k skerry.ServiceKey, to []string) {
	was := p.via[via{worker, k}]
	if slices.Equal(was, to) {
		return
	}
	for _, t := range to {
		p.count(worker, t, 1)
	}
	for _, t := range was {
		p.count(worker, t, -1)
	}
	if len(to) == 0 {
		delete(p.via, via{worker, k})
	} else {
		p.via[via{worker, k}] = to
	}
}

func (p *Paths) count(worker, to string, by int) {
	if p.reach[worker] == nil {
		p.reach[worker] = map[string]int{}
	}
	before := p.reach[worker][to]
	p.reach[worker][to] = before + by
	if before > 0 && before+by > 0 {
		return
	}
	p.dirty[worker], p.dirty[to] = true, true
	if by > 0 {
		if p.from[to] == nil {
			p.from[to] = map[string]bool{}
		}
		p.from[to][worker] = true
		return
	}
	if delete(p.reach[worker], to); len(p.reach[worker]) == 0 {
		delete(p.reach, worker)
	}
	if delete(p.from[to], worker); len(p.from[to]) == 0 {
		delete(p.from, to)
	}
}

// Exchange reports whether two workers exchange packets: a route of one leads to the other.
func (p *Paths) Exchange(a, b string) bool { return p.reach[a][b] > 0 || p.reach[b][a] > 0 }

// Users lists the workers whose routes lead to a worker, in any order.
func (p *Paths) Users(worker string) iter.Seq[string] { return maps.Keys(p.from[worker]) }

// Reached reports whether any route leads to a worker.
func (p *Paths) Reached(worker string) bool { return len(p.from[worker]) > 0 }

// Peers gives those that a worker exchanges packets with. The map is the caller's.
func (p *Paths) Peers(worker string) map[string]bool {
	out := make(map[string]bool, len(p.reach[worker])+len(p.from[worker]))
	for to := range p.reach[worker] {
		out[to] = true
	}
	maps.Copy(out, p.from[worker])
	return out
}

// Touch has the peers of a worker looked at again.
func (p *Paths) Touch(worker string) { p.dirty[worker] = true }

// TouchUsers has the peers of those looked at again whose routes lead to a worker, because what they must know of it changed.
func (p *Paths) TouchUsers(worker string) {
	for from := range p.from[worker] {
		p.dirty[from] = true
	}
}

// TouchPeers does so for all that exchange packets with it.
func (p *Paths) TouchPeers(worker string) {
	for other := range p.Peers(worker) {
		p.dirty[other] = true
	}
}

// Changed gives the workers whose peers must be looked at, once.
func (p *Paths) Changed() map[string]bool {
	out := p.dirty
	p.dirty = map[string]bool{}
	return out
}

// Audit reports where the counts differ from the routes.
func (p *Paths) Audit() (faults []string) {
	reach := map[string]map[string]int{}
	for v, list := range p.via {
		for _, to := range list {
			if reach[v.worker] == nil {
				reach[v.worker] = map[string]int{}
			}
			reach[v.worker][to]++
		}
	}
	for worker, to := range reach {
		if !maps.Equal(to, p.reach[worker]) {
			faults = append(faults, fmt.Sprintf("%s: its routes lead to %v, counted %v", worker, to, p.reach[worker]))
		}
		for t := range to {
			if !p.from[t][worker] {
				faults = append(faults, fmt.Sprintf("routes of %s lead to %s, which is not listed there", worker, t))
			}
		}
	}
	for worker, to := range p.reach {
		if reach[worker] == nil {
			faults = append(faults, fmt.Sprintf("%s has no route, counted %v", worker, to))
		}
	}
	for worker, from := range p.from {
		for f := range from {
			if reach[f][worker] == 0 {
				faults = append(faults, fmt.Sprintf("%s is listed for a route of %s, which has none", worker, f))
			}
		}
	}
	return faults
}
