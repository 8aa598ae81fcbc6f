package cluster

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// publishEndpoints gives every worker that runs something of an application the endpoints of the services that it is
// linked to. It stands in for the routes of the overlay.
func (c *Core) publishEndpoints(app skerry.AppKey) {
	wanted := map[endpointsAt]bool{}
	for _, p := range c.byApp[app] {
		if p.Worker == "" || p.Removing {
			continue
		}
		for _, l := range p.A.Spec.Links {
			wanted[endpointsAt{p.Worker, l.Service}] = true
			if p.Next != nil {
				wanted[endpointsAt{p.Next.Worker, l.Service}] = true
			}
		}
	}
	ids := sortedIDs(c.byApp[app])
	for w := range wanted {
		e := skerry.Endpoints{Service: skerry.ServiceKey{App: app, Service: w.target}}
		for _, id := range ids {
			p := c.places[id]
			if p.A.Service.Service != w.target || !p.Obs.Ready || p.Removing || p.Obs.Unreachable {
				continue
			}
			for _, b := range p.Obs.Ports {
				switch {
				case p.Worker == w.worker && p.Obs.Address != "":
					e.List = append(e.List, skerry.Endpoint{Instance: id, Port: b.Name, Protocol: b.Protocol, Address: net.JoinHostPort(p.Obs.Address, strconv.Itoa(b.Port))})
				case b.Address != "":
					e.List = append(e.List, skerry.Endpoint{Instance: id, Port: b.Name, Protocol: b.Protocol, Address: b.Address})
				}
			}
		}
		// Endpoints of one service are small; a set that is too large for one item keeps the old list.
		_ = c.Kids.Put(w.worker, skerry.EndpointsKey(e.Service), c.item(w.worker, &e))
	}
	gone := func(a, b endpointsAt) int {
		return cmp.Or(strings.Compare(a.worker, b.worker), strings.Compare(a.target, b.target))
	}
	for _, at := range slices.SortedFunc(maps.Keys(c.published[app]), gone) {
		if !wanted[at] {
			c.Kids.Delete(at.worker, skerry.EndpointsKey(skerry.ServiceKey{App: app, Service: at.target}))
		}
	}
	if len(wanted) == 0 {
		delete(c.published, app)
	} else {
		c.published[app] = wanted
	}
}

// endpointsAt says that a worker has the endpoints of a service.
type endpointsAt struct{ worker, target string }

// loadPublished finds out what an earlier life published.
func (c *Core) loadPublished() {
	for _, name := range c.Kids.Names() {
		for _, key := range c.Kids.Get(name).Desired.Keys() {
			part := strings.Split(key, "/")
			if len(part) != 4 || part[0] != "ep" {
				continue
			}
			app := skerry.AppKey{Namespace: part[1], Name: part[2]}
			if c.published[app] == nil {
				c.published[app] = map[endpointsAt]bool{}
			}
			c.published[app][endpointsAt{name, part[3]}] = true
			c.linked[app] = true
		}
	}
}
