// Package tier holds what the servers of the roles share: the listener for children, the connection to a parent, and the
// proxying of requests down to the worker that runs an instance. It decides nothing; role servers import it.
package tier

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/beat"
	"skerry.dev/skerry/wire"
)

// DownConfig sets up the listener for children. All but KeepAlive and HTTP are needed.
type DownConfig struct {
	Authority *auth.Authority
	Child     wire.Tier
	// Up tells the core of a child and gives the core's part of the Welcome. Frame and Down tell the rest.
	Up    func(ctx context.Context, hello *wire.Hello) (*wire.Welcome, error)
	Frame func(name string, m wire.Message)
	Down  func(name string)
	// HTTP serves what children ask over streams, such as images; nil refuses.
	HTTP      http.Handler
	KeepAlive time.Duration
	// Candidate serves connections of link.ProtoCandidate; nil refuses them. Term is that of this parent; nil: it has none.
	Candidate func(ctx context.Context, conn *tls.Conn, id wire.PeerIdentity)
	Term      func() uint64
	// Images serves connections of link.ProtoImages; nil refuses them.
	Images    func(ctx context.Context, conn *tls.Conn)
	Beats     *beat.Listener // nil: children do not beat
	BeatEvery time.Duration
	Version   string
	Log       *slog.Logger
}

// Down is the parent's side of all links.
type Down struct {
	cfg  DownConfig
	srv  *link.Server
	http *link.HTTPStreams

	mu         sync.Mutex
	children   map[string]*downChild
	transports map[string]*http.Transport
}

// downChild holds messages back until the Welcome has gone out.
type downChild struct {
	peer  *link.Peer
	ready bool
	early []wire.Message
}

// NewDown makes the server; Serve starts it.
func NewDown(cfg DownConfig) (*Down, error) {
	d := &Down{cfg: cfg, children: map[string]*downChild{}, transports: map[string]*http.Transport{}}
	mux := &link.StreamMux{}
	if cfg.HTTP != nil {
		d.http = link.NewHTTPStreams(cfg.HTTP)
		mux.Handle(link.StreamHTTP, d.http.Serve)
	}
	srv, err := link.NewServer(link.ServerConfig{
		TLS: cfg.Authority.ServerTLS(), Identify: cfg.Authority.Identify, Admit: d.admit, Welcome: d.welcome, Handler: (*downHandler)(d),
		Streams: mux, Join: cfg.Authority.ServeJoin, Candidate: cfg.Candidate, Images: cfg.Images, Features: cfg.features(), Clone: d.clone,
		KeepAlive: cfg.KeepAlive, Beats: cfg.Beats, BeatEvery: cfg.BeatEvery, Log: cfg.Log,
	})
	d.srv = srv
	return d, err
}

// inLeadership has a leadership take part: it hears of workers and gets what concerns it, past the core.
func (c *DownConfig) inLeadership(o Leadership) {
	c.Candidate = o.Candidate
	up, frame, down := c.Up, c.Frame, c.Down
	c.Up = func(ctx context.Context, hello *wire.Hello) (*wire.Welcome, error) {
		w, err := up(ctx, hello)
		if err == nil {
			o.Came(hello)
		}
		return w, err
	}
	c.Frame = func(name string, m wire.Message) {
		if p, ok := m.(*wire.Promise); ok {
			o.Promised(name, p)
			return
		}
		frame(name, m)
	}
	c.Down = func(name string) {
		o.Left(name)
		down(name)
	}
}

func (c *DownConfig) features() (out []string) {
	if c.Candidate != nil {
		out = append(out, wire.FeatureLease)
	}
	if c.Child == wire.TierCluster {
		out = append(out, wire.FeatureRootUsers)
	} else {
		out = append(out, wire.FeatureChanges)
	}
	return out
}

func (d *Down) admit(ctx context.Context, id wire.PeerIdentity, hello *wire.Hello) error {
	if id.Tier != d.cfg.Child {
		return &wire.Refuse{Code: wire.RefuseNotAuthorised, Reason: fmt.Sprintf("a %s may not connect here", id.Tier),
			Hint: fmt.Sprintf("this is the place for a %s", d.cfg.Child)}
	}
	return d.cfg.Authority.Admit(ctx, id, hello)
}

func (d *Down) clone(first *link.Peer, later *wire.Hello, addr net.Addr) {
	id := first.Identity()
	err := d.cfg.Authority.Quarantine(context.Background(), id.Tier, id.Name, first.Hello().Machine, later.Machine, addr.String(),
		"both were connected at the same time")
	if err != nil {
		d.cfg.Log.Error("quarantine", "name", id.Name, "err", err)
	}
}

