package view

import (
	"net/netip"
	"time"

	"skerry.dev/skerry/wire"
)

// OverlayView tells how a worker fares in the overlay, and by which way it reaches each of the others.
type OverlayView struct {
	Off         string      `json:"off,omitempty" doc:"Why it takes no part in the overlay. All other fields are then empty."`
	Handling    string      `json:"handling,omitempty" doc:"Datapath: ebpf or nftables."`
	Why         string      `json:"why,omitempty" doc:"Why no better datapath is used."`
	Cipher      string      `json:"cipher,omitempty" doc:"Cipher of the paths that the datapath encrypts."`
	NoWireGuard string      `json:"noWireguard,omitempty" doc:"Why the kernel's WireGuard is not used. Empty if it is."`
	Services    int         `json:"services" doc:"Number of service addresses with endpoints."`
	Flows       int         `json:"flows" doc:"Current TCP flows through service addresses."`
	FlowsMax    int         `json:"flowsMax" doc:"Maximum number of such flows."`
	Relays      []RelayView `json:"relays,omitempty" doc:"Relays through which peers are reached that cannot be reached directly."`
	Peers       []PathView  `json:"peers,omitempty" doc:"Workers it exchanges packets with, and gateways to other sites."`
	More        int         `json:"more,omitempty" doc:"Number of peers left out of the list."`
}

// MaxPathViews bounds the peers of an OverlayView.
const MaxPathViews = 1000

// PathView is the way to one peer.
type PathView struct {
	Peer      wire.PeerID    `json:"peer"`
	Name      string         `json:"name,omitempty" doc:"Name of the peer, if it is a worker of the same site."`
	Path      string         `json:"path" doc:"plain, wireguard, direct, relay (best first) or none."`
	Reason    string         `json:"reason,omitempty" doc:"Why no better path is used."`
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	RTTMs     float64        `json:"rttMs,omitempty" doc:"Smoothed round-trip time in milliseconds; 0 if unknown."`
	Loss      float64        `json:"loss,omitempty" doc:"Share of unanswered probes, from 0 to 1."`
	RxBytes   int64          `json:"rxBytes"`
	TxBytes   int64          `json:"txBytes"`
	Handshake time.Time      `json:"handshake,omitzero" doc:"Time of the last handshake."`
}

// RelayView is a relay as a worker sees it.
type RelayView struct {
	Name   string `json:"name"`
	Over   string `json:"over,omitempty" doc:"udp or tls. Empty if the worker is not registered there."`
	Reason string `json:"reason,omitempty" doc:"Why it is not registered, or not over UDP."`
}
