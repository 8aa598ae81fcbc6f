package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"skerry.dev/skerry/link/beat"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// ErrTooLarge says that a message has more bytes than a frame may.
var ErrTooLarge = frame.ErrTooLarge

// ErrDown says that there is no connection to the parent at the moment.
var ErrDown = errors.New("no connection to the parent")

// ClientConfig says how a child connects. Addrs, TLS, Identify, Hello and Handler are needed.
type ClientConfig struct {
	// Addrs gives the parent's addresses, host:port, in order of preference. It is asked before each round.
	Addrs func() []string
	// Dial makes a connection; nil dials TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS gives the present certificate and the verification of the parent. It is asked before each connection.
	TLS func() (*tls.Config, error)
	// Identify reads the parent's verified certificate.
	Identify func(tls.ConnectionState) (wire.PeerIdentity, error)
	// Hello gives tier, name, version, boot, machine, features and what is held of each set. The client sets the
	// protocol range and the time.
	Hello   func() *wire.Hello
	Handler Handler
	// Streams serves what the parent opens; nil refuses all.
	Streams *StreamMux
	// Check, if not nil, looks at a Welcome before the link counts as up; an error ends the connection.
	Check func(w *wire.Welcome) error
	// Refused is told of each refusal, before the wait: renew when expired, stop when revoked. It may take its time.
	Refused func(ctx context.Context, r *wire.Refuse)

	DialTimeout time.Duration // default 10 s, for TCP, TLS and Hello together
	// MinBackoff and MaxBackoff bound the wait between rounds; each wait is random up to twice the one before.
	// Defaults 500 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	StreamIdle             time.Duration // a stream connection without streams is closed after this long; default 1 min
	MaxQueue, MaxStreams   int
	FrameRate              int
	Log                    *slog.Logger
}

// Client is the child's end of its link.
type Client struct {
	cfg   ClientConfig
	codec *frame.Codec
	stats Stats
	peer  atomic.Pointer[Peer]
	wg    sync.WaitGroup
	// sender beats for the newest session, until beats is called.
	sender *beat.Sender
	beats  context.CancelFunc

	hurry   chan struct{}
	mu      sync.Mutex
	lastErr error
}

// NewClient makes a client; Run starts it.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Addrs == nil || cfg.TLS == nil || cfg.Identify == nil || cfg.Hello == nil || cfg.Handler == nil {
		return nil, errors.New("link client: Addrs, TLS, Identify, Hello and Handler are needed")
	}
	if cfg.Dial == nil {
		d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}} // our own pings do that
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	def(&cfg.DialTimeout, DefaultHandshakeTimeout)
	def(&cfg.MinBackoff, 500*time.Millisecond)
	def(&cfg.MaxBackoff, 30*time.Second)
	def(&cfg.StreamIdle, DefaultStreamIdle)
	def(&cfg.MaxQueue, DefaultMaxQueue)
	def(&cfg.MaxStreams, DefaultMaxStreams)
	def(&cfg.FrameRate, DefaultFrameRate)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{cfg: cfg, codec: frame.NewCodec(), sender: beat.NewSender(cfg.Log), hurry: make(chan struct{}, 1)}, nil
}

// Hurry has a client that waits for its next try not wait any longer.
func (c *Client) Hurry() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// Stats gives the client's counters.
func (c *Client) Stats() *Stats { return &c.stats }

// Peer gives the live connection to the parent, or nil.
func (c *Client) Peer() *Peer { return c.peer.Load() }

// Send puts a message in line for the parent, or gives ErrDown.
func (c *Client) Send(m wire.Message) error {
	if p := c.peer.Load(); p != nil {
		return p.Send(m)
	}
	return ErrDown
}

// OpenStream opens a stream to the parent, or gives ErrDown.
func (c *Client) OpenStream(ctx context.Context, h *wire.StreamHeader) (net.Conn, error) {
	if p := c.peer.Load(); p != nil {
		return p.OpenStream(ctx, h)
	}
	return nil, ErrDown
}

// LastError is why the parent could not be reached last; nil while connected.
func (c *Client) LastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

func (c *Client) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = err
}

