package resolver

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

// AuthorityConfig is all that an Authority answers from.
type AuthorityConfig struct {
	// Serial is that of the zones; it must grow with each change.
	Serial  uint32
	Domains []Domain
}

// Domain is a zone that the Authority is one of the name servers of. Names are in lower case and may end with a dot.
type Domain struct {
	Name    string
	Servers []NameServer
	Hosts   []Host
	Sites   []Delegation
}

// NameServer is a name server of a zone. Its addresses are needed where its name is in the zone.
type NameServer struct {
	Name  string
	Addrs []netip.Addr
}

// Delegation hands a zone below the domain to another site, which answers for all names in it.
type Delegation struct {
	Name    string
	Servers []NameServer
}

// Host is a name that clients outside ask for, or *.DOMAIN for all names one label below, with the places at which its
// services can be reached.
type Host struct {
	Name   string
	Points []Point
}

// Point is an ingress.
type Point struct {
	ID    string
	Addrs []netip.Addr
	// Alias is the name under which a site answers for itself, in place of addresses: at the root, which does not know
	// them, it is SiteName of the host.
	Alias   string
	Healthy bool
	// Near are networks of clients that are known to be near it; the longest prefix counts.
	Near []netip.Prefix
}

// SiteName is the name under which a site's own name servers answer for a host: the host's name in the site's zone.
func SiteName(host, zone string) string { return absolute(host) + absolute(zone) }

func absolute(s string) string { return strings.TrimSuffix(s, ".") + "." }

// AuthorityOptions are the parts of an Authority that do not change.
type AuthorityOptions struct {
	// Rank tells how far clients are from a point, in any unit, from measured round trips or from locations; the least
	// wins. client is the network that a client's resolver told, or that resolver's. Nil, NaN and equal values: Near
	// decides, then a hash of the client's network, so that clients spread evenly and stay where they are.
	Rank func(client netip.Prefix, host string, p *Point) float64
	// TTL of addresses. Default: 10 s; clients that move ask again after it.
	TTL time.Duration
	// ZoneTTL is that of everything else. Default: 5 min; that a name does not exist holds for TTL.
	ZoneTTL time.Duration
	// Rate is the number of answers per second by UDP to one network of askers (24 bits of IPv4, 56 of IPv6). Default:
	// 100, and as many again at once. What is above is asked to come by TCP, or not answered.
	Rate float64
	Log  *slog.Logger // nil: nothing is logged
}

// Authority is a name server for clients outside. It never asks others, and its answers are about as short as the
// questions. Its methods may be called by several goroutines.
type Authority struct {
	opt  AuthorityOptions
	zone atomic.Pointer[zones]
	rate *limiter
	socket

	queries, answered, limited, refused, malformed atomic.Int64
}

