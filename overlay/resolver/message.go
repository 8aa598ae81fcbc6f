package resolver

import (
	"encoding/binary"
	"net/netip"
	"strings"

	dns "golang.org/x/net/dns/dnsmessage"
)

// Statuses of answers.
const (
	rcodeFormErr  = dns.RCodeFormatError
	rcodeServFail = dns.RCodeServerFailure
	rcodeNoName   = dns.RCodeNameError
	rcodeNotImp   = dns.RCodeNotImplemented
	rcodeRefused  = dns.RCodeRefused
	rcodeBadVers  = dns.RCode(16)
)

// optSubnet is the option in which a resolver tells its client's network (RFC 7871).
const optSubnet = 8

// typeANY and typeAXFR are types of questions alone.
const typeANY = dns.Type(255)

// query is one question, read.
type query struct {
	id       uint16
	opcode   dns.OpCode
	rd, cd   bool
	question dns.Question
	name     string    // in lower case, without the dot at its end
	rcode    dns.RCode // not 0: it is refused with this
	edns, do bool
	limit    int          // bytes that the answer may have
	tcp      bool         // the limit is the transport's
	subnet   netip.Prefix // of the client, as its resolver tells; the zero value: not told
	ecs      bool         // the option was given, perhaps with a prefix of no bits
}

// parseQuery reads a question. It gives false for what deserves no answer: what is no message, and answers. limit is the
// longest answer that the transport takes, or 0 for UDP, where the question says it.
func parseQuery(msg []byte, limit int) (query, bool) {
	var p dns.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return query{}, false
	}
	q := query{id: h.ID, opcode: h.OpCode, rd: h.RecursionDesired, cd: h.CheckingDisabled, limit: limit, tcp: limit > 0}
	if !q.tcp {
		q.limit = 512
	}
	if h.OpCode != 0 {
		q.rcode = rcodeNotImp
		return q, true
	}
	q.rcode = rcodeFormErr
	if binary.BigEndian.Uint16(msg[4:]) != 1 {
		return q, true
	}
	if q.question, err = p.Question(); err != nil {
		q.question = dns.Question{}
		return q, true
	}
	q.name = strings.TrimSuffix(strings.ToLower(q.question.Name.String()), ".")
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, true
	}
	for {
		rh, err := p.AdditionalHeader()
		if err == dns.ErrSectionDone {
			break
		}
		if err != nil {
			return q, true
		}
		if rh.Type != dns.TypeOPT {
			if p.SkipAdditional() != nil {
				return q, true
			}
			continue
		}
		opt, err := p.OPTResource()
		if err != nil || q.edns || rh.Name.Length != 1 {
			return q, true
		}
		q.edns, q.do = true, rh.DNSSECAllowed()
		if !q.tcp {
			q.limit = min(max(512, int(rh.Class)), maxUDP)
		}
		if rh.TTL>>16&0xff != 0 {
			q.rcode = rcodeBadVers
			return q, true
		}
		for _, o := range opt.Options {
			if o.Code == optSubnet {
				ok := false
				if q.subnet, ok = parseSubnet(o.Data); !ok || q.ecs {
					return q, true
				}
				q.ecs = true
			}
		}
	}
	q.rcode = 0
	switch {
	case q.question.Class != dns.ClassINET:
		q.rcode = rcodeRefused
	case q.question.Type >= 251 && q.question.Type <= 254: // transfers and obsolete ones
		q.rcode = rcodeRefused
	}
	return q, true
}

// parseSubnet reads the client subnet option (RFC 7871, section 6). Bits after the prefix must be zero.
func parseSubnet(b []byte) (netip.Prefix, bool) {
	if len(b) < 4 {
		return netip.Prefix{}, false
	}
	family, bits, scope, data := binary.BigEndian.Uint16(b), int(b[2]), b[3], b[4:]
	size := map[uint16]int{1: 4, 2: 16}[family]
	if size == 0 || bits > 8*size || scope != 0 || len(data) != (bits+7)/8 {
		return netip.Prefix{}, false
	}
	full := make([]byte, size)
	copy(full, data)
	a, _ := netip.AddrFromSlice(full)
	p := netip.PrefixFrom(a, bits)
	return p, p == p.Masked()
}

