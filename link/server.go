package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"skerry.dev/skerry/link/beat"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

var errOutOfPlace = errors.New("a message that has no place here")

// ServerConfig says how a parent listens. TLS, Identify, Admit, Welcome and Handler are needed.
type ServerConfig struct {
	// TLS holds the certificate and verifies clients: VerifyConnection refuses other CAs on ProtoLink and ProtoStream.
	// The server sets NextProtos and the minimal version.
	TLS *tls.Config
	// Identify reads a verified certificate.
	Identify func(tls.ConnectionState) (wire.PeerIdentity, error)
	// Admit says whether an identity may come in: enrolled, not revoked, not expired, no known clone. It is asked
	// twice, the second time when the connection can be found by Disconnect. For a stream connection hello is nil. A
	// *wire.Refuse reaches the peer; another error is logged and told as internal.
	Admit func(ctx context.Context, id wire.PeerIdentity, hello *wire.Hello) error
	// Welcome answers an admitted peer whose connection is now the only one of its name. It sets Tier, Name, Version,
	// Incarnation, Sets and Events; the server sets the rest.
	Welcome func(p *Peer) (*wire.Welcome, error)
	Handler Handler
	// Streams serves what children open; nil refuses all.
	Streams *StreamMux
	// Join serves a connection of ProtoJoin, of whom nothing is known; nil closes them.
	Join func(ctx context.Context, conn *tls.Conn)
	// Images serves a connection of ProtoImages, for as long as it takes; nil closes them. Who that is it finds out itself.
	Images func(ctx context.Context, conn *tls.Conn)
	// Candidate serves a connection of ProtoCandidate, for as long as it takes; nil closes them. Whether the identity is enrolled it finds
	// out.
	Candidate func(ctx context.Context, conn *tls.Conn, id wire.PeerIdentity)
	// Clone is told of a second live agent under the identity of first.
	Clone func(first *Peer, later *wire.Hello, addr net.Addr)

	Features []string // offered
	Required []string // the server is of no use to children without these

	// Beats takes the children's beats, nil: there are none. BeatEvery is their interval.
	Beats     *beat.Listener
	BeatEvery time.Duration

	KeepAlive        time.Duration
	HandshakeTimeout time.Duration // TLS and Hello together
	ProbeTimeout     time.Duration // how long a live connection may take to defend its name
	MaxPending       int           // connections shaking hands
	MaxQueue         int           // bytes in line for one peer
	MaxStreams       int           // streams served at a time for one peer
	FrameRate        int           // frames per second and peer before reading slows down
	Log              *slog.Logger
}

// Server is the parent's end of all its links.
type Server struct {
	cfg   ServerConfig
	tls   *tls.Config
	codec *frame.Codec
	stats Stats

	mu      sync.Mutex
	peers   map[peerKey]*Peer
	pending []pendingConn
	slot    chan struct{} // tells a waiting accept of a free place
	closed  bool
	wg      sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

type peerKey struct {
	tier wire.Tier
	name string
}

type pendingConn struct {
	conn  net.Conn
	since time.Time
}

// NewServer makes a server; Serve starts it.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.TLS == nil || cfg.Identify == nil || cfg.Admit == nil || cfg.Welcome == nil || cfg.Handler == nil {
		return nil, errors.New("link server: TLS, Identify, Admit, Welcome and Handler are needed")
	}
	def(&cfg.KeepAlive, DefaultKeepAlive)
	def(&cfg.HandshakeTimeout, DefaultHandshakeTimeout)
	def(&cfg.ProbeTimeout, DefaultProbeTimeout)
	def(&cfg.MaxPending, DefaultMaxPending)
	def(&cfg.MaxQueue, DefaultMaxQueue)
	def(&cfg.MaxStreams, DefaultMaxStreams)
	def(&cfg.FrameRate, DefaultFrameRate)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t := cfg.TLS.Clone()
	t.MinVersion = tls.VersionTLS13
	t.NextProtos = []string{ProtoLink, ProtoStream}
	if cfg.Images != nil {
		t.NextProtos = append(t.NextProtos, ProtoImages)
	}
	if cfg.Join != nil {
		t.NextProtos = append(t.NextProtos, ProtoJoin)
	}
	if cfg.Candidate != nil {
		t.NextProtos = append(t.NextProtos, ProtoCandidate)
	}
	t.SessionTicketsDisabled = true // a ticket would outlive a revocation
	s := &Server{cfg: cfg, tls: t, codec: frame.NewCodec(), peers: make(map[peerKey]*Peer), slot: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func def[T int | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Stats gives the server's counters.
func (s *Server) Stats() *Stats { return &s.stats }

// Serve accepts connections until l is closed or the server is.
func (s *Server) Serve(listener net.Listener) error {
	stop := context.AfterFunc(s.ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && (ne.Timeout() || isTemporary(err)) {
				s.cfg.Log.Warn("link accept", "err", err) // for example no descriptors left
				select {
				case <-time.After(100 * time.Millisecond):
				case <-s.ctx.Done():
				}
				continue
			}
			return fmt.Errorf("link accept: %w", err)
		}
		s.stats.Accepted.Add(1)
		if !s.begin(conn) {
			conn.Close()
			continue
		}
		go s.greet(conn)
	}
}

func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// begin finds a place among those shaking hands. When there is none it evicts the oldest, once it has had a fair time.
func (s *Server) begin(conn net.Conn) bool {
	const fair = 2 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && len(s.pending) >= s.cfg.MaxPending {
		oldest := s.pending[0]
		wait := fair - time.Since(oldest.since)
		if wait <= 0 {
			oldest.conn.Close()
			s.pending = s.pending[1:]
			s.stats.end(ReasonEvicted)
			break
		}
		s.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-s.slot:
		case <-s.ctx.Done():
		}
		t.Stop()
		s.mu.Lock()
	}
	if s.closed {
		return false
	}
	s.pending = append(s.pending, pendingConn{conn, time.Now()})
	s.wg.Add(1)
	return true
}

