package ingress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// world is an overlay of which nothing exists: service addresses lead to servers of loopback.
type world struct {
	mu    sync.Mutex
	at    map[string]string // "NET/ADDR" to a real address
	dials atomic.Int64
	// refuse is how many of the next dials fail.
	refuse atomic.Int64
}

func (w *world) dial(ctx context.Context, n wire.NetworkID, a netip.AddrPort) (net.Conn, error) {
	w.dials.Add(1)
	if w.refuse.Add(-1) >= 0 {
		return nil, errors.New("refused")
	}
	w.mu.Lock()
	to := w.at[fmt.Sprintf("%d/%s", n, a)]
	w.mu.Unlock()
	if to == "" {
		return nil, errors.New("no route")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to)
}

// serve runs an HTTP server behind a service address.
func (w *world) serve(t testing.TB, at string, h http.HandlerFunc) {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[at] = s.Listener.Addr().String()
}

func to(s string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(s)} }

// start makes an Ingress whose listeners are on free ports of loopback; addr tells where.
func start(t testing.TB, o Options) (in *Ingress, w *world, addr func(port int) string) {
	w = &world{at: map[string]string{}}
	var mu sync.Mutex
	real := map[uint16]string{}
	o.Dial = w.dial
	o.Listen = func(_ context.Context, a netip.AddrPort) (net.Listener, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			mu.Lock()
			real[a.Port()] = l.Addr().String()
			mu.Unlock()
		}
		return l, err
	}
	in, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in, w, func(port int) string { mu.Lock(); defer mu.Unlock(); return real[uint16(port)] }
}

func port(n int) netip.AddrPort { return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)) }

func web(routes ...Route) Listener {
	return Listener{Addr: port(80), Protocol: spec.IngressHTTP, Routes: routes}
}

func set(t testing.TB, in *Ingress, c Config) {
	t.Helper()
	if err := in.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// raw sends bytes and gives the status and body of each response until the connection ends.
func raw(t testing.TB, addr, request string) (out []string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a watchdog
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return out
		}
		body, _ := io.ReadAll(resp.Body)
		out = append(out, fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body))))
	}
}

