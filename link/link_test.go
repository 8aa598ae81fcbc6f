package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/beat"
	"skerry.dev/skerry/wire"
)

func asRefuse(err error, r **wire.Refuse) bool { return errors.As(err, r) }

func reason(err error) link.Reason {
	var e *link.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestUpFramesDown(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	c := s.child(s.join(wire.TierWorker, "w1"), nil)
	up, here := s.rec.next("up"), c.rec.next("up")
	if id := up.peer.Identity(); id.Name != "w1" || id.Tier != wire.TierWorker || id.Site != "harbour" || id.Counter != 1 {
		t.Errorf("the parent sees %+v", id)
	}
	if id := here.peer.Identity(); id.Name != "harbour" || id.Tier != wire.TierCluster {
		t.Errorf("the child sees %+v", id)
	}
	w := here.peer.Welcome()
	if w.Protocol != 1 || w.Incarnation != "i1" || fmt.Sprint(w.Features) != "[b]" || !up.peer.Feature("b") || up.peer.Feature("a") {
		t.Errorf("welcome %+v", w)
	}
	for i := range 100 {
		c.Send(&wire.Events{Stream: "x", First: uint64(i + 1), Floor: 1})
		up.peer.Send(&wire.SetDelta{Set: "s", Base: skerry.Generation(i), Gen: skerry.Generation(i + 1)})
	}
	for i := range 100 {
		if m := s.rec.next("frame").msg.(*wire.Events); m.First != uint64(i+1) {
			t.Fatalf("event %d came as %d", i+1, m.First)
		}
		if m := c.rec.next("frame").msg.(*wire.SetDelta); m.Gen != skerry.Generation(i+1) {
			t.Fatalf("delta %d came as %d", i+1, m.Gen)
		}
	}
	if _, err := here.peer.Ping(t.Context()); err != nil || here.peer.RTT() <= 0 {
		t.Errorf("ping: %v, %s", err, here.peer.RTT())
	}
	s.srv.Disconnect(wire.TierWorker, "w1")
	if err := s.rec.next("down").err; reason(err) != link.ReasonClosed {
		t.Errorf("parent: %v", err)
	}
	c.rec.next("down")
	c.rec.next("up") // by itself
	s.rec.next("up")
	if up.peer.Send(&wire.Report{}) == nil {
		t.Error("a closed peer takes messages")
	}
}

func TestNegotiation(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) { c.Required = []string{"b"} })
	for name, tc := range map[string]struct {
		tweak func(*wire.Hello)
		code  wire.RefuseCode
		word  string
	}{
		"child needs what the parent lacks": {func(h *wire.Hello) { h.Required = []string{"warp"} }, wire.RefuseFeature, `"warp"`},
		"parent needs what the child lacks": {func(h *wire.Hello) { h.Features = nil }, wire.RefuseFeature, `"b"`},
		"another name":                      {func(h *wire.Hello) { h.Name = "other" }, wire.RefuseIdentity, `"other"`},
		"another tier":                      {func(h *wire.Hello) { h.Tier = wire.TierCluster }, wire.RefuseIdentity, "cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			m := s.join(wire.TierWorker, strings.ReplaceAll("w-"+name, " ", "-"))
			c := s.child(m, func(_ *link.ClientConfig, h *wire.Hello) { tc.tweak(h) })
			wantRefuse(t, c.rec.next("refused").err, tc.code, tc.word)
			if c.LastError() == nil || c.Peer() != nil {
				t.Error("the client thinks it is connected")
			}
		})
	}
}

// hole is a connection through which, once it is shut, nothing comes and nothing fails.
type hole struct {
	net.Conn
	mu   sync.Mutex
	by   time.Time // read deadline
	shut chan struct{}
	gone chan struct{}
	once sync.Once
}

func newHole(c net.Conn) *hole {
	return &hole{Conn: c, shut: make(chan struct{}), gone: make(chan struct{})}
}

