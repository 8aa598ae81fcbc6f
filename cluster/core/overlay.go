package core

import (
	"iter"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/wire"
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
	certs     publicCerts
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
	for name := range o.overlayNet.sites[k] {
		o.interests.TouchRights(name, k)
	}
}

// audit says what its parts contradict.
func (o *overlay) audit() []string {
	known, there := o.workers.has, func(app skerry.AppKey) bool { return o.byApp[app] != nil }
	return slices.Concat(o.peers.Audit(known), o.ingress.Audit(known), o.paths.Audit(), o.interests.Audit(), o.remote.sites.Audit(),
		o.endpoints.Audit(known, there))
}

// publishEndpoints gives every worker that runs something of an application the endpoints of the services that it is linked to.
func (o *overlay) publishEndpoints(app skerry.AppKey) {
	for _, e := range o.endpoints.Publish(app, o.instancesOf(app)) {
		if key := wire.EndpointsKey(e.Service); e.Gone {
			o.Children.Delete(e.Worker, key)
		} else {
			// Endpoints of one service are small; a set that is too large for one item keeps the old list.
			_ = o.Children.Put(e.Worker, key, o.item(e.Worker, &e.Endpoints))
		}
	}
}

// attached is how many addresses of a worker are in use: those of instances, and of its ingress in each network.
func (o *overlay) attached(w *worker) int {
	n := len(o.byWorker[w.Name])
	if w.hasIngress() {
		n += o.ingress.Networks()
	}
	return n
}

// letsIn reports whether a worker's ingress leads to a service.
func (o *overlay) letsIn(name string, k skerry.ServiceKey) bool {
	w := o.workers[name]
	return w != nil && w.hasIngress() && o.ingress.Offers(k)
}

// measuring is what network sees of a site.
type measuring struct{ b *books }

// Reachable implements network.Members.
func (m measuring) Reachable() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, w := range m.b.workers {
			if w.reachable() && !yield(name, w.Facts.Probe) {
				return
			}
		}
	}
}

// Measuring implements network.Members.
func (m measuring) Measuring() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, w := range m.b.workers {
			if w.Facts != nil && m.b.Children.Get(name) != nil && !yield(name) {
				return
			}
		}
	}
}

// Tell implements network.Members.
func (m measuring) Tell(worker string, p *wire.Peers) bool {
	if p == nil {
		m.b.Children.Delete(worker, wire.PeersKey)
		return true
	}
	return m.b.Children.Put(worker, wire.PeersKey, m.b.codec.Marshal(p)) == nil
}

// publicCerts is the certificates that a site orders of a public authority, and the account there.
type publicCerts struct {
	*certs.Certs
	account acmeAccount
	look    bool // what workers answer may be another than before
	// unserved are hosts that there was no room for and that nobody was told of yet.
	unserved []unserved
}

type acmeAccount struct {
	KeyPEM []byte `json:"key"`
}

// unserved is a host whose certificate the workers do not get with an application.
type unserved struct {
	app  skerry.AppKey
	org  string
	host string
}
