//go:build linux

package tunnel

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// seen is the dumb twin of window.
type seen struct {
	top uint64
	all map[uint64]bool
}

func (s *seen) fresh(c uint64) bool {
	return !s.all[c] && (c > s.top || s.top-c < windowBits)
}

func TestWindow(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w window
		twin := seen{all: map[uint64]bool{}}
		c := uint64(0)
		for i := range 30000 {
			switch r.IntN(10) {
			case 0:
				c = twin.top - min(twin.top, uint64(r.IntN(2*windowBits)))
			case 1:
				c = twin.top + uint64(r.IntN(3*windowBits))
			case 2:
				c = twin.top - min(twin.top, uint64(r.IntN(3))+windowBits-2)
			default:
				c = twin.top + uint64(r.IntN(4))
			}
			want, got := twin.fresh(c), w.fresh(c)
			if len(twin.all) == 0 {
				want = true
			}
			if want != got {
				t.Fatalf("seed %d step %d: counter %d after %d: %v, want %v", seed, i, c, twin.top, got, want)
			}
			if want {
				w.mark(c)
				twin.all[c] = true
				twin.top = max(twin.top, c)
			}
		}
	}
}

// segment describes a frame of the tap for tests.
type segment struct {
	v6, udp  bool
	seq      uint32
	pay      []byte
	gso      int
	flags    byte
	options  []byte // of TCP
	complete bool   // the checksum is complete; only without gso
	port     uint16
	net      wire.NetworkID
	id       uint16
	noDF     bool
}

