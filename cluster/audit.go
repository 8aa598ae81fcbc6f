package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/detect"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
)

// Audit says what of the core's books does not balance: what workers have given away against what is on them, and the lists
// kept beside the placements. It costs as much as the site is large; tests call it after every step.
func (c *Core) Audit() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	reserved := map[string]spec.Resources{}
	ports := map[string]map[string]int{}
	take := func(worker string, p *placement) {
		reserved[worker] = reserved[worker].Add(p.charge(worker))
		if ports[worker] == nil {
			ports[worker] = map[string]int{}
		}
		for _, k := range p.takes(worker) {
			ports[worker][k]++
		}
	}
	idle, wrong := c.volumes.Audit()
	faults = append(faults, wrong...)
	for name, size := range idle {
		if c.workers[name] != nil {
			reserved[name] = reserved[name].Add(spec.Resources{Storage: size})
		}
	}
	for _, p := range c.places {
		if p.Worker != "" && !p.ended() {
			take(p.Worker, p)
		}
		if p.Next != nil {
			take(p.Next.Worker, p)
		}
	}
	for name, w := range c.workers {
		for _, h := range w.leaving {
			for _, k := range h.Ports {
				if ports[name] == nil {
					ports[name] = map[string]int{}
				}
				ports[name][k]++
			}
		}
		if w.reserved != reserved[name] {
			bad("%s: %v is reserved, what is on it needs %v", name, w.reserved, reserved[name])
		}
		for k, n := range ports[name] {
			if n > 1 && strings.HasPrefix(k, sched.DeviceKey("")) {
				bad("%s: %s was given away %d times", name, k, n)
			}
		}
		if !maps.Equal(w.ports, ports[name]) && len(w.ports)+len(ports[name]) > 0 {
			bad("%s: ports %v are taken, what is on it needs %v", name, w.ports, ports[name])
		}
		if w.Facts != nil {
			for i, v := range w.Facts.Capacity.Sub(w.reserved).Vector() {
				if v < 0 {
					bad("%s: %d of %s are promised too much", name, -v, spec.ResourceNames[i])
				}
			}
		}
	}
	faults = append(faults, c.audit(c.workers)...)
	seen, trusted := map[string]*detect.Worker{}, map[string]*trust.Worker{}
	for name, w := range c.workers {
		seen[name], trusted[name] = w.sight, w.trust
	}
	faults = append(append(faults, c.detect.Audit(seen)...), c.trust.Audit(trusted)...)
	known := func(worker string) bool { return c.workers[worker] != nil }
	faults = append(append(faults, c.peers.Audit(known)...), c.ingress.Audit(known)...)
	faults = append(faults, slices.Concat(c.paths.Audit(), c.interests.Audit(), c.foreign.sites.Audit())...)
	faults = append(faults, c.drainer.drains.Audit(func(worker string) *moves.Drain {
		if w := c.workers[worker]; w != nil {
			return w.Drain
		}
		return nil
	})...)
	placed := func(id skerry.InstanceID) bool { return c.places[id] != nil }
	faults = append(faults, slices.Concat(c.questions.Audit(placed), c.starts.Audit(placed))...)
	there := func(app skerry.AppKey) bool { return c.byApp[app] != nil }
	faults = append(faults, slices.Concat(c.releases.Audit(known), c.balancer.balance.Audit(), c.neighbours.Audit(there))...)
	faults = append(faults, c.endpoints.Audit(known, there)...)
	faults = append(faults, slices.Concat(c.amender.overrides.Audit(), c.salvager.rebuild.Audit())...)
	faults = append(faults, c.dependents.Audit(func(id skerry.InstanceID) (has, depends bool) {
		if p := c.places[id]; p != nil {
			_, depends = p.alone()
			return true, depends
		}
		return false, false
	})...)
	slices.Sort(faults)
	return faults
}