func (h *hole) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	select {
	case <-h.shut:
		h.mu.Lock()
		by := h.by
		h.mu.Unlock()
		select {
		case <-h.gone:
			return 0, net.ErrClosed
		case <-time.After(time.Until(by)):
			return 0, os.ErrDeadlineExceeded
		}
	default:
		return n, err
	}
}

func (h *hole) SetDeadline(t time.Time) error {
	h.SetReadDeadline(t)
	return h.Conn.SetWriteDeadline(t)
}

func (h *hole) SetReadDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by = t
	return h.Conn.SetReadDeadline(t)
}

func (h *hole) Write(b []byte) (int, error) {
	select {
	case <-h.shut:
		return len(b), nil
	default:
		return h.Conn.Write(b)
	}
}

func (h *hole) Close() error {
	h.once.Do(func() { close(h.gone) })
	select {
	case <-h.shut: // the other side learns nothing
		return nil
	default:
		return h.Conn.Close()
	}
}

func TestSilenceIsNoticed(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) { c.KeepAlive = 150 * time.Millisecond })
	var first *hole
	c := s.child(s.join(wire.TierWorker, "w1"), func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := net.Dial("tcp", addr)
			if err == nil && first == nil {
				first = newHole(conn)
				return first, nil
			}
			return conn, err
		}
	})
	c.rec.next("up")
	s.rec.next("up")
	t.Cleanup(func() { first.Conn.Close() })
	close(first.shut)
	if err := s.rec.next("down").err; reason(err) != link.ReasonSilent {
		t.Errorf("parent: %v", err)
	}
	s.rec.next("up") // the child noticed as well, and came back
}

// cut is a connection whose way was taken from it: nothing of the other side's comes, not even its end, and what is sent is
// refused.
type cut struct {
	net.Conn
	parent *net.TCPAddr // whose port takes beats
	off    atomic.Bool
	gone   chan struct{}
	once   sync.Once
}

func (c *cut) RemoteAddr() net.Addr { return c.parent }

func (c *cut) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

func (c *cut) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.off.Load() {
		<-c.gone
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *cut) Write(b []byte) (int, error) {
	if c.off.Load() {
		c.Close() // as the kernel does, and the reader hears of it
		return 0, syscall.ECONNRESET
	}
	return c.Conn.Write(b)
}

// nat carries datagrams of one inside to an address, and back, from ports that can be exchanged. The first it makes is there
// at once; with none it drops.
type nat struct {
	t   *testing.T
	in  *net.UDPConn
	to  *net.UDPAddr
	out atomic.Pointer[net.UDPConn]
	who atomic.Pointer[net.UDPAddr]
	wg  sync.WaitGroup
}