// frame builds it as an instance's kernel would.
func (s segment) frame() []byte {
	ipLen, l4Len, proto := 20, 20+len(s.options), byte(protoTCP)
	if s.v6 {
		ipLen = 40
	}
	if s.udp {
		l4Len, proto = 8, protoUDP
	}
	f := make([]byte, frameLen+ipLen+l4Len, frameLen+ipLen+l4Len+len(s.pay))
	f = append(f, s.pay...)
	putLabel(f[vnetLen:], label{peer: 7, net: s.net}, s.v6)
	ip := f[frameLen:]
	if s.v6 {
		ip[0], ip[6], ip[7] = 0x60, proto, 64
		copy(ip[8:], netip.MustParseAddr("fd00::1").AsSlice())
		copy(ip[24:], netip.MustParseAddr("fd00::2").AsSlice())
	} else {
		ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, proto
		if s.noDF {
			ip[6] = 0
		}
		binary.BigEndian.PutUint16(ip[4:], s.id)
		copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	}
	setLength(ip, s.v6, len(ip))
	l4 := ip[ipLen:]
	binary.BigEndian.PutUint16(l4, 1000+s.port)
	binary.BigEndian.PutUint16(l4[2:], 80)
	at := csumAt(proto)
	if s.udp {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else {
		binary.BigEndian.PutUint32(l4[4:], s.seq)
		l4[12], l4[13] = byte(l4Len/4<<4), s.flags
		binary.BigEndian.PutUint16(l4[14:], 500)
		copy(l4[20:], s.options)
	}
	binary.BigEndian.PutUint16(l4[at:], fold(sumAddrs(ip, s.v6, proto)+uint64(len(l4))))
	if s.complete {
		binary.BigEndian.PutUint16(l4[at:], ^fold(sum(l4, 0)))
		return f
	}
	f[0] = vnetNeedsCsum
	binary.NativeEndian.PutUint16(f[6:], uint16(etherLen+ipLen))
	binary.NativeEndian.PutUint16(f[8:], uint16(at))
	if s.gso > 0 {
		f[1] = gsoTCP4
		if s.v6 {
			f[1] = gsoTCP6
		}
		if s.udp {
			f[1] = gsoUDP
		}
		binary.NativeEndian.PutUint16(f[2:], uint16(etherLen+ipLen+l4Len))
		binary.NativeEndian.PutUint16(f[4:], uint16(s.gso))
	}
	return f
}

func payload(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// cut is the dumb twin of splitter: the packets that a frame stands for, written plainly.
func cut(s segment) (out []segment) {
	if s.gso == 0 || len(s.pay) <= s.gso {
		s.gso = 0
		return []segment{s}
	}
	for from := 0; from < len(s.pay); from += s.gso {
		c := s
		c.gso = 0
		c.pay = s.pay[from:min(from+s.gso, len(s.pay))]
		c.id = s.id + uint16(from/s.gso)
		if !s.udp {
			c.seq = s.seq + uint32(from)
			if from > 0 {
				c.flags &^= tcpCWR
			}
			if from+s.gso < len(s.pay) {
				c.flags &^= tcpFIN | tcpPSH
			}
		}
		out = append(out, c)
	}
	return out
}

// plaintext is what is sealed of a frame that needs no cutting.
func plaintext(s segment) []byte {
	f := s.frame()
	b := append([]byte{0, 0, 0, 0, 0}, f[frameLen:]...)
	if !s.complete {
		b[0] = flagPartial
	}
	binary.BigEndian.PutUint32(b[1:], uint32(s.net))
	return b
}

func randomSegment(r *rand.Rand, i int) segment {
	s := segment{v6: r.IntN(2) == 0, udp: r.IntN(3) == 0, seq: r.Uint32(), flags: tcpACK, net: 3, id: uint16(r.Uint32()), port: uint16(r.IntN(3))}
	if r.IntN(3) == 0 {
		s.options = payload(4*r.IntN(11), uint64(i))
	}
	if r.IntN(3) == 0 {
		s.flags |= []byte{tcpPSH, tcpFIN, tcpCWR, 2, 4, 0x40}[r.IntN(6)]
	}
	switch r.IntN(4) {
	case 0:
		s.pay = payload(r.IntN(1400), uint64(i))
		s.complete = r.IntN(2) == 0
	default:
		s.gso = 1 + r.IntN(1400)
		s.pay = payload(1+r.IntN(min(60000, s.gso*100)), uint64(i))
	}
	return s
}

func TestSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var sp splitter
	for i := range 3000 {
		s := randomSegment(r, i)
		var want [][]byte
		for _, c := range cut(s) {
			want = append(want, plaintext(c))
		}
		if err := sp.begin(s.frame()); err != nil {
			t.Fatalf("%d: %+v: %v", i, s, err)
		}
		if sp.label.peer != 7 || sp.label.net != 3 || sp.left() != len(want) || sp.size != len(want[0]) || sp.last != len(want[len(want)-1]) {
			t.Fatalf("%d: %d packets of %d, last %d; want %d of %d, last %d", i, sp.left(), sp.size, sp.last, len(want), len(want[0]), len(want[len(want)-1]))
		}
		for j, w := range want {
			if got := sp.next(); !bytes.Equal(got, w) {
				t.Fatalf("%d: packet %d of %+v:\n%x\nnot\n%x", i, j, s, got[:min(len(got), 90)], w[:min(len(w), 90)])
			}
		}
		if sp.next() != nil {
			t.Fatal("a packet too many")
		}
	}
}

func TestSplitCompletesChecksums(t *testing.T) {
	// The kernel may leave checksums open that the receiver cannot finish, here of a packet whose header has options.
	s := segment{pay: payload(100, 1), flags: tcpACK}
	f := s.frame()
	f[6] = etherLen // the checksum of all of the packet, at an odd place
	binary.NativeEndian.PutUint16(f[8:], 20+16)
	f[6] = etherLen + 20
	binary.NativeEndian.PutUint16(f[8:], 18) // not where TCP's is
	var sp splitter
	must(t, sp.begin(f))
	b := sp.next()
	if b[0] != 0 {
		t.Error("left open")
	}
	want := s.frame()[frameLen:]
	binary.BigEndian.PutUint16(want[20+18:], ^fold(sum(want[20:], 0)))
	if !bytes.Equal(b[metaLen:], want) {
		t.Errorf("%x\n%x", b[metaLen:], want)
	}
}

// TestJoin has packets pass with loss and in other orders, and cuts what the merger joined: the same packets must come out,
// those of each flow in the order in which they came.
func TestJoin(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var in []segment
		next := map[uint16]uint32{}
		for range 1 + r.IntN(12) {
			s := randomSegment(r, r.IntN(1000))
			s.complete = s.complete && s.gso == 0
			s.v6, s.udp = s.port == 1, s.port == 2
			s.net = wire.NetworkID(1 + r.IntN(2))
			s.noDF = r.IntN(4) == 0
			if !s.udp && r.IntN(4) > 0 {
				s.seq, s.flags, s.options = next[s.port], tcpACK, nil
			}
			in = append(in, cut(s)...)
			next[s.port] = s.seq + uint32(len(s.pay))
		}
		var pkts []segment
		for _, s := range in {
			if r.IntN(20) == 0 {
				continue // lost
			}
			pkts = append(pkts, s)
			if n := len(pkts); r.IntN(15) == 0 && n > 1 {
				pkts[n-1], pkts[n-2] = pkts[n-2], pkts[n-1]
			}
		}
		var out [][]byte
		frames := 0
		m := merger{write: func(iov [][]byte) {
			frames++
			f := bytes.Join(iov, nil)
			var sp splitter
			if err := sp.begin(f); err != nil {
				t.Fatalf("seed %d: what was written is no frame: %v", seed, err)
			}
			if sp.label.peer != 9 || int(sp.ip.total) != len(f)-frameLen {
				t.Fatalf("seed %d: %+v", seed, sp.label)
			}
			for b := sp.next(); b != nil; b = sp.next() {
				out = append(out, bytes.Clone(b))
			}
		}}
		flows := func(list [][]byte) map[string][][]byte {
			got := map[string][][]byte{}
			for _, b := range list {
				b = bytes.Clone(b)
				l4 := 20
				if b[metaLen]>>4 == 6 {
					l4 = 40
				} else if b[metaLen+6]&0x40 != 0 {
					copy(b[metaLen+4:], []byte{0, 0}) // with DF it means nothing
					setLength(b[metaLen:], false, len(b)-metaLen)
				}
				k := string(b[1:5]) + string(b[metaLen+l4:metaLen+l4+4])
				got[k] = append(got[k], b)
			}
			return got
		}
		var sent [][]byte
		for i, s := range pkts {
			b := plaintext(s)
			sent = append(sent, bytes.Clone(b))
			if !m.add(9, b) {
				t.Fatalf("seed %d: refused %+v", seed, s)
			}
			if r.IntN(50) == 0 || i == len(pkts)-1 {
				m.flush()
			}
		}
		want, got := flows(sent), flows(out)
		for k, w := range want {
			if !slices.EqualFunc(w, got[k], bytes.Equal) {
				for i := range w {
					if i >= len(got[k]) || !bytes.Equal(w[i], got[k][i]) {
						t.Fatalf("seed %d: %d packets of a flow became %d; the first that differs is %d:\n%x\n%x", seed, len(w), len(got[k]), i, w[i][:60], got[k][min(i, len(got[k])-1)][:60])
					}
				}
				t.Fatalf("seed %d: %d packets of a flow became %d", seed, len(w), len(got[k]))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d flows became %d", seed, len(want), len(got))
		}
	}
}

func TestJoinMakesLargeSegments(t *testing.T) {
	s := segment{pay: payload(60000, 1), gso: 1352, flags: tcpACK | tcpPSH, seq: 1 << 31, options: make([]byte, 12)}
	count := func(list []segment) (sizes []int) {
		m := merger{write: func(iov [][]byte) { sizes = append(sizes, len(iov)-1) }}
		for _, c := range list {
			m.add(9, plaintext(c))
		}
		m.flush()
		return sizes
	}
	all := cut(s)
	if got := count(all); !slices.Equal(got, []int{len(all)}) {
		t.Errorf("%v, not %d", got, len(all))
	}
	// One lost: two runs.
	if got := count(slices.Delete(slices.Clone(all), 10, 11)); !slices.Equal(got, []int{10, len(all) - 11}) {
		t.Error(got)
	}
	// Two flows, one packet each in turn.
	o := s
	o.port = 2
	var both []segment
	for i, c := range cut(o) {
		both = append(both, all[i], c)
	}
	if got := count(both); !slices.Equal(got, []int{len(all), len(all)}) {
		t.Error(got)
	}
}

func ids(t testing.TB) (a, b identity) {
	t.Helper()
	var err error
	a, err = newIdentity(Secret{8})
	must(t, err)
	b, err = newIdentity(Secret{16})
	must(t, err)
	return a, b
}

// shake makes two sessions that belong together.
func shake(t testing.TB, aesA, aesB bool) (sa, sb *session) {
	t.Helper()
	a, b := ids(t)
	m1, at, err := a.initiate(b.public, 11, 5, aesA)
	must(t, err)
	m1, _ = addMACs(m1, b.public, nil)
	if !checkMAC1(m1, b.public) || checkMAC1(m1, a.public) {
		t.Fatal("the first code")
	}
	o, err := b.receive(m1)
	must(t, err)
	if o.peer != a.public || o.stamp != 5 || o.remote != 11 || o.aes != aesA {
		t.Fatalf("%+v", o)
	}
	m2, sb, err := o.respond(22, aesB)
	must(t, err)
	m2, _ = addMACs(m2, a.public, nil)
	sa, err = at.finish(m2, aesA)
	must(t, err)
	return sa, sb
}

func TestHandshake(t *testing.T) {
	for _, c := range []struct {
		a, b bool
		want suite
	}{{true, true, suiteAES}, {true, false, suiteChaCha}, {false, true, suiteChaCha}, {false, false, suiteChaCha}} {
		sa, sb := shake(t, c.a, c.b)
		if sa.suite != c.want || sb.suite != c.want || sa.remote != 22 || sb.remote != 11 || sa.local != 11 || sb.local != 22 {
			t.Errorf("%+v: %v %v", c, sa.suite, sb.suite)
		}
		var nonce [12]byte
		for _, d := range [][2]*session{{sa, sb}, {sb, sa}} {
			msg := d[0].seal(make([]byte, 0, 200), &nonce, typeData, 3, []byte("hello"))
			if len(msg) != headerLen+5+tagLen {
				t.Error(len(msg))
			}
			again := bytes.Clone(msg)
			for i := range msg { // every bit counts
				bad := bytes.Clone(msg)
				bad[i] ^= 1
				if _, _, ok := d[1].open(&nonce, bad); ok {
					t.Errorf("byte %d may be changed", i)
				}
			}
			pkt, newest, ok := d[1].open(&nonce, msg)
			if !ok || !newest || string(pkt) != "hello" {
				t.Errorf("%q %v %v", pkt, newest, ok)
			}
			if _, _, ok := d[1].open(&nonce, again); ok {
				t.Error("taken twice")
			}
			older := d[0].seal(make([]byte, 0, 200), &nonce, typeData, 1, []byte("older"))
			if _, newest, ok := d[1].open(&nonce, older); !ok || newest {
				t.Error("an older one", ok, newest)
			}
		}
	}
}

func TestHostileHandshakes(t *testing.T) {
	a, b := ids(t)
	m1, at, err := a.initiate(b.public, 11, 5, true)
	must(t, err)
	m1, _ = addMACs(m1, b.public, nil)
	for i := range m1[:len(m1)-2*macLen] {
		bad := bytes.Clone(m1)
		bad[i] ^= 1
		if checkMAC1(bad, b.public) {
			t.Errorf("byte %d is not covered by the code", i)
		}
		if _, err := b.receive(bad); err == nil && i >= hsHeader {
			t.Errorf("byte %d may be changed", i)
		}
	}
	if _, err := a.receive(m1); err == nil {
		t.Error("it was not for a")
	}
	o, err := b.receive(m1)
	must(t, err)
	m2, _, err := o.respond(22, true)
	must(t, err)
	m2, _ = addMACs(m2, a.public, nil)
	for _, i := range []int{respHeader, respHeader + 33, len(m2) - 2*macLen - 1} {
		bad := bytes.Clone(m2)
		bad[i] ^= 1
		if _, err := at.finish(bad, true); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
	}
	if _, err := at.finish(m2, true); err != nil { // the library goes back to where it was after a wrong message
		t.Error("a wrong answer spoils the right one:", err)
	}
	// A downgrade: the answer's cipher is what both ends compute, or nothing.
	m1, at, err = a.initiate(b.public, 12, 6, true)
	must(t, err)
	m1, _ = addMACs(m1, b.public, nil)
	o, err = b.receive(m1)
	must(t, err)
	o.aes = false
	m2, _, err = o.respond(23, true)
	must(t, err)
	m2, _ = addMACs(m2, a.public, nil)
	if _, err := at.finish(m2, true); err == nil {
		t.Error("a weaker cipher was taken")
	}
}

func TestGate(t *testing.T) {
	a, b := ids(t)
	var g gate
	from := netip.MustParseAddrPort("192.0.2.1:99")
	m1, at, err := a.initiate(b.public, 11, 5, true)
	must(t, err)
	m1, at.mac1 = addMACs(m1, b.public, nil)
	now := time.Second
	for i := range calmRate {
		if v := g.judge(now, m1, from); v != verdictTake {
			t.Fatal(i, v)
		}
	}
	if v := g.judge(now, m1, from); v != verdictCookie {
		t.Fatal("a flood goes on:", v)
	}
	c := g.cookie(m1, b.public, from)
	if len(c) != cookieLen || cookieIndex(c) != 11 {
		t.Fatal(len(c))
	}
	if _, ok := openCookie(c, b.public, [macLen]byte{}); ok {
		t.Error("a cookie for another message")
	}
	cookie, ok := openCookie(c, b.public, at.mac1)
	if !ok {
		t.Fatal("the cookie")
	}
	m2, _, err := a.initiate(b.public, 12, 6, true)
	must(t, err)
	m2, _ = addMACs(m2, b.public, cookie)
	for range sourceRate {
		if v := g.judge(now, m2, from); v != verdictTake {
			t.Fatal(v)
		}
	}
	if v := g.judge(now, m2, from); v != verdictDrop {
		t.Error("one address may have all:", v)
	}
	if v := g.judge(now, m2, netip.MustParseAddrPort("192.0.2.2:99")); v != verdictCookie {
		t.Error("a cookie for another address:", v)
	}
	if v := g.judge(now+3*cookieLife+time.Second, m2, from); v != verdictTake {
		t.Error("calm again:", v)
	}
	for range calmRate {
		g.judge(now+3*cookieLife+time.Second, m2, from)
	}
	if v := g.judge(now+3*cookieLife+time.Second, m2, from); v == verdictTake {
		t.Error("an old cookie:", v)
	}
}

func TestControlMessages(t *testing.T) {
	for _, c := range []control{
		{kind: ctlPing, number: 7, flags: pingInUse},
		{kind: ctlPong, number: 8, addrs: at("192.0.2.1:99")},
		{kind: ctlPong, number: 8},
		{kind: ctlCandidates, addrs: at("192.0.2.1:99", "[2001:db8::1]:9")},
		{kind: ctlUnknown, net: 9, addr: netip.MustParseAddr("10.0.0.1")},
		{kind: 99},
	} {
		got, err := parseControl(c.append(nil))
		if err != nil || got.kind != c.kind || got.number != c.number || got.flags != c.flags || got.net != c.net || got.addr != c.addr || !slices.Equal(got.addrs, c.addrs) {
			t.Errorf("%+v, %v; want %+v", got, err, c)
		}
		b := c.append(nil)
		for n := range len(b) {
			if _, err := parseControl(b[:n]); err == nil {
				t.Errorf("kind %d: %d bytes of %d are enough", c.kind, n, len(b))
			}
		}
	}
	// A peer may not have us send to places of our own.
	c, err := parseControl(control{kind: ctlCandidates, addrs: at("127.0.0.1:1", "224.0.0.1:1", "0.0.0.0:1", "[fe80::1]:1", "192.0.2.1:0", "255.255.255.255:1")}.append(nil))
	if err != nil || len(c.addrs) != 0 {
		t.Error(c.addrs, err)
	}
}

func TestCheckConfig(t *testing.T) {
	good := Config{PrivateKey: Secret{1}, Tap: "t0", Relays: []Relay{{Name: "r", UDP: at("192.0.2.1:9")[0]}}, Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}, Relays: []PeerRelay{{Relay: "r"}}}}}
	must(t, good.Check())
	for want, f := range map[string]func(c *Config){
		"tap":        func(c *Config) { c.Tap = "a name that is too long" },
		"privateKey": func(c *Config) { c.PrivateKey = Secret{} },
		"mtu":        func(c *Config) { c.MTU = 100 },
		"id":         func(c *Config) { c.Peers[0].ID = 0 },
		"key":        func(c *Config) { c.Peers = append(c.Peers, Peer{ID: 2, Key: wire.OverlayKey{1}}) },
		"relays[0]":  func(c *Config) { c.Peers[0].Relays[0].Relay = "x" },
		"pin":        func(c *Config) { c.Relays[0].TLS = at("192.0.2.1:9")[0] },
		"name":       func(c *Config) { c.Relays = append(c.Relays, c.Relays[0]) },
	} {
		c := good
		c.Peers = slices.Clone(good.Peers)
		c.Peers[0].Relays = slices.Clone(good.Peers[0].Relays)
		c.Relays = slices.Clone(good.Relays)
		f(&c)
		if err := c.Check(); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if s := Secret([32]byte{1, 2}).String(); s != "(secret)" {
		t.Error(s)
	}
}
