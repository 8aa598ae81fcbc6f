package ingress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

// from is an HTTP client at an address of loopback, each request of which has a connection of its own unless it is told otherwise.
func from(t *testing.T, ip string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	tr := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// TestOneClientLeavesConnections has one address open all connections that there are, silently.
func TestOneClientLeavesConnections(t *testing.T) {
	in, w, addr := start(t, Options{MaxConns: 80})
	w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "here") })
	set(t, in, Config{Listeners: []Listener{web(Route{Name: "shop", Owner: "acme", Net: 1, Targets: to("10.30.1.1:80")})}})
	for range 100 {
		c, err := net.Dial("tcp", addr(80))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, "the rest of them is closed", func() bool { return in.Stats().Refused == 60 })
	if n := in.Stats().Conns; n != 40 {
		t.Errorf("one address has %d connections of 80, want 40", n)
	}
	for n := range 5 {
		resp, err := from(t, fmt.Sprintf("127.0.0.%d", n+2)).Get("http://" + addr(80))
		if err != nil {
			t.Fatalf("another client gets no answer: %v", err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("another client gets %s", resp.Status)
		}
	}
}

// TestOneOwnerLeavesRequests has a service that never answers, to which clients of many addresses come, and one client by one connection
// of HTTP/2.
func TestOneOwnerLeavesRequests(t *testing.T) {
	in, w, addr := start(t, Options{MaxConns: 400})
	stop := make(chan struct{})
	w.serve(t, "1/10.30.1.1:80", func(http.ResponseWriter, *http.Request) { <-stop })
	w.serve(t, "2/10.30.1.1:80", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "here") })
	t.Cleanup(func() { close(stop) }) // before the servers
	set(t, in, Config{Listeners: []Listener{
		web(Route{Name: "sink", Owner: "mallory", Host: "sink", Net: 1, Targets: to("10.30.1.1:80")},
			Route{Name: "shop", Owner: "acme", Host: "shop", Net: 2, Targets: to("10.30.1.1:80")}),
		{Addr: port(90), Protocol: spec.IngressTCP, Routes: []Route{{Name: "tcp", Owner: "mallory", Net: 1, Targets: to("10.30.1.1:80")}}}}})
	ask := func(c *http.Client, host string) (status int, body string, err error) {
		req, err := http.NewRequest(http.MethodGet, "http://"+addr(80), nil)
		if err != nil {
			return 0, "", err
		}
		req.Host = host
		resp, err := c.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data), err
	}
	many := from(t, "127.0.0.9")
	many.Transport.(*http.Transport).DisableKeepAlives = false
	many.Transport.(*http.Transport).Protocols = new(http.Protocols)
	many.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	for n := range 500 {
		c := many
		if n >= 200 {
			c = from(t, fmt.Sprintf("127.0.1.%d", n%30))
		}
		go func() { _, _, _ = ask(c, "sink") }()
	}
	led := func() int64 { n, _ := in.led.counts(); return int64(n) }
	await(t, "the sink has its share", func() bool { return led() == 400 && in.Stats().Refused >= 100 })
	status, text, err := ask(from(t, "127.0.0.3"), "sink")
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(text, tooMany) {
		t.Errorf("another request to the sink: %d %q, %v; want 503 with the reason", status, text, err)
	}
	if status, text, err = ask(from(t, "127.0.0.3"), "shop"); err != nil || status != http.StatusOK || text != "here" {
		t.Errorf("another organisation's service: %d %q, %v", status, text, err)
	}
	c, err := net.Dial("tcp", addr(90))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("another TCP connection to the sink: %v, want it closed", err)
	}
	for _, r := range in.Stats().Routes {
		if r.Name == "tcp" && r.Failed != 1 {
			t.Errorf("%d failed connections of the TCP route, want 1", r.Failed)
		}
	}
}

// TestShares takes and gives back.
func TestShares(t *testing.T) {
	s := &shares{most: 80}
	var give []func()
	take := func(of ...holder) bool {
		back, ok := s.take(of...)
		if ok {
			give = append(give, back)
		}
		return ok
	}
	fill := func(of ...holder) (n int) {
		for take(of...) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		of   []holder
		want int
	}{{[]holder{"a"}, 40}, {[]holder{"b"}, 2}, {[]holder{"b", "c"}, 0}, {[]holder{"d", "c"}, 2}, {[]holder{""}, 36}, {[]holder{"e"}, 0}} {
		if n := fill(c.of...); n != c.want {
			t.Errorf("%v gets %d, want %d", c.of, n, c.want)
		}
	}
	for _, back := range give {
		back()
		back()
	}
	if n, _ := s.counts(); n != 0 || len(s.by) != 0 {
		t.Errorf("%d and %v are left", n, s.by)
	}
}

func TestClientOf(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for addr, want := range map[string]holder{"192.0.2.7:1": "client 192.0.2.7/32", "[::ffff:192.0.2.7]:1": "client 192.0.2.7/32",
		"[2001:db8::1:2]:1": "client 2001:db8::/64", "[fe80::1%eth0]:1": "client fe80::/64", "10.1.1.1:1": "", "pipe": ""} {
		if got := clientOf(addr, trusted); got != want {
			t.Errorf("%s is %q, want %q", addr, got, want)
		}
	}
}
