// Package ingress lets clients outside the overlay reach services by way of a worker: HTTP by host name and path, TCP by
// port and, for TLS, by the name that the client asks for. It owns its listeners and the connections through them; how
// a service address is reached, and which instance a connection to it gets, is the business of who gives it Dial. The
// worker's wiring imports it.
//
//	client ── listener ── route (host, path) ── Dial(network, service address) ── instance
//
// An Ingress is changed only by Set, with the whole configuration. Routes change without closing a connection; a
// listener that is no longer wanted stops to accept at once, and what goes through it may end in its own time.
package ingress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Config is all that an Ingress offers.
type Config struct {
	Listeners    []Listener
	Certificates []Certificate
	// Authority signs the certificates of routes with TLSSelf. Nil: each is signed by its own key, and clients must be
	// told to accept it.
	Authority *Certificate
	// Challenges are what certificate authorities ask, and what is answered, before any route.
	Challenges []Challenge
	// Trusted are proxies in front of this one, whose X-Forwarded headers are believed.
	Trusted []netip.Prefix
}

// Listener is a port that clients come to.
type Listener struct {
	Addr     netip.AddrPort // an unspecified address is every one of the host
	Protocol string         // spec.IngressHTTP or spec.IngressTCP
	// Routes either all have TLS or none has, for HTTP.
	Routes []Route
}

// Route leads requests, or connections, to a service.
type Route struct {
	Name string // of the service, for counters and logs
	// Owner is who has the service, such as an organisation; what comes is shared out among owners. Empty: all have one share.
	Owner string
	Host  string // "", a name, or *.DOMAIN
	Path  string // prefix in whole segments; HTTP alone
	TLS   spec.IngressTLS
	Net   wire.NetworkID
	// Targets are service addresses that mean the same; the next is tried when one does not take a connection. None: no
	// instance is ready.
	Targets []netip.AddrPort
	// Hold is for how long what comes waits for a target when there is none; 0: it is turned away at once.
	Hold time.Duration
	// Fresh gives each HTTP request a connection of its own, so that a policy that spreads connections spreads requests.
	Fresh bool
	// ProxyProtocol tells the service the client's address by the PROXY protocol, version 2; TCP alone.
	ProxyProtocol bool
}

// Certificate is a certificate, with those that lead to its authority behind it, and its key.
type Certificate struct {
	Name    string // what routes call it
	CertPEM []byte
	KeyPEM  []byte
}

// Options are the parts of an Ingress that do not change.
type Options struct {
	// Dial connects to a service address in a network. Needed.
	Dial func(ctx context.Context, network wire.NetworkID, addr netip.AddrPort) (net.Conn, error)
	// Listen opens a listener. Default: net.ListenConfig's, for TCP.
	Listen func(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	// DialTimeout is the time for one target. Default: 5 s.
	DialTimeout time.Duration
	// ResponseTimeout is the longest wait for the header of a response. Default: 60 s.
	ResponseTimeout time.Duration
	// HeaderTimeout is the longest time that a client may take to send a request's header, or its TLS hello. Default: 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a client's connection may stay without a request. Default: 75 s.
	IdleTimeout time.Duration
	// Drain is how long what goes through a listener that is no longer wanted may take to end. Default: 30 s.
	Drain time.Duration
	// MaxConns is the number of clients' connections at once; further ones are closed. Of requests and TCP connections that are led to
	// services it is half the number, which one owner may have; further ones are closed, or answered with 503. Both are shared out; see
	// shares. Default: 10,000.
	MaxConns int
	// Waits is called when Waiting is another than before, if it is given. It must not block.
	Waits func()
	Log   *slog.Logger
}

// maxHeader is the most bytes of a header, of requests and of responses.
const maxHeader = 64 << 10

// Ingress is a worker's way in. Its methods may be called by several goroutines.
type Ingress struct {
	opt   Options
	key   *ecdsa.PrivateKey // of certificates that are signed here
	proxy *httputil.ReverseProxy
	conns shares // of clients, by who they are
	led   shares // requests and TCP connections that are led to services, by client and by owner

	recent recent
	held   held

	mu        sync.Mutex // held by Set and at the end
	closed    bool
	certs     *keyring
	listeners map[netip.AddrPort]*listener
	pools     map[poolKey]*pool
	counters  map[routeKey]*counters

	draining sync.WaitGroup
	cut      context.Context // done: what drains is cut off
	cutNow   context.CancelFunc
}

// New makes an Ingress that listens nowhere until Set.
func New(opt Options) (*Ingress, error) {
	if opt.Dial == nil {
		return nil, errors.New("ingress: there is no way to dial")
	}
	if opt.Listen == nil {
		opt.Listen = func(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", addr.String())
		}
	}
	def(&opt.DialTimeout, 5*time.Second)
	def(&opt.ResponseTimeout, time.Minute)
	def(&opt.HeaderTimeout, 10*time.Second)
	def(&opt.IdleTimeout, 75*time.Second)
	def(&opt.Drain, 30*time.Second)
	def(&opt.MaxConns, 10_000)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	in := &Ingress{opt: opt, key: key, listeners: map[netip.AddrPort]*listener{}, pools: map[poolKey]*pool{},
		counters: map[routeKey]*counters{}, conns: shares{most: opt.MaxConns}, led: shares{most: 2 * opt.MaxConns}}
	in.cut, in.cutNow = context.WithCancel(context.Background())
	in.proxy = in.reverseProxy()
	return in, nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Set makes the Ingress offer what c says. What cannot be offered, such as a port that is taken or a route with a
// certificate that is not there, is named in the error; everything else is offered all the same. It opens and closes
// listeners at once, and does not wait for connections.
func (in *Ingress) Set(ctx context.Context, conf Config) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return net.ErrClosed
	}
	var problems []error
	certs, err := in.newKeyring(conf)
	problems = append(problems, err)
	pools, counts := map[poolKey]*pool{}, map[routeKey]*counters{}
	tables := map[netip.AddrPort]*table{}
	for _, l := range conf.Listeners {
		if tables[l.Addr] != nil {
			problems = append(problems, fmt.Errorf("listen on %s: it is listed twice", l.Addr))
			continue
		}
		t, err := in.newTable(l, certs, conf.Trusted, pools, counts)
		problems = append(problems, err)
		tables[l.Addr] = t
	}
	for addr, d := range in.listeners {
		if t := tables[addr]; t == nil || t.kind() != d.kind {
			delete(in.listeners, addr)
			in.retire(d)
		}
	}
	for _, l := range conf.Listeners {
		t := tables[l.Addr]
		if d := in.listeners[l.Addr]; d != nil {
			close(d.table.Swap(t).replaced)
			continue
		}
		ln, err := in.opt.Listen(ctx, l.Addr)
		if err != nil {
			problems = append(problems, fmt.Errorf("listen on %s: %w", l.Addr, err))
			continue
		}
		in.listeners[l.Addr] = in.open(ln, t)
	}
	for k, p := range in.pools {
		if pools[k] == nil {
			p.retire()
		}
	}
	in.pools, in.counters, in.certs = pools, counts, certs
	return errors.Join(problems...)
}

