package relay

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// worker is a worker's end, done plainly.
type worker struct {
	t       testing.TB
	id      wire.PeerID
	key     [32]byte
	conn    *net.UDPConn
	in, out *frame.Tagger
	scratch frame.Scratch
}

func newWorker(t testing.TB, s *Server, id wire.PeerID) *worker {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.UDP()))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	w := &worker{t: t, id: id, key: key(id), conn: c}
	w.in, w.out = frame.NewTagger(w.key, false), frame.NewTagger(w.key, true)
	return w
}

func key(id wire.PeerID) [32]byte { return [32]byte{byte(id), 7} }

func (w *worker) read() []byte {
	w.t.Helper()
	b := make([]byte, 2000)
	_ = w.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := w.conn.Read(b)
	must(w.t, err)
	return b[:n]
}

// silent says that nothing comes: what the relay does with later things shows that it has done with earlier ones.
func (w *worker) silent() {
	w.t.Helper()
	w.register()
}

func (w *worker) ask(r frame.Register) frame.Register {
	w.t.Helper()
	_, err := w.conn.Write(r.Append(nil, w.key))
	must(w.t, err)
	b := w.read()
	a, ok := frame.ParseRegister(b)
	if !ok || !a.Answer || a.Nonce != r.Nonce || a.Peer != w.id || !frame.CheckRegister(b, w.key) {
		w.t.Fatalf("%v %+v", ok, a)
	}
	return a
}

func (w *worker) register() frame.Register {
	w.t.Helper()
	a := w.ask(frame.Register{Peer: w.id, Nonce: 1})
	if a.Done {
		w.t.Error("registered without a proof of its address")
	}
	a = w.ask(frame.Register{Peer: w.id, Nonce: 2, Cookie: a.Cookie})
	if !a.Done || a.Addr != w.conn.LocalAddr().(*net.UDPAddr).AddrPort() {
		w.t.Errorf("%+v", a)
	}
	return a
}

func (w *worker) datagram(dst wire.PeerID, payload string) []byte {
	b := append(make([]byte, frame.DataLen), payload...)
	w.out.Put(b, 0, dst, w.id, &w.scratch)
	return b
}

func (w *worker) send(dst wire.PeerID, payload string) {
	w.t.Helper()
	_, err := w.conn.Write(w.datagram(dst, payload))
	must(w.t, err)
}

// expect takes the next datagram.
func (w *worker) expect(src wire.PeerID, payload string) {
	w.t.Helper()
	b := w.read()
	_, d, s, ok := frame.Parse(b)
	if !ok || d != w.id || s != src || !w.in.Check(b, &w.scratch) || string(b[frame.DataLen:]) != payload {
		w.t.Fatalf("%v: from %d to %d: %q; want %q from %d", ok, s, d, b[min(len(b), frame.DataLen):], payload, src)
	}
}

