package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

// Protocol is what a worker and a relay agree on in TLS (ALPN).
const Protocol = "skerry-relay-1"

// over says how a worker is registered.
type over int32

const (
	overNone over = iota
	overUDP
	overTLS
)

func (o over) String() string {
	switch o {
	case overUDP:
		return "udp"
	case overTLS:
		return "tls"
	}
	return ""
}

const (
	askFirst = 300 * time.Millisecond // between questions
	// deafAfter is the number of questions without an answer after which UDP counts as blocked.
	deafAfter = 4
)

// relayClient is this worker's registration at a relay. The loop changes it; senders and receivers read what does not
// change, and mode.
type relayClient struct {
	e       *Engine
	name    string
	conf    Relay
	self    wire.PeerID
	key     [32]byte
	in, out *frame.Tagger
	raw     rawAddr
	mode    atomic.Int32 // over
	live    atomic.Pointer[stream]
	wg      sync.WaitGroup
	cancel  context.CancelFunc
	ctx     context.Context

	// The loop's.
	udp       question
	tcp       question
	dialing   bool
	dialAt    time.Duration
	dialErr   error
	reflexive netip.AddrPort
}

// question is a registration by one transport that goes on.
type question struct {
	nonce  uint64
	cookie [frame.CookieLen]byte
	asked  int // without an answer
	next   time.Duration
	good   time.Duration
}

func (e *Engine) setRelays(list []Relay) {
	want := map[string]*relayClient{}
	at := map[netip.AddrPort]*relayClient{}
	for _, r := range list {
		r.UDP = unmap(r.UDP)
		c := e.relays[r.Name]
		if c == nil || c.conf != r || c.self != e.conf.ID {
			ctx, cancel := context.WithCancel(context.Background())
			c = &relayClient{e: e, name: r.Name, conf: r, self: e.conf.ID, key: r.Key, ctx: ctx, cancel: cancel,
				in: frame.NewTagger(r.Key, false), out: frame.NewTagger(r.Key, true)}
			if s := e.sock.Load(); s != nil && r.UDP.IsValid() {
				c.raw = s.rawAddr(r.UDP)
			}
		}
		want[r.Name] = c
		if r.UDP.IsValid() {
			at[r.UDP] = c
		}
	}
	old := e.relays
	e.relays = want
	e.relayAt.Store(&at)
	for name, c := range old {
		if want[name] != c {
			c.close()
		}
	}
}

