package wire

import (
	"net/netip"
)

// Attachment joins an instance to the network: what the network made, in the terms a runtime driver needs. Drivers and
// overlays never import each other; this value is all they share.
type Attachment struct {
	// NetNS is the path of the network namespace, to be joined by processes; empty when there is none.
	NetNS string `json:"netns,omitempty"`
	// Device is the host's end of the cable; empty when there is none.
	Device string `json:"device,omitempty"`
	// Tap is the name of the tap device a virtual machine is to use; empty for processes and containers.
	Tap string `json:"tap,omitempty"`
	// Addresses are the instance's own addresses with the prefix length of the network they stand in.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// MTU is the largest packet in bytes that passes without fragmentation; 0 means unknown.
	MTU int `json:"mtu,omitempty"`
	// DNS are the servers, in order of preference; Search the domains that complete short names.
	DNS    []netip.Addr `json:"dns,omitempty"`
	Search []string     `json:"search,omitempty"`
}