func (d *Down) welcome(p *link.Peer) (*wire.Welcome, error) {
	c := &downChild{peer: p}
	d.mu.Lock()
	d.children[p.Name()] = c
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w, err := d.cfg.Up(ctx, p.Hello())
	if err != nil {
		d.mu.Lock()
		delete(d.children, p.Name()) // still ours: the name is free for others only when this has returned
		d.mu.Unlock()
		d.cfg.Down(p.Name()) // the core may take the message yet
		return nil, &wire.Refuse{Code: wire.RefuseBusy, Reason: "the parent cannot take children now: " + err.Error(),
			Hint: "it goes on by itself", RetryAfter: 2000}
	}
	if d.cfg.Term != nil {
		w.Term = d.cfg.Term()
	}
	w.Tier, w.Name, w.Version = d.cfg.Child.Parent(), d.cfg.Authority.Site(), d.cfg.Version
	return w, nil
}

// downHandler takes what happens on connections.
type downHandler Down

func (h *downHandler) Up(p *link.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.children[p.Name()]; c != nil && c.peer == p {
		c.ready = true
		for _, m := range c.early {
			p.Send(m) // a lost connection is told by Down
		}
		c.early = nil
	}
}

func (h *downHandler) Frame(p *link.Peer, m wire.Message) { h.cfg.Frame(p.Name(), m) }

func (h *downHandler) Down(p *link.Peer, err error) {
	h.mu.Lock()
	last := h.children[p.Name()] != nil && h.children[p.Name()].peer == p
	if last {
		delete(h.children, p.Name())
		if t := h.transports[p.Name()]; t != nil {
			t.CloseIdleConnections()
			delete(h.transports, p.Name())
		}
	}
	h.mu.Unlock()
	h.cfg.Log.Info("child disconnected", "name", p.Name(), "err", err)
	if last {
		h.cfg.Down(p.Name())
	}
}

// Carry takes the connection of a child over another transport, see link.Server.Carry.
func (d *Down) Carry(conn net.Conn, id wire.PeerIdentity, carrier string, keepAlive time.Duration) {
	d.srv.Carry(conn, id, carrier, keepAlive)
}

// Serve accepts children until Close.
func (d *Down) Serve(l net.Listener) error { return d.srv.Serve(l) }

// Send puts a message in line for a child; one that is not connected gets its sets when it is.
func (d *Down) Send(name string, m wire.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.children[name]
	switch {
	case c == nil:
	case !c.ready:
		c.early = append(c.early, m)
	default:
		c.peer.Send(m)
	}
}

// Disconnect ends a child's connection; it may come back if it is still enrolled.
func (d *Down) Disconnect(name string) { d.srv.Disconnect(d.cfg.Child, name) }

// Peer gives a child's connection, or nil.
func (d *Down) Peer(name string) *link.Peer { return d.srv.Peer(d.cfg.Child, name) }

// RTT measures the round trip on a child's own connection; 0: it gave none.
func (d *Down) RTT(ctx context.Context, name string) time.Duration {
	p := d.Peer(name)
	if p == nil {
		return 0
	}
	rtt, err := p.Ping(ctx)
	if err != nil {
		return 0
	}
	return rtt
}

// Live counts the connected children.
func (d *Down) Live() int64 { return d.srv.Stats().Live.Load() }

// Stats gives the counters of the links.
func (d *Down) Stats() *link.Stats { return d.srv.Stats() }

// transport gives the transport for requests to a child.
func (d *Down) transport(name string) *http.Transport {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.transports[name]
	if t == nil {
		t = link.NewTransport(func() (link.Opener, error) {
			p := d.srv.Peer(d.cfg.Child, name)
			if p == nil {
				return nil, skerry.Errorf(skerry.CodeUnavailable, "%s %s is not connected", d.cfg.Child, name).
					WithHint("its instances keep running; logs and terminals are available again when it is back")
			}
			return p, nil
		})
		d.transports[name] = t
	}
	return t
}

// RoundTripper carries requests of this tier's own to a child.
func (d *Down) RoundTripper(name string) http.RoundTripper { return d.transport(name) }

// Proxy passes a request on to a child under another path. Upgrades (exec, port-forward) pass through.
func (d *Down) Proxy(w http.ResponseWriter, r *http.Request, name, path string) {
	p := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.URL.Path, pr.Out.URL.RawPath = "http", "child", path, ""
			pr.Out.Host = "child"
			pr.Out.Header.Del("Authorization") // the user's credentials stay at this tier
			pr.Out.Header.Del("Cookie")
		},
		Transport:     d.transport(name),
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			WriteProblem(w, skerry.AsError(err))
		},
	}
	p.ServeHTTP(w, r)
}

// Close ends all connections and waits for them.
func (d *Down) Close() error {
	err := d.srv.Close()
	if d.http != nil {
		d.http.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.transports {
		t.CloseIdleConnections()
	}
	return err
}
