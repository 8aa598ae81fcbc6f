package resolver

import (
	"net/netip"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry/spec"
)

// local answers from what was found in a view.
func (r *Resolver) local(v *view, q *query, n node) []byte {
	out := reply{authoritative: true, recursion: true}
	ttl := seconds(r.opt.TTL)
	switch n.kind {
	case nothing:
		r.count(cNoName)
		out.rcode = rcodeNoName
	default:
		r.count(cLocal)
	}
	switch n.kind {
	case address:
		out.answers = v.addresses(q, q.question.Name, n.addr, ttl)
	case server:
		target, err := dns.NewName(n.name)
		if err == nil && q.asks(dns.TypeSRV) {
			out.answers = append(out.answers, dns.Resource{Header: q.header(dns.TypeSRV, ttl),
				Body: &dns.SRVResource{Weight: 1, Port: n.port, Target: target}})
			both := query{question: dns.Question{Type: typeANY}}
			out.additionals = v.addresses(&both, target, n.addr, ttl)
		}
	case pointer:
		target, err := dns.NewName(n.name)
		if err == nil && q.asks(dns.TypePTR) {
			out.answers = append(out.answers, dns.Resource{Header: q.header(dns.TypePTR, ttl), Body: &dns.PTRResource{PTR: target}})
		}
	case loop:
		for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if rr := addressRecord(q.question.Name, a, ttl); q.asks(rr.Header.Type) {
				out.answers = append(out.answers, rr)
			}
		}
	case apex:
		if q.asks(dns.TypeSOA) {
			out.answers = append(out.answers, r.soa(v, ttl))
		}
	}
	if len(out.answers) == 0 && (n.zoned || n.kind == apex) {
		out.authorities = []dns.Resource{r.soa(v, seconds(r.opt.NegativeTTL))}
	}
	return q.pack(out)
}

// addresses gives the records of a service address that are asked for.
func (v *view) addresses(q *query, name dns.Name, a netip.Addr, ttl uint32) (out []dns.Resource) {
	if q.asks(dns.TypeA) {
		out = append(out, addressRecord(name, a, ttl))
	}
	if v.ipv6 && q.asks(dns.TypeAAAA) {
		out = append(out, addressRecord(name, spec.ServiceTwin(a), ttl))
	}
	return out
}

func (r *Resolver) soa(v *view, ttl uint32) dns.Resource {
	return dns.Resource{Header: dns.ResourceHeader{Name: dns.MustNewName(Zone), Type: dns.TypeSOA, Class: dns.ClassINET, TTL: ttl},
		Body: &dns.SOAResource{NS: dns.MustNewName("ns." + Zone), MBox: dns.MustNewName("hostmaster." + Zone), Serial: v.serial,
			Refresh: 3600, Retry: 600, Expire: 86400, MinTTL: seconds(r.opt.NegativeTTL)}}
}

func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }
