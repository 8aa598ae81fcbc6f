package link_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// nothing reads until the connection ends and gives whatever came.
func nothing(t *testing.T, conn *tls.Conn) []byte {
	t.Helper()
	conn.SetDeadline(time.Now().Add(15 * time.Second))
	b, err := io.ReadAll(conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the connection stays open")
	}
	return b
}

// forged is a certificate that says what a real one says, from another CA.
func forged(t *testing.T, uri string) tls.Certificate {
	pub, key, _ := ed25519.GenerateKey(rand.Reader)
	u, _ := url.Parse(uri)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{u}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func greet(t *testing.T, conn *tls.Conn, m wire.Message) (wire.Message, error) {
	t.Helper()
	c := frame.NewCodec()
	if err := frame.Write(conn, c, m); err != nil {
		return nil, err
	}
	answer, _, err := frame.NewReader(conn, c, frame.MaxFrame).Next()
	return answer, err
}

func memberTLS(t *testing.T, m *auth.Member) *tls.Config {
	cfg, err := m.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func hello(m *auth.Member) *wire.Hello {
	return &wire.Hello{Tier: m.Tier(), Name: m.Name(), ProtocolMin: 1, ProtocolMax: 1, Boot: "x", Machine: "x"}
}

func TestHostileCertificateOfAnotherCA(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	other := newSite(t, "harbour", wire.TierCluster, nil) // the same name, another CA
	foreign := other.join(wire.TierWorker, "w1")
	s.join(wire.TierWorker, "w1")
	for name, cert := range map[string]tls.Certificate{
		"another site's": memberTLS(t, foreign).Certificates[0],
		"self-signed":    forged(t, "skerry://harbour/worker/w1"),
	} {
		for _, proto := range []string{link.ProtoLink, link.ProtoStream, link.ProtoJoin} {
			conn, err := s.rawTLS(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}, proto)
			if err == nil { // TLS 1.3 tells a client of its refusal after the handshake
				if m, err := greet(t, conn, hello(foreign)); err == nil {
					t.Errorf("%s on %s got %T", name, proto, m)
				}
			}
		}
	}
	s.healthy()
}

func TestHostileNoCertificate(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	w := s.join(wire.TierWorker, "w1")
	for _, proto := range []string{link.ProtoLink, link.ProtoStream, ""} {
		if conn, err := s.rawTLS(&tls.Config{InsecureSkipVerify: true}, proto); err == nil {
			if m, err := greet(t, conn, hello(w)); err == nil {
				t.Errorf("%q answered %T", proto, m)
			}
		}
	}
	conn, err := s.rawTLS(&tls.Config{InsecureSkipVerify: true}, link.ProtoJoin)
	if err != nil {
		t.Fatal(err)
	}
	m, err := greet(t, conn, &wire.Renew{Counter: 1})
	if r, ok := m.(*wire.Refuse); err != nil || !ok || r.Code != wire.RefuseUnknown {
		t.Errorf("renewal without a key got %v, %v", m, err)
	}
	s.healthy()
}

func TestHostileAnotherName(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	s.join(wire.TierWorker, "victim")
	evil := s.join(wire.TierWorker, "evil")
	for name, m := range map[string]wire.Message{
		"another worker":                  &wire.Hello{Tier: wire.TierWorker, Name: "victim", ProtocolMin: 1, ProtocolMax: 1},
		"the cluster":                     &wire.Hello{Tier: wire.TierCluster, Name: "harbour", ProtocolMin: 1, ProtocolMax: 1},
		"a cluster of its own name":       &wire.Hello{Tier: wire.TierCluster, Name: "evil", ProtocolMin: 1, ProtocolMax: 1},
		"another worker's stream (hello)": &wire.StreamHello{Tier: wire.TierWorker, Name: "victim", Boot: "x"},
	} {
		proto := link.ProtoLink
		if m.FrameType() == wire.FrameStreamHello {
			proto = link.ProtoStream
		}
		conn, err := s.rawTLS(memberTLS(t, evil), proto)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := greet(t, conn, m)
		if r, ok := answer.(*wire.Refuse); err != nil || !ok || r.Code != wire.RefuseIdentity {
			t.Errorf("%s: got %v, %v", name, answer, err)
		}
	}
	s.healthy()
}

func TestHostileWorkerAtRoot(t *testing.T) {
	root := newSite(t, "fed", wire.TierRoot, nil)
	s := newSite(t, "harbour", wire.TierCluster, nil)
	w := s.join(wire.TierWorker, "w1")
	cfg := memberTLS(t, w)
	cfg.VerifyConnection = nil
	conn, err := root.rawTLS(cfg, link.ProtoLink)
	if err == nil {
		_, err = greet(t, conn, &wire.Hello{Tier: wire.TierCluster, Name: "harbour", ProtocolMin: 1, ProtocolMax: 1})
	}
	if err == nil {
		t.Error("a worker got an answer from the root")
	}
	// And its own client does not take the root for its parent.
	if _, err := root.rawTLS(memberTLS(t, w), link.ProtoLink); err == nil {
		t.Error("the worker trusts another CA")
	}
	root.healthy()
}

func TestHostileParent(t *testing.T) {
	// A worker of the site plays the parent towards another, with its real certificate.
	s := newSite(t, "harbour", wire.TierCluster, nil)
	evil, w := s.join(wire.TierWorker, "evil"), s.join(wire.TierWorker, "w1")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: memberTLS(t, evil).Certificates, NextProtos: []string{link.ProtoLink}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	cfg := memberTLS(t, w)
	cfg.NextProtos = []string{link.ProtoLink}
	conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
	if err == nil {
		conn.Close()
		t.Error("a worker's certificate passes for the cluster's")
	}
}

func TestHostileStreamWithoutControl(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	served := false
	s.mux.Handle("echo", func(*link.Peer, *wire.StreamHeader, net.Conn) { served = true })
	w := s.join(wire.TierWorker, "w1")
	conn, err := s.rawTLS(memberTLS(t, w), link.ProtoStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := greet(t, conn, &wire.StreamHello{Tier: w.Tier(), Name: w.Name(), Boot: "x"})
	if r, ok := m.(*wire.Refuse); err != nil || !ok || r.Code != wire.RefuseNotAuthorised {
		t.Errorf("got %v, %v", m, err)
	}
	if rest := nothing(t, conn); len(rest) > 0 || served {
		t.Errorf("%d bytes after the refusal, served %v", len(rest), served)
	}
	s.healthy()
}

func rawFrame(typ byte, n uint32, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(typ)<<24|n), payload...)
}

