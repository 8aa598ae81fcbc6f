package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
)

// overlay is all that the site keeps of how its workers, those of other sites and clients reach its instances. The parts of package network
// own their state; fabric has numbers, addresses and keys, and foreign what concerns other sites.
type overlay struct {
	*books
	fabric    fabric
	foreign   foreign
	peers     *network.Peers
	paths     *network.Paths
	endpoints *network.Endpoints
	ingress   *network.Ingress
}

func newOverlay(b *books) overlay {
	return overlay{books: b, fabric: newFabric(), paths: network.NewPaths(), endpoints: network.NewEndpoints()}
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
