package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
)

// overlay is all that the site keeps of how its workers, those of other sites and clients reach its instances. The parts of package network
// own their state; fabric has numbers, addresses and keys, and foreign what concerns other sites.
type overlay struct {
	fabric    fabric
	foreign   foreign
	peers     *network.Peers
	paths     *network.Paths
	interests *network.Interests
	endpoints *network.Endpoints
	ingress   *network.Ingress
	readmit   map[string]bool        // workers whose part in the overlay must be looked at again
	linked    map[skerry.AppKey]bool // applications whose endpoints must be worked out again
}

func newOverlay() overlay {
	return overlay{fabric: newFabric(), paths: network.NewPaths(), interests: network.NewInterests(), endpoints: network.NewEndpoints(),
		readmit: map[string]bool{}, linked: map[skerry.AppKey]bool{}}
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
