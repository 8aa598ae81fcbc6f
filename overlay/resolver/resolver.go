package resolver

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Zone is the domain of all names of services, with the dot at its end.
const Zone = "skerry."

// Config is all that a Resolver answers from.
type Config struct {
	Apps      []App
	Instances []Instance
	// Upstreams are asked what is not in Zone, in this order. None: such names get status SERVFAIL.
	Upstreams []netip.AddrPort
	// IPv6 says that instances have IPv6 addresses, so that the twins of service addresses are answered.
	IPv6 bool
	// Private are prefixes of instance addresses; what they are called is nobody else's business to be asked.
	Private []netip.Prefix
}

// App is an application as its instances see it.
type App struct {
	Key skerry.AppKey
	// Services are its own, and those that others export to it. Their addresses are those of the application's network.
	Services []Service
	// Complete says that there are no others: a name that is not among them is answered at once, without Wanted.
	Complete bool
}

// Service is what a name may lead to.
type Service struct {
	Key skerry.ServiceKey
	// As is the short name of a service of another application; empty: it has none.
	As    string
	Addrs []Address
	Ports []spec.Port // for SRV
}

// Address is an IPv4 service address; the zero address stands for none. Ordinal counts for BalanceInstance alone.
type Address struct {
	Policy  spec.Balance
	Ordinal int
	Addr    netip.Addr
}

// Instance says to what an instance's addresses belong. Those of this worker may ask; of others it helps to name them.
type Instance struct {
	Addrs   []netip.Addr
	Service skerry.ServiceKey
	Ordinal int
	Local   bool
	// Inside: it may not go outside the overlay, and names of the outside are refused to it. A question is a way out, too.
	Inside bool
}

// Options are the parts of a Resolver that do not change.
type Options struct {
	// Wanted is told each name of a service that an instance of app looks up, known or not, before the answer; it must
	// not block. A channel that it gives is closed when the routes to the service are there, or when it is known that
	// there are none; nil: they are there. Nil: names are answered from Config alone.
	Wanted func(app skerry.AppKey, service skerry.ServiceKey) <-chan struct{}
	// Wait is the longest time that an answer is held for Wanted. Default: 1 s; a known service is then answered all
	// the same.
	Wait time.Duration
	// TTL of answers, and of answers that there is no such name. Default: 30 s and 5 s.
	TTL, NegativeTTL time.Duration
	// UpstreamTimeout is the time for one try with one server. Default: 1 s; there are two rounds.
	UpstreamTimeout time.Duration
	// Dial makes a connection to an upstream server, network being udp or tcp. Default: net.Dialer's.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// CacheSize is the number of answers of upstream servers that are kept. Default: 4096.
	CacheSize int
	Log       *slog.Logger
}

// Limits of a Resolver.
const (
	maxSlow     = 512 // questions of one kind that wait for something, in all
	maxSlowEach = 64  // and of one instance
	maxConns    = 256 // TCP connections
	maxUDP      = 1232
)

// Resolver is a worker's DNS server. Its methods may be called by several goroutines.
type Resolver struct {
	opt  Options
	view atomic.Pointer[view]
	fwd  *forwarder
	socket

	stats [numCounters]atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed by the next Set
	serial  uint32
	// Questions that wait for servers outside, and those for names of ours: servers that are silent hold up no name of ours.
	outside, ours waiters
}

