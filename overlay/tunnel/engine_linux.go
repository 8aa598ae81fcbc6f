package tunnel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// Options are what an Engine needs beside its configuration. The zero value is usable.
type Options struct {
	Log    *slog.Logger // nil: nothing is logged
	Timing Timing
	// NoAES has the engine say that it has no instructions for AES.
	NoAES bool
}

// Engine carries packets between a tap and peers. Set says which; until then it does nothing.
//
//	goroutine  reads          does
//	tap        the tap        seals and sends
//	udp        the socket     opens and writes to the tap; hands the rest to the loop
//	relay      a TLS stream   the same, one for each relay that needs it
//	loop       what the others hand it, and a timer: handshakes, paths, configuration
type Engine struct {
	log    *slog.Logger
	timing Timing
	aes    bool
	start  time.Time

	peers    atomic.Pointer[map[wire.PeerID]*peer]
	sessions atomic.Pointer[map[uint32]*session]
	sock     atomic.Pointer[socket]
	tapFD    atomic.Int64 // -1: none
	mtu      atomic.Int64
	relayAt  atomic.Pointer[map[netip.AddrPort]*relayClient] // by their UDP addresses
	public   atomic.Pointer[wire.OverlayKey]                 // this end's; nil before the first Set
	nudgeAt  atomic.Int64
	count    counters

	inbox  chan func() // what the other goroutines hand to the loop; when it is full, it is lost and counted
	hellos chan hello  // handshake messages
	calls  chan func() // Set and Status
	events chan Event
	lifetime

	// The rest is the loop's.
	conf   Config
	relays map[string]*relayClient
	tx     *sender
	handshaking
	inputs
	probing
}

// lifetime is how an engine ends, once.
type lifetime struct {
	done  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// handshaking is who this end is, whom it knows, and the handshakes that go on (keys_linux.go).
type handshaking struct {
	id       identity
	keys     map[wire.OverlayKey]*peer
	attempts map[uint32]*peer
	gate     gate
	stamp    uint64
}

// inputs are the readers that hand the loop what comes from outside.
type inputs struct {
	tapIO *tapReader
	tap   string // its name
	udpIO *udpReader
	watch *addressWatch
}

// probing is where this end can be reached, and the pings by which it looks for paths (paths_linux.go).
type probing struct {
	locals []netip.AddrPort
	from   []netip.Addr // of what is sent: see sources
	number uint32       // of the last ping
}

// counters of what became of datagrams and frames.
type counters struct {
	malformed, unknown, stale, forged, refused, tooBig, noPeer, noSession, full, sendErr, tapErr, floods, busy, eventsLost atomic.Int64
	// from addresses that are not the peer's
	source atomic.Int64
	// system calls' worth: each carries several packets
	reads, sends, messages, writes atomic.Int64
	rx, tx                         atomic.Int64
}

func (c *counters) all() map[string]int64 {
	out := map[string]int64{}
	for name, v := range map[string]*atomic.Int64{
		"drop-malformed": &c.malformed, "drop-unknown": &c.unknown, "drop-stale": &c.stale, "drop-forged": &c.forged,
		"drop-handshake": &c.refused, "drop-too-big": &c.tooBig, "drop-no-peer": &c.noPeer, "drop-no-session": &c.noSession,
		"drop-waiting-full": &c.full, "drop-send": &c.sendErr, "drop-tap": &c.tapErr, "drop-flood": &c.floods, "drop-busy": &c.busy,
		"drop-events": &c.eventsLost, "drop-source": &c.source, "reads": &c.reads, "sends": &c.sends, "messages": &c.messages,
		"writes": &c.writes, "rx": &c.rx, "tx": &c.tx,
	} {
		if n := v.Load(); n != 0 {
			out[name] = n
		}
	}
	return out
}

// eventRoom is how many events wait for their reader; more are counted and dropped.
const eventRoom = 256

// New makes an engine. Close ends it.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		log: o.Log, timing: o.Timing.filled(), aes: hasAES() && !o.NoAES, start: time.Now(),
		inbox: make(chan func(), 256), hellos: make(chan hello, 64), calls: make(chan func()), events: make(chan Event, eventRoom),
		lifetime:    lifetime{done: make(chan struct{}), ended: make(chan struct{})},
		handshaking: handshaking{keys: map[wire.OverlayKey]*peer{}, attempts: map[uint32]*peer{}},
		relays:      map[string]*relayClient{},
	}
	e.peers.Store(&map[wire.PeerID]*peer{})
	e.sessions.Store(&map[uint32]*session{})
	e.relayAt.Store(&map[netip.AddrPort]*relayClient{})
	e.tapFD.Store(-1)
	e.tx = newSender(e)
	go e.loop()
	return e
}

// now is the engine's clock: it never goes back, and never is 0.
func (e *Engine) now() time.Duration { return time.Since(e.start) + 1 }

var errClosed = errors.New("the datapath has ended")

// call runs f on the loop.
func (e *Engine) call(f func()) error {
	ran := make(chan error, 1)
	select {
	case e.calls <- func() {
		ran <- func() (err error) {
			defer panics.Error(&err)
			f()
			return nil
		}()
	}:
		return <-ran
	case <-e.done:
		return errClosed
	}
}

