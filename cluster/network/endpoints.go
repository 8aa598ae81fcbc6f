package network

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Endpoints is which workers have the addresses of which services: those that run something linked to them. It stands in for the routes of
// the overlay. The workers' sets say what an earlier life told them, so nothing else is written down.
type Endpoints struct {
	given map[skerry.AppKey]map[told]bool
}

// told says that a worker has the endpoints of a service.
type told struct{ worker, service string }

// Instance is what Endpoints must know of an instance that is to stay.
type Instance struct {
	ID      skerry.InstanceID
	Service string
	Links   []spec.Link
	Worker  string // where it is, or empty
	Next    string // where a copy of it starts, or empty
	Serves  bool   // its endpoints may be used
	Address string // on its worker
	Ports   []wire.PortBinding
}

// Change is what a worker is to be told of a service.
type Change struct {
	Worker string
	wire.Endpoints
	Gone bool // nothing any more
}

// NewEndpoints makes a site whose workers were told nothing.
func NewEndpoints() *Endpoints { return &Endpoints{given: map[skerry.AppKey]map[told]bool{}} }

// Load takes the key of an item in a worker's set. It gives the application, if an earlier life told of its endpoints there.
func (e *Endpoints) Load(worker, key string) (app skerry.AppKey, ok bool) {
	part := strings.Split(key, "/")
	if len(part) != 4 || part[0] != "ep" {
		return app, false
	}
	app = skerry.AppKey{Namespace: part[1], Name: part[2]}
	add(e.given, app, told{worker, part[3]})
	return app, true
}

// Publish gives what workers are to be told of the services of an application, whose instances come in order, perhaps several times.
func (e *Endpoints) Publish(app skerry.AppKey, instances iter.Seq[Instance]) (out []Change) {
	wanted := map[told]bool{}
	for i := range instances {
		if i.Worker == "" {
			continue
		}
		for _, l := range i.Links {
			wanted[told{i.Worker, l.Service}] = true
			if i.Next != "" {
				wanted[told{i.Next, l.Service}] = true
			}
		}
	}
	order := func(a, b told) int {
		return cmp.Or(strings.Compare(a.worker, b.worker), strings.Compare(a.service, b.service))
	}
	for _, at := range slices.SortedFunc(maps.Keys(wanted), order) {
		c := Change{Worker: at.worker, Endpoints: wire.Endpoints{Service: skerry.ServiceKey{App: app, Service: at.service}}}
		for i := range instances {
			if i.Service != at.service || !i.Serves {
				continue
			}
			for _, b := range i.Ports {
				switch {
				case i.Worker == at.worker && i.Address != "":
					c.List = append(c.List, wire.Endpoint{Instance: i.ID, Port: b.Name, Protocol: b.Protocol, Address: hostPort(i.Address, b.Port)})
				case b.Address != "" && !loopback(b.Address):
					c.List = append(c.List, wire.Endpoint{Instance: i.ID, Port: b.Name, Protocol: b.Protocol, Address: b.Address})
				}
			}
		}
		out = append(out, c)
	}
	for _, at := range slices.SortedFunc(maps.Keys(e.given[app]), order) {
		if !wanted[at] {
			k := skerry.ServiceKey{App: app, Service: at.service}
			out = append(out, Change{Worker: at.worker, Endpoints: wire.Endpoints{Service: k}, Gone: true})
		}
	}
	if len(wanted) == 0 {
		delete(e.given, app)
	} else {
		e.given[app] = wanted
	}
	return out
}

// loopback reports whether a port of a worker is published to that worker's own host alone. Elsewhere the same address is another
// machine's own, and leads to whatever listens there.
func loopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}

// hostPort is net.JoinHostPort, which this package may not import.
func hostPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// Audit reports endpoints at workers that are gone, or of applications of which nothing is here.
func (e *Endpoints) Audit(known func(worker string) bool, here func(app skerry.AppKey) bool) (faults []string) {
	for app, at := range e.given {
		for t := range at {
			if !known(t.worker) || !here(app) {
				faults = append(faults, fmt.Sprintf("endpoints of %s/%s are kept at %s", app, t.service, t.worker))
			}
		}
	}
	return faults
}