func TestHostileFrames(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	deep := append(bytes.Repeat([]byte{0x81}, 200), 0)
	for name, tc := range map[string]struct {
		bytes  []byte
		reason link.Reason
	}{
		"not CBOR":           {rawFrame(16, 3, []byte{0xff, 0xff, 0xff}), link.ReasonMalformed},
		"wrong type inside":  {rawFrame(16, 3, []byte{0xa1, 0x02, 0xf5}), link.ReasonMalformed},
		"nested deeply":      {rawFrame(16, uint32(len(deep)), deep), link.ReasonMalformed},
		"trailing bytes":     {rawFrame(4, 2, []byte{0xa0, 0xa0}), link.ReasonMalformed},
		"announced too long": {rawFrame(16, 0xffffff, nil), link.ReasonTooLarge},
		"Hello again":        {rawFrame(1, 1, []byte{0xa0}), link.ReasonMalformed},
		"OpenStreams upward": {rawFrame(48, 1, []byte{0xa0}), link.ReasonMalformed},
		"a huge array":       {rawFrame(32, 6, []byte{0xa1, 0x04, 0x9a, 0xff, 0xff, 0xff}), link.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.join(wire.TierWorker, "w-"+strings.ReplaceAll(strings.ToLower(name), " ", "-"))
			conn, err := s.rawTLS(memberTLS(t, w), link.ProtoLink)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := greet(t, conn, hello(w)); err != nil || m.FrameType() != wire.FrameWelcome {
				t.Fatalf("%v, %v", m, err)
			}
			s.rec.next("up")
			conn.Write(tc.bytes)
			if h := s.rec.next("down"); reason(h.err) != tc.reason {
				t.Errorf("down as %v, want %s", h.err, tc.reason)
			}
			nothing(t, conn)
		})
	}
	// A type of a later version is skipped.
	w := s.join(wire.TierWorker, "later")
	conn, err := s.rawTLS(memberTLS(t, w), link.ProtoLink)
	if err != nil {
		t.Fatal(err)
	}
	greet(t, conn, hello(w))
	s.rec.next("up")
	conn.Write(append(rawFrame(250, 3, []byte{1, 2, 3}), rawFrame(34, 1, []byte{0xa0})...))
	if h := s.rec.next("frame"); h.msg.FrameType() != wire.FrameReport || s.srv.Stats().UnknownFrames.Load() != 1 {
		t.Errorf("got %v", h)
	}
	conn.Close()
	s.rec.next("down")
	s.healthy()
}

