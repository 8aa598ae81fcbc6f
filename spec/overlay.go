package spec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// Limits of one service in the overlay.
const (
	MaxExports       = 100
	MaxImports       = 100
	MaxIngress       = 100
	MaxInstanceAddrs = 10000 // as many as replicas
)

// Balance says which instance of a service a new flow to one of its service addresses goes to.
type Balance string

// Policies of service addresses. Each service has an address for each of the first three, and one per instance.
const (
	BalanceRoundRobin  Balance = "round-robin"  // the instances in turn
	BalanceClosest     Balance = "closest"      // the nearest one, by round trip and location
	BalanceLeastLoaded Balance = "least-loaded" // the one that uses the least of its worker
	BalanceInstance    Balance = "instance"     // the one with the ordinal of the address
)

// Balances lists the policies that choose among all instances, in the order in which people see them.
func Balances() []Balance { return []Balance{BalanceRoundRobin, BalanceClosest, BalanceLeastLoaded} }

// ServicePrefix holds the IPv4 service addresses of every application; an address means something only together with
// the network of the application.
func ServicePrefix() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 30}), 16) }

// ServicePrefix6 holds the IPv6 twins of service addresses.
func ServicePrefix6() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x30, 0x5c, 0xe7}), 96)
}

// ServiceTwin gives the IPv6 address that leads to the same as an IPv4 service address: fd30:5ce7::/96 and its 32 bits.
// The zero address has no twin.
func ServiceTwin(a netip.Addr) netip.Addr {
	if !a.Is4() {
		return netip.Addr{}
	}
	b, v4 := ServicePrefix6().Addr().As16(), a.As4()
	copy(b[12:], v4[:])
	return netip.AddrFrom16(b)
}

// ServiceOfTwin gives the IPv4 service address whose twin an IPv6 address is; any other one stays as it is.
func ServiceOfTwin(a netip.Addr) netip.Addr {
	if !a.Is6() || !ServicePrefix6().Contains(a) {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// ServiceReserved reports whether an address is one of the ends of ServicePrefix, which no service gets: the first 256
// are for the resolver and for later use, and the last looks like a broadcast.
func ServiceReserved(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	b := a.As4()
	return b[2] == 0 || b[2] == 255 && b[3] == 255
}

// ServiceAddresses are service addresses that the developer chose; the others are assigned and stay the same.
type ServiceAddresses struct {
	RoundRobin  netip.Addr   `json:"roundRobin,omitzero" doc:"Address that leads to the instances in turn."`
	Closest     netip.Addr   `json:"closest,omitzero" doc:"Address that leads to the nearest instance."`
	LeastLoaded netip.Addr   `json:"leastLoaded,omitzero" doc:"Address that leads to the instance with the least load."`
	Instances   []netip.Addr `json:"instances,omitempty" doc:"Addresses of single instances by their number, from 0; an empty text leaves one to be assigned."`
}

// setDefaults replaces IPv6 addresses by the IPv4 ones that lead to the same.
func (a *ServiceAddresses) setDefaults() {
	for _, p := range []*netip.Addr{&a.RoundRobin, &a.Closest, &a.LeastLoaded} {
		*p = ServiceOfTwin(*p)
	}
	for i := range a.Instances {
		a.Instances[i] = ServiceOfTwin(a.Instances[i])
	}
}

// Chosen gives the address chosen for a policy, or the zero address. The ordinal counts for BalanceInstance only.
func (s *ServiceSpec) Chosen(b Balance, ordinal int) netip.Addr {
	if s.Addresses == nil {
		return netip.Addr{}
	}
	switch b {
	case BalanceRoundRobin:
		return s.Addresses.RoundRobin
	case BalanceClosest:
		return s.Addresses.Closest
	case BalanceLeastLoaded:
		return s.Addresses.LeastLoaded
	case BalanceInstance:
		if ordinal >= 0 && ordinal < len(s.Addresses.Instances) {
			return s.Addresses.Instances[ordinal]
		}
	}
	return netip.Addr{}
}

// Export lets another application reach a service. Without one no other application can.
type Export struct {
	To  string `json:"to" doc:"Application that may reach the service, as NAMESPACE/NAME, or NAMESPACE/* for every application of a namespace."`
	Org string `json:"org,omitempty" doc:"Organisation that the other application belongs to. Default: the application's own." pattern:"name"`
	As  string `json:"as,omitempty" doc:"Short name of the service in the other application, which a service of its own with this name overrides; not in applications of another organisation. Default: full names only." pattern:"name"`
}

// Covers reports whether the export is meant for an application. Whether organisations agree is another question.
func (e Export) Covers(app skerry.AppKey) bool {
	return covers(e.To, app)
}

// Meets reports whether there can be an application that both exports cover.
func (e Export) Meets(other Export) bool {
	a, one, _ := strings.Cut(e.To, "/")
	b, two, _ := strings.Cut(other.To, "/")
	return a == b && (one == two || one == "*" || two == "*")
}

// covers reports whether NAMESPACE/NAME or NAMESPACE/* means an application.
func covers(pattern string, app skerry.AppKey) bool {
	ns, name, _ := strings.Cut(pattern, "/")
	return ns == app.Namespace && (name == "*" || name == app.Name)
}

// Import is an application's consent to reach what others export to it.
type Import struct {
	From string `json:"from" doc:"Application whose exports are used, as NAMESPACE/NAME, or NAMESPACE/* for every application of a namespace."`
	Org  string `json:"org" doc:"Organisation that it belongs to." pattern:"name"`
}

// Wants reports whether the application asks for what one of another organisation exports to it.
func (s *ApplicationSpec) Wants(app skerry.AppKey, org string) bool {
	return slices.ContainsFunc(s.Imports, func(i Import) bool { return i.Org == org && covers(i.From, app) })
}

// Protocols of an ingress.
const (
	IngressHTTP = "http"
	IngressTCP  = "tcp"
)

// Values of IngressTLS with a meaning of their own; any other is the name of a certificate.
const (
	TLSOff  IngressTLS = "off"
	TLSSelf IngressTLS = "self"
	// TLSACME is a certificate that the site orders of a public authority, for the ingress' host.
	TLSACME IngressTLS = "acme"
)

// IngressTLS says what an ingress does about encryption. YAML reads the word off as false, so this does too.
type IngressTLS string

// Named reports whether it is the name of an uploaded certificate.
func (t IngressTLS) Named() bool { return t != "" && t != TLSOff && t != TLSSelf && t != TLSACME }

// UnmarshalJSON reads a text, or false for off.
func (t *IngressTLS) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		*t = TLSOff
		return nil
	}
	var s string
	if json.Unmarshal(data, &s) != nil {
		return fmt.Errorf("must be off, self, acme, or the name of a certificate, not %s", kindOf(data))
	}
	*t = IngressTLS(s)
	return nil
}

