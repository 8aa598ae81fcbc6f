package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// Limits of one policy of egress; each rule is a few rules of the kernel for each instance.
const (
	MaxEgressRules  = 32
	MaxEgressExcept = 16
	MaxEgressPorts  = 16
)

// Egress says where instances may go outside the overlay. Other services, by whatever address of the overlay, and Skerry's
// resolver are not outside. Without an entry in Allow nothing outside is reached; nil, in place of an Egress, is no policy: the
// internet and the site's network are open.
type Egress struct {
	Allow []EgressRule `json:"allow,omitempty" cbor:"1,keyasint,omitempty" doc:"Networks the service may reach. Default: none."`
}

// EgressRule is a network that a service may reach, as the ipBlock of a Kubernetes NetworkPolicy.
type EgressRule struct {
	CIDR   netip.Prefix   `json:"cidr" cbor:"1,keyasint" doc:"Network such as 203.0.113.0/24 or 2001:db8::/32. For a single address use /32 or /128."`
	Except []netip.Prefix `json:"except,omitempty" cbor:"2,keyasint,omitempty" doc:"Networks within cidr that stay blocked."`
	Ports  []EgressPort   `json:"ports,omitempty" cbor:"3,keyasint,omitempty" doc:"Destination ports. Default: all ports and protocols."`
}

// EgressPort is a port of a network that a service may reach.
type EgressPort struct {
	Port     int    `json:"port" cbor:"1,keyasint" doc:"Destination port." min:"1" max:"65535"`
	Protocol string `json:"protocol,omitempty" cbor:"2,keyasint,omitempty" doc:"Transport protocol. Default: tcp." enum:"tcp,udp,sctp"`
}

// Proto is the protocol, with its default.
func (p EgressPort) Proto() string {
	if p.Protocol == "" {
		return "tcp"
	}
	return p.Protocol
}

func (p EgressPort) String() string { return fmt.Sprintf("%d/%s", p.Port, p.Proto()) }

func (r EgressRule) String() string {
	s := r.CIDR.String()
	list := func(word string, items []string) {
		if len(items) > 0 {
			s += " " + word + " " + strings.Join(items, ", ")
		}
	}
	list("except", stringsOf(r.Except))
	list("ports", stringsOf(r.Ports))
	return s
}

// String is for people: "nothing" for a policy that opens nothing.
func (e *Egress) String() string {
	switch {
	case e == nil:
		return "everything but what the worker closes"
	case len(e.Allow) == 0:
		return "nothing"
	}
	return strings.Join(stringsOf(e.Allow), "; ")
}

func stringsOf[T fmt.Stringer](list []T) (out []string) {
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}

// within reports whether all that a rule opens is opened by another one.
func (r EgressRule) within(o EgressRule) bool {
	if r.CIDR.Bits() < o.CIDR.Bits() || !o.CIDR.Contains(r.CIDR.Addr()) {
		return false
	}
	for _, x := range o.Except { // what is not open there is not open here either
		covered := func(e netip.Prefix) bool { return e.Bits() <= x.Bits() && e.Contains(x.Addr()) }
		if x.Overlaps(r.CIDR) && !slices.ContainsFunc(r.Except, covered) {
			return false
		}
	}
	if len(o.Ports) == 0 {
		return true
	}
	return len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(p EgressPort) bool {
		return !slices.ContainsFunc(o.Ports, func(q EgressPort) bool { return p.Port == q.Port && p.Proto() == q.Proto() })
	})
}

// Beyond gives the position of the first rule that opens more than a single rule of another policy does, or -1. Every policy is
// within nil, and nil is within nothing else.
func (e *Egress) Beyond(o *Egress) int {
	if o == nil || e == nil {
		return -1
	}
	return slices.IndexFunc(e.Allow, func(r EgressRule) bool { return !slices.ContainsFunc(o.Allow, r.within) })
}

// Check gives the problems of a policy; path names it.
func (e *Egress) Check(path string) []skerry.Problem {
	c := &checker{}
	c.egress(path, e)
	return c.problems
}

func (c *checker) egress(path string, policy *Egress) {
	if policy == nil {
		return
	}
	if n := len(policy.Allow); n > MaxEgressRules {
		c.add(path+".allow", "allow larger networks", "%d entries; at most %d are allowed", n, MaxEgressRules)
	}
	for i, r := range policy.Allow {
		at := fmt.Sprintf("%s.allow[%d]", path, i)
		c.prefix(at+".cidr", r.CIDR)
		if n := len(r.Except); n > MaxEgressExcept {
			c.add(at+".except", "", "%d entries; at most %d are allowed", n, MaxEgressExcept)
		}
		for k, x := range r.Except {
			p := fmt.Sprintf("%s.except[%d]", at, k)
			if c.prefix(p, x) && r.CIDR.IsValid() && (x.Bits() < r.CIDR.Bits() || !r.CIDR.Contains(x.Addr())) {
				c.add(p, "leave it out, or name a part of "+r.CIDR.String(), "%s is not within %s", x, r.CIDR)
			}
		}
		if n := len(r.Ports); n > MaxEgressPorts {
			c.add(at+".ports", "", "%d entries; at most %d are allowed", n, MaxEgressPorts)
		}
		for k, q := range r.Ports {
			c.between(fmt.Sprintf("%s.ports[%d].port", at, k), q.Port, 1, 65535)
			c.oneOf(fmt.Sprintf("%s.ports[%d].protocol", at, k), q.Protocol, "tcp", "udp", "sctp")
		}
	}
}

// prefix accepts networks as the kernel compares them: without bits behind the mask, and IPv4 ones as such.
func (c *checker) prefix(path string, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		c.add(path, "write an address and the length of its prefix, as 203.0.113.0/24", "a network is missing")
	case p.Addr().Is4In6():
		c.add(path, "write the IPv4 network", "%s is an IPv4 network in IPv6", p)
	case p != p.Masked():
		c.add(path, "write "+p.Masked().String(), "%s has bits set behind its prefix", p)
	default:
		return true
	}
	return false
}
