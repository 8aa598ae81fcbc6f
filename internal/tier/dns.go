package tier

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// NameOptions say how a role answers for host names of services. Without Listen it does not.
type NameOptions struct {
	Listen string   // HOST:PORT, by UDP and TCP
	Zones  []string // that it is a name server of; the first is the site's own
	// Addrs are those under which it is known as name server; none: that of Listen.
	Addrs []netip.Addr
}

// Fill puts zones in order and finds out the addresses.
func (o *NameOptions) Fill() error {
	for i, z := range o.Zones {
		z = strings.ToLower(strings.TrimSuffix(z, "."))
		if err := spec.CheckHost(z); err != nil || strings.HasPrefix(z, "*") {
			return skerry.Errorf(skerry.CodeInvalid, "--dns-zone %q is not the name of a zone", o.Zones[i]).WithHint("write it as site.example.org")
		}
		o.Zones[i] = z
	}
	switch {
	case o.Listen == "" && len(o.Zones) == 0:
		return nil
	case o.Listen == "":
		return skerry.Errorf(skerry.CodeInvalid, "--dns-zone is given without --dns").WithHint("add --dns ADDRESS:53")
	case len(o.Zones) == 0:
		return skerry.Errorf(skerry.CodeInvalid, "--dns is given without --dns-zone").WithHint("add --dns-zone ZONE, which the zone above delegates to this machine")
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "--dns %q is not an address with a port", o.Listen).WithHint("write it as 192.0.2.7:53")
	}
	if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() && len(o.Addrs) == 0 {
		o.Addrs = []netip.Addr{a.Unmap()}
	}
	return nil
}

// Zone is the site's own; empty: there is none.
func (o *NameOptions) Zone() string {
	if len(o.Zones) == 0 {
		return ""
	}
	return o.Zones[0]
}

// Open opens the sockets.
func (o *NameOptions) Open() (net.PacketConn, net.Listener, error) {
	pc, err := net.ListenPacket("udp", o.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("answer for host names: %w", err)
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		pc.Close()
		return nil, nil, fmt.Errorf("answer for host names: %w", err)
	}
	return pc, l, nil
}
