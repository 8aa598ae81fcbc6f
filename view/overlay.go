package view

import (
	"net/netip"
	"time"

	"skerry.dev/skerry/wire"
)

// OverlayView tells how a worker fares in the overlay, and by which way it reaches each of the others.
type OverlayView struct {
	Off         string      `json:"off,omitempty" doc:"Why it takes no part; all else is then empty."`
	Handling    string      `json:"handling,omitempty" doc:"How packets are handled: ebpf or nftables."`
	Why         string      `json:"why,omitempty" doc:"Why not by a better way."`
	Cipher      string      `json:"cipher,omitempty" doc:"Of the paths that the datapath encrypts."`
	NoWireGuard string      `json:"noWireguard,omitempty" doc:"Why the WireGuard of its kernel is not used; empty: it is."`
	Services    int         `json:"services" doc:"Service addresses that lead somewhere."`
	Flows       int         `json:"flows" doc:"TCP flows through service addresses now."`
	FlowsMax    int         `json:"flowsMax" doc:"And at most."`
	Relays      []RelayView `json:"relays,omitempty" doc:"By which peers are reached who are not otherwise."`
	Peers       []PathView  `json:"peers,omitempty" doc:"Other workers with which packets are exchanged, and gateways to those of other sites."`
	More        int         `json:"more,omitempty" doc:"Peers that are left out, because there are too many."`
}

// MaxPathViews bounds the peers of an OverlayView.
const MaxPathViews = 1000

// PathView is the way to one peer.
type PathView struct {
	Peer      wire.PeerID    `json:"peer"`
	Name      string         `json:"name,omitempty" doc:"Of a worker of the same site."`
	Path      string         `json:"path" doc:"plain, wireguard, direct or relay, the best first; none: there is none now."`
	Reason    string         `json:"reason,omitempty" doc:"Why it is not a better one."`
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	RTTMs     float64        `json:"rttMs,omitempty" doc:"Round trip, smoothed, in milliseconds; 0: not known."`
	Loss      float64        `json:"loss,omitempty" doc:"Share of probes without an answer, from 0 to 1."`
	RxBytes   int64          `json:"rxBytes"`
	TxBytes   int64          `json:"txBytes"`
	Handshake time.Time      `json:"handshake,omitzero" doc:"The last one."`
}

// RelayView is a relay as a worker sees it.
type RelayView struct {
	Name   string `json:"name"`
	Over   string `json:"over,omitempty" doc:"udp or tls; empty: the worker is not registered there."`
	Reason string `json:"reason,omitempty" doc:"Why it is not registered, or not by UDP."`
}
