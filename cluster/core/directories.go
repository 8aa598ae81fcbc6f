package core

import (
	"bytes"
	"net/netip"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/wire"
)

// network gives the directory of an application that runs here, or nil.
func (d *directories) network(app skerry.AppKey) *wire.AppNetwork {
	if n := d.Apps.Network(app); n != nil {
		return n
	}
	value, orphaned, ok := d.Up.Desired.Get(wire.NetworkItem(app))
	if !ok || orphaned && len(d.byApp[app]) == 0 { // what a root that was restored does not know runs on
		delete(d.overlayNet.read, app)
		return nil
	}
	if r, ok := d.overlayNet.read[app]; ok && bytes.Equal(r.value, value) {
		return r.network
	}
	n := new(wire.AppNetwork)
	if d.codec.Unmarshal(value, n) != nil || n.App != app {
		n = nil
	}
	d.overlayNet.read[app] = readNetwork{value, n}
	return n
}

func (d *directories) networkOf(app skerry.AppKey) wire.NetworkID {
	if id := d.Apps.NetworkID(app); id != 0 {
		return id
	}
	if n := d.network(app); n != nil {
		return n.Net
	}
	return 0
}

// reaches gives the network of a service if an application may reach it, else 0. What is exported to one may be at other
// sites alone, where this one does not know its directory.
func (d *directories) reaches(app skerry.AppKey, k skerry.ServiceKey) wire.NetworkID {
	if app == k.App || d.Apps.Exported(app, k) {
		return d.networkOf(k.App)
	}
	if d.localApp(app) != nil {
		return 0
	}
	if n := d.network(app); n != nil {
		for i := range n.Services {
			if n.Services[i].Of == k {
				return n.Services[i].Net
			}
		}
	}
	return 0
}

// exists reports whether a service that somebody here may reach is there, as far as the site can know.
func (d *directories) exists(k skerry.ServiceKey) bool {
	n := d.network(k.App)
	return n == nil || slices.ContainsFunc(n.Services, func(s wire.NetworkService) bool { return n.Real(&s) == k })
}

func (d *directories) pool() netip.Prefix {
	if d.opt.Pool.IsValid() {
		return d.opt.Pool
	}
	return ipam.DefaultPool()
}

// directories are the networks of applications: their numbers, their services, and which application may reach which.
type directories struct {
	*books
	opt        *Options
	overlayNet overlayNet
}

// readNetwork is a directory of the root's as it came, and as it was read; nobody changes it.
type readNetwork struct {
	value   []byte
	network *wire.AppNetwork
}

// overlayNet is what the site gives its workers for the overlay: numbers, blocks of addresses, and what goes with paths.
type overlayNet struct {
	Last            wire.PeerID    `json:"last"`    // number given last; none is given twice
	ULA             netip.Prefix   `json:"ula"`     // of the site, 48 bits
	Extents         []netip.Prefix `json:"extents"` // IPv4 prefixes that blocks come from
	Blocks          ipam.Blocks    `json:"blocks"`
	Secret          []byte         `json:"secret"` // keys and tags are made of it
	network.Numbers                // of workers of other sites, as the part that owns them had them when it was saved

	names   map[wire.PeerID]string            // workers by number
	told    map[string][]byte                 // by worker: the node item it has
	sites   map[skerry.AppKey]map[string]bool // workers that have the directory of an application
	turn    int64                             // period of tags that peers were told of
	read    map[skerry.AppKey]readNetwork     // directories of the root's applications
	dirty   bool                              // the record must be written
	refused map[string]int                    // what the overlay refused to take so far, by reason
}

func newOverlayNet() overlayNet {
	return overlayNet{names: map[wire.PeerID]string{}, told: map[string][]byte{}, sites: map[skerry.AppKey]map[string]bool{},
		read: map[skerry.AppKey]readNetwork{}, refused: map[string]int{refusedUnread: 0, refusedWants: 0}}
}

// v6 is the IPv6 address of an instance on a worker.
func (f *overlayNet) v6(id wire.PeerID, a netip.Addr) netip.Addr {
	p, err := ipam.Subnet64(f.ULA, uint32(id))
	if err != nil {
		return netip.Addr{}
	}
	return ipam.Twin(p, a)
}

// Reasons for which interests are refused.
const (
	refusedUnread = "interests that cannot be read"
	refusedWants  = "more interests than a worker may have"
)

// The root's applications and the site's own have names of one kind. Two of one name would be in one network, and their services stand in
// for each other; that is no matter within an organisation. Of two organisations, whoever comes second is refused.

// takenAbove says why an application of the site's own may not be applied: the root has one of its name here, of another organisation.
func (d *directories) takenAbove(msg any) error {
	m, is := msg.(apps.Apply)
	if !is {
		return nil
	}
	k, _ := autonomy.Target(m)
	n := d.network(k)
	if n == nil || n.Org == "" || d.Apps.App(k) != nil {
		return nil
	}
	for _, s := range d.Apps.Namespaces() {
		if s.Name == k.Namespace && s.Org != n.Org {
			return skerry.Errorf(skerry.CodeConflict, "the root has an application %s at this site, of another organisation",
				k).WithHint("choose another name or namespace")
		}
	}
	return nil
}

const keyOverlayNet = "fabric"