func newNAT(t *testing.T) *nat {
	n := &nat{t: t}
	var err error
	if n.in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	// The port that the parent will have.
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n.to = pc.LocalAddr().(*net.UDPAddr)
	pc.Close()
	n.exchange()
	n.wg.Go(func() {
		b := make([]byte, 1500)
		for {
			k, who, err := n.in.ReadFromUDP(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if n.who.Store(who); err == nil {
				n.out.Load().Write(b[:k]) // a port that is closed shows here
			}
		}
	})
	t.Cleanup(func() {
		n.in.Close()
		n.out.Load().Close()
		n.wg.Wait()
	})
	return n
}

func (n *nat) exchange() {
	c, err := net.DialUDP("udp4", nil, n.to)
	if err != nil {
		n.t.Fatal(err)
	}
	if old := n.out.Swap(c); old != nil {
		old.Close()
	}
	n.wg.Go(func() {
		b := make([]byte, 1500)
		for {
			k, err := c.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if who := n.who.Load(); err == nil && who != nil {
				n.in.WriteToUDP(b[:k], who)
			}
		}
	})
}

// TestNATIsExchanged takes the connection away from a child, as a NAT does that is exchanged for another one. If no UDP gets
// through any more, the child finds out by its own; if beats come from elsewhere, the parent has it look. A quiet connection
// would not be looked at for a quarter of an hour.
func TestNATIsExchanged(t *testing.T) {
	for name, blocked := range map[string]bool{"and beats come from elsewhere": false, "and no beat gets through": true} {
		t.Run(name, func(t *testing.T) {
			n := newNAT(t)
			beats, err := beat.Listen(n.to.String(), 5*time.Second, slog.New(slog.DiscardHandler), func(string, time.Time, bool) {})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- beats.Run(ctx) }()
			s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) {
				c.KeepAlive, c.Beats, c.BeatEvery, c.ProbeTimeout = time.Minute, beats, 100*time.Millisecond, 200*time.Millisecond
			})
			var first *cut
			c := s.child(s.join(wire.TierWorker, "w1"), func(cfg *link.ClientConfig, _ *wire.Hello) {
				cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					conn, err := net.Dial("tcp", addr)
					if err != nil {
						return nil, err
					}
					port := n.in.LocalAddr().(*net.UDPAddr).Port
					k := &cut{Conn: conn, gone: make(chan struct{}), parent: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
					if first == nil {
						first = k
					}
					return k, nil
				}
			})
			c.rec.next("up")
			s.rec.next("up")
			for end := time.Now().Add(20 * time.Second); c.Contact().IsZero(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no beat is answered")
				}
			}
			first.off.Store(true)
			if blocked {
				stop()
				if err := <-ran; err != nil {
					t.Error(err)
				}
			} else {
				n.exchange()
			}
			c.rec.next("down")
			c.rec.next("up")
			stop()
			if !blocked {
				if err := <-ran; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSecondConnection(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) { c.ProbeTimeout = 300 * time.Millisecond })
	m := s.join(wire.TierWorker, "w1")
	var first *hole
	c1 := s.child(m, func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour // stays away once it is out
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := net.Dial("tcp", addr)
			first = newHole(conn)
			return first, err
		}
	})
	c1.rec.next("up")
	s.rec.next("up")
	// The same identity lives in another process: that is a clone as long as the first one answers.
	c2 := s.child(m, func(cfg *link.ClientConfig, h *wire.Hello) { h.Boot, h.Machine = "boot-2", "copy" })
	wantRefuse(t, c2.rec.next("refused").err, wire.RefuseClone, `"m-w1"`, `"copy"`, "new token")
	if got := <-s.clones; got != "m-w1 copy" {
		t.Errorf("clone of %s", got)
	}
	if _, err := c1.Peer().Ping(t.Context()); err != nil {
		t.Errorf("the first was disturbed: %v", err)
	}
	// It loses power: nobody answers the probe, and the next process is no clone.
	t.Cleanup(func() { first.Conn.Close() })
	close(first.shut)
	if h := s.rec.next("down"); reason(h.err) != link.ReasonReplaced {
		t.Errorf("the first went down as %v", h.err)
	}
	if h := s.rec.next("up"); h.peer.Hello().Boot != "boot-2" {
		t.Errorf("up is %q", h.peer.Hello().Boot)
	}
	// The same process on a new connection replaces its old one at once.
	c3 := s.child(m, func(cfg *link.ClientConfig, h *wire.Hello) { h.Boot, h.Machine = "boot-2", "copy" })
	for {
		if h := <-s.rec.ch; h.what == "down" {
			if reason(h.err) != link.ReasonReplaced {
				t.Errorf("went down as %v", h.err)
			}
			break
		}
	}
	c3.rec.next("up")
}

func TestSendNeverBlocks(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) { c.KeepAlive = time.Minute })
	block := make(chan struct{})
	s.child(s.join(wire.TierWorker, "w1"), func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.Handler = stuck{block}
	})
	t.Cleanup(func() { close(block) })
	p := s.rec.next("up").peer
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = p.Send(&wire.Report{Kind: "x", Payload: make([]byte, 64<<10)})
	}
	if reason(err) != link.ReasonQueueFull {
		t.Fatalf("got %v", err)
	}
	if h := s.rec.next("down"); reason(h.err) != link.ReasonQueueFull || s.srv.Stats().Ends()[link.ReasonQueueFull] != 1 {
		t.Errorf("down %v, counted %v", h.err, s.srv.Stats().Ends())
	}
	s.healthy()
}

