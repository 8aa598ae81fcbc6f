package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// load adds what a placement does to its neighbours to its worker, or takes it off; the worker's next report sets the
// sum right.
func (c *Core) load(w *worker, p *placement, sign int) {
	if k := c.neighbours.Of(&p.A); sign > 0 {
		w.loads = w.loads.Plus(k)
	} else {
		w.loads = w.loads.Minus(k)
	}
	c.site.SetLoad(w.Name, w.loads)
}

// reload sums anew what runs on a worker.
func (c *Core) reload(w *worker, instances map[skerry.InstanceID]wire.QoS) {
	var sum spec.Contention
	for _, id := range sortedIDs(instances) {
		if p := c.places[id]; p != nil && (p.Worker == w.Name || p.Next != nil && p.Next.Worker == w.Name) {
			sum = sum.Plus(c.neighbours.Of(&p.A))
		}
	}
	if sum != w.loads {
		w.loads = sum
		c.site.SetLoad(w.Name, sum)
	}
}