// PortRef names a port of a service, by name or by number.
type PortRef string

// UnmarshalJSON reads a text or a number.
func (r *PortRef) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*r = PortRef(s)
		return nil
	}
	var n int
	if json.Unmarshal(data, &n) != nil {
		return fmt.Errorf("must be the name or the number of a port, not %s", kindOf(data))
	}
	*r = PortRef(strconv.Itoa(n))
	return nil
}

// Find gives the port that is meant among those of a service.
func (r PortRef) Find(ports []Port) (Port, bool) {
	n, err := strconv.Atoi(string(r))
	for _, q := range ports {
		if err == nil && q.Port == n && q.carries("tcp") || q.PortName() == string(r) {
			return q, true
		}
	}
	return Port{}, false
}

// carries reports whether a port takes a transport protocol.
func (q Port) carries(proto string) bool { return q.Proto() == proto || q.Proto() == "any" }

// Ingress lets clients outside the overlay reach a service by way of the workers.
type Ingress struct {
	Host     string     `json:"host,omitempty" doc:"Host name that requests ask for, or *.DOMAIN for every name one label below DOMAIN. With protocol tcp, the name in the TLS handshake (SNI). Default: any."`
	Path     string     `json:"path,omitempty" doc:"Path prefix, matched by whole segments; the longest match wins. Default: /. Not allowed for protocol tcp."`
	Port     PortRef    `json:"port" doc:"Target port of the service, by name or number."`
	Alias    string     `json:"alias,omitempty" doc:"Alias of the service to which clients come. Default: the service alone."`
	Policy   Balance    `json:"policy,omitempty" doc:"How an instance is chosen. Default: closest, as seen from the worker that the client reached." enum:"round-robin,closest,least-loaded"`
	Protocol string     `json:"protocol,omitempty" doc:"http or tcp. Default: http." enum:"http,tcp"`
	TLS      IngressTLS `json:"tls,omitempty" doc:"off, self for a certificate from the site's own authority, acme for one that the site orders for the host from a public authority, or the name of an uploaded certificate. Default: off. With protocol tcp and off, TLS is passed through unchanged."`
	Listen   int        `json:"listen,omitempty" doc:"Port on the workers. Default: 80, or 443 with tls. Required for protocol tcp." min:"0" max:"65535"`
	// ProxyProtocol tells the service who the client is, where nothing else can.
	ProxyProtocol bool `json:"proxyProtocol,omitempty" doc:"Send the client's address at the start of each connection (PROXY protocol version 2). Only for protocol tcp."`
}