func TestHostileBeforeHello(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	w := s.join(wire.TierWorker, "w1")
	for name, first := range map[string][]byte{
		"a report":      rawFrame(34, 1, []byte{0xa0}),
		"a flood":       bytes.Repeat(rawFrame(34, 1, []byte{0xa0}), 100_000),
		"a long Hello":  rawFrame(1, frame.MaxGreeting+1, nil),
		"an empty join": rawFrame(64, 1, []byte{0xa0}),
	} {
		conn, err := s.rawTLS(memberTLS(t, w), link.ProtoLink)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(first)
		if rest := nothing(t, conn); len(rest) > 0 {
			t.Errorf("%s: got %d bytes", name, len(rest))
		}
	}
	if n := s.srv.Stats().FramesIn.Load(); n > 4 {
		t.Errorf("%d frames were read from strangers", n)
	}
	s.healthy()
}

func TestHostileSlowHandshakes(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) {
		c.MaxPending, c.HandshakeTimeout = 8, 60*time.Second
	})
	w := s.join(wire.TierWorker, "w1")
	var conns []net.Conn
	for i := range 12 { // more than there are places, none of them says anything, or not to the end
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			conn.Write([]byte{22, 3, 1, 2, 0, 1, 0})
		}
		conns = append(conns, conn)
	}
	c := s.child(w, nil)
	c.rec.next("up")
	s.rec.next("up")
	if n := s.srv.Stats().Ends()[link.ReasonEvicted]; n == 0 {
		t.Error("nobody was evicted")
	}
	conns[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conns[0].Read(make([]byte, 1)); err == nil {
		t.Error("the first is still being served")
	}
}

func TestHostileSlowFrame(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) { c.KeepAlive = 150 * time.Millisecond })
	w := s.join(wire.TierWorker, "w1")
	conn, err := s.rawTLS(memberTLS(t, w), link.ProtoLink)
	if err != nil {
		t.Fatal(err)
	}
	greet(t, conn, hello(w))
	s.rec.next("up")
	stop := make(chan struct{})
	defer close(stop)
	conn.Write(rawFrame(16, 1000, nil))
	go func() {
		for { // a byte now and then does not keep a frame alive
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				conn.Write([]byte{0})
			}
		}
	}()
	if h := s.rec.next("down"); reason(h.err) != link.ReasonSilent {
		t.Errorf("down as %v", h.err)
	}
}

func TestHostileRevoked(t *testing.T) {
	s := newSite(t, "harbour", wire.TierCluster, nil)
	m := s.join(wire.TierWorker, "w1")
	c := s.child(m, nil)
	c.rec.next("up")
	s.rec.next("up")
	if err := s.auth.Revoke(t.Context(), wire.TierWorker, "w1", "ada", "stolen"); err != nil {
		t.Fatal(err)
	}
	s.srv.Disconnect(wire.TierWorker, "w1")
	c.rec.next("down")
	wantRefuse(t, c.rec.next("refused").err, wire.RefuseRevoked, "new token")
	wantRefuse(t, m.Renew(t.Context(), s.dialing("m-w1")), wire.RefuseRevoked)
	s.rec.next("down")
	s.healthy()
}

// A key that is revoked while its owner comes in gets no further: there is nothing to disconnect yet, and the answer to
// whether it may come in is a moment old.
func TestHostileRevokedWhileItComes(t *testing.T) {
	var s *site
	var revoke sync.Once
	s = newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) {
		c.Admit = func(ctx context.Context, id wire.PeerIdentity, h *wire.Hello) error {
			err := s.auth.Admit(ctx, id, h)
			revoke.Do(func() {
				if err := s.auth.Revoke(ctx, wire.TierWorker, "w1", "ada", "stolen"); err != nil {
					t.Error(err)
				}
				s.srv.Disconnect(wire.TierWorker, "w1")
			})
			return err
		}
	})
	c := s.child(s.join(wire.TierWorker, "w1"), nil)
	wantRefuse(t, c.rec.next("refused").err, wire.RefuseRevoked)
	s.healthy()
}
