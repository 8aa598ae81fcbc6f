package resolver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

// forwarder asks upstream servers. Questions that are the same are asked once. Each goes out from a socket of its own,
// so that the kernel chooses the port, with a random ID and random upper and lower case (draft-vixie-dnsext-dns0x20); an
// answer must repeat all of it, and what does not is dropped.
type forwarder struct {
	r     *Resolver
	cache *cache

	mu      sync.Mutex
	flights map[cacheKey]*flight
	down    map[netip.AddrPort]time.Time // servers that did not answer, until when they come last
	forms   map[netip.AddrPort]form      // servers that want something else than the zero form
}

type flight struct {
	done chan struct{}
	msg  *message // nil: no server answered
}

// holdDown is how long a server that did not answer is asked after the others.
const holdDown = 15 * time.Second

func newForwarder(r *Resolver) *forwarder {
	return &forwarder{r: r, cache: newCache(r.opt.CacheSize), flights: map[cacheKey]*flight{}, down: map[netip.AddrPort]time.Time{},
		forms: map[netip.AddrPort]form{}}
}

// cached answers from what is kept, or gives nil.
func (f *forwarder) cached(q *query) []byte {
	now := time.Now()
	if e, fresh := f.cache.get(q.key(), now); fresh {
		return e.msg.answer(q, uint32(now.Sub(e.since)/time.Second), uint32(maxKeep/time.Second))
	}
	return nil
}

// ask answers with what the servers say; when none answers, with what was kept and is too old.
func (f *forwarder) ask(ctx context.Context, servers []netip.AddrPort, q *query) []byte {
	k := q.key()
	f.mu.Lock()
	fl, running := f.flights[k]
	if !running {
		fl = &flight{done: make(chan struct{})}
		f.flights[k] = fl
	}
	f.mu.Unlock()
	if running {
		select {
		case <-fl.done:
		case <-ctx.Done():
			return q.status(rcodeServFail)
		}
	} else {
		fl.msg = f.exchange(ctx, servers, q)
		f.mu.Lock()
		delete(f.flights, k)
		f.mu.Unlock()
		close(fl.done)
	}
	if fl.msg != nil {
		f.r.count(cForwarded)
		return fl.msg.answer(q, 0, uint32(maxKeep/time.Second))
	}
	if e, _ := f.cache.get(k, time.Now()); e != nil {
		f.r.count(cStale)
		return e.msg.answer(q, 0, staleTTL)
	}
	return q.status(rcodeServFail)
}

// exchange asks one server after the other, twice, until one gives an answer. It gives nil if none does.
func (f *forwarder) exchange(ctx context.Context, servers []netip.AddrPort, q *query) *message {
	for round := range 2 {
		for _, s := range f.order(servers) {
			m, err := f.try(ctx, s, q)
			if ctx.Err() != nil {
				return nil
			}
			var failed net.Error
			f.mu.Lock()
			if errors.As(err, &failed) || errors.Is(err, io.EOF) {
				f.down[s] = time.Now().Add(holdDown)
			} else if err == nil {
				delete(f.down, s)
			}
			f.mu.Unlock()
			if err != nil {
				f.r.count(cUpstreamFailed)
				f.r.opt.Log.Debug("name server failed", "server", s.String(), "round", round, "err", err)
				continue
			}
			f.cache.put(q.key(), *m, time.Now())
			return m
		}
	}
	return nil
}

// order puts servers that did not answer lately behind the others.
func (f *forwarder) order(servers []netip.AddrPort) []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for s, until := range f.down {
		if !now.Before(until) || !slices.Contains(servers, s) {
			delete(f.down, s)
		}
	}
	maps.DeleteFunc(f.forms, func(s netip.AddrPort, _ form) bool { return !slices.Contains(servers, s) })
	out := make([]netip.AddrPort, 0, len(servers))
	for _, last := range []bool{false, true} {
		for _, s := range servers {
			if _, down := f.down[s]; down == last {
				out = append(out, s)
			}
		}
	}
	return out
}

// form is how a question is written. Small routers that forward names know less than servers do.
type form struct {
	lower bool // in lower case, for a server that does not keep the spelling and has no TCP
	bare  bool // without OPT, for a server that takes it for an error
}

