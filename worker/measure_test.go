//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// pair makes two network namespaces with a cable, and moves the test into the first one: 192.0.2.1 and 2001:db8::1 here,
// .2 and ::2 there. The process must be root. inside runs a function in the other.
func pair(t *testing.T) (other string, inside func(func())) {
	t.Helper()
	goruntime.LockOSThread()
	before, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	there, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	enter := func(fd int) {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		enter(before)
		for _, fd := range []int{before, here, there} {
			unix.Close(fd)
		}
		goruntime.UnlockOSThread()
	})
	up := func(dev string, n int) {
		run(t, "ip", "link", "set", "lo", "up")
		run(t, "ip", "link", "set", dev, "up")
		run(t, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", n), "dev", dev)
		run(t, "ip", "-6", "addr", "add", fmt.Sprintf("2001:db8::%d/64", n), "dev", dev, "nodad")
	}
	enter(here)
	dev := fmt.Sprintf("m%07x", rand.N(1<<28))
	run(t, "ip", "link", "add", dev, "type", "veth", "peer", "name", dev+"p")
	// The command runs in the namespace of this thread; the other one is named by a descriptor of this process.
	run(t, "ip", "link", "set", dev+"p", "netns", fmt.Sprintf("/proc/%d/fd/%d", unix.Getpid(), there))
	up(dev, 1)
	inside = func(f func()) { enter(there); f(); enter(here) }
	inside(func() { up(dev+"p", 2) })
	return "192.0.2.2", inside
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

// listen accepts connections until the test ends.
func listen(t *testing.T, addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// measureHere measures from the namespace of this thread: a dial to one address opens its socket on it.
func measureHere(t *testing.T, target string) float64 {
	t.Helper()
	addr, port, err := spec.ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), measuringTime)
	defer cancel()
	return roundTrip(ctx, addr, port)
}

func TestMeasureByEchoAndByConnecting(t *testing.T) {
	other, inside := pair(t)
	inside(func() {
		listen(t, "192.0.2.2:8443")
		listen(t, "192.0.2.2:443")
	})
	for _, target := range []string{other, "2001:db8::2", "[2001:db8::2]:9"} {
		measureHere(t, target) // who looks for a neighbour for the first time may wait for a second
		if ms := measureHere(t, target); !(ms > 0 && ms < 1000) {
			t.Errorf("%s by echo: %v ms", target, ms)
		}
	}
	// No echo any more.
	inside(func() {
		run(t, "nft", "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in ip protocol icmp drop; add rule inet t in icmpv6 type echo-request drop")
	})
	if ms := echo(t.Context(), netip.MustParseAddr(other)); ms != 0 {
		t.Fatalf("an echo came back in spite of the rule: %v", ms)
	}
	for what, target := range map[string]string{"a port that listens": other + ":8443", "443": other, "a refused port": other + ":81", "80 refused, 443 refused, IPv6": "2001:db8::2"} {
		if ms := measureHere(t, target); !(ms > 0 && ms < 1000) {
			t.Errorf("%s (%s): %v ms", what, target, ms)
		}
	}
	// Nothing comes back at all.
	inside(func() { run(t, "nft", "add rule inet t in ip saddr 192.0.2.1 drop") })
	begin := time.Now()
	if ms := measureHere(t, other); ms != 0 {
		t.Errorf("a host that says nothing is %v ms away", ms)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("that took %s", took)
	}
	if ms := measureHere(t, "198.51.100.1"); ms != 0 {
		t.Errorf("a host without a route is %v ms away", ms)
	}
}

func TestMeasureRequest(t *testing.T) {
	s, err := NewServer(ServerOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	get := func(targets ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/measure?"+url.Values{"target": targets}.Encode(), nil))
		return w
	}
	many := slices.Repeat([]string{"192.0.2.1"}, spec.MaxUsers+1)
	for name, targets := range map[string][]string{"none": nil, "too many": many, "a name": {"example.com"}, "loopback": {"127.0.0.1"}, "every address": {"0.0.0.0"},
		"multicast": {"224.0.0.1"}, "link-local": {"169.254.169.254"}, "a port that is none": {"192.0.2.1:99999"}, "one bad of two": {"192.0.2.1", "::1"}} {
		if w := get(targets...); w.Code != http.StatusBadRequest && w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/measure?target=192.0.2.1", nil))
	if w.Code == http.StatusOK {
		t.Error("a POST was answered")
	}
	// These tests have a network of their own, without any way out: nobody answers.
	w = get("203.0.113.1", "203.0.113.2:80")
	var ms []float64
	if err := json.Unmarshal(w.Body.Bytes(), &ms); err != nil || len(ms) != 2 {
		t.Errorf("%s", w.Body)
	}
}

func TestNearestEndpoint(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	at := func(addr, proto string) wire.Endpoint { return wire.Endpoint{Address: addr, Protocol: proto} }
	for name, c := range map[string]struct {
		list []wire.Endpoint
		want bool
	}{
		"none":      {nil, false},
		"only UDP":  {[]wire.Endpoint{at("127.0.0.1:9", "udp")}, false},
		"one":       {[]wire.Endpoint{at(listener.Addr().String(), "tcp")}, true},
		"refused":   {[]wire.Endpoint{at(closed.Addr().String(), "tcp")}, true},
		"many more": {slices.Repeat([]wire.Endpoint{at(listener.Addr().String(), "")}, 50), true},
	} {
		if ms := nearest(t.Context(), c.list); (ms > 0) != c.want || ms >= 3000 {
			t.Errorf("%s: %v ms", name, ms)
		}
	}
	if ms := nearest(t.Context(), []wire.Endpoint{at("no address", "tcp"), at(listener.Addr().String(), "tcp")}); ms >= 3000 {
		t.Errorf("the nearest of two: %v ms", ms)
	}
}

func TestLinksOfAnInstance(t *testing.T) {
	app := skerry.AppKey{Namespace: "default", Name: "shop"}
	limit := spec.Duration(time.Millisecond)
	a := &spec.Assignment{Service: skerry.ServiceKey{App: app, Service: "front"}}
	a.Spec.Links = []spec.Link{{Service: "db", MaxLatency: &limit}, {Service: "log"}, {Service: "cache", MaxLatency: &limit}}
	l := linkTimes{ms: map[skerry.ServiceKey]float64{{App: app, Service: "db"}: 3, {App: app, Service: "log"}: 4, {App: skerry.AppKey{Name: "other"}, Service: "cache"}: 5}}
	if got := l.of(a); len(got) != 1 || got["db"] != 3 {
		t.Errorf("%v", got)
	}
	if got := (&linkTimes{}).of(a); got != nil {
		t.Errorf("%v", got)
	}
	if n := len(limitedLinks(a)); n != 2 || strings.Contains(limitedLinks(a)[0].Service, "log") {
		t.Errorf("%d links have a limit", n)
	}
}
