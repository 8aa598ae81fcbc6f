package cluster

import (
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
)

// overlay is how the workers of a site, those of other sites and clients reach its instances: what workers are given for that, and who is
// told of whom. It stands on abroad (other sites), and that on directories (what applications may reach).
//
//	a worker joins ─► admit: number, addresses ─► its node item
//	a worker wants a route ─► interests ─► publishRoutes ─► paths ─► publishPeers
//	an instance changes ─► linked ─► publishEndpoints, publishNetwork ─► routes
//	an ingress opens ─► settleIngress ─► who gets which way in
type overlay struct {
	*abroad
	peers     *network.Peers
	endpoints *network.Endpoints
	ingress   *network.Ingress
}

func newOverlay(b *books, opt *Options) *overlay {
	dir := &directories{books: b, opt: opt, fabric: newFabric()}
	a := &abroad{directories: dir, paths: network.NewPaths()}
	a.foreign = newForeign(home{a})
	o := &overlay{abroad: a, peers: network.NewPeers(members{b}, opt.Secret[:]), endpoints: network.NewEndpoints()}
	o.ingress = network.NewIngress(gates{o})
	return o
}

// marks are what of the overlay must be worked out again.
type marks struct {
	interests *network.Interests     // and whose routes they concern
	readmit   map[string]bool        // workers whose part in the overlay must be looked at
	linked    map[skerry.AppKey]bool // applications whose endpoints and directories must be
}

func newMarks() marks {
	return marks{network.NewInterests(), map[string]bool{}, map[skerry.AppKey]bool{}}
}

// relink has what workers know of an application worked out again.
func (o *overlay) relink(app string) {
	if k, err := skerry.ParseAppKey(app, ""); err == nil {
		o.redirected(k)
	}
}

// redirected has what follows from an application's directory worked out again.
func (o *overlay) redirected(k skerry.AppKey) {
	o.linked[k] = true
	for name := range o.fabric.sites[k] {
		o.interests.TouchRights(name, k)
	}
}

// audit says what its parts contradict.
func (o *overlay) audit() []string {
	known, there := o.workers.has, func(app skerry.AppKey) bool { return o.byApp[app] != nil }
	return slices.Concat(o.peers.Audit(known), o.ingress.Audit(known), o.paths.Audit(), o.interests.Audit(), o.foreign.sites.Audit(), o.endpoints.Audit(known, there))
}