func open(t testing.TB, name string, c wire.RelayConfig) *Server {
	t.Helper()
	s, err := New(Options{Name: name, UDP: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Set(c))
	return s
}

func of(ids ...wire.PeerID) (c wire.RelayConfig) {
	for _, id := range ids {
		c.Workers = append(c.Workers, wire.RelayWorker{ID: id, Keys: [][32]byte{key(id)}})
	}
	return c
}

func TestForward(t *testing.T) {
	s := open(t, "r", of(1, 2, 3))
	a, b := newWorker(t, s, 1), newWorker(t, s, 2)
	a.send(2, "before it is registered")
	a.register()
	a.send(2, "before the other is registered")
	b.register()
	a.send(2, "hello, hello, hello")
	b.expect(1, "hello, hello, hello")
	b.send(1, "hello yourself")
	a.expect(2, "hello yourself")

	// What must not pass: a wrong tag, another's name, oneself, nobody, too many hops, too short, another key.
	bad := a.datagram(2, "a wrong tag, is it not")
	bad[3] ^= 1
	_, _ = a.conn.Write(bad)
	bad = a.datagram(2, "a payload of another datagram")
	bad[frame.DataLen+9] ^= 1 // the counter
	_, _ = a.conn.Write(bad)
	bad = append(make([]byte, frame.DataLen), "in the name of another"...)
	a.out.Put(bad, 0, 2, 3, &a.scratch)
	_, _ = a.conn.Write(bad)
	a.send(1, "to oneself, what for")
	a.send(9, "to nobody at all, so")
	bad = append(make([]byte, frame.DataLen), "has come a long way"...)
	a.out.Put(bad, maxHops, 2, 1, &a.scratch)
	_, _ = a.conn.Write(bad)
	_, _ = a.conn.Write(a.datagram(2, "short"))
	a.send(2, "and then a good one")
	b.expect(1, "and then a good one")
	st := s.Stats()
	c := st.Counters
	if st.Registered != 2 || c["forwarded"] != 3 || c["drop-forged"] != 2 || c["drop-no-route"] != 4 || c["drop-malformed"] != 1 || c["drop-away"] != 1 || c["drop-stranger"] != 1 {
		t.Errorf("%+v", st)
	}

	// Another address: the old one is forgotten.
	b2 := newWorker(t, s, 2)
	b2.register()
	a.send(2, "to the new address")
	b2.expect(1, "to the new address")
	b.send(1, "from the old address")
	b2.send(1, "from the new address")
	a.expect(2, "from the new address")

	// Keys are rotated without a break, and taken away.
	cfg := of(1, 2)
	cfg.Workers[0].Keys = [][32]byte{{99}, key(1)}
	must(t, s.Set(cfg))
	a.send(2, "with two keys there")
	b2.expect(1, "with two keys there")
	must(t, s.Set(of(2)))
	a.send(2, "no longer a member")
	b2.silent()
}

func TestStrangersGetNothing(t *testing.T) {
	s := open(t, "r", of(1))
	w := newWorker(t, s, 2) // not a member
	x := newWorker(t, s, 1)
	x.key = [32]byte{5} // a member's name without its key
	for _, b := range [][]byte{
		frame.Register{Peer: 2, Nonce: 1}.Append(nil, w.key),
		frame.Register{Peer: 1, Nonce: 1}.Append(nil, x.key),
		frame.Register{Peer: 1, Nonce: 1, Answer: true}.Append(nil, key(1)),
		[]byte("hello"), {}, {frame.TypeRegister}, bytes.Repeat([]byte{frame.TypeData}, 100),
	} {
		_, _ = w.conn.Write(b)
	}
	good := newWorker(t, s, 1)
	a := good.register()
	// Somebody saw the registration go by, and sends it again from elsewhere.
	_, _ = w.conn.Write(frame.Register{Peer: 1, Nonce: 2, Cookie: a.Cookie}.Append(nil, good.key))
	b := make([]byte, 200)
	_ = w.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := w.conn.Read(b)
	if r, ok := frame.ParseRegister(b[:n]); err != nil || !ok || r.Done {
		t.Errorf("a replay: %+v, %v", r, err)
	}
	if st := s.Stats(); st.Registered != 1 {
		t.Errorf("%+v", st)
	}
}

func TestRate(t *testing.T) {
	c := of(1, 2)
	c.Workers[0].Rate = 3 << 20
	s := open(t, "r", c)
	a, b := newWorker(t, s, 1), newWorker(t, s, 2)
	a.register()
	b.register()
	payload := strings.Repeat("x", 1400)
	for range 1000 {
		a.send(2, payload)
	}
	a.silent()
	if n := s.Stats().Counters; n["drop-rate"] == 0 || n["forwarded"] < 200 {
		t.Errorf("%v", n)
	}
}

// TestTwoSites has workers of two sites speak by way of both relays. Each site has its own numbers: there is a worker 1 in
// both.
func TestTwoSites(t *testing.T) {
	k := [32]byte{77}
	r, q := open(t, "r", wire.RelayConfig{}), open(t, "q", wire.RelayConfig{})
	cr, cq := of(1, 2), of(1)
	cr.Relays = []wire.RelaySite{{Name: "q", Addr: q.UDP(), Key: k}}
	cr.Routes = []wire.RelayRoute{{ID: 1001, Relay: "q", Remote: 1}}
	cq.Relays = []wire.RelaySite{{Name: "r", Addr: r.UDP(), Key: k}}
	cq.Routes = []wire.RelayRoute{{ID: 501, Relay: "r", Remote: 1}}
	must(t, r.Set(cr))
	must(t, q.Set(cq))
	a, b, c := newWorker(t, r, 1), newWorker(t, q, 1), newWorker(t, r, 2)
	a.register()
	b.register()
	c.register()
	a.send(1001, "from one site to another")
	b.expect(501, "from one site to another")
	b.send(501, "and back to where it came from")
	a.expect(1001, "and back to where it came from")
	// One whom the other site has not named does not get through.
	c.send(1001, "nobody knows me over there")
	a.send(1001, "but me they know over there")
	b.expect(501, "but me they know over there")
	if n := q.Stats().Counters["drop-no-route"]; n != 1 {
		t.Errorf("%v", q.Stats())
	}
}

// TestRelayBehindNAT has a relay that is not where its configuration says, because a NAT lies before it, call the other one,
// which then reaches it there.
func TestRelayBehindNAT(t *testing.T) {
	k := [32]byte{77}
	r, q := open(t, "r", wire.RelayConfig{}), open(t, "q", wire.RelayConfig{})
	cr, cq := of(1), of(1)
	inside := netip.MustParseAddrPort("127.0.0.9:9") // where nobody is, as seen from r
	cr.Relays = []wire.RelaySite{{Name: "q", Addr: inside, Key: k}}
	cr.Routes = []wire.RelayRoute{{ID: 1001, Relay: "q", Remote: 1}}
	cq.Relays = []wire.RelaySite{{Name: "r", Addr: r.UDP(), Key: k}}
	cq.Routes = []wire.RelayRoute{{ID: 501, Relay: "r", Remote: 1}}
	must(t, r.Set(cr))
	must(t, q.Set(cq))
	a, b := newWorker(t, r, 1), newWorker(t, q, 1)
	a.register()
	b.register()
	at := func() netip.AddrPort {
		r.table.RLock()
		defer r.table.RUnlock()
		return r.table.relays["q"].place(time.Now()).addr
	}
	for end := time.Now().Add(20 * time.Second); at() != q.UDP(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the relay is looked for at %s", at())
		}
	}
	a.send(1001, "to who called from there")
	b.expect(501, "to who called from there")
	b.send(501, "and from who called from there")
	a.expect(1001, "and from who called from there")
	// A configuration that comes again changes nothing; another key does.
	must(t, r.Set(cr))
	a.send(1001, "that is there as before")
	b.expect(501, "that is there as before")

	// Who plays a registration again from elsewhere is asked for a cookie that he cannot have, and who sends it back to where
	// it came from is not heard.
	question := frame.Register{Relay: true, Peer: frame.RelayTag("q"), Nonce: 9}.Append(nil, frame.RelayKey(k, "q"))
	thief := netip.MustParseAddrPort("127.0.0.66:66")
	answer := r.table.register(question, thief, nil, time.Now())
	if got, ok := frame.ParseRegister(answer); !ok || got.Done || !got.Relay || at() != q.UDP() {
		t.Errorf("%+v, at %s", got, at())
	}
	if answer := q.table.register(question, thief, nil, time.Now()); answer != nil {
		t.Error("a relay answers its own question")
	}
	if _, _, ok := q.calls.answered(answer, r.UDP(), time.Now(), q.own); ok {
		t.Error("an answer to a question that was not asked is taken")
	}
	worker := frame.Register{Peer: frame.RelayTag("q"), Nonce: 9}.Append(nil, frame.RelayKey(k, "q"))
	if r.table.register(worker, thief, nil, time.Now()) != nil {
		t.Error("a relay's key is a worker's")
	}
	// A registration ends, and the relay is at home again.
	if p := r.table.relays["q"].place(time.Now().Add(2 * life)); p.addr != inside {
		t.Errorf("after the end of its registration it is at %s", p.addr)
	}
	r.table.sweep(time.Now().Add(2 * life))
	if r.table.at[q.UDP()] != nil || r.table.at[inside] == nil {
		t.Errorf("%v", r.table.at)
	}
	cr.Relays[0].Key = [32]byte{78}
	must(t, r.Set(cr))
	if at() != inside {
		t.Errorf("registered with another key, at %s", at())
	}
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]wire.RelayConfig{
		"workers[0].id":   {Workers: []wire.RelayWorker{{}}},
		"workers[1].id":   of(1, 1),
		"workers[0].keys": {Workers: []wire.RelayWorker{{ID: 1}}},
		"relays[0].name":  {Relays: []wire.RelaySite{{}}},
		"relays[0]: x":    {Relays: []wire.RelaySite{{Name: "x"}}},
		"routes[0].id":    {Workers: of(1).Workers, Routes: []wire.RelayRoute{{ID: 1}}},
		"routes[0].relay": {Routes: []wire.RelayRoute{{ID: 1, Relay: "x"}}},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	s, err := New(Options{Name: "r", UDP: netip.MustParseAddrPort("127.0.0.1:0")})
	must(f, err)
	f.Cleanup(func() { s.Close() })
	conf := of(1, 2)
	conf.Relays = []wire.RelaySite{{Name: "q", Addr: netip.MustParseAddrPort("127.0.0.1:9"), Key: key(9)}}
	must(f, s.Set(conf))
	w := &worker{t: f, id: 1, key: key(1), in: frame.NewTagger(key(1), false), out: frame.NewTagger(key(1), true)}
	from := netip.MustParseAddrPort("127.0.0.1:9")
	for _, id := range []wire.PeerID{1, 2} {
		m := s.table.workers[id]
		m.current.Store(&place{addr: from, until: time.Now().Add(time.Hour)})
	}
	s.table.at[from] = s.table.workers[1]
	f.Add(w.datagram(2, "hello, hello"), 28)
	f.Add(append(w.datagram(2, "hello, hello"), w.datagram(2, "hello, hello")...), 28)
	f.Add(frame.Register{Peer: 1, Nonce: 3}.Append(nil, key(1)), 80)
	f.Add(frame.Register{Relay: true, Peer: frame.RelayTag("q"), Nonce: 3}.Append(nil, frame.RelayKey(key(9), "q")), 80)
	f.Add(frame.Register{Relay: true, Answer: true, Peer: frame.RelayTag("r"), Nonce: 3}.Append(nil, frame.RelayKey(key(9), "r")), 80)
	f.Fuzz(func(t *testing.T, b []byte, seg int) {
		fw := s.newForwarder()
		fw.message(from, bytes.Clone(b), min(max(seg, 1), 1<<16))
	})
}