// EncryptedName reports whether clients are told apart by the name in their TLS hello.
func (g Ingress) EncryptedName() bool {
	return g.Protocol == IngressTCP && g.Host != "" || g.TLS != "" && g.TLS != TLSOff
}

func (g *Ingress) setDefaults() {
	orDefault(&g.Protocol, IngressHTTP)
	orDefault(&g.Policy, BalanceClosest)
	orDefault(&g.TLS, TLSOff)
	if g.Protocol == IngressHTTP {
		orDefault(&g.Path, "/")
		if g.TLS == TLSOff {
			orDefault(&g.Listen, 80)
		}
		orDefault(&g.Listen, 443)
	}
}

// overlay checks what a service asks of the overlay; what concerns several services is checked by overlays.
func (c *checker) overlay(p string, s *ServiceSpec, self skerry.AppKey) {
	c.atMost(p+".export", len(s.Export), MaxExports)
	to := map[Export]bool{}
	for i, e := range s.Export {
		c.export(fmt.Sprintf("%s.export[%d]", p, i), e, self)
		if k := (Export{To: e.To, Org: e.Org}); to[k] {
			c.add(fmt.Sprintf("%s.export[%d].to", p, i), "", "the service is exported to %q twice", e.To)
		} else {
			to[k] = true
		}
	}
	c.atMost(p+".ingress", len(s.Ingress), MaxIngress)
	for i := range s.Ingress {
		c.ingress(fmt.Sprintf("%s.ingress[%d]", p, i), s.Ingress[i], s)
	}
}

// imports checks what an application wants of others.
func (c *checker) imports(list []Import) {
	c.atMost("spec.imports", len(list), MaxImports)
	for i, m := range list {
		p := fmt.Sprintf("spec.imports[%d]", i)
		c.other(p+".from", m.From)
		c.name(p+".org", m.Org)
	}
}

// other checks the name of another application, or of those of a namespace.
func (c *checker) other(p, s string) bool {
	ns, name, ok := strings.Cut(s, "/")
	switch {
	case !ok && s != "":
		c.add(p, fmt.Sprintf("write %s/%s, or %s/* for a whole namespace", DefaultNamespace, s, s), "%q is not written as NAMESPACE/NAME", s)
	case skerry.CheckName(ns) != nil:
		c.add(p, "write NAMESPACE/NAME, or NAMESPACE/* for a whole namespace", "namespace: %s", skerry.CheckName(ns))
	case name != "*" && skerry.CheckName(name) != nil:
		c.add(p, "write NAMESPACE/NAME, or NAMESPACE/* for a whole namespace", "application: %s", skerry.CheckName(name))
	default:
		return true
	}
	return false
}

func (c *checker) export(p string, e Export, self skerry.AppKey) {
	if c.other(p+".to", e.To) && e.To == self.String() && e.Org == "" {
		c.add(p+".to", "leave it out", "services of the same application reach each other anyway")
	}
	if e.Org != "" {
		c.name(p+".org", e.Org)
	}
	if e.As != "" {
		c.name(p+".as", e.As)
		if slices.Contains(Balances(), Balance(e.As)) {
			c.add(p+".as", "", "%q is the name of a policy", e.As)
		}
	}
}

func (c *checker) ingress(path string, way Ingress, service *ServiceSpec) {
	c.oneOf(path+".protocol", way.Protocol, IngressHTTP, IngressTCP)
	c.oneOf(path+".policy", string(way.Policy), string(BalanceRoundRobin), string(BalanceClosest), string(BalanceLeastLoaded))
	c.between(path+".listen", way.Listen, 0, 65535)
	if way.Host != "" {
		if err := CheckHost(way.Host); err != nil {
			c.add(path+".host", "write a host name such as shop.example.org, or *.example.org", "%s", err)
		}
	}
	if way.TLS.Named() {
		c.name(path+".tls", string(way.TLS))
	}
	if way.TLS == TLSACME && way.Host == "" {
		c.add(path+".host", "write the host name that clients use", "a public certificate needs a host")
	}
	if way.ProxyProtocol && way.Protocol != IngressTCP {
		c.add(path+".proxyProtocol", "leave it out; requests have X-Forwarded-For", "it is for protocol tcp alone")
	}
	switch {
	case way.Protocol != IngressTCP:
		if way.Path != "" && !validPrefix(way.Path) {
			c.add(path+".path", "write a path such as / or /api, without . or .. parts", "%q is not a path prefix", way.Path)
		}
	case way.Path != "":
		c.add(path+".path", "leave it out, or use protocol: http", "there are no paths in protocol tcp")
	case way.Listen == 0:
		c.add(path+".listen", "add listen: PORT", "protocol tcp needs a port of the workers")
	}
	q, ok := way.Port.Find(service.Ports)
	switch {
	case way.Port == "":
		c.add(path+".port", "write the name or the number of one of the service's ports", "a port is missing")
	case !ok:
		c.add(path+".port", "ports are listed under the service's ports", "the service has no port %q", string(way.Port))
	case !q.carries("tcp"):
		c.add(path+".port", "", "port %q is for %s; an ingress carries http and tcp", string(way.Port), q.Proto())
	}
}