// New makes a Resolver that answers nothing until Set and Serve.
func New(o Options) *Resolver {
	def(&o.Wait, time.Second)
	def(&o.TTL, 30*time.Second)
	def(&o.NegativeTTL, 5*time.Second)
	def(&o.UpstreamTimeout, time.Second)
	def(&o.CacheSize, 4096)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Resolver{opt: o, changed: make(chan struct{}), outside: waiters{by: map[netip.Addr]int{}}, ours: waiters{by: map[netip.Addr]int{}}}
	r.socket.init(o.Log)
	r.fwd = newForwarder(r)
	r.view.Store(newView(Config{}, 0))
	return r
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Set makes the Resolver answer from c from now on. It keeps no part of c that the caller may change.
func (r *Resolver) Set(c Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	r.view.Store(newView(c, r.serial))
	close(r.changed)
	r.changed = make(chan struct{})
}

// ServeUDP answers questions that come in on pc until Close, which closes pc. Source addresses must be those of the
// instances, untranslated.
func (r *Resolver) ServeUDP(pc net.PacketConn) error { return r.serveUDP(pc, r) }

// ServeTCP answers questions on connections that l accepts until Close, which closes l.
func (r *Resolver) ServeTCP(l net.Listener) error { return r.serveTCP(l, r) }

// Close closes the sockets and waits for what is being answered.
func (r *Resolver) Close() error { return r.socket.close() }

// counter is one of the Resolver's counters.
type counter int

const (
	cQueries counter = iota
	cLocal
	cNoName
	cForwarded
	cCached
	cStale
	cRefused
	cMalformed
	cTruncated
	cBusy
	cUpstreamFailed
	cWaited
	numCounters
)

// counterNames are the names of the counters, in their order.
var counterNames = [numCounters]string{"queries", "local", "no-such-name", "forwarded", "cached", "stale", "refused", "malformed",
	"truncated", "busy", "upstream-failed", "waited"}

func (r *Resolver) count(c counter) { r.stats[c].Add(1) }

// Stats gives counters since New, by name.
func (r *Resolver) Stats() map[string]int64 {
	out := map[string]int64{}
	for i, n := range counterNames {
		out[n] = r.stats[i].Load()
	}
	return out
}

// respond answers one question; see handler.
func (r *Resolver) respond(src netip.AddrPort, msg []byte, limit int) ([]byte, func(context.Context) []byte) {
	r.count(cQueries)
	query, ok := parseQuery(msg, limit)
	if !ok {
		r.count(cMalformed)
		return nil, nil
	}
	if query.rcode != 0 {
		r.count(cMalformed)
		return query.status(query.rcode), nil
	}
	v := r.view.Load()
	asker, ok := v.askers[src.Addr().Unmap().WithZone("")]
	if !ok {
		r.count(cRefused)
		return query.status(rcodeRefused), nil
	}
	n := v.lookup(asker, query.name)
	if n.kind == nothing && n.short && !n.zoned && !query.asks(dns.TypeA) && !query.asks(dns.TypeAAAA) {
		n.kind = foreign // a top-level domain, asked for by who validates answers
	}
	switch {
	case n.kind == foreign && v.inside[src.Addr().Unmap().WithZone("")]:
		r.count(cRefused)
		return query.status(rcodeRefused), nil
	case n.kind == foreign:
		if resp := r.fwd.cached(&query); resp != nil {
			r.count(cCached)
			return resp, nil
		}
		return r.later(&r.outside, src.Addr(), &query, func(ctx context.Context) []byte { return r.fwd.ask(ctx, v.upstreams, &query) })
	case n.want == (skerry.ServiceKey{}) || r.opt.Wanted == nil || n.kind == nothing && asker.Complete:
		return r.local(v, &query, n), nil
	}
	wait := r.opt.Wanted(asker.Key, n.want)
	if wait == nil {
		return r.local(v, &query, n), nil
	}
	return r.later(&r.ours, src.Addr(), &query, func(ctx context.Context) []byte { return r.await(ctx, asker.Key, &query, wait) })
}

// waiters are questions of one kind that wait.
type waiters struct {
	n  int
	by map[netip.Addr]int // who asks
}

// later admits a question that has to wait, unless too many of its kind do.
func (r *Resolver) later(w *waiters, src netip.Addr, q *query, f func(context.Context) []byte) ([]byte, func(context.Context) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.n >= maxSlow || w.by[src] >= maxSlowEach {
		r.count(cBusy)
		return q.status(rcodeServFail), nil
	}
	w.n++
	w.by[src]++
	return nil, func(ctx context.Context) []byte {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			w.n--
			if w.by[src]--; w.by[src] == 0 {
				delete(w.by, src)
			}
		}()
		return f(ctx)
	}
}

// await holds a question until its routes are there, the name is known, or the time is up.
func (r *Resolver) await(ctx context.Context, app skerry.AppKey, q *query, ready <-chan struct{}) []byte {
	r.count(cWaited)
	timer := time.NewTimer(r.opt.Wait)
	defer timer.Stop()
	timeout := false
	select {
	case <-ready:
	case <-timer.C:
		timeout = true
	case <-ctx.Done():
		return q.status(rcodeServFail)
	}
	v := r.view.Load()
	asker := v.apps[app]
	if asker == nil {
		return q.status(rcodeRefused)
	}
	n := v.lookup(asker, q.name)
	if n.kind == foreign {
		return q.status(rcodeNoName)
	}
	// Whether a full name exists is not known while nobody above answers. A short one then does not, because the next
	// search domain may have it.
	if timeout && n.kind == nothing && !n.short {
		return q.status(rcodeServFail)
	}
	return r.local(v, q, n)
}

// Names lists the names that an instance may ask for in an application, for people: each service's round-robin name.
func (r *Resolver) Names(app skerry.AppKey) []string {
	a := r.view.Load().apps[app]
	if a == nil {
		return nil
	}
	var out []string
	for k := range maps.Keys(a.full) {
		out = append(out, canonical(k, spec.BalanceRoundRobin, -1))
	}
	return out
}
