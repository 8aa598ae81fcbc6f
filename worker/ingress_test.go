//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/ingress"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// fakeNet gives every attachment an address of the overlay.
type fakeNet struct {
	refused []string
	last    hostnet.Config
	err     error // of Set, which then gives none
}

func (n *fakeNet) Set(_ context.Context, c hostnet.Config) (map[string]wire.Attachment, error) {
	if n.last = c; n.err != nil {
		return nil, n.err
	}
	out := map[string]wire.Attachment{}
	for i, w := range c.Attachments {
		out[w.ID] = wire.Attachment{NetNS: "/none", Device: fmt.Sprint("sk.", i), MTU: 1404, Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64, 0, byte(i)}), 32)}}
	}
	return out, nil
}
func (*fakeNet) Stats() (map[string]hostnet.Stats, error) { return nil, nil }
func (n *fakeNet) Refused() ([]string, error)             { return n.refused, nil }
func (*fakeNet) Gateway() netip.Addr                      { return netip.Addr{} }
func (*fakeNet) Networks() []netip.Prefix                 { return nil }

func TestRefusedConnectionsAreLogged(t *testing.T) {
	var out strings.Builder
	newAttachments(&fakeNet{refused: []string{"web-1"}}).tellRefused(slog.New(slog.NewTextHandler(&out, nil)))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "instance=web-1") {
		t.Errorf("got the log %q, want one line that names web-1", got)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Instances come and go while the ingress looks at what it has to offer: none waits for the other forever.
func TestWorkerIngressBesideInstances(t *testing.T) {
	p := &fakeParts{events: make(chan overlay.Event)}
	f := newOverlayNet(Overlay{Device: p, Ingress: &IngressOptions{Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, slog.New(slog.DiscardHandler))
	f.post = func(any) {}
	n := newAttachments(&fakeNet{})
	n.overlayNet = f
	e, err := newWorkerIngress(*f.Ingress, f, n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer e.in.Close()
	f.take(core.OverlayItem{Key: "net/acme/shop", Item: shopNetwork()})
	f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/26")}, Instances: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}}})
	stop, looks := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looks)
		for {
			select {
			case <-stop:
				return
			default:
				e.config()
			}
		}
	}()
	for i := range 2000 {
		id := skerry.InstanceID(fmt.Sprint("web-", i))
		if _, _, err := n.add(t.Context(), &spec.Assignment{ID: id, Service: shop("web")}, nil); err != nil {
			t.Fatal(err)
		}
		if err := n.remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-looks
}

// TestWorkerIngress follows what the worker offers, from the first word of the cluster on.
func TestWorkerIngress(t *testing.T) {
	p := &fakeParts{events: make(chan overlay.Event)}
	f := newOverlayNet(Overlay{Device: p, Ingress: &IngressOptions{Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, slog.New(slog.DiscardHandler))
	var st wire.IngressState
	f.post = func(m any) {
		if e, ok := m.(core.IngressOffered); ok {
			st = e.State
		}
	}
	host := &fakeNet{}
	n := newAttachments(host)
	n.overlayNet = f
	e, err := newWorkerIngress(*f.Ingress, f, n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer e.in.Close()
	open, taken, busy := freePort(t), freePort(t), freePort(t)
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", busy))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	net7 := shopNetwork()
	net7.Org = "acme"
	net7.Services[0].Ports = []spec.Port{{Name: "http", Port: 8080}}
	net7.Services[0].Ingress = []spec.Ingress{
		{Host: "shop.example.org", Path: "/", Port: "http", Listen: open, Protocol: spec.IngressHTTP, Policy: spec.BalanceRoundRobin, TLS: spec.TLSOff},
		{Host: "taken.example.org", Path: "/", Port: "http", Listen: taken, Protocol: spec.IngressHTTP, Policy: spec.BalanceClosest, TLS: spec.TLSOff},
		{Protocol: spec.IngressTCP, Port: "http", Listen: busy, Policy: spec.BalanceClosest, TLS: spec.TLSOff},
		{Host: "cert.example.org", Path: "/", Port: "http", Listen: 443, Protocol: spec.IngressHTTP, Policy: spec.BalanceClosest, TLS: "missing"},
	}
	n.wants["web-1"] = wanted{service: shop("web"), ports: []wire.PortBinding{{Name: "http", Port: 8080, HostPort: taken, Protocol: "tcp"}}}

	// Before the cluster gave addresses there is nothing to join.
	f.take(core.OverlayItem{Key: "net/acme/shop", Item: net7})
	e.review(t.Context())
	if len(host.last.Attachments) != 1 || len(st.Serving) != 0 {
		t.Errorf("%+v, %+v", host.last, st)
	}
	f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/26")}, Instances: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}}})
	e.review(t.Context())
	if ids := host.last.Attachments; len(ids) != 2 || ids[0].ID != "ingress.7" {
		t.Errorf("attachments: %+v", ids)
	}
	if fmt.Sprint(st.Serving) != "[acme/shop]" || len(st.Problems) != 3 {
		t.Fatalf("%+v", st)
	}
	for i, want := range []string{`certificate "missing" did not come`, "is a host port of instance web-1", "address already in use"} {
		if !slices.ContainsFunc(st.Problems, func(p wire.IngressProblem) bool {
			return p.Service == shop("web") && strings.Contains(p.Text, want)
		}) {
			t.Errorf("%d: %q is not among %+v", i, want, st.Problems)
		}
	}
	// The ingress's ports are not given to instances.
	a := &spec.Assignment{ID: "web-2", Service: shop("web")}
	a.Spec.Ports = []spec.Port{{Port: 8080, HostPort: open}}
	if _, err := n.bindLocked(a, nil); err == nil {
		t.Error("a host port that the ingress listens on is given to an instance")
	}
	// Routes are wanted as for an instance, and lead nowhere once no instance is left.
	f.review(time.Now())
	if !slices.Contains(f.asked, shop("web")) {
		t.Errorf("wants %v", f.asked)
	}
	if c := e.config(); len(c.Listeners[0].Routes[0].Targets) != 1 {
		t.Errorf("nothing is dialled before routes are here: %+v", c.Listeners)
	}
	f.take(core.OverlayItem{Key: wire.RouteKey(shop("web")), Item: &wire.Route{Service: shop("web"), Net: 7}})
	i := slices.IndexFunc(e.config().Listeners, func(l ingress.Listener) bool { return int(l.Addr.Port()) == open })
	if c := e.config(); i < 0 || len(c.Listeners[i].Routes[0].Targets) != 0 {
		t.Errorf("without an instance: %+v", c.Listeners)
	}
	f.take(core.OverlayItem{Key: wire.RouteKey(shop("web")), Item: &wire.Route{Service: shop("web"), Net: 7, Backends: []wire.RouteBackend{{Instance: "w", Peer: 2, Addr: netip.MustParseAddr("10.64.1.1")}}}})
	if c := e.config(); c.Listeners[i].Routes[0].Targets[0].String() != "10.30.1.1:8080" || !c.Listeners[i].Routes[0].Fresh {
		t.Errorf("%+v", c.Listeners[i])
	}
	// The port becomes free, and then the application goes.
	other.Close()
	e.review(t.Context())
	if len(st.Problems) != 2 {
		t.Errorf("%+v", st)
	}
	f.take(core.OverlayItem{Key: "net/acme/shop"})
	e.review(t.Context())
	if len(host.last.Attachments) != 1 || len(st.Serving)+len(st.Problems) != 0 {
		t.Errorf("%+v, %+v", host.last, st)
	}
}

// Clients of a service that sleeps are led to no instance before it is ready; those of others find one that is not ready better than none.
func TestSleeperIsAwaited(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		f := newOverlayNet(Overlay{Device: &fakeParts{events: make(chan overlay.Event)}, Ingress: &IngressOptions{Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, slog.New(slog.DiscardHandler))
		f.post = func(any) {}
		n := newAttachments(&fakeNet{})
		n.overlayNet = f
		e, err := newWorkerIngress(*f.Ingress, f, n, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer e.in.Close()
		nw := shopNetwork()
		nw.Services[0].Sleeps = sleeps
		nw.Services[0].Ports = []spec.Port{{Name: "http", Port: 8080}}
		nw.Services[0].Ingress = []spec.Ingress{{Host: "shop.example.org", Path: "/", Port: "http", Listen: freePort(t), Protocol: spec.IngressHTTP, Policy: spec.BalanceClosest, TLS: spec.TLSOff}}
		f.take(core.OverlayItem{Key: "net/acme/shop", Item: nw})
		f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/26")}, Instances: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}}})
		e.review(t.Context())
		targets := func(b ...wire.RouteBackend) int {
			f.take(core.OverlayItem{Key: wire.RouteKey(shop("web")), Item: &wire.Route{Service: shop("web"), Net: 7, Backends: b}})
			return len(e.config().Listeners[0].Routes[0].Targets)
		}
		starts := wire.RouteBackend{Instance: "w", Peer: 1, Addr: netip.MustParseAddr("10.64.0.1"), Draining: true}
		ready := starts
		ready.Draining = false
		want := 1
		if sleeps {
			want = 0
		}
		if got := targets(starts); got != want {
			t.Errorf("sleeps %t: %d targets while the instance starts, want %d", sleeps, got, want)
		}
		if got := targets(ready); got != 1 {
			t.Errorf("sleeps %t: %d targets when it is ready", sleeps, got)
		}
		if got := targets(); got != 0 {
			t.Errorf("sleeps %t: %d targets without an instance", sleeps, got)
		}
	}
}

// TestDialIn connects from within another network namespace, and leaves the threads of this process where they were.
// echoElsewhere answers in a network namespace of its own with what it is sent.
func echoElsewhere(t *testing.T) (netns string, at netip.AddrPort) {
	t.Helper()
	ready, done := make(chan string, 1), make(chan struct{})
	t.Cleanup(func() { close(done) })
	var l net.Listener
	go thread.Run(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			up(t)
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			t.Error(err)
			ready <- ""
			return
		}
		ready <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		<-done
	})
	if netns = <-ready; netns == "" {
		t.FailNow()
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	return netns, l.Addr().(*net.TCPAddr).AddrPort()
}

func TestDialIn(t *testing.T) {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ns, to := echoElsewhere(t)
	if c, err := net.Dial("tcp", to.String()); err == nil {
		c.Close()
		t.Fatal("it is reached from here, too")
	}
	for range 50 {
		c, err := dialIn(t.Context(), ns, to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		c.Close()
	}
	if _, err := dialIn(t.Context(), ns, netip.AddrPortFrom(to.Addr(), 1)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that nobody has: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := dialIn(ctx, ns, netip.MustParseAddrPort("192.0.2.1:80")); err == nil {
		t.Error("an address without a way is reached")
	}
	if _, err := dialIn(t.Context(), "/proc/none", to); err == nil {
		t.Error("there is no such namespace")
	}
	// A thread that enters a namespace ends with its goroutine, but a little after: it has still to be scheduled for that.
	end := time.Now().Add(time.Minute)
	for threadsElsewhere(t, here) > 1 { // the listener's
		if time.Now().After(end) {
			t.Fatalf("%d threads are elsewhere", threadsElsewhere(t, here))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// threadsElsewhere counts the threads of the process that are in another network namespace.
func threadsElsewhere(t *testing.T, here string) (n int) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && at != here {
			n++
		}
	}
	return n
}

// up starts the loopback device of the namespace of this thread.
func up(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err == nil {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err != nil {
		t.Error(err)
	}
}