func (s *Server) greeted(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.pending {
		if p.conn == conn {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
			break
		}
	}
	select {
	case s.slot <- struct{}{}:
	default:
	}
}

// greet shakes hands and hands the connection on. It ends early so that its deep stack does not stay with a connection
// for life.
func (s *Server) greet(raw net.Conn) {
	defer s.wg.Done()
	defer s.recovered(raw)
	raw.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	conn := tls.Server(raw, s.tls)
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err != nil {
		s.greeted(raw)
		s.stats.end(ReasonHandshake)
		s.cfg.Log.Debug("link handshake", "addr", raw.RemoteAddr(), "err", err)
		raw.Close()
		return
	}
	cs := conn.ConnectionState()
	if cs.NegotiatedProtocol == ProtoJoin && s.cfg.Join != nil {
		// The join handler sets its own deadlines; the place among the pending stays taken until it is done.
		s.cfg.Join(ctx, conn)
		s.greeted(raw)
		conn.Close()
		return
	}
	if cs.NegotiatedProtocol == ProtoImages && s.cfg.Images != nil {
		s.greeted(raw)
		raw.SetDeadline(time.Time{})
		s.cfg.Images(s.ctx, conn)
		conn.Close()
		return
	}
	if cs.NegotiatedProtocol == ProtoCandidate && s.cfg.Candidate != nil {
		s.greeted(raw)
		id, err := s.cfg.Identify(cs)
		if err == nil {
			raw.SetDeadline(time.Time{})
			s.cfg.Candidate(s.ctx, conn, id)
		}
		conn.Close()
		return
	}
	err = s.admit(ctx, raw, conn, cs)
	s.greeted(raw)
	if err != nil {
		s.turnAway(raw, conn, err)
	}
}

// turnAway ends a connection that was not admitted, with a word where there is one for it.
func (s *Server) turnAway(raw, conn net.Conn, err error) {
	e := classify(err)
	if e.Reason == ReasonSilent || e.Reason == ReasonClosed || e.Reason == ReasonReset {
		e.Reason = ReasonHandshake
	}
	s.stats.end(e.Reason)
	s.cfg.Log.Debug("link refused", "addr", raw.RemoteAddr(), "err", err)
	var refuse *wire.Refuse
	if errors.As(err, &refuse) {
		raw.SetDeadline(time.Now().Add(time.Second))
		frame.Write(conn, s.codec, refuse)
		conn.Close()
	}
	raw.Close()
}

// Carry takes a control connection of a child that another transport has authenticated as id: conn carries frames, from
// Hello on, and everything holds for it that holds for a connection of ProtoLink, but that it has no streams and no
// beats. carrier names the transport, and keepAlive stands in for the server's own, since the transport may look after
// that. Carry returns when the child is admitted or turned away; the caller then carries until conn is closed.
func (s *Server) Carry(conn net.Conn, id wire.PeerIdentity, carrier string, keepAlive time.Duration) {
	s.stats.Accepted.Add(1)
	if !s.begin(conn) {
		conn.Close()
		return
	}
	defer s.wg.Done()
	defer s.recovered(conn)
	conn.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	m, err := s.first(conn)
	if err == nil {
		if hello, ok := m.(*wire.Hello); ok {
			hello.Carrier = carrier
			err = s.hello(ctx, &Peer{id: id, hello: hello, conn: conn, raw: conn, keepAlive: keepAlive}, nil)
		} else {
			err = &Error{ReasonMalformed, fmt.Errorf("%T: %w", m, errOutOfPlace)}
		}
	}
	s.greeted(conn)
	if err != nil {
		s.turnAway(conn, conn, err)
	}
}

