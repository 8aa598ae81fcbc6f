package wire

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// NetworkID tells the networks of applications apart: it is part of every key and header of the overlay. 0 is none. The
// root gives those below LocalNetworks, a site those from there on to its own applications, which never leave it.
type NetworkID uint32

// LocalNetworks is the first network id that a site gives.
const LocalNetworks NetworkID = 1 << 31

// PeerID is a worker's, or a gateway's, number in the overlay of a site, given by the cluster. 0 is none.
type PeerID uint32

// OverlayKey is the public key of a worker's end of encrypted paths: X25519, 32 bytes.
type OverlayKey [32]byte

// IsZero reports whether there is no key.
func (k OverlayKey) IsZero() bool { return k == OverlayKey{} }

// OverlayFacts is what a worker that takes part in the overlay tells of itself.
type OverlayFacts struct {
	Key       OverlayKey       `json:"key" cbor:"1,keyasint"`
	Endpoints []netip.AddrPort `json:"endpoints,omitempty" cbor:"2,keyasint,omitempty"` // where sealed datagrams come in, on its own networks
	Plain     netip.AddrPort   `json:"plain,omitzero" cbor:"3,keyasint,omitzero"`       // where plain ones do; the zero value: nowhere
	Networks  []netip.Prefix   `json:"networks,omitempty" cbor:"4,keyasint,omitempty"`  // of the host itself, which blocks must not overlap
	Path      string           `json:"path,omitempty" cbor:"5,keyasint,omitempty"`      // how packets are handled: "ebpf" or "nftables"
	Why       string           `json:"why,omitempty" cbor:"6,keyasint,omitempty"`       // why not by a better way
	// Ingress are addresses at which clients outside reach the worker's ingress; none: it has no ingress. An unspecified one
	// says that they are not known.
	Ingress []netip.Addr `json:"ingress,omitempty" cbor:"7,keyasint,omitempty"`
	// WireGuard is what peers need for a path by the kernel's own; nil: its kernel has none, or packets are not handled by
	// programs in the kernel.
	WireGuard *WireGuardFacts `json:"wireguard,omitempty" cbor:"8,keyasint,omitempty"`
}

// WireGuardFacts are those of a worker's WireGuard device.
type WireGuardFacts struct {
	Key  OverlayKey `json:"key" cbor:"1,keyasint"`  // public; of this device alone
	Port uint16     `json:"port" cbor:"2,keyasint"` // UDP, on the worker's own addresses
	// Reflexive is where a relay sees that port, if addresses are translated on the way.
	Reflexive netip.AddrPort `json:"reflexive,omitzero" cbor:"3,keyasint,omitzero"`
}

// Items of a worker's desired set that concern the overlay. All but the node's are there because something at the worker
// needs them.
const (
	NodeKey       = "node" // OverlayNode
	prefixNetwork = "net/"
	prefixRoute   = "route/"
	prefixPeer    = "peer/"
	prefixWant    = "want/"
)

// OverlayNode is what a worker is in the overlay of its site.
type OverlayNode struct {
	ID        PeerID         `json:"id" cbor:"1,keyasint"`
	Blocks    []netip.Prefix `json:"blocks" cbor:"2,keyasint"`               // IPv4 prefixes of 26 bits, for instances there
	V6        netip.Prefix   `json:"v6,omitzero" cbor:"3,keyasint,omitzero"` // of 64 bits
	Instances []netip.Prefix `json:"instances" cbor:"4,keyasint"`            // all prefixes that instances anywhere have addresses of
	Relays    []Relay        `json:"relays,omitempty" cbor:"5,keyasint,omitempty"`
	Trusted   bool           `json:"trusted,omitempty" cbor:"6,keyasint,omitempty"` // the operator declared the site's network trusted
}

// Relay is where workers find out how they are seen from outside, and by which sealed datagrams go that find no other way.
type Relay struct {
	Name string         `json:"name" cbor:"1,keyasint"`
	UDP  netip.AddrPort `json:"udp,omitzero" cbor:"2,keyasint,omitzero"`
	TLS  netip.AddrPort `json:"tls,omitzero" cbor:"3,keyasint,omitzero"` // the same over TLS, where UDP is blocked
	Pin  [32]byte       `json:"pin,omitzero" cbor:"4,keyasint,omitzero"` // SHA-256 of its public key, for TLS
	Key  [32]byte       `json:"-" cbor:"5,keyasint"`                     // of this worker at that relay
}

// NetworkItem is the key of the AppNetwork of an application, in the desired set of a worker that runs something of it and
// of a site that does.
func NetworkItem(app skerry.AppKey) string { return prefixNetwork + app.String() }

