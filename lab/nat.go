package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// NAT is how a router changes addresses, and what it lets in: the kinds of RFC 3489, section 5. All carry TCP from the inside
// out, and drop in silence what nobody inside has asked for.
type NAT string

// Kinds of NAT, the kindest first.
const (
	// NATFullCone gives an inside port one outside port, and lets everybody in there.
	NATFullCone NAT = "full-cone"
	// NATRestricted does so for addresses to which the inside port has sent.
	NATRestricted NAT = "restricted"
	// NATPortRestricted does so for addresses and ports to which the inside port has sent.
	NATPortRestricted NAT = "port-restricted"
	// NATSymmetric gives an inside port another outside port for each address and port to which it sends, and lets in what
	// comes from there.
	NATSymmetric NAT = "symmetric"
	// NATNoUDP is a firewall, too: no UDP passes, in either direction.
	NATNoUDP NAT = "udp-blocked"
)

// natKinds are all, in the order of their names in messages.
var natKinds = []NAT{NATFullCone, NATRestricted, NATPortRestricted, NATSymmetric, NATNoUDP}

func (n NAT) check() error {
	if slices.Contains(natKinds, n) {
		return nil
	}
	var names []string
	for _, k := range natKinds {
		names = append(names, string(k))
	}
	return skerry.Errorf(skerry.CodeInvalid, "there is no kind of NAT %q", string(n)).WithHint("use %s", strings.Join(names, ", "))
}

// checkNATs looks at routers and at who is behind them, and gives each router its inside.
func (t *Topology) checkNATs(network netip.Prefix, bad func(path, hint, format string, args ...any)) {
	number := 0
	for i := range t.Hosts {
		host, at := &t.Hosts[i], fmt.Sprintf("hosts[%d]", i)
		if host.Role == RoleNAT {
			number++
			if err := host.NAT.check(); err != nil {
				bad(at+".nat", skerry.AsError(err).Hint, "%s", skerry.AsError(err).Message)
			}
			usual := fmt.Sprintf("192.168.%d.0/24", number)
			if host.Inside == "" {
				host.Inside = usual
			}
			p, err := netip.ParsePrefix(host.Inside)
			switch {
			case err != nil || !p.Addr().Is4() || p.Bits() > 28:
				bad(at+".inside", "write it as 192.168.1.0/24", "%q is not an IPv4 prefix of at most 28 bits", host.Inside)
				host.Inside = usual // so that what follows can be looked at
			case p.Overlaps(network):
				bad(at+".inside", "choose another one", "%s overlaps the lab's network %s", p, network)
			}
		} else if host.NAT != "" || host.Inside != "" {
			bad(at, "give it role: nat", "%s is not a NAT", host.Name)
		}
	}
	for i := range t.Hosts {
		host, at := &t.Hosts[i], fmt.Sprintf("hosts[%d]", i)
		if host.Behind == "" {
			continue
		}
		if r := t.Host(host.Behind); r == nil || r.Role != RoleNAT {
			bad(at+".behind", "name a host with role nat", "there is no NAT %q", host.Behind)
			host.Behind = ""
			continue
		}
		for r, n := t.Host(host.Behind), 0; r != nil && r.Role == RoleNAT; r, n = t.Host(r.Behind), n+1 {
			if r == host || n > len(t.Hosts) {
				bad(at+".behind", "", "%s would be behind itself", host.Name)
				host.Behind = ""
				break
			}
			a, err := netip.ParsePrefix(host.Inside) // of one that is a NAT, too
			if b := netip.MustParsePrefix(r.Inside); err == nil && a.Overlaps(b) {
				bad(at+".inside", "choose another one", "%s overlaps the inside of %s, behind which %s is", a, r.Name, host.Name)
			}
		}
	}
}

// routers gives those between a host and the network between the hosts, the nearest first.
func (t *Topology) routers(host string) (out []*Host) {
	for h := t.Host(host); h != nil && h.Behind != ""; h = t.Host(h.Behind) {
		out = append(out, t.Host(h.Behind))
	}
	return out
}

// outer is the host that the network between the hosts sees: the host itself, or the outermost NAT before it.
func (t *Topology) outer(host string) string {
	if r := t.routers(host); len(r) > 0 {
		return r[len(r)-1].Name
	}
	return host
}

// behind gives the hosts that have a cable to a router; with an empty name those that have one to the network itself.
func (t *Topology) behind(router string) (out []*Host) {
	for i := range t.Hosts {
		if t.Hosts[i].Behind == router {
			out = append(out, &t.Hosts[i])
		}
	}
	return out
}

