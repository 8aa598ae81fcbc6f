// Package overlay holds the terms in which the parts of the overlay speak: what a worker's data plane is to be, and what
// it tells. It changes nothing on the machine. The worker works out a Config; a Device (overlay/bpf, or a fallback) makes
// the machine like it; overlay/tunnel carries what is encrypted.
//
//	instance ── veth ── tc program: service address -> instance address ──┬── another instance of this host
//	                                                                       ├── plain: VXLAN framing, written by the program
//	                                                                       ├── WireGuard device of the kernel: encrypted, UDP
//	                                                                       └── tap ── skerry datapath: encrypted, UDP
//
// Every instance has addresses of its own, unique within the federation, out of its worker's blocks; the network id of
// its application stands beside them in every table and header, and only packets of the same network are delivered. A
// service address means nothing outside its network. Translation and its state are on the client's host only.
package overlay

import (
	"context"
	"net/netip"
	"time"

	"skerry.dev/skerry/wire"
)

// Config is all that a worker's data plane is to be. A device is changed only by Set, with the whole of it.
type Config struct {
	Local     Local
	Instances []Instance
	Services  []Service
	Peers     []Peer
}

// Local is what a worker is in the overlay.
type Local struct {
	ID wire.PeerID
	// Blocks are the prefixes out of which instances here have addresses: IPv4 of 26 bits, and one IPv6 of 64 bits.
	Blocks []netip.Prefix
	// Instances are all prefixes that instances anywhere have addresses from, Services those of service addresses. What
	// goes there and is unknown never leaves by another way.
	Instances, Services []netip.Prefix
	// MTU of instances, in bytes; what is larger is answered with "fragmentation needed".
	MTU int
	// Plain is where datagrams of peers on a trusted network come in; the zero value: none do.
	Plain netip.AddrPort
	// Link is the kernel's WireGuard device; nil: there is none.
	Link *Link
}

// Link is a WireGuard device, which another part made and looks after.
type Link struct {
	Device string
	Prefix netip.Prefix // this worker's on it, see LinkPrefix
}

// LinkBits is the length of a worker's prefix on WireGuard devices. The other 32 bits of an address are a network id.
const LinkBits = 96

// LinkPrefix reports whether a prefix may be a worker's on WireGuard devices.
func LinkPrefix(p netip.Prefix) bool {
	return p.IsValid() && p.Addr().Is6() && !p.Addr().Is4In6() && p.Bits() == LinkBits && p == p.Masked()
}

// Instance is one that is attached here.
type Instance struct {
	ID     string // of the attachment
	Net    wire.NetworkID
	Device string // the host's end of its cable
	Addrs  []netip.Addr
	// Foreign are networks whose packets the instance accepts beyond its own.
	Foreign []wire.NetworkID
}

// Service is a service address with what it leads to now. New flows take the slots in turn, so a weight is a number of
// slots; flows that exist keep their backend. Without slots, or for an address that no Service has, the packet is a Miss.
type Service struct {
	Net   wire.NetworkID
	Addr  netip.Addr
	Slots []Backend // at most MaxSlots
}

// Cover is what a path adds to a packet at most, in bytes: an outer IPv6 and UDP header, and what the tunnel or a relay puts
// before and behind it. The MTU of instances is smaller than that of the wire by it, whatever the path, because packets
// change paths and connections do not change their segment size.
const Cover = 96

// LinkCover is the same where the kernel has WireGuard: an outer IPv6 and UDP header, WireGuard's own 32 bytes, and within it an
// IPv6 header.
const LinkCover = 40 + 8 + 32 + 40

// MaxSlots is the most slots of a service address.
const MaxSlots = 64

// Backend is an instance that a service address may lead to. Its network is another one only if the service is exported
// to the network of the address.
type Backend struct {
	Net  wire.NetworkID
	Addr netip.Addr
}

// Peer is another worker, or a gateway to those of another site, with which packets are exchanged. There is one path to
// each, whatever the number of services.
type Peer struct {
	ID       wire.PeerID
	Name     string         // for people; empty for one of another site
	Prefixes []netip.Prefix // addresses of instances behind it; what comes from it must come from these
	// Plain: packets go to it and come from it unencrypted. Nil: by Link, or by the tunnel, under the peer's ID.
	Plain *PlainPath
	// Link: packets may come from it by the WireGuard device. Nil: they may not.
	Link *LinkPath
}

// LinkPath is a path through the kernel's WireGuard.
type LinkPath struct {
	Prefix netip.Prefix // the peer's on the device, see LinkPrefix
	// Use: packets to it go there. Otherwise they go by the tunnel, while those that come by the device are taken: peers change
	// paths each at its own moment.
	Use bool
}

// PlainPath is a path over a network that the site's operator declared trusted. Each datagram carries a tag that only
// the two peers and their cluster know; it is checked together with the address that it comes from.
type PlainPath struct {
	Endpoint netip.AddrPort
	TagOut   uint64
	TagsIn   []uint64 // at most two: while tags are rotated, the old one too
}

// Device is a worker's data plane. Traffic goes on after Close; CleanUp takes it down.
type Device interface {
	// Set makes the data plane what the configuration says. It is idempotent, and disturbs no flow that it need not.
	Set(ctx context.Context, c Config) error
	// Reset ends the flows to a backend that is no more: clients on this host see a reset at once.
	Reset(addr netip.Addr) error
	// Events gives what happens, until Close closes it. It has room for some hundred; what does not fit is counted.
	Events() <-chan Event
	Stats() (Stats, error)
	Close() error
	CleanUp() error
}