type stuck struct{ block chan struct{} }

func (stuck) Up(*link.Peer)                    {}
func (s stuck) Frame(*link.Peer, wire.Message) { <-s.block }
func (stuck) Down(*link.Peer, error)           {}

func echo(_ *link.Peer, _ *wire.StreamHeader, c net.Conn) { io.Copy(c, c) }

func sayHello(t *testing.T, o link.Opener, kind string) {
	t.Helper()
	conn, err := o.OpenStream(t.Context(), &wire.StreamHeader{Kind: kind, Meta: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	conn.Write([]byte("hello"))
	b := make([]byte, 5)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
		t.Fatalf("echo %q, %v", b, err)
	}
}

func TestStreamsBothWays(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	s.mux.Handle("echo", echo)
	m := s.join(wire.TierWorker, "w1")
	c := s.child(m, func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.StreamIdle = 100 * time.Millisecond
		cfg.Streams.Handle("echo", echo)
	})
	p := s.rec.next("up").peer
	c.rec.next("up")
	for range 3 { // with the connection made anew each time
		sayHello(t, p, "echo") // the parent asks, the child dials
		sayHello(t, c, "echo")
		before := s.srv.Stats().Accepted.Load()
		for s.srv.Stats().Accepted.Load() == before {
			time.Sleep(150 * time.Millisecond) // idle: the connection goes, the next stream makes a new one
			sayHello(t, c, "echo")
		}
	}
	conn, err := p.OpenStream(t.Context(), &wire.StreamHeader{Kind: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	wantRefuse(t, err, wire.RefuseStreamKind, `"nobody"`)
	s.srv.Disconnect(wire.TierWorker, "w1")
	if _, err := p.OpenStream(t.Context(), &wire.StreamHeader{Kind: "echo"}); err == nil {
		t.Error("a stream opens on a dead link")
	}
}

func TestHTTPBothWays(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d", link.PeerFrom(r.Context()).Name(), r.URL.Path, len(body))
	})
	up, down := link.NewHTTPStreams(who), link.NewHTTPStreams(who)
	defer up.Close()
	defer down.Close()
	s.mux.Handle(link.StreamHTTP, up.Serve)
	c := s.child(s.join(wire.TierWorker, "w1"), func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.Streams.Handle(link.StreamHTTP, down.Serve)
	})
	p := s.rec.next("up").peer
	c.rec.next("up")
	for _, tc := range []struct {
		open func() (link.Opener, error)
		want string
	}{
		{func() (link.Opener, error) { return c, nil }, "w1 /blobs 3000000"},
		{func() (link.Opener, error) { return p, nil }, "harbour /blobs 3000000"},
	} {
		tr := link.NewTransport(tc.open)
		for range 3 {
			resp, err := (&http.Client{Transport: tr}).Post("http://peer/blobs", "", bytes.NewReader(make([]byte, 3_000_000)))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != tc.want {
				t.Errorf("got %q, want %q", b, tc.want)
			}
		}
		tr.CloseIdleConnections()
	}
}

func TestStalledReaderDelaysNothing(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	release := make(chan struct{})
	c := s.child(s.join(wire.TierWorker, "w1"), func(cfg *link.ClientConfig, _ *wire.Hello) {
		cfg.Streams.Handle("stall", func(_ *link.Peer, _ *wire.StreamHeader, conn net.Conn) { <-release })
		cfg.Streams.Handle("echo", echo)
	})
	defer close(release)
	p := s.rec.next("up").peer
	up := c.rec.next("up").peer
	conn, err := p.OpenStream(t.Context(), &wire.StreamHeader{Kind: "stall"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	written := 0
	for { // until the window is shut
		conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := conn.Write(make([]byte, 64<<10))
		written += n
		if err != nil {
			break
		}
	}
	if written > 1<<20 {
		t.Errorf("%d bytes went to a reader that does not read", written)
	}
	for range 5 {
		sayHello(t, p, "echo")
		if _, err := up.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Send(&wire.Report{Kind: "beat"})
		s.rec.next("frame")
	}
}
