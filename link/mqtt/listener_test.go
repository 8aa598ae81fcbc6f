package mqtt

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// heard is what came through to the session's handler.
type heard struct {
	what, name string
	msg        wire.Message
}

type recorder chan heard

func (r recorder) Up(p *link.Peer)                    { r <- heard{"up", p.Name(), nil} }
func (r recorder) Frame(p *link.Peer, m wire.Message) { r <- heard{"frame", p.Name(), m} }
func (r recorder) Down(p *link.Peer, _ error)         { r <- heard{"down", p.Name(), nil} }

// site is a cluster's listener with everything real but the role.
type site struct {
	t    *testing.T
	auth *auth.Authority
	srv  *link.Server
	l    *Listener
	addr string
	rec  recorder
}

func newSite(t *testing.T) *site {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, rec: make(recorder, 4096)}
	if s.auth, err = auth.OpenAuthority(t.Context(), auth.AuthorityConfig{Site: "harbour", Tier: wire.TierCluster, Store: st}); err != nil {
		t.Fatal(err)
	}
	s.srv, err = link.NewServer(link.ServerConfig{TLS: s.auth.ServerTLS(), Identify: s.auth.Identify, Admit: s.auth.Admit, Handler: s.rec, ProbeTimeout: 10 * time.Second,
		Welcome: func(*link.Peer) (*wire.Welcome, error) {
			return &wire.Welcome{Tier: wire.TierCluster, Name: "harbour", Incarnation: "i1"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if s.l, err = New(Config{TLS: s.auth.ExternalTLS(), Identify: s.auth.Identify, Answer: s.auth.Answer, Carry: s.srv.Carry}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.l.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(s.l.Close(), <-served, s.srv.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) next(what string) heard {
	s.t.Helper()
	select {
	case h := <-s.rec:
		if h.what != what {
			s.t.Fatalf("got %+v, want %s", h, what)
		}
		return h
	case <-time.After(30 * time.Second):
		s.t.Fatalf("waited in vain for %s", what)
	}
	panic("unreachable")
}

// awaitReason waits until something was counted n times.
func (s *site) awaitReason(reason string, n int64) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); s.l.Stats().Reasons()[reason] < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s was not counted: %v", reason, s.l.Stats().Reasons())
		}
	}
}

// member joins over MQTT and gives what a device then has.
func (s *site) member(name string) tls.Certificate {
	s.t.Helper()
	token, _, err := s.auth.CreateToken(s.t.Context(), auth.TokenOptions{Tier: wire.TierWorker})
	if err != nil {
		s.t.Fatal(err)
	}
	key, csr := newKey(s.t)
	c := s.dial(nil, 4)
	c.subscribe("skerry/join/device/down", 0)
	c.publish("skerry/join/device/up", &wire.Join{Token: token, Tier: wire.TierWorker, Name: name, CSR: csr, Machine: "m-" + name})
	joined, ok := c.message().(*wire.Joined)
	if !ok || joined.Name != name || joined.Site != "harbour" {
		s.t.Fatalf("%+v", joined)
	}
	c.ended()
	return tls.Certificate{Certificate: [][]byte{joined.Certificate}, PrivateKey: key}
}

// client is a device.
type client struct {
	t    *testing.T
	v    byte
	conn *tls.Conn
}

func (s *site) dial(cert *tls.Certificate, version byte) *client {
	s.t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	conn, err := tls.Dial("tcp", s.addr, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{t: s.t, v: version, conn: conn}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	c.write(encode(kindConnect, 0, text("MQTT"), []byte{version, 2, 0, 30}, c.props(), text("any")))
	if p := c.read(); p.kind != kindConnack || p.body[1] != 0 {
		s.t.Fatalf("%+v", p)
	}
	return c
}

// props are empty properties in MQTT 5, and nothing in 3.1.1.
func (c *client) props() []byte {
	if c.v == 5 {
		return []byte{0}
	}
	return nil
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read() packet {
	c.t.Helper()
	p, err := readPacket(c.conn, limitOf(1<<24))
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// subscribe expects a code for one topic.
func (c *client) subscribe(topic string, code byte) {
	c.t.Helper()
	c.write(encode(kindSubscribe, 2, u16(9), c.props(), text(topic), []byte{1}))
	if p := c.read(); p.kind != kindSuback || p.body[len(p.body)-1] != code {
		c.t.Fatalf("subscribe %s: %+v, want code %#x", topic, p, code)
	}
}

func (c *client) publish(topic string, m wire.Message) {
	c.t.Helper()
	b, err := frame.EncodeJSON(m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(message(c.v == 5, topic, b))
}

func (c *client) message() wire.Message {
	c.t.Helper()
	p, err := parsePublish(c.read(), c.v == 5)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := frame.DecodeJSON(p.payload)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// ended expects nothing but the end of the connection, and in MQTT 5 a word before it.
func (c *client) ended() string {
	c.t.Helper()
	why := ""
	for {
		p, err := readPacket(c.conn, limitOf(1<<24))
		if err != nil {
			return why
		}
		if p.kind != kindDisconnect || c.v != 5 {
			c.t.Fatalf("%+v", p)
		}
		why = fmt.Sprintf("%#x %s", p.body[0], p.body)
	}
}

func hello(name string) *wire.Hello {
	return &wire.Hello{Tier: wire.TierWorker, Name: name, Version: "test", ProtocolMin: 1, ProtocolMax: 1, Boot: "b1", Machine: "m-" + name}
}

// up brings a device to where its session works.
func (s *site) up(cert tls.Certificate, name string, version byte) *client {
	s.t.Helper()
	c := s.dial(&cert, version)
	c.subscribe("skerry/"+name+"/down", 0)
	c.publish("skerry/"+name+"/up", hello(name))
	if w, ok := c.message().(*wire.Welcome); !ok || w.Protocol != 1 || w.Beat != 0 {
		s.t.Fatalf("%+v", w)
	}
	if h := s.next("up"); h.name != name {
		s.t.Fatalf("%+v", h)
	}
	return c
}

// TestSession takes a device of each version through a session.
func TestSession(t *testing.T) {
	s := newSite(t)
	for _, version := range []byte{4, 5} {
		name := fmt.Sprintf("w%d", version)
		c := s.up(s.member(name), name, version)

		c.publish("skerry/"+name+"/up", &wire.Report{Kind: "worker", Payload: []byte(`{"seq":1}`)})
		if r, ok := s.next("frame").msg.(*wire.Report); !ok || string(r.Payload) != `{"seq":1}` {
			t.Fatalf("%+v", r)
		}
		c.write(encode(kindPublish, 2, text("skerry/"+name+"/up"), u16(7), c.props(), []byte(`{"type":"set-ack","set":"desired","gen":3}`)))
		if a, ok := s.next("frame").msg.(*wire.SetAck); !ok || a.Gen != 3 {
			t.Fatalf("%+v", a)
		}
		if p := c.read(); p.kind != kindPuback || p.body[1] != 7 {
			t.Fatalf("%+v", p)
		}

		c.write(encode(kindPingreq, 0)) // answered by the session, behind the listener
		if p := c.read(); p.kind != kindPingresp {
			t.Fatalf("%+v", p)
		}
		peer := s.srv.Peer(wire.TierWorker, name)
		if peer == nil || peer.Hello().Carrier != wire.CarrierMQTT {
			t.Fatalf("%+v", peer)
		}
		if err := peer.Send(&wire.SetDelta{Set: "desired", Incarnation: "i1", Gen: 1, Items: []wire.SetItem{{Key: "k", Value: []byte(`{"a":1}`), Gen: 1}}}); err != nil {
			t.Fatal(err)
		}
		if d, ok := c.message().(*wire.SetDelta); !ok || string(d.Items[0].Value) != `{"a":1}` {
			t.Fatalf("%+v", d)
		}
		var refuse *wire.Refuse
		if _, err := peer.OpenStream(t.Context(), &wire.StreamHeader{Kind: "http"}); !errors.As(err, &refuse) || refuse.Code != wire.RefuseStreamKind {
			t.Fatalf("a stream: %v", err)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := peer.Ping(t.Context())
			asked <- err
		}()
		ping, ok := c.message().(*wire.Ping)
		if !ok {
			t.Fatal("no ping")
		}
		c.publish("skerry/"+name+"/up", &wire.Pong{Nonce: ping.Nonce})
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		c.write(encode(kindDisconnect, 0))
		s.next("down")
	}
	if n := s.l.Stats().Reasons()["closed"]; n != 2 {
		t.Errorf("%v", s.l.Stats().Reasons())
	}
}

// TestJoinAndRenew: a device without a certificate may join and nothing else; one with a certificate renews within its session.
func TestJoinAndRenew(t *testing.T) {
	s := newSite(t)
	c := s.dial(nil, 5)
	c.subscribe("skerry/join/device/down", 0)
	c.publish("skerry/join/device/up", hello("w1"))
	if r, ok := c.message().(*wire.Refuse); !ok || r.Code != wire.RefuseMalformed {
		t.Fatalf("Hello without a certificate: %+v", r)
	}
	c.ended()
	c = s.dial(nil, 5)
	c.subscribe("skerry/join/device/down", 0)
	c.publish("skerry/join/device/up", &wire.Join{Token: "skt1.worker.a.b.c", Tier: wire.TierWorker, Name: "w1"})
	if r, ok := c.message().(*wire.Refuse); !ok || r.Code != wire.RefuseMalformed {
		t.Fatalf("a token that is none: %+v", r)
	}
	c.ended()

	cert := s.member("w1")
	c = s.up(cert, "w1", 4)
	c.publish("skerry/w1/up", &wire.Renew{Counter: 1, Attempt: "a1", Machine: "m-w1", Boot: "b1"})
	j, ok := c.message().(*wire.Joined)
	if !ok || j.Counter != 2 {
		t.Fatalf("%+v", j)
	}
	c.publish("skerry/w1/up", &wire.Report{Kind: "worker"})
	s.next("frame") // the session goes on
	cert.Certificate = [][]byte{j.Certificate}
	c.conn.Close()
	s.next("down")
	s.up(cert, "w1", 4)

	if err := s.auth.Revoke(t.Context(), wire.TierWorker, "w1", "test", "stolen"); err != nil {
		t.Fatal(err)
	}
	s.srv.Disconnect(wire.TierWorker, "w1")
	s.next("down")
	c = s.dial(&cert, 4)
	c.subscribe("skerry/w1/down", 0)
	c.publish("skerry/w1/up", hello("w1"))
	if r, ok := c.message().(*wire.Refuse); !ok || r.Code != wire.RefuseRevoked {
		t.Fatalf("%+v", r)
	}
	c.ended()
}

// TestOthersTopics: a device reaches its own two topics and no other, whatever it tries.
func TestOthersTopics(t *testing.T) {
	s := newSite(t)
	victim := s.up(s.member("victim"), "victim", 4)
	cert := s.member("thief")
	for _, version := range []byte{4, 5} {
		denied := byte(0x80)
		if version == 5 {
			denied = codeNotAuthorised
		}
		c := s.dial(&cert, version)
		for _, topic := range []string{"skerry/victim/down", "skerry/victim/up", "skerry/+/down", "skerry/#", "#", "$SYS/#", "$share/g/skerry/thief/down", "skerry/thief/up", "skerry/join/device/down", "skerry/thief/down/x"} {
			c.subscribe(topic, denied)
		}
		c.subscribe("skerry/thief/down", 0)
		c.publish("skerry/victim/up", hello("victim"))
		if why := c.ended(); version == 5 && !strings.HasPrefix(why, "0x87") {
			t.Errorf("told %q", why)
		}
		c = s.dial(&cert, version)
		c.subscribe("skerry/thief/down", 0)
		c.publish("skerry/thief/up", hello("victim")) // its own topic, another's name
		if r, ok := c.message().(*wire.Refuse); !ok || r.Code != wire.RefuseIdentity {
			t.Fatalf("%+v", r)
		}
		c.ended()
	}
	if n := s.l.Stats().Reasons()["topic"]; n != 22 {
		t.Errorf("%d attempts counted, want 22", n)
	}
	victim.publish("skerry/victim/up", &wire.Report{Kind: "worker"})
	if h := s.next("frame"); h.name != "victim" {
		t.Errorf("%+v", h)
	}
}

// TestClone: a second live agent under one identity is found as on any link, and the first goes on.
func TestClone(t *testing.T) {
	s := newSite(t)
	cert := s.member("w1")
	first := s.up(cert, "w1", 4)
	c := s.dial(&cert, 4)
	c.subscribe("skerry/w1/down", 0)
	h := hello("w1")
	h.Boot, h.Machine = "b2", "a copy"
	c.publish("skerry/w1/up", h)
	ping, ok := first.message().(*wire.Ping)
	if !ok {
		t.Fatal("the first was not asked whether it lives")
	}
	first.publish("skerry/w1/up", &wire.Pong{Nonce: ping.Nonce})
	if r, ok := c.message().(*wire.Refuse); !ok || r.Code != wire.RefuseClone {
		t.Fatalf("%+v", r)
	}
	first.publish("skerry/w1/up", &wire.Report{Kind: "worker"})
	s.next("frame")
}

// TestBadInput: what makes no sense ends at most the connection that it came on, is counted, and in MQTT 5 is told.
func TestBadInput(t *testing.T) {
	s := newSite(t)
	cert := s.member("w1")
	const up, down = "skerry/w1/up", "skerry/w1/down"
	oversized := append([]byte{0x30}, appendVarint(nil, 16<<20)...)
	old := hello("w1")
	old.ProtocolMin, old.ProtocolMax = 9, 9
	for _, c := range []struct {
		name, reason string
		subscribed   bool
		welcomed     bool
		send         func(c *client)
		refuse       wire.RefuseCode
	}{
		{"half a message", "malformed", true, false, func(c *client) { c.write(message(true, up, []byte(`{"type":"hel`))) }, wire.RefuseMalformed},
		{"a wrong type", "malformed", true, true, func(c *client) { c.write(message(true, up, []byte(`{"type":"set-ack","gen":"x"}`))) }, wire.RefuseMalformed},
		{"a later protocol", "closed", true, false, func(c *client) { c.publish(up, old) }, wire.RefuseProtocol},
		{"not subscribed", "unsubscribed", false, false, func(c *client) { c.publish(up, hello("w1")) }, ""},
		{"no longer subscribed", "unsubscribed", true, true, func(c *client) { c.write(encode(kindUnsubscribe, 2, u16(3), []byte{0}, text(down))); c.read() }, ""},
		{"no Hello", "order", true, false, func(c *client) { c.publish(up, &wire.Report{Kind: "worker"}) }, wire.RefuseMalformed},
		{"two Hellos", "closed", true, true, func(c *client) { c.publish(up, hello("w1")) }, ""},
		{"Join in a session", "order", true, true, func(c *client) { c.publish(up, &wire.Join{Tier: wire.TierWorker}) }, wire.RefuseMalformed},
		{"Welcome from a device", "closed", true, true, func(c *client) { c.publish(up, &wire.Welcome{}) }, ""},
		{"an oversized packet", "too-large", true, true, func(c *client) { c.write(oversized) }, ""},
		{"more than a greeting", "too-large", true, false, func(c *client) { c.write(append([]byte{0x30}, appendVarint(nil, maxGreeting+1)...)) }, ""},
		{"quality of service 2", "malformed", true, true, func(c *client) { c.write(encode(kindPublish, 4, text(up), u16(1), []byte{0}, []byte("{}"))) }, ""},
		{"a retained message", "malformed", true, true, func(c *client) { c.write(encode(kindPublish, 1, text(up), []byte{0}, []byte("{}"))) }, ""},
		{"a second CONNECT", "order", true, true, func(c *client) { c.write(encode(kindConnect, 0, text("MQTT"), []byte{5, 2, 0, 30, 0}, text("x"))) }, ""},
		{"half a packet", "reset", true, true, func(c *client) { c.write([]byte{0x30, 9, 0}); c.conn.Close() }, ""},
	} {
		before := s.l.Stats().Reasons()[c.reason]
		k := s.dial(&cert, 5)
		if c.subscribed {
			k.subscribe(down, 0)
		}
		if c.welcomed {
			k.publish(up, hello("w1"))
			if _, ok := k.message().(*wire.Welcome); !ok {
				t.Fatalf("%s: no welcome", c.name)
			}
			s.next("up")
		}
		c.send(k)
		if c.refuse != "" {
			if r, ok := k.message().(*wire.Refuse); !ok || r.Code != c.refuse {
				t.Errorf("%s: %+v", c.name, r)
			}
		}
		k.ended()
		if c.welcomed {
			s.next("down")
		}
		s.awaitReason(c.reason, before+1)
	}
	k := s.up(cert, "w1", 5)
	k.write(message(true, up, []byte(`{"type":"of-a-later-version","x":1}`)))
	k.publish(up, &wire.Report{Kind: "worker"})
	s.next("frame") // that alone did not end it
	s.awaitReason("unknown-type", 1)
}

// TestStrangers: no TLS, no certificate of this site, no MQTT that is served, a last will.
func TestStrangers(t *testing.T) {
	s, other := newSite(t), newSite(t)
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(encode(kindConnect, 0, text("MQTT"), []byte{4, 2, 0, 30}, text("x"))); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("handshake", 1)

	cert := other.member("w1")
	strange, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}})
	if err == nil { // in TLS 1.3 the client is done before it hears
		strange.SetDeadline(time.Now().Add(time.Minute))
		if _, err = strange.Read(make([]byte, 1)); err == nil {
			t.Error("a certificate of another site passes")
		}
		strange.Close()
	}
	s.awaitReason("handshake", 2)

	for _, c := range []struct {
		reason string
		packet []byte
		answer []byte
	}{
		{"version", encode(kindConnect, 0, text("MQIsdp"), []byte{3, 2, 0, 30}, text("x")), []byte{0, 1}},
		{"version", encode(kindConnect, 0, text("MQTT"), []byte{6, 2, 0, 30}, text("x")), []byte{0, 0x84, 0}},
		{"will", encode(kindConnect, 0, text("MQTT"), []byte{4, 6, 0, 30}, text("x"), text("skerry/w1/down"), text("bye")), []byte{0, 5}},
	} {
		before := s.l.Stats().Reasons()[c.reason]
		conn, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		k := &client{t: t, v: 4, conn: conn}
		k.write(c.packet)
		if p := k.read(); p.kind != kindConnack || string(p.body) != string(c.answer) {
			t.Errorf("%s: %+v", c.reason, p)
		}
		s.awaitReason(c.reason, before+1)
		conn.Close()
	}
}

// TestPendingAreEvicted: who does not come to the point makes place, and devices that work stay.
func TestPendingAreEvicted(t *testing.T) {
	s := newSite(t)
	k := s.up(s.member("w1"), "w1", 4)
	for range maxPending + 5 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	s.awaitReason("evicted", 5)
	k.publish("skerry/w1/up", &wire.Report{Kind: "worker"})
	s.next("frame")
}

// TestFlood: a device that sends without end is slowed down, and nothing of it is lost or kept.
func TestFlood(t *testing.T) {
	s := newSite(t)
	k := s.up(s.member("w1"), "w1", 4)
	begun, n := time.Now(), 3*packetRate
	done := make(chan error, 1)
	go func() {
		b := message(false, "skerry/w1/up", []byte(`{"type":"report","kind":"worker"}`))
		var err error
		for i := 0; i < n && err == nil; i++ {
			_, err = k.conn.Write(b)
		}
		done <- err
	}()
	for range n {
		s.next("frame")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rate := float64(n) / time.Since(begun).Seconds(); rate > 1.3*packetRate {
		t.Errorf("%.0f messages a second", rate)
	}
}

// TestDeafDevice: one that does not read loses its connection when its line is full, and nobody waits for it.
func TestDeafDevice(t *testing.T) {
	s := newSite(t)
	s.up(s.member("deaf"), "deaf", 4)
	other := s.up(s.member("other"), "other", 4)
	chunk := &wire.SetChunk{Set: "desired", Incarnation: "i1", Gen: 1, Items: []wire.SetItem{{Key: "k", Value: []byte(`{"a":"` + strings.Repeat("x", 190<<10) + `"}`)}}}
	peer := s.srv.Peer(wire.TierWorker, "deaf")
	var err error
	for n := 0; err == nil; n++ {
		if n > 1000 {
			t.Fatal("200 MB are in line for a device that does not read")
		}
		err = peer.Send(chunk)
	}
	var le *link.Error
	if !errors.As(err, &le) || le.Reason != link.ReasonQueueFull {
		t.Errorf("%v", err)
	}
	if h := s.next("down"); h.name != "deaf" {
		t.Errorf("%+v", h)
	}
	other.publish("skerry/other/up", &wire.Report{Kind: "worker"})
	if h := s.next("frame"); h.name != "other" {
		t.Errorf("%+v", h)
	}
}