func get(host, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

func TestRoutes(t *testing.T) {
	in, w, addr := start(t, Options{})
	for _, s := range []string{"1/10.30.1.1:80", "2/10.30.1.1:80", "1/10.30.1.2:80", "1/10.30.1.3:80"} {
		w.serve(t, s, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "%s %s %s", s, r.Host, r.RequestURI) })
	}
	a := Route{Name: "default/shop/web", Host: "shop.example", Net: 1, Targets: to("10.30.1.1:80")}
	api := a
	api.Path, api.Targets = "/api/", to("10.30.1.2:80")
	other := Route{Name: "default/blog/web", Host: "*.example", Net: 2, Targets: to("10.30.1.1:80")}
	rest := Route{Name: "default/shop/rest", Path: "/any", Net: 1, Targets: append(to("10.30.9.9:80"), to("10.30.1.3:80")...)}
	none := Route{Name: "default/shop/none", Host: "none.example", Net: 1}
	away := Route{Name: "default/shop/away", Host: "away.example", Net: 1, Targets: to("10.30.9.9:80")}
	set(t, in, Config{Listeners: []Listener{web(a, api, other, rest, none, away)}})
	for _, c := range []struct{ host, path, want string }{
		{"shop.example", "/", "200 1/10.30.1.1:80 shop.example /"},
		{"SHOP.example.:8080", "/x?a=b;c", "200 1/10.30.1.1:80 SHOP.example.:8080 /x?a=b;c"},
		{"shop.example", "/api", "200 1/10.30.1.2:80 shop.example /api"},
		{"shop.example", "/api/v1", "200 1/10.30.1.2:80 shop.example /api/v1"},
		{"shop.example", "/%61pi/v1", "200 1/10.30.1.2:80 shop.example /%61pi/v1"},
		{"shop.example", "/apis", "200 1/10.30.1.1:80 shop.example /apis"},
		{"shop.example", "/api%2Fv1", "200 1/10.30.1.1:80 shop.example /api%2Fv1"},
		{"shop.example", "//api", "200 1/10.30.1.1:80 shop.example //api"},
		{"blog.example", "/api", "200 2/10.30.1.1:80 blog.example /api"}, // the same address in another network
		{"a.blog.example", "/", "404 404 Not Found: no service is offered under this host and path"},
		{"192.0.2.1", "/any/thing", "200 1/10.30.1.3:80 192.0.2.1 /any/thing"}, // the second target
		{"none.example", "/", "503 503 Service Unavailable: no instance of the service can be reached now"},
		{"away.example", "/", "503 503 Service Unavailable: no instance of the service can be reached now"},
		{"shop.example", "/api/../x", "400 400 Bad Request: the host or the path of the request is not valid"},
		{"shop.example", "/x/%2e%2e/api", "400 400 Bad Request: the host or the path of the request is not valid"},
		{"shop.example", "/x/%2e%2e%2fapi", "400 400 Bad Request: the host or the path of the request is not valid"},
		{"shop.example", "/x/..\\api", "400 400 Bad Request: the host or the path of the request is not valid"},
		{"shop.example", "/x/..;a=b/api", "400 400 Bad Request: the host or the path of the request is not valid"},
		{"shop.example", "/x/.../api", "200 1/10.30.1.1:80 shop.example /x/.../api"},
		{"shop.example/@evil", "/", "400 400 Bad Request: malformed Host header"},
	} {
		if got := raw(t, addr(80), get(c.host, c.path)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s%s\n got %q\nwant %q", c.host, c.path, got, c.want)
		}
	}
	req := "GET / HTTP/1.1\r\nHost: nowhere.test\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
	if got := raw(t, addr(80), req); got[0] != `404 {"detail":"no service is offered under this host and path","status":404,"title":"Not Found"}` {
		t.Error(got)
	}
	if got := raw(t, addr(80), "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\nConnection: close\r\n\r\n"); got[0][:3] != "405" {
		t.Error(got)
	}
	if got := raw(t, addr(80), "GET http://blog.example/y HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"); got[0] != "200 2/10.30.1.1:80 blog.example /y" {
		t.Error(got)
	}
	st := in.Stats()
	if len(st.Routes) != 6 || st.Routes[0].Name != "default/blog/web" && st.Routes[0].Total == 0 {
		t.Errorf("%+v", st)
	}
	for _, r := range st.Routes {
		if r.Active != 0 || r.Name == "default/shop/none" && r.Failed != 1 || r.Ended != r.Total || r.Total > 0 && r.Took <= 0 && r.Failed == 0 || r.Name == "default/shop/rest" && (r.Total != 1 || r.BytesOut == 0) {
			t.Errorf("%+v", r)
		}
	}
}