// Run keeps the link up until ctx ends. It returns when everything it started has ended.
func (c *Client) Run(ctx context.Context) error {
	defer c.wg.Wait()
	wait := c.cfg.MinBackoff
	for ctx.Err() == nil {
		var asked time.Duration
		for _, addr := range c.cfg.Addrs() {
			up, err := c.session(ctx, addr)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if up {
				wait = c.cfg.MinBackoff
			}
			c.setErr(fmt.Errorf("connect to the parent at %s: %w", addr, err))
			c.cfg.Log.Info("link down", "addr", addr, "err", err)
			var refuse *wire.Refuse
			if errors.As(err, &refuse) {
				asked = max(asked, refuse.Wait())
				if c.cfg.Refused != nil {
					c.cfg.Refused(ctx, refuse)
				}
			}
			if up {
				break // begin with the preferred address again
			}
		}
		// A random wait keeps thousands of children from coming back in the same instant.
		t := time.NewTimer(max(asked, wait/2+rand.N(wait)))
		select {
		case <-t.C:
		case <-c.hurry:
			wait = c.cfg.MinBackoff
		case <-ctx.Done():
		}
		t.Stop()
		wait = min(2*wait, c.cfg.MaxBackoff)
	}
	return ctx.Err()
}

// connect makes one authenticated connection for a protocol and greets.
func (c *Client) connect(ctx context.Context, addr, proto string, greeting wire.Message) (raw net.Conn, conn *tls.Conn,
	answer wire.Message, err error) {
	deadline := time.Now().Add(c.cfg.DialTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	cfg, err := c.cfg.TLS()
	if err != nil {
		return nil, nil, nil, err
	}
	dialled, err := c.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, nil, nil, err
	}
	raw = dialled
	defer func() {
		if err != nil {
			dialled.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { dialled.Close() })
	defer stop()
	raw.SetDeadline(deadline)
	cfg = cfg.Clone()
	cfg.MinVersion, cfg.NextProtos = tls.VersionTLS13, []string{proto}
	conn = tls.Client(raw, cfg)
	if err = conn.HandshakeContext(ctx); err != nil {
		return nil, nil, nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != proto {
		return nil, nil, nil, fmt.Errorf("%s does not speak %s", addr, proto)
	}
	if err = frame.Write(conn, c.codec, greeting); err != nil {
		return nil, nil, nil, err
	}
	answer, _, err = frame.NewReader(conn, c.codec, frame.MaxFrame).Next()
	if err == nil {
		if r, ok := answer.(*wire.Refuse); ok {
			err = r
		}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	raw.SetDeadline(time.Time{})
	return raw, conn, answer, nil
}

// session is one connection from beginning to end; up says whether the parent welcomed us.
func (c *Client) session(ctx context.Context, addr string) (up bool, err error) {
	h := c.cfg.Hello()
	h.ProtocolMin, h.ProtocolMax, h.Time = wire.ProtocolMin, wire.ProtocolMax, time.Now().UnixMilli()
	raw, conn, answer, err := c.connect(ctx, addr, ProtoLink, h)
	if err != nil {
		e := classify(err)
		c.stats.end(e.Reason)
		return false, err
	}
	w, ok := answer.(*wire.Welcome)
	id, err := c.cfg.Identify(conn.ConnectionState())
	if !ok || err != nil || w.Protocol < wire.ProtocolMin || w.Protocol > wire.ProtocolMax {
		raw.Close()
		c.stats.end(ReasonMalformed)
		return false, errors.Join(err, fmt.Errorf("%s answered Hello with %T: %w", addr, answer, frame.ErrMalformed))
	}
	if c.cfg.Check != nil {
		if err := c.cfg.Check(w); err != nil {
			raw.Close()
			c.stats.end(ReasonHandshake)
			return false, err
		}
	}
	keep := time.Duration(w.KeepAlive) * time.Millisecond
	if keep < time.Second/10 || keep > time.Hour {
		keep = DefaultKeepAlive
	}
	peer := &Peer{began: time.Now(), id: id, hello: h, welcome: w, conn: conn, raw: raw, codec: c.codec, stats: &c.stats, keepAlive: keep,
		hasty: make(chan struct{}, 1), maxQueue: c.cfg.MaxQueue, down: make(chan struct{})}
	peer.ready.Store(true)
	peer.streams.init(peer, &c.wg, func(ctx context.Context) error { return c.dialStreams(ctx, peer, addr) })
	c.stats.Live.Add(1)
	c.setErr(nil)
	stop := context.AfterFunc(ctx, peer.Close)
	defer stop()
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		peer.keep()
	}()
	c.beat(ctx, peer, raw, conn.ConnectionState())
	c.cfg.Log.Info("link up", "addr", addr, "parent", id.Name, "version", w.Version)
	c.peer.Store(peer)
	c.cfg.Handler.Up(peer)
	e := c.read(peer)
	c.peer.Store(nil)
	c.stats.Live.Add(-1)
	c.stats.end(e.Reason)
	c.cfg.Handler.Down(peer, e)
	close(peer.down)
	return true, e
}

// read takes frames until the link ends. A panic ends this link alone, as it does at a Server.
func (c *Client) read(p *Peer) (e *Error) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Log.Error("link panic", "panic", v, "stack", string(debug.Stack()))
			e = &Error{Reason: ReasonMalformed, Err: fmt.Errorf("panic: %v", v)}
			p.fail(e)
		}
	}()
	return p.read(c.cfg.Handler, c.cfg.FrameRate)
}