func FuzzStream(f *testing.F) {
	s, err := New(Options{Name: "r", UDP: netip.MustParseAddrPort("127.0.0.1:0")})
	must(f, err)
	f.Cleanup(func() { s.Close() })
	must(f, s.Set(of(1, 2)))
	reg := frame.Register{Peer: 1, Nonce: 3}.Append(nil, key(1))
	f.Add(append(frame.AppendLength(nil, len(reg)), reg...))
	f.Add([]byte{0, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, y := net.Pipe()
		defer x.Close()
		defer y.Close()
		st := &stream{conn: tls.Client(x, &tls.Config{}), raw: x, end: make(chan struct{}), ready: make(chan struct{}, 1)}
		fw := s.newForwarder()
		fw.now = time.Now()
		left, err := fw.frames(st, netip.MustParseAddrPort("127.0.0.1:9"), bytes.Clone(b))
		if err == nil && len(left) > frame.StreamLen+frame.DataLen+frame.MaxPayload {
			t.Fatalf("%d bytes are left", len(left))
		}
	})
}

// TestTogether has a registration come in one buffer with data, as the kernel joins them when there is much.
func TestTogether(t *testing.T) {
	s := open(t, "r", of(1, 2))
	a, b := newWorker(t, s, 1), newWorker(t, s, 2)
	a.register()
	b.register()
	payload := strings.Repeat("long ", 100)
	one := a.datagram(2, payload)
	all := append(append([]byte(nil), one...), a.datagram(2, payload)...)
	all = append(all, frame.Register{Peer: 1, Nonce: 77}.Append(nil, a.key)...)
	from := a.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.newForwarder().message(from, all, len(one))
	b.expect(1, payload)
	b.expect(1, payload)
	if r, ok := frame.ParseRegister(a.read()); !ok || !r.Answer || r.Nonce != 77 {
		t.Errorf("%v %+v", ok, r)
	}
	if n := s.Stats().Counters["drop-malformed"]; n != 0 {
		t.Errorf("%d were taken for nothing", n)
	}
}