// first reads the frame that a connection begins with.
func (s *Server) first(conn net.Conn) (wire.Message, error) {
	m, size, err := frame.NewReader(conn, s.codec, frame.MaxGreeting).Next()
	if err == nil {
		s.stats.FramesIn.Add(1)
		s.stats.BytesIn.Add(int64(size))
	}
	return m, err
}

// recovered keeps one peer's bad luck from ending everybody's links.
func (s *Server) recovered(raw net.Conn) {
	if v := recover(); v != nil {
		s.cfg.Log.Error("link panic", "panic", v, "stack", string(debug.Stack()))
		raw.Close()
	}
}

func (s *Server) admit(ctx context.Context, raw net.Conn, conn *tls.Conn, cs tls.ConnectionState) error {
	if cs.NegotiatedProtocol != ProtoLink && cs.NegotiatedProtocol != ProtoStream {
		return &Error{ReasonHandshake, fmt.Errorf("protocol %q", cs.NegotiatedProtocol)}
	}
	id, err := s.cfg.Identify(cs)
	if err != nil {
		return s.refusal(err, "identify")
	}
	m, err := s.first(conn)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.Hello:
		if cs.NegotiatedProtocol == ProtoLink {
			return s.hello(ctx, &Peer{id: id, hello: m, conn: conn, raw: raw, keepAlive: s.cfg.KeepAlive}, &cs)
		}
	case *wire.StreamHello:
		if cs.NegotiatedProtocol == ProtoStream {
			return s.streamHello(ctx, raw, conn, id, m)
		}
	}
	return &Error{ReasonMalformed, fmt.Errorf("%T: %w", m, errOutOfPlace)}
}

// refusal passes a Refuse on and hides what else went wrong.
func (s *Server) refusal(err error, doing string) error {
	var refuse *wire.Refuse
	if errors.As(err, &refuse) {
		return refuse
	}
	s.cfg.Log.Warn("link "+doing, "err", err)
	return &wire.Refuse{Code: wire.RefuseInternal, Reason: "the parent cannot answer now",
		Hint: "its log says why; the agent tries again by itself", RetryAfter: 5000}
}

func sameIdentity(id wire.PeerIdentity, tier wire.Tier, name string) error {
	if tier == id.Tier && name == id.Name {
		return nil
	}
	return &wire.Refuse{Code: wire.RefuseIdentity,
		Reason: fmt.Sprintf("the certificate is that of %s %q, not of %s %q", id.Tier, id.Name, tier, name),
		Hint:   "join under the new name with a new token"}
}

// hello admits a child, of which p has its end of the connection. cs is nil where another transport carries that.
func (s *Server) hello(ctx context.Context, peer *Peer, cs *tls.ConnectionState) error {
	id, h := peer.id, peer.hello
	if err := sameIdentity(id, h.Tier, h.Name); err != nil {
		return err
	}
	w := wire.Welcome{KeepAlive: uint32(peer.keepAlive / time.Millisecond), Time: time.Now().UnixMilli()}
	var err error
	if w.Protocol, w.Features, err = negotiate(h, s.cfg.Features, s.cfg.Required); err != nil {
		return err
	}
	if err := s.cfg.Admit(ctx, id, h); err != nil {
		return s.refusal(err, "admit")
	}
	peer.began, peer.codec, peer.stats, peer.maxQueue, peer.down = time.Now(), s.codec, &s.stats, s.cfg.MaxQueue, make(chan struct{})
	peer.streams.init(peer, &s.wg, nil)
	if err := s.claim(ctx, peer); err != nil {
		return err
	}
	// Again, now that Disconnect finds it: the key may have been revoked in between.
	if err := s.cfg.Admit(ctx, id, h); err != nil {
		s.release(peer)
		return s.refusal(err, "admit")
	}
	answer, err := s.cfg.Welcome(peer)
	if err != nil {
		s.release(peer)
		return s.refusal(err, "welcome")
	}
	answer.Protocol, answer.Features, answer.KeepAlive, answer.Time = w.Protocol, w.Features, w.KeepAlive, w.Time
	switch {
	case s.cfg.Beats == nil:
	case cs == nil:
		s.cfg.Beats.Remove(peer.Name()) // it may have beaten as another kind of agent
	default:
		session, err := beat.SessionOf(*cs)
		if err != nil {
			s.cfg.Log.Warn("beats", "name", peer.Name(), "err", err)
		} else {
			s.cfg.Beats.Add(peer.Name(), session, func() { s.moved(peer, session) })
			answer.Beat = uint32(s.cfg.BeatEvery / time.Millisecond)
		}
	}
	peer.welcome = answer
	peer.ready.Store(true)
	peer.raw.SetDeadline(time.Time{})
	peer.Send(answer)
	s.wg.Add(1)
	go s.run(peer)
	return nil
}