// try asks one server by UDP, and by TCP when the answer does not fit or somebody plays games.
func (f *forwarder) try(ctx context.Context, server netip.AddrPort, q *query) (*message, error) {
	f.mu.Lock()
	how := f.forms[server]
	f.mu.Unlock()
	first := how
	msg, err := f.once(ctx, "udp", server, q, how)
	if err == nil && (msg.rcode == rcodeFormErr || msg.rcode == rcodeNotImp) && !how.bare {
		how.bare = true
		msg, err = f.once(ctx, "udp", server, q, how)
	}
	if spelling := errors.Is(err, errSpelling); spelling || err == nil && msg.tc {
		msg, err = f.once(ctx, "tcp", server, q, how)
		if err != nil && spelling && ctx.Err() == nil {
			how.lower = true
			msg, err = f.once(ctx, "udp", server, q, how)
		}
	}
	if err != nil {
		return nil, err
	}
	if msg.rcode != dns.RCodeSuccess && msg.rcode != rcodeNoName {
		return nil, fmt.Errorf("status %s", msg.rcode)
	}
	if how != first {
		f.mu.Lock()
		f.forms[server] = how
		f.mu.Unlock()
	}
	return msg, nil
}

// errSpelling is an answer to the question in another spelling: from a server that does not keep it, or forged.
var errSpelling = errors.New("the answer does not repeat the question's spelling")

func (f *forwarder) once(ctx context.Context, network string, server netip.AddrPort, q *query, how form) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, f.r.opt.UpstreamTimeout)
	defer cancel()
	conn, err := f.r.opt.Dial(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// A deadline ends reads; so does the Resolver's end.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	out := upstreamQuery(q, how)
	if network == "tcp" {
		if err := writeMessage(conn, out); err != nil {
			return nil, err
		}
		in, err := readMessage(conn)
		if err != nil {
			return nil, err
		}
		return accept(out, in)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		// What is no answer to this may be forged, and the true one still come.
		m, err := accept(out, buf[:n])
		if err == nil || errors.Is(err, errSpelling) {
			return m, err
		}
	}
}

// upstreamQuery makes the question that goes to a server.
func upstreamQuery(q *query, how form) []byte {
	var random [2 + 32]byte
	_, _ = rand.Read(random[:]) // it never fails
	u := query{id: binary.BigEndian.Uint16(random[:]), question: q.question}
	bits := random[2:]
	for i := range int(u.question.Name.Length) {
		c := &u.question.Name.Data[i]
		if lower := *c | 0x20; lower >= 'a' && lower <= 'z' {
			if *c = lower; how.lower {
				continue
			}
			*c = lower &^ (bits[i/8%32] >> (i % 8) & 1 << 5)
		}
	}
	b := dns.NewBuilder(make([]byte, 0, 128), dns.Header{ID: u.id, RecursionDesired: true, CheckingDisabled: q.cd})
	_ = b.StartQuestions()
	_ = b.Question(u.question) // it was packed before
	if !how.bare {
		_ = b.StartAdditionals()
		var h dns.ResourceHeader
		_ = h.SetEDNS0(maxUDP, 0, q.do)
		_ = b.OPTResource(h, dns.OPTResource{})
	}
	out, _ := b.Finish()
	return out
}

// accept takes an answer to a question that was sent.
func accept(sent, in []byte) (*message, error) {
	m, ok := walk(in)
	if !ok {
		return nil, errors.New("the answer is malformed")
	}
	if in[0] != sent[0] || in[1] != sent[1] {
		return nil, errors.New("the answer has another ID")
	}
	end, _ := skipName(sent, 12)
	asked := sent[12 : end+4]
	got := in[12:m.qEnd]
	if bytes.Equal(asked, got) {
		return &m, nil
	}
	if bytes.EqualFold(asked[:len(asked)-4], got[:max(0, len(got)-4)]) && bytes.Equal(asked[len(asked)-4:], got[len(got)-4:]) {
		return nil, errSpelling
	}
	return nil, errors.New("the answer is to another question")
}