// AppNetwork is the directory of an application: its network and the addresses of its services.
type AppNetwork struct {
	App      skerry.AppKey    `json:"app" cbor:"1,keyasint"`
	Org      string           `json:"org,omitempty" cbor:"2,keyasint,omitempty"`
	Net      NetworkID        `json:"net" cbor:"3,keyasint"`
	Services []NetworkService `json:"services" cbor:"4,keyasint"`
	// Certificates are those that the ingresses name. A site hands them, and Authority, only to workers with an ingress.
	Certificates []IngressCertificate `json:"-" cbor:"5,keyasint,omitempty"`
	// Authority signs the certificates of ingresses with TLSSelf. Nil: none has it, or the root speaks.
	Authority *IngressCertificate `json:"-" cbor:"6,keyasint,omitempty"`
	// Aliases are names that lead to the instances of several services, with addresses of their own.
	Aliases []NetworkService `json:"aliases,omitempty" cbor:"7,keyasint,omitempty"`
	// Challenges are what a certificate authority asks about hosts of the application. A site hands them only to workers with an ingress.
	Challenges []IngressChallenge `json:"-" cbor:"8,keyasint,omitempty"`
}

// NetworkService is one service with its service addresses in a network.
type NetworkService struct {
	Name        string       `json:"name" cbor:"1,keyasint"` // within the network
	RoundRobin  netip.Addr   `json:"roundRobin" cbor:"2,keyasint"`
	Closest     netip.Addr   `json:"closest" cbor:"3,keyasint"`
	LeastLoaded netip.Addr   `json:"leastLoaded" cbor:"4,keyasint"`
	Instances   []netip.Addr `json:"instances,omitempty" cbor:"5,keyasint,omitempty"` // by ordinal
	Ports       []spec.Port  `json:"ports,omitempty" cbor:"6,keyasint,omitempty"`
	// Of is the service itself where it is another application's that exported it to this one.
	Of skerry.ServiceKey `json:"of,omitzero" cbor:"7,keyasint,omitzero"`
	// Net is the network that the service itself is in, where it is another application's.
	Net NetworkID `json:"net,omitempty" cbor:"12,keyasint,omitempty"`
	// Short: its short name works, because no service of the application's own has it.
	Short bool `json:"short,omitempty" cbor:"8,keyasint,omitempty"`
	// Allow are networks of other applications that the service is exported to: its instances accept their packets.
	Allow []NetworkID `json:"allow,omitempty" cbor:"10,keyasint,omitempty"`
	// Links name services of the application that this one talks to; their routes are fetched ahead.
	Links []string `json:"links,omitempty" cbor:"9,keyasint,omitempty"`
	// Ingress are the ways in from outside; a worker is told of those that it is to offer.
	Ingress []spec.Ingress `json:"ingress,omitempty" cbor:"11,keyasint,omitempty"`
	// Sleeps: it may have no instance; what comes by an ingress then waits for one to start.
	Sleeps bool `json:"sleeps,omitempty" cbor:"13,keyasint,omitempty"`
	// Leads are the services whose instances an alias leads to, in whatever application they are. A service leads to its own.
	Leads []skerry.ServiceKey `json:"leads,omitempty" cbor:"14,keyasint,omitempty"`
}

// Address gives the service address of a policy.
func (s *NetworkService) Address(b spec.Balance) netip.Addr {
	switch b {
	case spec.BalanceRoundRobin:
		return s.RoundRobin
	case spec.BalanceClosest:
		return s.Closest
	case spec.BalanceLeastLoaded:
		return s.LeastLoaded
	}
	return netip.Addr{}
}

// Real gives the service that is meant, in whatever application it is.
func (n *AppNetwork) Real(s *NetworkService) skerry.ServiceKey {
	if s.Of != (skerry.ServiceKey{}) {
		return s.Of
	}
	return skerry.ServiceKey{App: n.App, Service: s.Name}
}