// beat sends beats for a new session, in place of those of the last one. They go on when the connection ends, until there is
// another: that a connection was lost does not mean that we are.
func (c *Client) beat(ctx context.Context, peer *Peer, raw net.Conn, cs tls.ConnectionState) {
	if c.beats != nil {
		c.beats()
		c.beats = nil
	}
	to, ok := raw.RemoteAddr().(*net.TCPAddr)
	if peer.welcome.Beat == 0 || !ok {
		return
	}
	session, err := beat.SessionOf(cs)
	if err != nil {
		c.cfg.Log.Warn("beats", "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c.beats = cancel
	c.wg.Go(func() {
		err := c.sender.Run(ctx, to.AddrPort(), session, time.Duration(peer.welcome.Beat)*time.Millisecond, peer.SetBeating,
			// The connection may have died with the way: a NAT that has forgotten it lets nothing of the parent's through, and
			// the parent cannot tell. What is sent here shows it, or shows the parent that this child lives.
			func() { peer.ping() })
		if err != nil {
			c.cfg.Log.Warn("beats", "err", err)
		}
	})
}

// Contact is when the parent surely heard this child last by a beat, or the zero time.
func (c *Client) Contact() time.Time { return c.sender.Contact() }

// Loss is the share of beats, or of answers to them, that are lost of late, 0 to 1; 0 without beats.
func (c *Client) Loss() float64 { return c.sender.Loss() }

// keep pings when one of the directions has been quiet for an interval. It sleeps until that can be: what is sent and received only puts
// it off.
func (p *Peer) keep() {
	t := time.NewTimer(p.patience())
	defer t.Stop()
	var last time.Duration // since it began: the last ping
	for {
		select {
		case <-p.down:
			return
		case <-p.hasty:
		case <-t.C:
		}
		now, patience := time.Since(p.began), p.patience()
		due := max(last, min(time.Duration(p.lastSent.Load()), time.Duration(p.lastRecv.Load()))) + patience
		if now >= due {
			last, due = now, now+patience
			p.ping()
		}
		t.Reset(due - now)
	}
}

// dialStreams makes the stream connection that belongs to p.
func (c *Client) dialStreams(ctx context.Context, peer *Peer, addr string) error {
	raw, conn, answer, err := c.connect(ctx, addr, ProtoStream,
		&wire.StreamHello{Tier: peer.hello.Tier, Name: peer.hello.Name, Boot: peer.hello.Boot})
	if err != nil {
		return err
	}
	if _, ok := answer.(*wire.StreamOpened); !ok {
		raw.Close()
		return fmt.Errorf("%s answered StreamHello with %T: %w", addr, answer, frame.ErrMalformed)
	}
	sess, err := yamux.Client(conn, yamuxConfig(peer.keepAlive))
	if err != nil {
		raw.Close()
		return err
	}
	if err := peer.streams.attach(sess, raw, c.cfg.Streams, c.cfg.MaxStreams, c.cfg.Log); err != nil {
		return err
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		closeIdle(sess, c.cfg.StreamIdle)
	}()
	return nil
}

// closeIdle ends a session that had no stream for a whole interval.
func closeIdle(sess *yamux.Session, idle time.Duration) {
	t := time.NewTicker(idle / 2)
	defer t.Stop()
	quiet := 0
	for {
		select {
		case <-sess.CloseChan():
			return
		case <-t.C:
			if quiet++; sess.NumStreams() > 0 {
				quiet = 0
			}
			if quiet >= 2 {
				sess.Close()
				return
			}
		}
	}
}
