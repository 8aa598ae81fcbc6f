package link_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// happening is one call of a Handler, or a call back.
type happening struct {
	what string // "up", "frame", "down", "clone", "refused"
	peer *link.Peer
	msg  wire.Message
	err  error
}

func (h happening) String() string {
	s := h.what
	if h.peer != nil {
		s += " " + h.peer.Name()
	}
	if h.msg != nil {
		s += fmt.Sprintf(" %T", h.msg)
	}
	if h.err != nil {
		s += " " + h.err.Error()
	}
	return s
}

// recorder hands what happens to a test.
type recorder struct {
	t    testing.TB
	ch   chan happening
	open atomic.Bool
}

func newRecorder(t testing.TB) *recorder {
	r := &recorder{t: t, ch: make(chan happening, 4096)}
	r.open.Store(true)
	return r
}

func (r *recorder) put(h happening) {
	if r.open.Load() {
		r.ch <- h
	}
}
func (r *recorder) Up(p *link.Peer) { r.put(happening{what: "up", peer: p}) }
func (r *recorder) Frame(p *link.Peer, m wire.Message) {
	r.put(happening{what: "frame", peer: p, msg: m})
}
func (r *recorder) Down(p *link.Peer, err error) { r.put(happening{what: "down", peer: p, err: err}) }

// next waits for the next happening, which must be what.
func (r *recorder) next(what string) happening {
	r.t.Helper()
	select {
	case h := <-r.ch:
		if h.what != what {
			r.t.Fatalf("got %q, want %q", h, what)
		}
		return h
	case <-time.After(20 * time.Second):
		r.t.Fatalf("waited in vain for %q", what)
		panic("unreachable")
	}
}

// site is a parent on loopback with everything real but the role.
type site struct {
	t      testing.TB
	auth   *auth.Authority
	srv    *link.Server
	rec    *recorder
	addr   string
	mux    *link.StreamMux
	clones chan string
}

func newSite(t testing.TB, name string, tier wire.Tier, tweak func(*link.ServerConfig, *auth.AuthorityConfig)) *site {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, rec: newRecorder(t), mux: &link.StreamMux{}, clones: make(chan string, 16)}
	acfg := auth.AuthorityConfig{Site: name, Tier: tier, Store: st}
	cfg := link.ServerConfig{
		Handler: s.rec, Streams: s.mux, KeepAlive: 10 * time.Second, Features: []string{"a", "b"},
		Welcome: func(p *link.Peer) (*wire.Welcome, error) {
			return &wire.Welcome{Tier: tier, Name: name, Version: "test", Incarnation: "i1"}, nil
		},
		Clone: func(first *link.Peer, later *wire.Hello, addr net.Addr) {
			s.clones <- first.Hello().Machine + " " + later.Machine
		},
	}
	if tweak != nil {
		tweak(&cfg, &acfg)
	}
	if s.auth, err = auth.OpenAuthority(ctx, acfg); err != nil {
		t.Fatal(err)
	}
	cfg.TLS, cfg.Identify, cfg.Join = s.auth.ServerTLS(), s.auth.Identify, s.auth.ServeJoin
	if cfg.Admit == nil {
		cfg.Admit = s.auth.Admit
	}
	if s.srv, err = link.NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.srv.Serve(l) }()
	t.Cleanup(func() {
		s.rec.open.Store(false)
		s.srv.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		st.Close()
	})
	return s
}

func (s *site) token(tier wire.Tier) string {
	s.t.Helper()
	text, _, err := s.auth.CreateToken(s.t.Context(), auth.TokenOptions{Tier: tier})
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *site) dialing(machine string) auth.Dialing {
	return auth.Dialing{Addrs: []string{s.addr}, Machine: machine, Boot: "boot-" + machine}
}

func (s *site) join(tier wire.Tier, name string) *auth.Member {
	s.t.Helper()
	m, err := auth.Enter(s.t.Context(), auth.Entry{Dialing: s.dialing("m-" + name), Dir: filepath.Join(s.t.TempDir(), name),
		Token: s.token(tier), Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// child runs a client for a member.
type child struct {
	*link.Client
	rec *recorder
	mux *link.StreamMux
}

func (s *site) child(m *auth.Member, tweak func(*link.ClientConfig, *wire.Hello)) *child {
	s.t.Helper()
	c := &child{rec: newRecorder(s.t), mux: &link.StreamMux{}}
	hello := wire.Hello{Tier: m.Tier(), Name: m.Name(), Version: "test", Boot: "boot-" + m.Name(), Machine: "m-" + m.Name(),
		Features: []string{"b", "c"}}
	cfg := link.ClientConfig{
		Addrs: func() []string { return []string{s.addr} }, TLS: m.TLS, Identify: m.Identify, Handler: c.rec, Streams: c.mux,
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		Refused: func(_ context.Context, r *wire.Refuse) { c.rec.put(happening{what: "refused", err: r}) },
	}
	if tweak != nil {
		tweak(&cfg, &hello)
	}
	cfg.Hello = func() *wire.Hello { h := hello; return &h }
	var err error
	if c.Client, err = link.NewClient(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	s.t.Cleanup(func() {
		c.rec.open.Store(false)
		cancel()
		<-done
	})
	return c
}

// rawTLS dials a protocol without our client.
func (s *site) rawTLS(cfg *tls.Config, proto string) (*tls.Conn, error) {
	cfg = cfg.Clone()
	if proto != "" {
		cfg.NextProtos = []string{proto}
	}
	raw, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(20 * time.Second))
	conn := tls.Client(raw, cfg)
	return conn, conn.Handshake()
}

// healthy shows that a good child still gets in and is heard.
func (s *site) healthy() {
	s.t.Helper()
	name := fmt.Sprintf("good-%d", time.Now().UnixNano())
	tier := wire.TierWorker
	if s.auth.Site() == "fed" {
		tier = wire.TierCluster
	}
	c := s.child(s.join(tier, name), nil)
	c.rec.next("up")
	for {
		if h := s.rec.next("up"); h.peer.Name() == name {
			break
		}
	}
	c.Send(&wire.Report{Kind: "beat"})
	if h := s.rec.next("frame"); h.peer.Name() != name {
		s.t.Fatalf("frame of %s", h.peer.Name())
	}
}

func wantRefuse(t testing.TB, err error, code wire.RefuseCode, words ...string) {
	t.Helper()
	var r *wire.Refuse
	if !asRefuse(err, &r) || r.Code != code {
		t.Fatalf("got %v, want a refusal %q", err, code)
	}
	for _, w := range words {
		if !strings.Contains(r.Error(), w) {
			t.Errorf("refusal %q does not mention %q", r.Error(), w)
		}
	}
}