// post hands f to the loop without waiting.
func (e *Engine) post(f func()) bool {
	select {
	case e.inbox <- f:
		return true
	default:
		e.count.busy.Add(1)
		return false
	}
}

// Events gives what happens, until Close closes it.
func (e *Engine) Events() <-chan Event { return e.events }

func (e *Engine) emit(ev Event) {
	select {
	case e.events <- ev:
	default:
		e.count.eventsLost.Add(1)
	}
}

// Close ends everything; the tap stays.
func (e *Engine) Close() error {
	e.once.Do(func() { close(e.done) })
	<-e.ended
	return nil
}

// Tick of the loop while something is going on, and while nothing is.
const (
	tickBusy = 50 * time.Millisecond
	tickIdle = time.Second
)

func (e *Engine) loop() {
	defer close(e.ended)
	defer close(e.events)
	defer e.shutdown()
	panics.Again(e.log, "the tunnel", e.turns)
}

// turns does one thing after the other, until the end.
func (e *Engine) turns() {
	timer := time.NewTimer(tickBusy)
	defer timer.Stop()
	idle := false
	soon := func() { // what has come may have begun something
		if idle {
			idle = false
			timer.Reset(tickBusy)
		}
	}
	for {
		select {
		case <-e.done:
			return
		case f := <-e.calls:
			f()
			soon()
		case f := <-e.inbox:
			f()
			soon()
		case h := <-e.hellos:
			e.message(h.from, h.b)
			soon()
		case <-timer.C:
			idle = !e.tick(e.now())
			if wait := e.pause(idle); wait > 0 {
				timer.Reset(wait)
			}
		}
	}
}

// pause is the time until the next tick, or 0 for none until something comes.
func (e *Engine) pause(idle bool) time.Duration {
	switch {
	case !idle:
		return tickBusy
	case len(e.keys)+len(e.relays) == 0:
		return 0
	default:
		return min(tickIdle, e.timing.RekeyAfter/20)
	}
}

func (e *Engine) shutdown() {
	e.tapIO.close()
	e.udpIO.close()
	e.watch.close()
	for _, r := range e.relays {
		r.close()
	}
	if fd := e.tapFD.Swap(-1); fd >= 0 {
		unix.Close(int(fd))
	}
	if s := e.sock.Swap(nil); s != nil {
		unix.Close(s.fd)
	}
}

// Set makes the engine what a configuration says. Sessions of peers that stay as they are go on.
func (e *Engine) Set(c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	id, err := newIdentity(c.PrivateKey)
	if err != nil {
		return err
	}
	var inner error
	if err := e.call(func() { inner = e.set(c, id) }); err != nil {
		return err
	}
	return inner
}

func (e *Engine) set(conf Config, id identity) error {
	if err := e.setDevices(conf); err != nil {
		return err
	}
	if id.public != e.id.public {
		for _, p := range e.keys {
			e.dropPeer(p)
		}
	}
	e.id, e.conf = id, conf
	e.public.Store(&id.public)
	e.mtu.Store(int64(conf.MTU))
	e.setRelays(conf.Relays)
	keys := map[wire.OverlayKey]*peer{}
	ids := map[wire.PeerID]*peer{}
	for _, pc := range conf.Peers {
		p := e.keys[pc.Key]
		if p != nil && p.id != pc.ID {
			e.dropPeer(p)
			p = nil
		}
		if p == nil {
			p = &peer{id: pc.ID, key: pc.Key, search: search{cands: map[pathKey]*candidate{}}, reason: "not used"}
		}
		p.conf.Store(&pc)
		keys[pc.Key], ids[pc.ID] = p, p
		e.setCandidates(p)
	}
	for k, p := range e.keys {
		if keys[k] != p {
			e.dropPeer(p)
		}
	}
	e.keys = keys
	e.peers.Store(&ids)
	e.locate()
	return nil
}

// setDevices opens the tap and the socket that a configuration names, when they are others than those that are open.
func (e *Engine) setDevices(conf Config) error {
	if e.tapIO == nil || conf.Tap != e.tap {
		fd, err := openTap(conf.Tap)
		if err != nil {
			return err
		}
		r, err := newTapReader(e, fd)
		if err != nil {
			unix.Close(fd)
			return err
		}
		e.tapIO.close()
		old := e.tapFD.Swap(int64(fd))
		if old >= 0 {
			// Writers may be at it in this moment; theirs are counted as errors.
			unix.Close(int(old))
		}
		e.tapIO, e.tap = r, conf.Tap
		r.run()
	}
	if s := e.sock.Load(); s == nil || conf.Port != 0 && conf.Port != s.port {
		n, err := openSocket(conf.Port)
		if err != nil {
			return err
		}
		r, err := newUDPReader(e, n)
		if err != nil {
			unix.Close(n.fd)
			return err
		}
		e.udpIO.close()
		e.sock.Store(n)
		if s != nil {
			unix.Close(s.fd)
		}
		e.udpIO = r
		r.run()
	}
	if e.watch == nil {
		w, err := watchAddresses(func() { e.post(e.addressesChanged) })
		if err != nil {
			return err
		}
		e.watch = w
	}
	return nil
}