// Addressed lists all that has service addresses: the services, and then the aliases.
func (n *AppNetwork) Addressed() iter.Seq[*NetworkService] {
	return func(yield func(*NetworkService) bool) {
		for _, list := range [][]NetworkService{n.Services, n.Aliases} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Alias finds an alias of the application itself, or gives nil.
func (n *AppNetwork) Alias(name string) *NetworkService {
	for i := range n.Aliases {
		if s := &n.Aliases[i]; s.Name == name && s.Of == (skerry.ServiceKey{}) {
			return s
		}
	}
	return nil
}

// Ends gives the services whose instances the addresses of a service, or of an alias, lead to.
func (n *AppNetwork) Ends(s *NetworkService) []skerry.ServiceKey {
	if len(s.Leads) > 0 {
		return s.Leads
	}
	return []skerry.ServiceKey{n.Real(s)}
}

// EnteredBy gives where a way in to a service leads, and the port there; 0: there is none. That is the service itself, or its alias that
// the way in names.
func (net *AppNetwork) EnteredBy(service *NetworkService, way *spec.Ingress) (to *NetworkService, number int) {
	port, ok := way.Port.Find(service.Ports)
	alias := net.Alias(way.Alias)
	switch {
	case !ok:
		return service, 0
	case way.Alias == "":
		return service, port.Port
	case alias == nil:
		return service, 0
	}
	var all [][]spec.Port
	for i := range net.Services {
		if slices.Contains(alias.Leads, net.Real(&net.Services[i])) {
			all = append(all, net.Services[i].Ports)
		}
	}
	return alias, spec.CommonPort(port, all...)
}

// WantKey is the key of a Want in the observed set of a worker, or of a site.
func WantKey(k skerry.ServiceKey) string { return prefixWant + k.String() }

// Want is an interest in the routes of a service. It holds until it is deleted.
type Want struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
}

// RouteKey is the key of a Route in a worker's desired set.
func RouteKey(k skerry.ServiceKey) string { return prefixRoute + k.String() }

// MaxBackends is how many instances of a service a worker is told of: the nearest ones.
const MaxBackends = 32

// Route tells where the instances of a service are. It is there as long as the worker wants it.
type Route struct {
	Service  skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Net      NetworkID         `json:"net" cbor:"2,keyasint"`
	Backends []RouteBackend    `json:"backends" cbor:"3,keyasint"`
}

// RouteBackend is an instance that a route leads to. One that is not listed any more is gone, and flows to it are reset.
type RouteBackend struct {
	Instance skerry.InstanceID `json:"instance" cbor:"1,keyasint"`
	Ordinal  int               `json:"ordinal" cbor:"2,keyasint,omitempty"`
	Peer     PeerID            `json:"peer" cbor:"3,keyasint"` // the worker's that runs it
	Addr     netip.Addr        `json:"addr" cbor:"4,keyasint"`
	Addr6    netip.Addr        `json:"addr6,omitzero" cbor:"5,keyasint,omitzero"`
	// Draining: it gets no new flows, and keeps those that it has.
	Draining bool `json:"draining,omitempty" cbor:"6,keyasint,omitempty"`
	// Load is the part of its processors that it uses, 0 to 1.
	Load float64 `json:"load,omitempty" cbor:"7,keyasint,omitempty"`
	// Where its worker is, as far as known.
	Coordinate *spec.Coordinate `json:"coordinate,omitempty" cbor:"8,keyasint,omitempty"`
	Location   *spec.Location   `json:"location,omitempty" cbor:"9,keyasint,omitempty"`
}

// OverlayPeerKey is the key of an OverlayPeer in a worker's desired set.
func OverlayPeerKey(id PeerID) string { return prefixPeer + id.String() }

// OverlayPeer is another worker, or a gateway, with which a worker exchanges packets: because one has routes to the
// other's instances. Both are told of each other.
type OverlayPeer struct {
	ID        PeerID           `json:"id" cbor:"1,keyasint"`
	Name      string           `json:"name,omitempty" cbor:"2,keyasint,omitempty"`
	Key       OverlayKey       `json:"key" cbor:"3,keyasint"`
	Endpoints []netip.AddrPort `json:"endpoints,omitempty" cbor:"4,keyasint,omitempty"`
	Prefixes  []netip.Prefix   `json:"prefixes" cbor:"5,keyasint"`
	// Plain is where plain datagrams go; the zero value: they are sealed. Tags go with them.
	Plain  netip.AddrPort `json:"plain,omitzero" cbor:"6,keyasint,omitzero"`
	TagOut uint64         `json:"-" cbor:"7,keyasint,omitempty"`
	TagsIn []uint64       `json:"-" cbor:"8,keyasint,omitempty"`
	// Indirect: it is reached by relays alone, because it is at another site.
	Indirect bool `json:"indirect,omitempty" cbor:"10,keyasint,omitempty"`
	// WireGuard: it may be reached by the kernel's, if this worker has it, too. Nil: it is not.
	WireGuard *WireGuardFacts `json:"wireguard,omitempty" cbor:"11,keyasint,omitempty"`
}

// String gives the number in decimal.
func (p PeerID) String() string { return strconv.FormatUint(uint64(p), 10) }