// ServiceAddr is a service address with its network.
type ServiceAddr struct {
	Net  wire.NetworkID
	Addr netip.Addr
}

// InUser is a Device that can tell which service addresses flows lead to. Of another one's it is not known.
type InUser interface {
	InUse() (map[ServiceAddr]bool, error)
}

// Event is something that the data plane came upon.
type Event struct {
	Kind EventKind
	Net  wire.NetworkID
	Src  netip.Addr
	Dst  netip.Addr
	Peer wire.PeerID // that it came from or went to; 0: an instance here
}

// EventKind says what was come upon.
type EventKind string

// Kinds of events.
const (
	// EventMiss: an instance here (Src) sent to a service address, or to an instance address, for which nothing is known.
	// The packet is held for a moment, and goes on when Set makes it known.
	EventMiss EventKind = "miss"
	// EventUnknown: a peer sent to an address of this worker that no instance has: its routes are old.
	EventUnknown EventKind = "unknown"
	// EventFull: a flow was refused because the table is full.
	EventFull EventKind = "full"
)

// Stats are counters since the data plane was made, and the sizes of its tables.
type Stats struct {
	Flows, FlowsMax int              // now, and at most
	MapBytes        int64            // kernel memory of the tables
	Counters        map[string]int64 // packets, by what was done with them; those that begin with "drop-" were dropped
}

// PathStatus tells how a peer is reached, for `skerry worker status`.
type PathStatus struct {
	Peer      wire.PeerID    `json:"peer"`
	Name      string         `json:"name,omitempty"`
	Path      PathKind       `json:"path"`
	Reason    string         `json:"reason,omitempty"` // why it is not a better one
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	Cipher    string         `json:"cipher,omitempty"`
	RTT       time.Duration  `json:"rtt,omitempty"`  // smoothed; 0: not known
	Loss      float64        `json:"loss,omitempty"` // share of probes not answered, 0 to 1
	RxBytes   int64          `json:"rxBytes"`
	TxBytes   int64          `json:"txBytes"`
	Handshake time.Time      `json:"handshake,omitzero"` // last one
}

// RelayStatus tells of a worker's registration at a relay.
type RelayStatus struct {
	Name      string         `json:"name"`
	Over      string         `json:"over"`               // "udp", "tls", or empty: not registered
	Reflexive netip.AddrPort `json:"reflexive,omitzero"` // this worker's address as the relay sees it; of the last time that UDP passed
	Reason    string         `json:"reason,omitempty"`   // why it is not registered, or not by UDP
}

// Status tells how a worker fares in the overlay.
type Status struct {
	Off    string         `json:"off,omitempty"` // why it takes no part; all else is then empty
	ID     wire.PeerID    `json:"id,omitempty"`  // 0: the cluster has not said yet
	Blocks []netip.Prefix `json:"blocks,omitempty"`
	V6     netip.Prefix   `json:"v6,omitzero"`
	Path   string         `json:"path,omitempty"` // how packets are handled
	Why    string         `json:"why,omitempty"`  // why not by a better way
	Port   uint16         `json:"port,omitempty"` // UDP, of sealed datagrams
	Cipher string         `json:"cipher,omitempty"`
	// WireGuard is the UDP port of the kernel's WireGuard; 0: it is not used, for the reason in NoWireGuard.
	WireGuard   uint16           `json:"wireguard,omitempty"`
	NoWireGuard string           `json:"noWireguard,omitempty"`
	Seen        []netip.AddrPort `json:"seen,omitempty"` // where this worker may be reached, as far as it knows
	Services    int              `json:"services"`       // service addresses that lead somewhere
	Routes      int              `json:"routes"`
	Flows       int              `json:"flows"`
	FlowsMax    int              `json:"flowsMax"`
	MapBytes    int64            `json:"mapBytes"` // kernel memory of tables
	Counters    map[string]int64 `json:"counters,omitempty"`
	Relays      []RelayStatus    `json:"relays,omitempty"` // by which peers are reached who are not otherwise
	Peers       []PathStatus     `json:"peers,omitempty"`
}

// PathKind says by which way packets go.
type PathKind string

// Ways, best first.
const (
	PathPlain     PathKind = "plain"     // unencrypted, over a trusted network
	PathWireGuard PathKind = "wireguard" // encrypted by the kernel's WireGuard, from worker to worker
	PathDirect    PathKind = "direct"    // encrypted by the datapath, from worker to worker
	PathRelay     PathKind = "relay"     // encrypted end to end, by way of the cluster orchestrator
	PathNone      PathKind = "none"      // none works now
)

// Frames between the tc programs and the datapath or the agent go over tap devices. What belongs to a packet beside its
// bytes travels in its Ethernet header, which means nothing else there, so that large segments need no special care:
//
//	destination 02 KK PP PP PP PP    KK a FrameKind, PP the peer's ID (0: none)
//	source      02 00 NN NN NN NN    NN the network id
//
// Numbers are big-endian.
type FrameKind byte

// Kinds of frames.
const (
	FrameData   FrameKind = 0 // to or from the peer
	FrameMiss   FrameKind = 1 // to the agent: nothing is known of its destination
	FrameTooBig FrameKind = 2 // to the agent: longer than the MTU, and must not be cut
	FrameAgain  FrameKind = 3 // from the agent: as if the instance with its source address had sent it
	FrameToInst FrameKind = 4 // from the agent: for the instance with its destination address
	FrameDead   FrameKind = 5 // to the agent: of a TCP flow that Reset ended, to be answered by a reset
)
