package cluster

import (
	"iter"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/wire"
)

// publishEndpoints gives every worker that runs something of an application the endpoints of the services that it is linked to.
func (o *overlay) publishEndpoints(app skerry.AppKey) {
	for _, e := range o.endpoints.Publish(app, o.instancesOf(app)) {
		if key := wire.EndpointsKey(e.Service); e.Gone {
			o.Kids.Delete(e.Worker, key)
		} else {
			// Endpoints of one service are small; a set that is too large for one item keeps the old list.
			_ = o.Kids.Put(e.Worker, key, o.item(e.Worker, &e.Endpoints))
		}
	}
}

// instancesOf lists the instances of an application that are to stay, by id.
func (l *ledger) instancesOf(app skerry.AppKey) iter.Seq[network.Instance] {
	ids := sortedIDs(l.byApp[app])
	return func(yield func(network.Instance) bool) {
		for _, id := range ids {
			p := l.places[id]
			if p.Removing {
				continue
			}
			i := network.Instance{ID: id, Service: p.A.Service.Service, Links: p.A.Spec.Links, Worker: p.Worker,
				Serves: p.Obs.Ready && !p.Obs.Unreachable, Address: p.Obs.Address, Ports: p.Obs.Ports}
			if p.Next != nil {
				i.Next = p.Next.Worker
			}
			if !yield(i) {
				return
			}
		}
	}
}
