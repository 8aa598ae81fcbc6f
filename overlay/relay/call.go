package relay

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

const (
	// callEvery is between two registrations at another relay by way of a NAT, which forgets who sends nothing; callSeldom
	// where there is none on the way, so that registrations are of no use unless that changes.
	callEvery  = 20 * time.Second
	callSeldom = 10 * time.Minute
	// callFirst is how long an answer is waited for; the wait doubles up to callLast.
	callFirst = 300 * time.Millisecond
	callLast  = time.Minute
)

// calls are this relay's registrations at those of other sites, so that they reach it through the NAT behind which it may be.
type calls struct {
	sync.Mutex
	at   map[netip.AddrPort]*call
	wake chan struct{}
}

// call is a registration at one relay.
type call struct {
	conf   wire.RelaySite
	tag    wire.PeerID
	key    [32]byte
	nonce  uint64
	cookie [frame.CookieLen]byte
	wait   time.Duration
	next   time.Time
}

// set says at which relays to register under a name. Registrations that stay stay as they are.
func (c *calls) set(self string, relays []wire.RelaySite) {
	c.Lock()
	defer c.Unlock()
	at := map[netip.AddrPort]*call{}
	for _, r := range relays {
		r.Addr = unmap(r.Addr)
		if old := c.at[r.Addr]; old != nil && old.conf == r {
			at[r.Addr] = old
			continue
		}
		at[r.Addr] = &call{conf: r, tag: frame.RelayTag(self), key: frame.RelayKey(r.Key, self), wait: callFirst}
	}
	c.at = at
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// due gives the registrations to send now, and when to ask again.
func (c *calls) due(now time.Time) (out []message, next time.Time) {
	c.Lock()
	defer c.Unlock()
	next = now.Add(time.Hour)
	for to, x := range c.at {
		if !now.Before(x.next) {
			if x.wait == callFirst { // a question that is repeated is the same: answers may take longer than the wait
				var b [8]byte
				_, _ = rand.Read(b[:])
				x.nonce = binary.BigEndian.Uint64(b[:])
			}
			x.next = now.Add(x.wait)
			x.wait = min(2*x.wait, callLast)
			out = append(out, x.message(to))
		}
		if x.next.Before(next) {
			next = x.next
		}
	}
	return out, next
}

// message is a datagram to somewhere.
type message struct {
	to netip.AddrPort
	b  []byte
}

func (x *call) message(to netip.AddrPort) message {
	return message{to, frame.Register{Relay: true, Peer: x.tag, Nonce: x.nonce, Cookie: x.cookie}.Append(nil, x.key)}
}

// answered takes an answer, and gives what to send at once if anything. own tells this machine's addresses.
func (c *calls) answered(b []byte, from netip.AddrPort, now time.Time, own func(netip.AddrPort) bool) (m message, again, ok bool) {
	c.Lock()
	defer c.Unlock()
	a, ok := frame.ParseRegister(b)
	x := c.at[from]
	if !ok || x == nil || !a.Answer || !a.Relay || a.Peer != x.tag || a.Nonce != x.nonce || x.nonce == 0 || !frame.CheckRegister(b, x.key) {
		return m, false, false
	}
	if x.cookie = a.Cookie; !a.Done {
		return x.message(from), true, true
	}
	x.wait, x.next = callFirst, now.Add(callEvery)
	if own(a.Addr) {
		x.next = now.Add(callSeldom)
	}
	return m, false, true
}

// own reports whether an address is this relay's without a NAT.
func (s *Server) own(a netip.AddrPort) bool {
	if a.Port() != s.UDP().Port() {
		return false
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, l := range list {
		if n, ok := l.(*net.IPNet); ok {
			if ip, _ := netip.AddrFromSlice(n.IP); ip.Unmap() == a.Addr() {
				return true
			}
		}
	}
	return false
}

// call registers at other relays until the end.
func (s *Server) call() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.end:
			return
		case <-s.calls.wake:
		case <-t.C:
		}
		list, next := s.calls.due(time.Now())
		for _, m := range list {
			_, _ = s.udp.WriteToUDPAddrPort(m.b, m.to)
		}
		t.Reset(time.Until(next))
	}
}