// run is the life of an admitted peer.
func (s *Server) run(p *Peer) {
	defer s.wg.Done()
	s.stats.Live.Add(1)
	s.cfg.Handler.Up(p)
	err := p.read(s.cfg.Handler, s.cfg.FrameRate)
	s.stats.Live.Add(-1)
	s.stats.end(err.Reason)
	s.cfg.Handler.Down(p, err)
	s.release(p)
}

// claim makes p the only connection of its name. The same agent's newer connection replaces the older. Another agent's
// waits until the older one has shown that it is dead; if it lives, p is a clone.
func (s *Server) claim(ctx context.Context, peer *Peer) error {
	key := peerKey{peer.id.Tier, peer.id.Name}
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return &Error{Reason: ReasonClosed}
		}
		old := s.peers[key]
		if old == nil {
			s.peers[key] = peer
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		switch {
		case peer.hello.Term != 0 && peer.hello.Term < old.hello.Term && peer.id.Tier == wire.TierCluster:
			return &wire.Refuse{Code: wire.RefuseDeposed, RetryAfter: 5000,
				Reason: fmt.Sprintf("%s %q is led by another machine (%s) in term %d, and this one claims term %d", peer.id.Tier, peer.id.Name,
					old.hello.Machine, old.hello.Term, peer.hello.Term),
				Hint: "it finds the one that leads, and stands by for it"}
		case peer.hello.Term > old.hello.Term && peer.id.Tier == wire.TierCluster:
			// Not a clone: the site's workers have chosen another machine.
		case old.hello.Boot != peer.hello.Boot && s.alive(ctx, old):
			if s.cfg.Clone != nil {
				s.cfg.Clone(old, peer.hello, peer.raw.RemoteAddr())
			}
			return cloneRefusal(old, peer)
		}
		old.fail(&Error{Reason: ReasonReplaced})
		select {
		case <-old.down:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func cloneRefusal(old, p *Peer) error {
	return &wire.Refuse{Code: wire.RefuseClone,
		Reason: fmt.Sprintf("%s %q is connected already from machine %q (%s), and now also from machine %q (%s)", p.id.Tier, p.id.Name,
			old.hello.Machine, old.raw.RemoteAddr(), p.hello.Machine, p.raw.RemoteAddr()),
		Hint: "a data directory was copied: stop one of the two, delete its data directory and join it under a name of its own with a new token"}
}

// alive asks a connection that stands in the way for a sign of life.
func (s *Server) alive(ctx context.Context, old *Peer) bool {
	if !old.ready.Load() {
		return false // still coming up; it will notice
	}
	t := time.NewTimer(s.cfg.ProbeTimeout)
	defer t.Stop()
	select {
	case <-old.ping():
		return true
	case <-old.down:
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// moved takes that a child's beats come from another address. If the way was changed under its connection, as when a NAT is
// exchanged, nothing that is sent to it arrives, and the child cannot know. It finds out when it is answered no longer.
func (s *Server) moved(p *Peer, session beat.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Go(func() {
		if !s.alive(s.ctx, p) {
			s.cfg.Beats.Mute(session)
			p.Close()
		}
	})
}

func (s *Server) release(p *Peer) {
	p.fail(&Error{Reason: ReasonClosed})
	s.mu.Lock()
	if key := (peerKey{p.id.Tier, p.id.Name}); s.peers[key] == p {
		delete(s.peers, key)
	}
	s.mu.Unlock()
	close(p.down)
}

// Peer gives the live connection of a child, or nil.
func (s *Server) Peer(tier wire.Tier, name string) *Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[peerKey{tier, name}]; p != nil && p.ready.Load() {
		return p
	}
	return nil
}

// Disconnect ends the connection of a child, for example after its key was revoked.
func (s *Server) Disconnect(tier wire.Tier, name string) {
	s.mu.Lock()
	p := s.peers[peerKey{tier, name}] // also one that is still coming up
	s.mu.Unlock()
	if s.cfg.Beats != nil {
		s.cfg.Beats.Remove(name)
	}
	if p != nil {
		p.Close()
	}
}

// Close ends all connections and waits until every Down was delivered. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var peers []*Peer
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	for _, c := range s.pending {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.cancel()
	for _, p := range peers {
		p.Close()
	}
	s.wg.Wait()
	return nil
}