// dropPeer forgets a peer and its sessions.
func (e *Engine) dropPeer(p *peer) {
	p.gone = true
	e.endAttempt(p)
	p.send.Store(nil)
	p.via.Store(nil)
	p.sessions = nil
	p.held()
	old := *e.sessions.Load()
	next := make(map[uint32]*session, len(old))
	for i, s := range old {
		if s.peer != p {
			next[i] = s
		}
	}
	e.sessions.Store(&next)
	delete(e.keys, p.key)
}

// newIndex gives an index that no session or attempt has.
func (e *Engine) newIndex() uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		i := binary.BigEndian.Uint32(b[:])
		if i != 0 && (*e.sessions.Load())[i] == nil && e.attempts[i] == nil {
			return i
		}
	}
}

// addSession makes a session receive.
func (e *Engine) addSession(s *session) {
	s.made = e.now()
	old := *e.sessions.Load()
	next := make(map[uint32]*session, len(old)+1)
	for i, v := range old {
		next[i] = v
	}
	next[s.local] = s
	p := s.peer
	p.sessions = append([]*session{s}, p.sessions...)
	if len(p.sessions) > maxSessions {
		i := p.oldest()
		delete(next, p.sessions[i].local)
		p.sessions = append(p.sessions[:i:i], p.sessions[i+1:]...)
	}
	e.sessions.Store(&next)
}

// oldest gives the session to forget for a new one, which is the first. The one that sends stays, whatever its age. One
// that nobody has used is of an attempt that was repeated since; the others may still carry what is on its way.
func (p *peer) oldest() int {
	last := 0
	for i := len(p.sessions) - 1; i > 0; i-- {
		switch s := p.sessions[i]; {
		case s == p.send.Load():
		case !s.confirmed.Load():
			return i
		case last == 0:
			last = i
		}
	}
	return max(last, 1)
}

// maxSessions of a peer receive at the same time.
const maxSessions = 4

// maxLater is how many messages wait for a session with a peer.
const maxLater = 16

// Look has relays and peers in use asked at once whether they hear from here.
func (e *Engine) Look() error { return e.call(e.look) }

// Ping asks a peer for a sign of life by all ways to it, and gives how long ago the last one came; false: none ever, or it is no peer.
func (e *Engine) Ping(id wire.PeerID) (ago time.Duration, ok bool, err error) {
	err = e.call(func() {
		p := (*e.peers.Load())[id]
		if p == nil {
			return
		}
		now := e.now()
		if p.send.Load() == nil {
			e.want(p)
		} else {
			for _, c := range p.cands {
				if c.direct() || c.relay.registered() {
					e.ping(p, c, now)
				}
			}
		}
		if at := time.Duration(p.lastRx.Load()); at > 0 {
			ago, ok = now-at, true
		}
	})
	return ago, ok, err
}

// Unknown tells a peer that no instance here has an address that it sent to.
func (e *Engine) Unknown(id wire.PeerID, net wire.NetworkID, addr netip.Addr) error {
	return e.call(func() {
		p := (*e.peers.Load())[id]
		if p == nil {
			return
		}
		c := control{kind: ctlUnknown, net: net, addr: addr}
		if e.tell(p, p.via.Load(), c) {
			return
		}
		// What came from it came unsealed, most likely, and there is no session.
		if len(p.later) < maxLater {
			p.later = append(p.later, c)
		}
		e.want(p)
	})
}

// Status tells how things are.
func (e *Engine) Status() (st Status, err error) {
	err = e.call(func() { st = e.status() })
	return st, err
}

func (e *Engine) status() Status {
	st := Status{Counters: e.count.all(), Candidate: e.reachable(), Cipher: choose(e.aes, true).String()}
	if s := e.sock.Load(); s != nil {
		st.Port = s.port
	}
	for _, r := range e.conf.Relays {
		if c := e.relays[r.Name]; c != nil {
			st.Relays = append(st.Relays, c.status())
		}
	}
	for _, pc := range e.conf.Peers {
		p := e.keys[pc.Key]
		if p == nil {
			continue
		}
		ps := overlay.PathStatus{Peer: p.id, Name: pc.Name, Path: overlay.PathNone, Reason: p.reason, Loss: p.loss, RxBytes: p.rx.Load(),
			TxBytes: p.tx.Load(), Handshake: p.handshake}
		if v, s := p.via.Load(), p.send.Load(); v != nil && s != nil {
			ps.Path, ps.Endpoint, ps.Cipher = v.kind(), v.addr, s.suite.String()
			if !v.direct() {
				ps.Endpoint = v.relay.endpoint()
				if why := v.relay.why(); why != "" {
					ps.Reason += "; " + why
				}
			}
			if c := p.cands[v.pathKey]; c != nil {
				ps.RTT = c.rtt
			}
		}
		st.Peers = append(st.Peers, ps)
	}
	return st
}