func TestNoSmuggling(t *testing.T) {
	in, w, addr := start(t, Options{IdleTimeout: 100 * time.Millisecond})
	var mu sync.Mutex
	var seen []string
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen = append(seen, fmt.Sprintf("%s %s %q te=%s up=%s x=%s conn=%s", r.Method, r.RequestURI, body, r.TransferEncoding, r.Header.Get("Upgrade"), r.Header.Get("X-Hop"), r.Header.Get("Connection")))
		mu.Unlock()
	})
	set(t, in, Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80")})}})
	const head = "POST /x HTTP/1.1\r\nHost: a\r\n"
	for name, c := range map[string]struct {
		request string
		refused bool
	}{
		"both lengths":        {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n", false}, // chunked counts, the connection is read on
		"two lengths":         {head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", true},
		"length with a sign":  {head + "Content-Length: +5\r\n\r\nhello", true},
		"unknown encoding":    {head + "Transfer-Encoding: xchunked\r\n\r\nhello", true},
		"encoding twice":      {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", true},
		"space before colon":  {head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", true},
		"folded header":       {head + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", false},
		"header in the value": {head + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", true},
		"two hosts":           {head + "Host: b\r\nContent-Length: 0\r\n\r\n", true},
		"no host":             {"GET /x HTTP/1.1\r\n\r\n", true},
		"chunk size":          {head + "Transfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n", true},
		"hop by hop":          {head + "Connection: X-Hop, close\r\nX-Hop: secret\r\nContent-Length: 0\r\n\r\n", false},
		"long header":         {head + "X: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", true},
	} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		got := raw(t, addr(80), c.request)
		mu.Lock()
		for _, s := range seen {
			if strings.Contains(s, "secret") || c.refused && strings.Contains(s, "hello") {
				t.Errorf("%s: the service saw %s", name, s)
			}
		}
		mu.Unlock()
		if c.refused && (len(got) != 1 || got[0][0] != '4' && got[0][0] != '5') {
			t.Errorf("%s: %q, the service saw %q", name, got, seen)
		}
	}
}

func TestForwardedHeaders(t *testing.T) {
	in, w, addr := start(t, Options{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Proto"], r.Header["X-Forwarded-Host"], r.Header["Forwarded"])
	})
	c := Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80")})}}
	req := "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nForwarded: for=6.6.6.6\r\nConnection: close\r\n\r\n"
	set(t, in, c)
	if got := raw(t, addr(80), req); got[0] != "200 [127.0.0.1] [http] [a] []" {
		t.Error(got)
	}
	c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	set(t, in, c)
	if got := raw(t, addr(80), req); got[0] != "200 [6.6.6.6, 127.0.0.1] [https] [a] []" {
		t.Error(got)
	}
}

// A browser sends the cookie of the API's login to every port of the host; no service sees it.
func TestLoginCookiesStayOutside(t *testing.T) {
	in, w, addr := start(t, Options{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.Header["Cookie"]) })
	set(t, in, Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80")})}})
	for sent, want := range map[string]string{
		"Cookie: skerry-cluster-harbour=secret\r\n":                                         "200 []",
		"Cookie: a=1; skerry-root-main=secret; b=\"x y\"\r\n":                               `200 [a=1; b="x y"]`,
		"Cookie: a=1;skerry-cluster-x=secret\r\nCookie: skerry-root-main=secret; c=3\r\n":   "200 [a=1; c=3]",
		"Cookie: a=1;  b=2; skerry=mine\r\n":                                                "200 [a=1;  b=2; skerry=mine]",
		"Cookie:\tskerry-root-main=secret\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n": "200 []",
	} {
		if got := raw(t, addr(80), "GET /v1/auth/x HTTP/1.1\r\nHost: a\r\n"+sent+"Connection: close\r\n\r\n"); len(got) == 0 || got[0] != want {
			t.Errorf("%q: %q, want %q", sent, got, want)
		}
	}
}

func TestUpgradeSurvivesNewRoutes(t *testing.T) {
	in, w, addr := start(t, Options{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			t.Errorf("headers %v", r.Header)
		}
		c, b, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, b)
	})
	r := Route{Name: "x", Net: 1, Targets: to("10.30.1.1:80"), Fresh: true}
	set(t, in, Config{Listeners: []Listener{web(r)}})
	c, err := net.Dial("tcp", addr(80))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	echo := func(s string) {
		t.Helper()
		if _, err := io.WriteString(c, s); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(s))
		if _, err := io.ReadFull(b, got); err != nil || string(got) != s {
			t.Fatalf("%q %v", got, err)
		}
	}
	echo("one")
	r.Host = "other.example"
	set(t, in, Config{Listeners: []Listener{web(r)}})
	echo("two")
	set(t, in, Config{}) // the listener goes, the connection stays
	echo("three")
	if _, err := net.Dial("tcp", addr(80)); err == nil {
		t.Error("the listener is still open")
	}
	if n := in.Stats().Conns; n != 1 {
		t.Error(n)
	}
	in.Close()
	if _, err := b.ReadByte(); err == nil {
		t.Error("Close left a connection")
	}
	if n := in.Stats().Conns; n != 0 {
		t.Error(n)
	}
	if err := in.Set(t.Context(), Config{}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestStreamsAndDrain(t *testing.T) {
	in, w, addr := start(t, Options{})
	more := make(chan string)
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for s := range more {
			_, _ = io.WriteString(rw, s)
			_ = http.NewResponseController(rw).Flush()
		}
	})
	set(t, in, Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80")})}})
	go func() { more <- "a" }()
	resp, err := http.Get("http://" + addr(80) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	one := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, one); err != nil || one[0] != 'a' {
		t.Fatal(err)
	}
	// An end that waits lets the response end.
	done := make(chan error)
	go func() { done <- in.Shutdown(t.Context()) }()
	more <- "b"
	if _, err := io.ReadFull(resp.Body, one); err != nil || one[0] != 'b' {
		t.Fatal(err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Fatal(rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStatusesOfFailure(t *testing.T) {
	in, w, addr := start(t, Options{ResponseTimeout: 50 * time.Millisecond})
	block := make(chan struct{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-block
		case "/break":
			panic(http.ErrAbortHandler)
		}
	})
	defer close(block)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.at["1/10.30.1.2:80"] = l.Addr().String() // nobody listens there any more
	l.Close()
	set(t, in, Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80")}, Route{Host: "gone", Net: 1, Targets: to("10.30.1.2:80")})}})
	for path, want := range map[string]string{"/hang": "504", "/break": "502", "/": "200"} {
		if got := raw(t, addr(80), get("a", path)); got[0][:3] != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := raw(t, addr(80), get("gone", "/")); got[0][:3] != "502" {
		t.Error(got)
	}
}

func TestConnectionsToServices(t *testing.T) {
	in, w, addr := start(t, Options{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {})
	r := Route{Name: "x", Net: 1, Targets: to("10.30.1.1:80")}
	set(t, in, Config{Listeners: []Listener{web(r)}})
	three := func(want int64) {
		t.Helper()
		w.dials.Store(0)
		for range 3 {
			if got := raw(t, addr(80), get("a", "/")); got[0][:3] != "200" {
				t.Fatal(got)
			}
		}
		if n := w.dials.Load(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
	}
	three(1)
	three(0)
	in.Refresh("x")
	three(1)
	r.Fresh = true
	set(t, in, Config{Listeners: []Listener{web(r)}})
	three(3)
}

func TestWhatCannotBeOffered(t *testing.T) {
	in, w, addr := start(t, Options{MaxConns: 2})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {})
	ok := Route{Name: "ok", Net: 1, Targets: to("10.30.1.1:80")}
	twice, secret, lost := ok, ok, ok
	secret.Host, secret.TLS = "s.example", "self"
	lost.Host, lost.TLS = "l.example", "nowhere"
	err := in.Set(t.Context(), Config{Listeners: []Listener{web(ok, twice, secret), web(ok), {Addr: port(443), Protocol: "http", Routes: []Route{lost, secret}}},
		Certificates: []Certificate{{Name: "broken"}}, Authority: &Certificate{}})
	for _, want := range []string{"certificate broken: ", "authority: ", "route  of ok on 0.0.0.0:80: another route has the same host and path", "route s.example of ok on 0.0.0.0:80: some routes have TLS",
		"listen on 0.0.0.0:80: it is listed twice", `route l.example of ok on 0.0.0.0:443: there is no certificate "nowhere"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if got := raw(t, addr(80), get("a", "/")); got[0][:3] != "200" {
		t.Error("the rest is not offered")
	}
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", addr(80))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	_ = conns[2].SetDeadline(time.Now().Add(20 * time.Second))
	if n, err := conns[2].Read(make([]byte, 1)); err == nil || n != 0 {
		t.Error("a connection too many")
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no way to dial")
	}
}

func TestTLSAndHTTP2(t *testing.T) {
	ca, pool := authority(t)
	given := certificate(t, "given.example")
	in, w, addr := start(t, Options{})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s", r.Proto, r.Header.Get("X-Forwarded-Proto"))
		rw.Header().Set("Trailer:Grpc-Status", "0")
		if r.ProtoMajor == 2 {
			_, _ = io.Copy(rw, r.Body)
		}
	})
	self := Route{Host: "*.self.example", Net: 1, Targets: to("10.30.1.1:80"), TLS: spec.TLSSelf}
	named := Route{Host: "given.example", Net: 1, Targets: to("10.30.1.1:80"), TLS: "mine"}
	set(t, in, Config{Listeners: []Listener{{Addr: port(443), Protocol: "http", Routes: []Route{self, named}}}, Certificates: []Certificate{given}, Authority: &ca})
	client := func(name string, roots *x509.CertPool) (*http.Client, *http.Transport) {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr(443))
			}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}, tr
	}
	c, _ := client("a.self.example", pool)
	resp, err := c.Get("https://a.self.example/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || string(body) != "HTTP/1.1 https" {
		t.Errorf("%s %q", resp.Proto, body)
	}
	first := resp.TLS.PeerCertificates[0].SerialNumber
	// gRPC reaches the service as HTTP/2, in both directions at once, with its trailers.
	pr, pw := io.Pipe()
	req, _ := http.NewRequest("POST", "https://a.self.example/s.S/M", pr)
	req.Header.Set("Content-Type", "application/grpc")
	go func() { _, _ = io.WriteString(pw, "+hello"); pw.Close() }()
	resp, err = c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "HTTP/2.0 https+hello" || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%q %v", body, resp.Trailer)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(given.CertPEM)
	c, _ = client("given.example", roots)
	if resp, err = c.Get("https://given.example/"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	// A new configuration keeps what was issued.
	set(t, in, Config{Listeners: []Listener{{Addr: port(443), Protocol: "http", Routes: []Route{self}}}, Authority: &ca})
	conn, err := tls.Dial("tcp", addr(443), &tls.Config{RootCAs: pool, ServerName: "a.self.example"})
	if err != nil {
		t.Fatal(err)
	}
	if conn.ConnectionState().PeerCertificates[0].SerialNumber.Cmp(first) != 0 {
		t.Error("a new certificate")
	}
	conn.Close()
	for _, name := range []string{"given.example", "self.example", "a.b.self.example"} {
		if conn, err := tls.Dial("tcp", addr(443), &tls.Config{InsecureSkipVerify: true, ServerName: name}); err == nil {
			conn.Close()
			t.Error("a certificate for", name)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("shop.example:80", "/api/v1")
	f.Add("*.example", "/%2e%2e/..;/x%5c..")
	in := &Ingress{}
	tab, err := in.newTable(web(Route{Host: "shop.example"}, Route{Host: "*.example", Path: "/api"}, Route{Path: "/api/v1/"}), &keyring{}, nil, map[poolKey]*pool{}, map[routeKey]*counters{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host, path string) {
		h, ok := cleanHost(host)
		s, ok2 := segments(path)
		if !ok || !ok2 {
			return
		}
		r := tab.match(h, s)
		for _, part := range s {
			if part == ".." {
				t.Fatal("leads upwards")
			}
		}
		// A dumb twin: each route, the best one.
		var want string
		switch {
		case h == "shop.example":
			want = "shop.example"
		case strings.Count(h, ".") >= 1 && h[strings.Index(h, ".")+1:] == "example" && len(s) > 0 && s[0] == "api":
			want = "*.example/api"
		case len(s) > 1 && s[0] == "api" && s[1] == "v1":
			want = "/api/v1/"
		}
		got := ""
		if r != nil {
			got = r.Host + r.Path
		}
		if got != want {
			t.Fatalf("%q %q: %q, want %q", host, path, got, want)
		}
	})
}

func BenchmarkHTTP(b *testing.B) {
	in, w, addr := start(b, Options{})
	w.serve(b, "1/10.30.1.1:80", func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, "ok") })
	for _, fresh := range []bool{false, true} {
		b.Run(fmt.Sprintf("fresh=%v", fresh), func(b *testing.B) {
			set(b, in, Config{Listeners: []Listener{web(Route{Net: 1, Targets: to("10.30.1.1:80"), Fresh: fresh})}})
			b.ReportAllocs()
			for b.Loop() {
				resp, err := http.Get("http://" + addr(80) + "/")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