func unmap(a netip.AddrPort) netip.AddrPort {
	if !a.IsValid() {
		return a
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func (r *relayClient) over() over { return over(r.mode.Load()) }

func (r *relayClient) registered() bool { return r.over() != overNone }

// endpoint is where what goes by the relay is sent.
func (r *relayClient) endpoint() netip.AddrPort {
	if r.over() == overTLS {
		return r.conf.TLS
	}
	return r.conf.UDP
}

// why says why the registration is not a better one.
func (r *relayClient) why() string {
	switch {
	case r.over() == overUDP:
		return ""
	case r.over() == overTLS && r.conf.UDP.IsValid():
		return "the relay does not answer by UDP, so TLS is used"
	case r.over() == overTLS:
		return ""
	case r.dialErr != nil:
		return "the relay cannot be reached: " + r.dialErr.Error()
	}
	return "the relay does not answer"
}

func (r *relayClient) status() overlay.RelayStatus {
	return overlay.RelayStatus{Name: r.name, Over: r.over().String(), Reflexive: r.reflexive, Reason: r.why()}
}

// tick registers in time. It reports whether an answer is awaited.
func (r *relayClient) tick(now time.Duration) bool {
	if r.conf.UDP.IsValid() && now >= r.udp.next {
		if r.udp.asked >= deafAfter || r.over() == overTLS {
			r.udp.cookie = [frame.CookieLen]byte{} // an answer must prove anew that one comes through
		}
		r.ask(&r.udp, nil, now)
	}
	s := r.live.Load()
	if s != nil && s.done() {
		r.dialErr = s.error()
		r.e.log.Debug("relay stream ended", "relay", r.name, "err", r.dialErr)
		r.live.Store(nil)
		r.tcp = question{}
		s = nil
	}
	if s != nil && now >= r.tcp.next {
		if r.tcp.asked >= deafAfter {
			s.close()
		} else {
			r.ask(&r.tcp, s, now)
		}
	}
	if r.conf.TLS.IsValid() && r.deaf() && s == nil && !r.dialing && now >= r.dialAt {
		r.dial(now)
	}
	r.judge()
	return r.over() == overNone && (!r.deaf() || r.dialing) || r.udp.asked > 0 && !r.deaf() || s != nil && r.over() != overTLS
}

// deaf says that the relay does not answer by UDP.
func (r *relayClient) deaf() bool { return !r.conf.UDP.IsValid() || r.udp.asked > deafAfter }

// judge decides by which transport the worker is registered.
func (r *relayClient) judge() {
	s := r.live.Load()
	want := overNone
	switch {
	case r.udp.good > 0 && !r.deaf():
		want = overUDP
	case s != nil && r.tcp.good > 0:
		want = overTLS
	}
	if want != r.over() {
		r.set(want)
	}
	if s != nil && want == overUDP {
		s.close()
	}
}

// ask sends a registration.
func (r *relayClient) ask(q *question, s *stream, now time.Duration) {
	if q.asked == 0 || q.nonce == 0 { // a question that is repeated is the same: answers may take longer than the pause
		var b [8]byte
		_, _ = rand.Read(b[:])
		q.nonce = binary.BigEndian.Uint64(b[:])
	}
	q.next = now + askFirst
	if q.asked >= deafAfter {
		q.next = now + r.e.timing.Better
	}
	q.asked++
	if s == nil && r.deaf() {
		q.good = 0
	}
	r.put(q, s)
}

func (r *relayClient) put(q *question, s *stream) {
	b := frame.Register{Peer: r.self, Nonce: q.nonce, Cookie: q.cookie}.Append(nil, r.key)
	if s != nil {
		s.put(b, len(b))
		return
	}
	if sock := r.e.sock.Load(); sock != nil {
		if err := r.e.tx.t.send(sock, &r.raw, b, len(b)); err != nil {
			r.e.count.sendErr.Add(1)
		}
	}
}

// answered takes an answer to a registration; s is the stream by which it came, nil for UDP.
func (r *relayClient) answered(a frame.Register, s *stream) {
	q := &r.udp
	if s != nil {
		q = &r.tcp
	}
	if a.Peer != r.self || a.Nonce != q.nonce || s != nil && s != r.live.Load() {
		return
	}
	now := r.e.now()
	q.cookie = a.Cookie
	if !a.Done {
		r.put(q, s)
		return
	}
	q.asked, q.good, q.next = 0, now, now+r.e.timing.KeepAlive
	if s == nil && a.Addr != r.reflexive {
		r.reflexive = a.Addr
		r.e.emit(Event{Kind: EventAddress})
	}
	r.judge()
}

// set changes how the worker is registered, and has the paths looked at.
func (r *relayClient) set(o over) {
	r.mode.Store(int32(o))
	r.e.log.Info("relay", "relay", r.name, "over", o.String())
	now := r.e.now()
	for _, p := range r.e.keys {
		if o != overNone && p.send.Load() == nil && p.attempt != nil {
			p.nextTry = now // a handshake that goes on has a way more
		}
		if v := p.via.Load(); v != nil && v.relay == r {
			if c := p.cands[v.pathKey]; c != nil {
				c.pings, c.misses, c.next = nil, 0, now
			}
			if o != overNone {
				r.e.punch(p, now)
			}
		}
	}
}

// suspect asks at once whether the relay is still there.
func (r *relayClient) suspect(now time.Duration) {
	if r.over() == overUDP && r.udp.asked == 0 && now-r.udp.good > askFirst {
		r.udp.next = now
	}
}

// look registers anew by what is in use: this end may have another address, or none that reaches the relay.
func (r *relayClient) look(now time.Duration) {
	if r.over() == overUDP {
		r.udp.next = now
	}
	r.tcp.next = now
	r.tick(now)
}

// moved registers anew: this end has another address.
func (r *relayClient) moved(now time.Duration) {
	r.udp.asked, r.udp.next = 0, now
	if s := r.live.Load(); s != nil && r.over() == overTLS {
		s.close() // its address may be gone, and TCP would not say so for long
		r.dialAt = now
	}
	r.tick(now)
}

// dial opens a stream.
func (r *relayClient) dial(now time.Duration) {
	r.dialing, r.dialAt = true, now+2*time.Second
	r.wg.Go(func() {
		s, err := r.connect()
		select {
		case r.e.inbox <- func() { r.dialed(s, err) }:
		case <-r.ctx.Done():
			if s != nil {
				s.close()
			}
		}
		if s != nil {
			// Whoever closes the client may not have heard of the stream yet, and waits for its end.
			stop := context.AfterFunc(r.ctx, s.close)
			defer stop()
			s.run()
		}
	})
}

// dialed takes what dial came to.
func (r *relayClient) dialed(s *stream, err error) {
	r.dialing, r.dialErr = false, err
	r.e.log.Debug("relay stream", "relay", r.name, "err", err)
	if err != nil {
		return
	}
	if r.ctx.Err() != nil {
		s.close()
		return
	}
	r.live.Store(s)
	r.tick(r.e.now())
}

// dialFor is how long connecting may take.
const dialFor = 10 * time.Second

func (r *relayClient) connect() (*stream, error) {
	ctx, cancel := context.WithTimeout(r.ctx, dialFor)
	defer cancel()
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, ServerName: "relay",
		InsecureSkipVerify: true, // the key is pinned instead
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 || sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo) != r.conf.Pin {
				return errors.New("the certificate has another key than the relay's")
			}
			return nil
		},
	}}
	c, err := d.DialContext(ctx, "tcp", r.conf.TLS.String())
	if err != nil {
		return nil, err
	}
	return newStream(r, c.(*tls.Conn)), nil // as Dialer says
}

// stream hands datagrams to the TLS connection when there is one; false: they go by UDP.
func (r *relayClient) stream(b []byte, seg int) bool {
	switch r.over() {
	case overUDP:
		return false
	case overTLS:
		if s := r.live.Load(); s != nil {
			s.put(b, seg)
		}
		return true
	}
	r.e.count.sendErr.Add(1)
	return true
}

// close ends the registration and waits for its goroutines.
func (r *relayClient) close() {
	r.cancel()
	if s := r.live.Swap(nil); s != nil {
		s.close()
	}
	r.wg.Wait()
	r.mode.Store(int32(overNone))
}