// retire closes a listener and lets its connections end.
func (in *Ingress) retire(d *listener) {
	_ = d.ln.Close()
	in.draining.Go(func() {
		ctx, cancel := context.WithTimeout(in.cut, in.opt.Drain)
		defer cancel()
		d.drain(ctx)
	})
}

// Refresh closes connections to services that wait for a request, so that the next ones follow the routes of now; for
// use when the routes of a service have changed. An empty name is every service.
func (in *Ingress) Refresh(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for k, p := range in.pools {
		if name == "" || k.name == name {
			p.closeIdle()
		}
	}
}

// Shutdown stops to accept, waits for what goes on until ctx is done, and cuts off the rest.
func (in *Ingress) Shutdown(ctx context.Context) error {
	in.mu.Lock()
	first := !in.closed
	in.closed = true
	if first {
		for _, d := range in.listeners {
			in.retire(d)
		}
		clear(in.listeners)
	}
	in.mu.Unlock()
	stop := context.AfterFunc(ctx, in.cutNow)
	in.draining.Wait()
	stop()
	in.cutNow()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, p := range in.pools {
		p.retire()
	}
	return ctx.Err()
}

// Close cuts everything off.
func (in *Ingress) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = in.Shutdown(ctx)
	return nil
}

// routeKey tells routes apart for counters, which live as long as the route.
type routeKey struct {
	addr             netip.AddrPort
	name, host, path string
}

// counters are those of one route.
type counters struct {
	active, total, in, out atomic.Int64
	ended, took            atomic.Int64    // requests and connections that ended, and the time that they took, in microseconds
	status                 [6]atomic.Int64 // by the first digit; 0: a TCP connection that reached no instance
}

// RouteStats are counters of a route since it was there.
type RouteStats struct {
	Listen   netip.AddrPort `json:"listen"`
	Name     string         `json:"service"`
	Host     string         `json:"host,omitempty"`
	Path     string         `json:"path,omitempty"`
	Active   int64          `json:"active"` // requests or connections now
	Total    int64          `json:"total"`
	Failed   int64          `json:"failed"`   // status 500 and above, and connections that reached no instance
	BytesIn  int64          `json:"bytesIn"`  // of bodies, from clients
	BytesOut int64          `json:"bytesOut"` // to clients
	Ended    int64          `json:"ended"`
	Took     int64          `json:"took"` // by those that ended, in microseconds
}

// begin counts a request or connection; what it gives counts its end.
func (c *counters) begin() (end func()) {
	c.active.Add(1)
	c.total.Add(1)
	began := time.Now()
	return func() {
		c.active.Add(-1)
		c.ended.Add(1)
		c.took.Add(time.Since(began).Microseconds())
	}
}

// Stats are the counters of an Ingress.
type Stats struct {
	Conns   int64        `json:"connections"` // of clients, now
	Refused int64        `json:"refused"`     // connections and requests beyond what one may have
	Routes  []RouteStats `json:"routes"`
}

// Stats gives the counters.
func (in *Ingress) Stats() Stats {
	in.mu.Lock()
	defer in.mu.Unlock()
	conns, closed := in.conns.counts()
	_, turned := in.led.counts()
	out := Stats{Conns: int64(conns), Refused: closed + turned}
	for k, c := range in.counters {
		out.Routes = append(out.Routes, RouteStats{k.addr, k.name, k.host, k.path, c.active.Load(), c.total.Load(),
			c.status[5].Load() + c.status[0].Load(), c.in.Load(), c.out.Load(), c.ended.Load(), c.took.Load()})
	}
	slices.SortFunc(out.Routes, func(a, b RouteStats) int {
		return strings.Compare(a.Listen.String()+" "+a.Host+a.Path, b.Listen.String()+" "+b.Host+b.Path)
	})
	return out
}
