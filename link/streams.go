package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// StreamFunc serves one stream that the other side opened. The connection is closed when it returns, and fails when
// the link goes down. Close ends both directions; there is no half-close, so protocols inside mark their own end.
type StreamFunc func(p *Peer, h *wire.StreamHeader, conn net.Conn)

// StreamMux finds the function for a kind of stream. Register all kinds before the first connection.
type StreamMux struct {
	kinds map[string]StreamFunc
}

// Handle registers a kind.
func (m *StreamMux) Handle(kind string, f StreamFunc) {
	if m.kinds == nil {
		m.kinds = make(map[string]StreamFunc)
	}
	m.kinds[kind] = f
}

func (m *StreamMux) lookup(kind string) StreamFunc {
	if m == nil {
		return nil
	}
	return m.kinds[kind]
}

// streamSide is a peer's second connection: there or not, dialled by the child only.
type streamSide struct {
	peer   *Peer
	dial   func(ctx context.Context) error // child only: connects and attaches
	dialMu sync.Mutex                      // one dial at a time; taken before mu
	wg     *sync.WaitGroup                 // of the Server or Client, which waits for every goroutine here

	mu      sync.Mutex
	session *yamux.Session
	raw     net.Conn
	arrived chan struct{} // closed when a session is attached
	closed  bool
}

func (s *streamSide) init(p *Peer, wg *sync.WaitGroup, dial func(context.Context) error) {
	s.peer, s.wg, s.dial, s.arrived = p, wg, dial, make(chan struct{})
}

func (s *streamSide) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.dropLocked()
}

func (s *streamSide) dropLocked() {
	if s.session == nil {
		return
	}
	s.raw.Close() // first, so that nobody waits for a farewell
	sess := s.session
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		sess.Close()
	}()
	s.session, s.raw = nil, nil
	s.arrived = make(chan struct{})
}

// live gives the session, if there is one that works, and the channel that tells of the next.
func (s *streamSide) live() (*yamux.Session, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &Error{Reason: ReasonClosed}
	}
	if s.session != nil && s.session.IsClosed() {
		s.dropLocked()
	}
	return s.session, s.arrived, nil
}

// attach takes a new session into use and serves the streams that the other side opens.
func (s *streamSide) attach(sess *yamux.Session, raw net.Conn, mux *StreamMux, maxStreams int, log *slog.Logger) error {
	wg := s.wg
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		raw.Close()
		sess.Close()
		return &Error{Reason: ReasonClosed}
	}
	s.dropLocked()
	s.session, s.raw = sess, raw
	close(s.arrived)
	wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer wg.Done()
		places := make(chan struct{}, maxStreams)
		for {
			st, err := sess.AcceptStream()
			if err != nil {
				return
			}
			select {
			case places <- struct{}{}:
			default:
				st.Close()
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer func() { <-places }()
				defer st.Close()
				defer panics.Catch(log, "a stream of a link")
				s.serve(st, mux)
			}()
		}
	}()
	return nil
}

func (s *streamSide) serve(st *yamux.Stream, mux *StreamMux) {
	p := s.peer
	st.SetDeadline(time.Now().Add(DefaultHandshakeTimeout))
	m, _, err := frame.NewReader(st, p.codec, frame.MaxGreeting).Next()
	h, ok := m.(*wire.StreamHeader)
	if err != nil || !ok {
		p.stats.end(ReasonMalformed)
		return
	}
	f := mux.lookup(h.Kind)
	if f == nil {
		frame.Write(st, p.codec, &wire.Refuse{Code: wire.RefuseStreamKind,
			Reason: fmt.Sprintf("streams of kind %q are not served here", h.Kind), Hint: "upgrade the other side"})
		return
	}
	if frame.Write(st, p.codec, &wire.StreamOpened{}) != nil {
		return
	}
	st.SetDeadline(time.Time{})
	p.stats.StreamsServed.Add(1)
	f(p, h, st)
}

// asked answers the parent's OpenStreams.
func (s *streamSide) asked(p *Peer) {
	if s.dial == nil {
		p.fail(&Error{Reason: ReasonMalformed, Err: errOutOfPlace})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), DefaultHandshakeTimeout)
	s.wg.Add(2)
	go func() {
		defer s.wg.Done()
		defer cancel()
		s.get(ctx) // a failure shows at the parent, which asks again
	}()
	go func() {
		defer s.wg.Done()
		select {
		case <-p.down:
			cancel()
		case <-ctx.Done():
		}
	}()
}

