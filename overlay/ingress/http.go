package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"skerry.dev/skerry/wire"
)

// idleBackend is how long a connection to a service waits for the next request. It is short, because the connection
// stays with its instance while the policy may have found a better one.
const idleBackend = 10 * time.Second

// poolKey says what requests may share connections.
type poolKey struct {
	name    string
	net     wire.NetworkID
	targets string
	fresh   bool
}

// pool holds connections to a service.
type pool struct {
	http1 *http.Transport
	http2 *http.Transport // without TLS, for gRPC, which cannot do with less
}

var errNoTarget = errors.New("no instance is ready")

func (in *Ingress) poolFor(r Route, pools map[poolKey]*pool) *pool {
	k := poolKey{r.Name, r.Net, fmt.Sprint(r.Targets), r.Fresh}
	if pools[k] == nil {
		if pools[k] = in.pools[k]; pools[k] == nil {
			pools[k] = in.newPool(r)
		}
	}
	return pools[k]
}

func (in *Ingress) newPool(r Route) *pool {
	targets := slices.Clone(r.Targets)
	transport := func() *http.Transport {
		return &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, _, err := in.dial(ctx, r.Net, targets)
				return c, err
			},
			DisableKeepAlives: r.Fresh, DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: idleBackend,
			ResponseHeaderTimeout: in.opt.ResponseTimeout, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader,
		}
	}
	p := &pool{transport(), transport()}
	p.http2.Protocols = &http.Protocols{}
	p.http2.Protocols.SetUnencryptedHTTP2(true)
	return p
}

func (p *pool) closeIdle() {
	p.http1.CloseIdleConnections()
	p.http2.CloseIdleConnections()
}

// retire ends a pool that no new request uses; a connection that becomes idle later waits no longer than idleBackend.
func (p *pool) retire() { p.closeIdle() }

// dialPauses are waits before a service is dialled again. Nothing was sent yet, so that it does no harm; and who chooses
// the instance chooses another one each time, while it learns that one is gone.
func dialPauses() []time.Duration {
	return []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}
}

// dial connects to a service, trying several times.
func (in *Ingress) dial(ctx context.Context, network wire.NetworkID, targets []netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	for _, pause := range dialPauses() {
		c, t, err := in.dialOnce(ctx, network, targets, in.opt.DialTimeout/3)
		if err == nil || len(targets) == 0 || ctx.Err() != nil {
			return c, t, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, netip.AddrPort{}, &dialError{ctx.Err()}
		}
	}
	return in.dialOnce(ctx, network, targets, in.opt.DialTimeout)
}

// dialOnce connects to the first target that takes a connection.
func (in *Ingress) dialOnce(ctx context.Context, network wire.NetworkID, targets []netip.AddrPort, limit time.Duration) (net.Conn,
	netip.AddrPort, error) {
	err := errNoTarget
	for _, t := range targets {
		dctx, cancel := context.WithTimeout(ctx, limit)
		var c net.Conn
		c, err = in.opt.Dial(dctx, network, t)
		cancel()
		if err == nil {
			return c, t, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, netip.AddrPort{}, &dialError{err}
}

// dialError says that no connection came about, so that nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "dial: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// Timeout and Temporary keep what the network said.
func (e *dialError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.err, &t) && t.Timeout()
}

// routeOf is the key under which a request's context holds its route.
type routeOf struct{}

// chosen is the route of a request, with the proxies that were trusted when it came.
type chosen struct {
	*route
	trusted []netip.Prefix
}

// tries is how often a request is sent at most, if it does no harm to send it twice.
const tries = 3

// RoundTrip sends a request by the connections of its route. One that changes nothing is sent again when its connection
// broke before an answer came: its instance is gone, and others are there.
func (in *Ingress) RoundTrip(r *http.Request) (*http.Response, error) {
	c := r.Context().Value(routeOf{}).(chosen)
	for i := 1; ; i++ {
		resp, err := in.sendOnce(c, r)
		if err == nil || i == tries || !again(r, err) {
			return resp, err
		}
	}
}

// again reports whether a request that failed may be sent once more.
func again(r *http.Request, err error) bool {
	var dial *dialError
	var timeout interface{ Timeout() bool }
	if r.Context().Err() != nil || errors.As(err, &dial) || errors.As(err, &timeout) && timeout.Timeout() ||
		r.Body != nil && r.Body != http.NoBody || r.Header.Get("Upgrade") != "" {
		return false
	}
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, r.Method)
}

func (in *Ingress) sendOnce(c chosen, r *http.Request) (*http.Response, error) {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return c.pool.http2.RoundTrip(r)
	}
	return c.pool.http1.RoundTrip(r)
}