// validPrefix accepts absolute paths without empty, . and .. parts, of visible characters; a slash at the end is allowed.
func validPrefix(s string) bool {
	if len(s) > 1024 || !strings.HasPrefix(s, "/") || strings.ContainsFunc(s,
		func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("?#%\\", r) }) {
		return false
	}
	for _, part := range strings.Split(strings.TrimSuffix(s[1:], "/"), "/") {
		if s != "/" && part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// CheckHost accepts lower-case host names of two and more labels or one, with * in place of the first of several.
func CheckHost(s string) error {
	rest, wild := strings.CutPrefix(s, "*.")
	if len(s) > 253 {
		return fmt.Errorf("host name of %d characters; at most 253 are allowed", len(s))
	}
	for _, label := range strings.Split(rest, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("%q is not a host name in lower-case letters, digits, hyphens and dots", s)
		}
	}
	if wild && !strings.Contains(rest, ".") {
		return fmt.Errorf("%q covers a whole top-level domain", s)
	}
	if _, err := netip.ParseAddr(rest); err == nil {
		return fmt.Errorf("%q is an address, not a name", s)
	}
	return nil
}

// HostWithin reports whether a host, which may be *.DOMAIN, is in a zone.
func HostWithin(host, zone string) bool {
	host = strings.TrimPrefix(host, "*.")
	return host == zone || strings.HasSuffix(host, "."+zone)
}

// overlays checks what services of one application may not both have: addresses, and ways in.
func (c *checker) overlays(services []ServiceSpec) {
	addrs := map[netip.Addr]string{}
	type entry struct {
		host, path string
		listen     int
	}
	entries := map[entry]string{}
	listens := map[int]Ingress{}
	hosts := map[entry]Ingress{}
	for i := range services {
		service := &services[i]
		at := fmt.Sprintf("spec.services[%d]", i)
		c.addresses(at+".addresses", service.Addresses, addrs)
		for j, g := range service.Ingress {
			g.setDefaults()
			gp := fmt.Sprintf("%s.ingress[%d]", at, j)
			k := entry{g.Host, strings.TrimSuffix(g.Path, "/"), g.Listen}
			if other, taken := entries[k]; taken {
				c.add(gp, "", "the same host, path and port lead to %s already", other)
				continue
			}
			entries[k] = gp
			if first, ok := listens[g.Listen]; ok && (first.Protocol != g.Protocol || first.EncryptedName() != g.EncryptedName()) {
				c.add(gp+".listen", "use another port", "port %d is used for %s", g.Listen, describe(first))
			} else if !ok {
				listens[g.Listen] = g
			}
			k.path = ""
			if first, ok := hosts[k]; ok && first.TLS != g.TLS {
				c.add(gp+".tls", "", "host %q has tls: %s on the same port already", g.Host, first.TLS)
			} else if !ok {
				hosts[k] = g
			}
		}
	}
}

func describe(g Ingress) string {
	if g.EncryptedName() {
		return g.Protocol + " with TLS"
	}
	return g.Protocol + " without TLS"
}

func (c *checker) addresses(at string, addrs *ServiceAddresses, taken map[netip.Addr]string) {
	if addrs == nil {
		return
	}
	one := func(path string, ip netip.Addr) {
		ip = ServiceOfTwin(ip)
		switch {
		case ip == netip.Addr{}:
		case !ServicePrefix().Contains(ip):
			c.add(path,
				"choose one from 10.30.1.0 to 10.30.255.254, or its IPv6 address: fd30:5ce7:: and the same 32 bits", "%s is not in %s", ip,
				ServicePrefix())
		case ServiceReserved(ip):
			c.add(path, "choose one from 10.30.1.0 to 10.30.255.254", "%s is reserved", ip)
		case taken[ip] != "":
			c.add(path, "each address leads to one thing", "%s is chosen at %s already", ip, taken[ip])
		default:
			taken[ip] = path
		}
	}
	one(at+".roundRobin", addrs.RoundRobin)
	one(at+".closest", addrs.Closest)
	one(at+".leastLoaded", addrs.LeastLoaded)
	c.atMost(at+".instances", len(addrs.Instances), MaxInstanceAddrs)
	for i, ip := range addrs.Instances {
		one(fmt.Sprintf("%s.instances[%d]", at, i), ip)
	}
}