func (s *streamSide) get(ctx context.Context) (*yamux.Session, error) {
	for {
		sess, arrived, err := s.live()
		if err != nil || sess != nil {
			return sess, err
		}
		if s.dial != nil {
			s.dialMu.Lock()
			if sess, _, _ = s.live(); sess == nil {
				err = s.dial(ctx)
			}
			s.dialMu.Unlock()
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := s.peer.Send(&wire.OpenStreams{}); err != nil {
			return nil, err
		}
		again := time.NewTimer(3 * time.Second)
		select {
		case <-arrived:
		case <-again.C:
		case <-s.peer.down:
			err = &Error{Reason: ReasonClosed}
		case <-ctx.Done():
			err = fmt.Errorf("wait for the stream connection of %s: %w", s.peer.Name(), ctx.Err())
		}
		again.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// OpenStream opens a stream to the other side, over a stream connection that is made when there is none. Both sides may
// open streams. A refusal shows as *wire.Refuse at the first Read. ctx bounds the opening only.
func (p *Peer) OpenStream(ctx context.Context, h *wire.StreamHeader) (net.Conn, error) {
	if by := p.hello.Carrier; by != "" {
		return nil, &wire.Refuse{Code: wire.RefuseStreamKind,
			Reason: fmt.Sprintf("%s is connected by %s, which carries no streams", p.Name(), by),
			Hint:   "logs, terminals and files of what runs there are on the device itself"}
	}
	head, err := p.codec.Encode(h)
	if err != nil {
		return nil, err
	}
	if len(head) > frame.MaxGreeting {
		return nil, fmt.Errorf("open stream %q: %w", h.Kind, frame.ErrTooLarge)
	}
	for try := 0; ; try++ {
		sess, err := p.streams.get(ctx)
		if err != nil {
			return nil, fmt.Errorf("open stream %q: %w", h.Kind, err)
		}
		st, err := sess.OpenStream()
		if err == nil {
			if _, err = st.Write(head); err == nil {
				p.stats.StreamsOpened.Add(1)
				return &streamConn{Stream: st, codec: p.codec}, nil
			}
			st.Close()
		}
		// The session may just have been closed for being idle.
		if try == 3 || !sess.IsClosed() {
			return nil, fmt.Errorf("open stream %q: %w", h.Kind, err)
		}
	}
}

// streamConn takes the acceptor's answer off before the first byte.
type streamConn struct {
	*yamux.Stream
	codec *frame.Codec
	once  sync.Once
	err   error
}

func (c *streamConn) Read(b []byte) (int, error) {
	c.once.Do(func() {
		m, _, err := frame.NewReader(c.Stream, c.codec, frame.MaxGreeting).Next()
		switch m := m.(type) {
		case *wire.StreamOpened:
		case *wire.Refuse:
			c.err = m
		default:
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			c.err = err
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Stream.Read(b)
}

func yamuxConfig(keepAlive time.Duration) *yamux.Config {
	return &yamux.Config{
		AcceptBacklog: 64, EnableKeepAlive: true, KeepAliveInterval: keepAlive, ConnectionWriteTimeout: 3 * keepAlive,
		MaxStreamWindowSize: 256 << 10, StreamOpenTimeout: 30 * time.Second, StreamCloseTimeout: 30 * time.Second,
		LogOutput: io.Discard,
	}
}

// streamHello admits a second connection of a peer whose control connection lives.
func (s *Server) streamHello(ctx context.Context, raw, conn net.Conn, id wire.PeerIdentity, m *wire.StreamHello) error {
	if err := sameIdentity(id, m.Tier, m.Name); err != nil {
		return err
	}
	if err := s.cfg.Admit(ctx, id, nil); err != nil {
		return s.refusal(err, "admit")
	}
	p := s.Peer(id.Tier, id.Name)
	if p == nil || p.id.Key != id.Key || p.hello.Boot != m.Boot {
		return &wire.Refuse{Code: wire.RefuseNotAuthorised, Reason: "there is no control connection of this agent",
			Hint: "connect the control protocol first"}
	}
	if err := frame.Write(conn, s.codec, &wire.StreamOpened{}); err != nil {
		return err
	}
	raw.SetDeadline(time.Time{})
	sess, err := yamux.Server(conn, yamuxConfig(s.cfg.KeepAlive))
	if err != nil {
		return err
	}
	return p.streams.attach(sess, raw, s.cfg.Streams, s.cfg.MaxStreams, s.cfg.Log)
}