func (in *Ingress) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:    roundTripper(in.RoundTrip),
		BufferPool:   &buffers{sync.Pool{New: func() any { return new(buffer) }}},
		ErrorLog:     slog.NewLogLogger(in.opt.Log.Handler(), slog.LevelDebug),
		ErrorHandler: in.failed,
		Rewrite: func(p *httputil.ProxyRequest) {
			c := p.In.Context().Value(routeOf{}).(chosen)
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "service"
			if len(c.Targets) > 0 {
				p.Out.URL.Host = c.Targets[0].String()
			}
			p.Out.Host = p.In.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // nothing here reads it, so it may be what the service likes
			dropCookies(p.Out)
			// What a client claims about itself is dropped, unless it is a proxy of ours.
			peer, _ := netip.ParseAddrPort(p.In.RemoteAddr)
			ip := peer.Addr().Unmap()
			believed := slices.ContainsFunc(c.trusted, func(t netip.Prefix) bool { return t.Contains(ip) })
			if believed {
				p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			}
			p.SetXForwarded()
			for _, h := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
				if v := p.In.Header.Get(h); believed && v != "" {
					p.Out.Header.Set(h, v)
				}
			}
		},
	}
}

// ownCookies begin the names of the cookies that keep a browser logged in at the API.
var ownCookies = []string{"skerry-root-", "skerry-cluster-"}

// dropCookies takes those out of a request. Browsers send cookies to every port of a host, so that they come here when the API has the same
// host name as the ingress, and no service may see them.
func dropCookies(r *http.Request) {
	var kept []string
	dropped := false
	for _, line := range r.Header["Cookie"] {
		for c := range strings.SplitSeq(line, ";") {
			c = strings.TrimSpace(c)
			if slices.ContainsFunc(ownCookies, func(name string) bool { return strings.HasPrefix(c, name) }) {
				dropped = true
			} else if c != "" {
				kept = append(kept, c)
			}
		}
	}
	if !dropped {
		return
	}
	if r.Header.Del("Cookie"); len(kept) > 0 {
		r.Header.Set("Cookie", strings.Join(kept, "; "))
	}
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// buffers lends the memory for bodies.
type buffers struct{ p sync.Pool }

type buffer [32 << 10]byte

func (b *buffers) Get() []byte  { return b.p.Get().(*buffer)[:] }
func (b *buffers) Put(x []byte) { b.p.Put((*buffer)(x)) }

// failed answers a request that got no response.
func (in *Ingress) failed(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	var dial *dialError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		w.WriteHeader(499) // the client has left and sees nothing of it; for the counters
		return
	case errors.As(err, &dial):
		status = http.StatusServiceUnavailable
		if errors.Is(err, syscall.ECONNREFUSED) {
			status = http.StatusBadGateway
		}
	case errors.As(err, &timeout) && timeout.Timeout():
		status = http.StatusGatewayTimeout
	}
	if c, ok := r.Context().Value(routeOf{}).(chosen); ok {
		in.opt.Log.Debug("request failed", "service", c.Name, "status", status, "err", err)
	}
	problem(w, r, status)
}

// problem answers with a status and what it means, as text or, for who asks for it, as RFC 9457.
func problem(w http.ResponseWriter, r *http.Request, status int) {
	answer(w, r, status, answers(status))
}

// tooMany is the answer to a request that has no share.
const tooMany = "too many requests are under way of this client, of those who offer the service, or of all"

// answer answers with a status and a text.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if strings.Contains(r.Header.Get("Accept"), "json") {
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": text})
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d %s: %s\n", status, http.StatusText(status), text)
}

// ServeHTTP answers a request that came in at the listener.
func (d *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.begin(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	defer d.end()
	t := d.table.Load()
	if r.Method == http.MethodConnect {
		problem(w, r, http.StatusMethodNotAllowed)
		return
	}
	if t.certs.challenges.answer(w, r) {
		return
	}
	host, okHost := cleanHost(r.Host)
	path, okPath := segments(r.URL.EscapedPath())
	if !okHost || !okPath {
		problem(w, r, http.StatusBadRequest)
		return
	}
	rt := t.match(host, path)
	if rt == nil {
		problem(w, r, http.StatusNotFound)
		return
	}
	counts := rt.counters
	end := counts.begin()
	cw := &counting{ResponseWriter: w, c: counts, status: http.StatusOK}
	defer func() {
		end()
		counts.status[min(cw.status/100, 5)].Add(1)
	}()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &countingBody{r.Body, counts}
	}
	give, ok := d.in.lead(rt, r.RemoteAddr, t.trusted)
	if !ok {
		answer(cw, r, http.StatusServiceUnavailable, tooMany)
		return
	}
	defer give()
	t, rt = d.hold(r.Context(), t, rt, func(t *table) *route { return t.match(host, path) })
	if len(rt.Targets) == 0 {
		problem(cw, r, http.StatusServiceUnavailable)
		return
	}
	d.in.proxy.ServeHTTP(cw, r.WithContext(context.WithValue(r.Context(), routeOf{}, chosen{rt, t.trusted})))
}

// counting notes what is answered. http.ResponseController finds the writer below it.
type counting struct {
	http.ResponseWriter
	c      *counters
	status int
}

func (w *counting) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *counting) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *counting) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.c.out.Add(int64(n))
	return n, err
}

type countingBody struct {
	io.ReadCloser
	c *counters
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.c.in.Add(int64(n))
	return n, err
}
