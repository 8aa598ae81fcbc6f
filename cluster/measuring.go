package cluster

import (
	"fmt"
	"net/netip"
	"slices"

	"skerry.dev/skerry/spec"
)

// measuringPorts are the TCP ports at which workers measure round trips to users for any organisation, beside those of the admission policy.
var measuringPorts = []int{80, 443, 8080, 8443}

// shared is the network that providers use behind their translation (RFC 6598); it is as private as those of RFC 1918.
var sharedNetwork = netip.MustParsePrefix("100.64.0.0/10")

// checkUser gives the reason for which workers measure no round trip to a user that an organisation's service names, or "". A manifest
// could otherwise have the workers look for who listens in the site's own networks. path is that of the user in the manifest.
func (p *Admission) checkUser(org, path string, u spec.User) string {
	if slices.Contains(p.Trusted, org) {
		return ""
	}
	addr, port, err := spec.ParseTarget(u.Address)
	if err != nil {
		return fmt.Sprintf("%s.address: %v", path, err)
	}
	if addr.IsPrivate() || sharedNetwork.Contains(addr) {
		if !slices.ContainsFunc(p.MeasureNetworks, func(n netip.Prefix) bool { return n.Contains(addr) }) {
			return fmt.Sprintf("%s.address: %s is in a private network, to which the site measures nothing for organisation %s; its operator grants it by \"measureNetworks: [NETWORK]\" in the admission policy", path, addr, org)
		}
	}
	if port > 0 && !slices.Contains(measuringPorts, port) && !slices.Contains(p.MeasurePorts, port) {
		return fmt.Sprintf("%s.address: the site measures nothing at port %d for organisation %s, only at 80, 443, 8080 and 8443; its operator grants it by \"measurePorts: [%d]\" in the admission policy", path, port, org, port)
	}
	return ""
}

// checkUsers is checkUser for all users of a service that take a measurement.
func (p *Admission) checkUsers(org string, q *spec.Placement) string {
	for i, u := range q.Users {
		if q.UserLatency(u) > 0 {
			if why := p.checkUser(org, fmt.Sprintf("placement.users[%d]", i), u); why != "" {
				return why
			}
		}
	}
	return ""
}