// outwardFirst gives all hosts, each after the NAT behind which it is.
func (t *Topology) outwardFirst() (out []*Host) {
	for i := range t.Hosts {
		out = append(out, &t.Hosts[i])
	}
	slices.SortStableFunc(out, func(a, b *Host) int { return cmp.Compare(len(t.routers(a.Name)), len(t.routers(b.Name))) })
	return out
}

// net is the network in which a host has its address: the lab's, or the inside of its NAT.
func (t *Topology) net(h *Host) netip.Prefix {
	text := t.Network
	if h.Behind != "" {
		text = t.Host(h.Behind).Inside
	}
	return netip.MustParsePrefix(text).Masked()
}

// inside is the address of a router that the hosts behind it know.
func (h *Host) inside() netip.Addr {
	return netip.MustParsePrefix(h.Inside).Masked().Addr().Next()
}

// hostDevice is a host's end of its cable.
const hostDevice = "eth0"

// Outside ports of NATs. Linux keeps an inside port's outside port for as long as that gives no two flows the same
// addresses and ports. So that this is always, each host has outside ports of its own.
const (
	firstPort = 1024
	lastPort  = 65535
)

// natFor is how long UDP that nothing is sent by is remembered: RFC 4787, section 4.3, wants two minutes.
const natFor = "2m"

// natRules is the whole nftables configuration of a router.
//
// The outside port of a flow is known when its source was translated, and is written down then with who is inside. A
// datagram that comes to it, and belongs to no flow that was begun inside, is let in by what is written down.
func (t *Topology) natRules(router *Host, kind NAT) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("table ip lab\ndelete table ip lab\ntable ip lab {")
	line("\tmap inside {\n\t\ttype inet_service : ipv4_addr . inet_service\n\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %s\n\t}",
		lastPort, natFor)
	line("\tset asked {\n\t\ttype inet_service . ipv4_addr\n\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %s\n\t}", 4*lastPort, natFor)

	line("\tchain in {\n\t\ttype nat hook prerouting priority dstnat; policy accept")
	switch kind {
	case NATFullCone:
		line("\t\tiifname %s meta l4proto udp dnat to udp dport map @inside", hostDevice)
	case NATRestricted:
		line("\t\tiifname %s udp dport . ip saddr @asked dnat to udp dport map @inside", hostDevice)
	}
	line("\t}\n\tchain out {\n\t\ttype nat hook postrouting priority srcnat; policy accept")
	hosts := t.behind(router.Name)
	for i, h := range hosts {
		share := (lastPort + 1 - firstPort) / len(hosts)
		random := ""
		if kind == NATSymmetric {
			random = " fully-random"
		}
		line("\t\toifname %s ip saddr %s meta l4proto { tcp, udp } snat to %s:%d-%d%s", hostDevice, h.Address, router.Address,
			firstPort+i*share, firstPort+(i+1)*share-1, random)
	}
	line("\t\toifname %s snat to %s", hostDevice, router.Address)

	line("\t}\n\tchain learn {\n\t\ttype filter hook postrouting priority srcnat + 10; policy accept\n\t\toifname != %s accept", hostDevice)
	for _, way := range []struct{ direction, out, host, port string }{
		{"original", "ct reply proto-dst", "ct original ip saddr", "ct original proto-src"},
		{"reply", "ct original proto-dst", "ct reply ip saddr", "ct reply proto-src"}, // of a flow that was let in
	} {
		line("\t\tmeta l4proto udp ct direction %s update @inside { %s : %s . %s }", way.direction, way.out, way.host, way.port)
		line("\t\tmeta l4proto udp ct direction %s update @asked { %s . ip daddr }", way.direction, way.out)
	}

	// Dropped, and not rejected: what comes too early must not have the sender hear of it, nor take the port.
	line("\t}\n\tchain through {\n\t\ttype filter hook forward priority filter; policy accept")
	if kind == NATNoUDP {
		line("\t\tmeta l4proto udp counter drop")
	}
	line("\t\tiifname %s ct state established,related accept\n\t\tiifname %s ct status dnat accept\n\t\tiifname %s counter drop", hostDevice,
		hostDevice, hostDevice)
	line("\t}\n\tchain here {\n\t\ttype filter hook input priority filter; policy accept\n\t\tmeta l4proto { tcp, udp } counter drop\n\t}\n}")
	return b.String()
}