// NewAuthority makes an Authority that answers nothing until Set and Serve.
func NewAuthority(o AuthorityOptions) *Authority {
	def(&o.TTL, 10*time.Second)
	def(&o.ZoneTTL, 5*time.Minute)
	def(&o.Rate, 100)
	a := &Authority{opt: o, rate: newLimiter(o.Rate)}
	a.socket.init(cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	a.zone.Store(newZones(AuthorityConfig{}))
	return a
}

// Set makes the Authority answer from c from now on. It keeps the slices of c.
func (a *Authority) Set(c AuthorityConfig) { a.zone.Store(newZones(c)) }

// ServeUDP answers questions that come in on pc until Close, which closes pc.
func (a *Authority) ServeUDP(pc net.PacketConn) error { return a.serveUDP(pc, a) }

// ServeTCP answers questions on connections that l accepts until Close, which closes l.
func (a *Authority) ServeTCP(l net.Listener) error { return a.serveTCP(l, a) }

// Close closes the sockets and waits for what is being answered.
func (a *Authority) Close() error { return a.socket.close() }

// Stats gives counters since NewAuthority, by name.
func (a *Authority) Stats() map[string]int64 {
	return map[string]int64{"queries": a.queries.Load(), "answered": a.answered.Load(), "limited": a.limited.Load(),
		"refused": a.refused.Load(), "malformed": a.malformed.Load()}
}

// zones is an AuthorityConfig made ready for questions. It never changes.
type zones struct {
	serial uint32
	byName map[string]*zoneView // without the dot at the end
}

type zoneView struct {
	Domain
	hosts map[string]*Host
	wild  map[string]*Host
	sites map[string]*Delegation
	inner map[string]bool // names that have others below them
	glue  map[string][]netip.Addr
}

func plain(s string) string { return strings.TrimSuffix(strings.ToLower(s), ".") }

func newZones(c AuthorityConfig) *zones {
	z := &zones{serial: c.Serial, byName: map[string]*zoneView{}}
	for _, d := range c.Domains {
		v := &zoneView{d, map[string]*Host{}, map[string]*Host{}, map[string]*Delegation{}, map[string]bool{}, map[string][]netip.Addr{}}
		apex := plain(d.Name)
		if apex == "" {
			continue // nobody is authoritative for everything
		}
		z.byName[apex] = v
		v.inner[apex] = true
		add := func(name string) string {
			name = plain(name)
			for up := parent(name); within(up, apex); up = parent(up) {
				v.inner[up] = true
			}
			return name
		}
		for i := range d.Hosts {
			h := &d.Hosts[i]
			if domain, ok := strings.CutPrefix(plain(h.Name), "*."); ok {
				add(plain(h.Name))
				v.wild[domain] = h
			} else {
				v.hosts[add(h.Name)] = h
			}
		}
		for i := range d.Sites {
			s := &d.Sites[i]
			v.sites[add(s.Name)] = s
		}
		for _, s := range d.Servers {
			v.glue[plain(s.Name)] = s.Addrs
			if within(plain(s.Name), apex) {
				add(s.Name)
			}
		}
	}
	return z
}

func parent(name string) string {
	_, up, _ := strings.Cut(name, ".")
	return up
}

// within reports whether a name is a zone or below it.
func within(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

// respond answers one question; see handler. Nothing ever waits.
func (a *Authority) respond(src netip.AddrPort, msg []byte, limit int) ([]byte, func(context.Context) []byte) {
	a.queries.Add(1)
	query, ok := parseQuery(msg, limit)
	if !ok {
		a.malformed.Add(1)
		return nil, nil
	}
	asker := networkOf(netip.PrefixFrom(src.Addr().Unmap().WithZone(""), src.Addr().Unmap().BitLen()))
	if !query.tcp {
		switch a.rate.take(asker, time.Now()) {
		case drop:
			a.limited.Add(1)
			return nil, nil
		case slip:
			a.limited.Add(1)
			return query.truncated(), nil
		}
	}
	if query.rcode != 0 {
		a.malformed.Add(1)
		return query.pack(reply{rcode: query.rcode}), nil
	}
	if query.question.Type == typeANY && !query.tcp {
		return query.truncated(), nil // nobody needs it, and it makes answers long
	}
	a.answered.Add(1)
	return query.pack(a.answer(&query, asker)), nil
}

// truncated is the shortest answer, which says that TCP has the whole one.
func (q *query) truncated() []byte {
	out := q.pack(reply{})
	out[2] |= 2
	return out
}

// networkOf widens a client's prefix to that of its network, which is all that matters, and all that should be known.
func networkOf(p netip.Prefix) netip.Prefix {
	bits := min(p.Bits(), 24)
	if p.Addr().Is6() {
		bits = min(p.Bits(), 56)
	}
	return netip.PrefixFrom(p.Addr(), bits).Masked()
}

func (a *Authority) answer(q *query, asker netip.Prefix) reply {
	z := a.zone.Load()
	v, apex := (*zoneView)(nil), q.name
	for ; ; apex = parent(apex) {
		if v = z.byName[apex]; v != nil || apex == "" {
			break
		}
	}
	if v == nil {
		a.refused.Add(1)
		return reply{rcode: rcodeRefused}
	}
	ttl := seconds(a.opt.ZoneTTL)
	for name := q.name; name != apex && within(name, apex); name = parent(name) {
		if s := v.sites[name]; s != nil && (name != q.name || q.question.Type != dns.Type(43)) { // the parent answers for DS
			out := reply{}
			v.servers(&out.authorities, &out.additionals, name, s.Servers, ttl)
			return out
		}
	}
	out := reply{authoritative: true}
	negative := func() reply {
		out.authorities = []dns.Resource{a.soa(z, v, apex)}
		return out
	}
	if q.name == apex {
		if q.asks(dns.TypeSOA) {
			out.answers = append(out.answers, a.soa(z, v, apex))
		}
		if q.asks(dns.TypeNS) {
			v.servers(&out.answers, &out.additionals, apex, v.Servers, ttl)
		}
	}
	// The names of the zone's own servers are no service's: else whoever has a host of that name would take all of the zone along.
	addrs, server := v.glue[q.name]
	host := v.hosts[q.name]
	if host == nil && !v.inner[q.name] {
		host = v.wild[parent(q.name)]
	}
	if host == nil || server {
		if server {
			for _, ip := range addrs {
				if rr := addressRecord(q.question.Name, ip, ttl); q.asks(rr.Header.Type) {
					out.answers = append(out.answers, rr)
				}
			}
		} else if !v.inner[q.name] && v.sites[q.name] == nil {
			out.rcode = rcodeNoName
		}
	} else {
		client := asker
		if q.ecs {
			if q.subnet.Bits() > 0 {
				client = networkOf(q.subnet)
			}
			out.options = []dns.Option{subnetOption(q.subnet, min(client.Bits(), q.subnet.Bits()))}
		}
		if p := a.nearest(client, host); p != nil {
			out.answers = append(out.answers, p.records(q, seconds(a.opt.TTL))...)
		}
	}
	if len(out.answers) == 0 {
		return negative()
	}
	return out
}

// subnetOption is the option in an answer that holds for a prefix of scope bits.
func subnetOption(p netip.Prefix, scope int) dns.Option {
	data := []byte{0, 1, byte(p.Bits()), byte(scope)}
	if p.Addr().Is6() {
		data[1] = 2
	}
	return dns.Option{Code: optSubnet, Data: append(data, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)}
}

// records gives what is asked for of a point.
func (p *Point) records(q *query, ttl uint32) (out []dns.Resource) {
	if p.Alias != "" {
		if name, err := dns.NewName(absolute(p.Alias)); err == nil && plain(p.Alias) != q.name {
			out = append(out, dns.Resource{Header: q.header(dns.TypeCNAME, ttl), Body: &dns.CNAMEResource{CNAME: name}})
		}
		return out
	}
	for _, ip := range p.Addrs {
		if rr := addressRecord(q.question.Name, ip.Unmap(), ttl); q.asks(rr.Header.Type) {
			out = append(out, rr)
		}
	}
	return out
}

// nearest chooses the point for a client: among the healthy ones, or, when there are none, among all, because what is
// known of health may be wrong and nothing is lost.
func (a *Authority) nearest(client netip.Prefix, host *Host) *Point {
	type ranked struct {
		cost float64
		near int
		hash uint64
	}
	var best *Point
	var least ranked
	for _, healthy := range []bool{true, false} {
		for i := range host.Points {
			p := &host.Points[i]
			if healthy && !p.Healthy {
				continue
			}
			r := ranked{hash: spread(client, p.ID)}
			if a.opt.Rank != nil {
				if r.cost = a.opt.Rank(client, host.Name, p); math.IsNaN(r.cost) {
					r.cost = math.Inf(1)
				}
			}
			for _, n := range p.Near {
				if n.Bits() <= client.Bits() && n.Contains(client.Addr()) {
					r.near = max(r.near, n.Bits()+1)
				}
			}
			if best == nil || cmp.Or(cmp.Compare(r.cost, least.cost), cmp.Compare(least.near, r.near), cmp.Compare(r.hash, least.hash)) < 0 {
				best, least = p, r
			}
		}
		if best != nil {
			break
		}
	}
	return best
}

// spread gives each client an order of points of its own, the same on every name server (rendezvous hashing).
func spread(client netip.Prefix, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(client.Addr().AsSlice())
	_, _ = h.Write([]byte(id))
	x := h.Sum64()
	// The high bits of FNV alone are uneven for short inputs; this is MurmurHash3's finisher.
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// servers adds the NS records of a zone, and the addresses of its servers as far as they are known.
func (v *zoneView) servers(ns, additional *[]dns.Resource, zone string, list []NameServer, ttl uint32) {
	owner, err := dns.NewName(absolute(zone))
	if err != nil {
		return
	}
	for _, s := range list[:min(len(list), maxServers)] {
		name, err := dns.NewName(absolute(s.Name))
		if err != nil {
			continue
		}
		*ns = append(*ns, dns.Resource{Header: dns.ResourceHeader{Name: owner, Type: dns.TypeNS, Class: dns.ClassINET, TTL: ttl},
			Body: &dns.NSResource{NS: name}})
		for _, ip := range s.Addrs {
			*additional = append(*additional, addressRecord(name, ip.Unmap(), ttl))
		}
	}
}

// maxServers of a zone are named in answers, so that these stay short.
const maxServers = 4

func (a *Authority) soa(z *zones, v *zoneView, apex string) dns.Resource {
	ns := "ns." + absolute(apex)
	if len(v.Servers) > 0 {
		ns = absolute(v.Servers[0].Name)
	}
	ttl := seconds(a.opt.TTL)
	owner, _ := dns.NewName(absolute(apex))
	first, _ := dns.NewName(ns)
	mbox, _ := dns.NewName("hostmaster." + absolute(apex))
	return dns.Resource{Header: dns.ResourceHeader{Name: owner, Type: dns.TypeSOA, Class: dns.ClassINET, TTL: ttl},
		Body: &dns.SOAResource{NS: first, MBox: mbox, Serial: z.serial, Refresh: 3600, Retry: 600, Expire: 86400, MinTTL: ttl}}
}

// Hosts lists the names that are answered, for people.
func (a *Authority) Hosts() (out []string) {
	for _, v := range a.zone.Load().byName {
		for i := range v.Hosts {
			out = append(out, plain(v.Hosts[i].Name))
		}
	}
	slices.Sort(out)
	return out
}
