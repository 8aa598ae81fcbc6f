package spec

import (
	"fmt"
	"net/netip"
)

// hostAddress checks that of a service's port of that index, and that no two of its ports claim the same of the worker's.
func (c *checker) hostAddress(p string, s *ServiceSpec, index int) {
	port := s.Ports[index]
	if port.HostAddress != "" {
		addr, err := netip.ParseAddr(port.HostAddress)
		switch {
		case err != nil:
			c.add(p+".hostAddress", "write an address of the worker, such as 127.0.0.1", "%q is not an IP address", port.HostAddress)
		case !addr.Is4():
			c.add(p+".hostAddress", "give an IPv4 address", "ports of the worker are published at IPv4 addresses, not at %s", addr)
		case addr.IsUnspecified():
			c.add(p+".hostAddress", "leave it out", "%s stands for all addresses, as without it", addr)
		case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			c.add(p+".hostAddress", "", "%s is no address of a machine", addr)
		case port.HostPort == 0:
			c.add(p+".hostAddress", "add hostPort", "without hostPort nothing listens at %s", addr)
		}
	}
	for _, other := range s.Ports[:index] {
		if port.HostPort > 0 && port.HostPort == other.HostPort && port.Proto() == other.Proto() &&
			(port.HostAddress == other.HostAddress || port.HostAddress == "" || other.HostAddress == "") {
			c.add(p+".hostPort", "", "host port %d is used twice", port.HostPort)
			return
		}
	}
}

// HostAddressLack says where a service asks for one address of the worker, or "".
func HostAddressLack(s *ServiceSpec) string {
	for i, port := range s.Ports {
		if port.HostAddress != "" {
			return fmt.Sprintf("ports[%d].hostAddress", i)
		}
	}
	return ""
}