// reply is an answer to be packed.
type reply struct {
	rcode         dns.RCode
	authoritative bool
	recursion     bool
	answers       []dns.Resource
	authorities   []dns.Resource
	additionals   []dns.Resource
	options       []dns.Option
}

// pack writes an answer; one that is too long is cut to the question, with the mark that TCP has it all.
func (q *query) pack(r reply) []byte {
	for _, cut := range []bool{false, true} {
		h := dns.Header{ID: q.id, Response: true, OpCode: q.opcode, Authoritative: r.authoritative, RecursionDesired: q.rd,
			CheckingDisabled: q.cd, RecursionAvailable: r.recursion, RCode: r.rcode & 0xf, Truncated: cut}
		b := dns.NewBuilder(make([]byte, 0, 256), h)
		b.EnableCompression()
		err := b.StartQuestions()
		if err == nil && q.question.Name.Length > 0 {
			err = b.Question(q.question)
		}
		sections := []struct {
			start func() error
			list  []dns.Resource
		}{{b.StartAnswers, r.answers}, {b.StartAuthorities, r.authorities}, {b.StartAdditionals, r.additionals}}
		for _, s := range sections {
			if err == nil {
				err = s.start()
			}
			for _, rr := range s.list {
				if err == nil && !cut {
					err = add(&b, rr)
				}
			}
		}
		if err == nil && q.edns {
			var oh dns.ResourceHeader
			if err = oh.SetEDNS0(maxUDP, r.rcode, q.do); err == nil {
				err = b.OPTResource(oh, dns.OPTResource{Options: r.options})
			}
		}
		out, err2 := b.Finish()
		if err != nil || err2 != nil {
			// Only a name of ours that is too long could bring this about.
			return q.minimal(rcodeServFail)
		}
		if len(out) <= q.limit {
			return out
		}
	}
	return q.minimal(rcodeServFail)
}

// add packs one record of the kinds that this package makes.
func add(b *dns.Builder, r dns.Resource) error {
	switch body := r.Body.(type) {
	case *dns.AResource:
		return b.AResource(r.Header, *body)
	case *dns.AAAAResource:
		return b.AAAAResource(r.Header, *body)
	case *dns.SRVResource:
		return b.SRVResource(r.Header, *body)
	case *dns.PTRResource:
		return b.PTRResource(r.Header, *body)
	case *dns.SOAResource:
		return b.SOAResource(r.Header, *body)
	case *dns.CNAMEResource:
		return b.CNAMEResource(r.Header, *body)
	case *dns.NSResource:
		return b.NSResource(r.Header, *body)
	case *dns.TXTResource:
		return b.TXTResource(r.Header, *body)
	}
	panic("a record of a kind that is never made")
}

// minimal gives an answer of a header alone.
func (q *query) minimal(rc dns.RCode) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b, q.id)
	b[2], b[3] = 0x80|byte(q.opcode&0xf)<<3, byte(rc&0xf)
	return b
}

// status gives an answer that is nothing but a status.
func (q *query) status(rc dns.RCode) []byte { return q.pack(reply{rcode: rc, recursion: true}) }

// header makes the header of a record that answers the question.
func (q *query) header(t dns.Type, ttl uint32) dns.ResourceHeader {
	return dns.ResourceHeader{Name: q.question.Name, Type: t, Class: dns.ClassINET, TTL: ttl}
}

// addressRecord makes an A or AAAA record.
func addressRecord(name dns.Name, a netip.Addr, ttl uint32) dns.Resource {
	h := dns.ResourceHeader{Name: name, Type: dns.TypeA, Class: dns.ClassINET, TTL: ttl}
	if a.Is4() {
		return dns.Resource{Header: h, Body: &dns.AResource{A: a.As4()}}
	}
	h.Type = dns.TypeAAAA
	return dns.Resource{Header: h, Body: &dns.AAAAResource{AAAA: a.As16()}}
}

// asks reports whether the question wants records of a type.
func (q *query) asks(t dns.Type) bool { return q.question.Type == t || q.question.Type == typeANY }
