//go:build linux

package tunnel

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// FuzzFrame has an instance send anything: virtual machines write these headers themselves.
func FuzzFrame(f *testing.F) {
	f.Add(segment{pay: payload(3000, 1), gso: 1000, flags: tcpACK}.frame())
	f.Add(segment{pay: payload(300, 1), gso: 100, udp: true, v6: true}.frame())
	f.Add(segment{pay: payload(30, 1), complete: true}.frame())
	f.Fuzz(func(t *testing.T, frame []byte) {
		frame = bytes.Clone(frame)
		var s splitter
		if s.begin(frame) != nil {
			return
		}
		n, size, last := s.left(), s.size, s.last
		m := merger{write: func(iov [][]byte) {
			if len(bytes.Join(iov, nil)) > frameLen+maxIP+40 {
				t.Fatal("too long")
			}
		}}
		for i := 0; ; i++ {
			b := s.next()
			if b == nil {
				if i != n {
					t.Fatalf("%d packets, not %d", i, n)
				}
				break
			}
			if i < n-1 && len(b) != size || i == n-1 && len(b) != last {
				t.Fatalf("packet %d of %d has %d bytes; size %d, last %d", i, n, len(b), size, last)
			}
			m.add(1, bytes.Clone(b)) // the other end checks anew
		}
		m.flush()
	})
}

// FuzzJoin has a peer send anything, in two packets.
func FuzzJoin(f *testing.F) {
	s := cut(segment{pay: payload(300, 1), gso: 200, flags: tcpACK})
	f.Add(plaintext(s[0]), plaintext(s[1]))
	s = cut(segment{pay: payload(300, 1), gso: 200, udp: true, v6: true})
	f.Add(plaintext(s[0]), plaintext(s[1]))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := merger{write: func(iov [][]byte) {
			var s splitter
			if err := s.begin(bytes.Join(iov, nil)); err != nil {
				t.Fatalf("a frame that the kernel would refuse: %x", iov[0])
			}
		}}
		for _, p := range [][]byte{a, b} {
			if len(p) >= metaLen+20 {
				m.add(1, bytes.Clone(p))
			}
		}
		m.flush()
	})
}

// FuzzDatagram has anybody send anything.
func FuzzDatagram(f *testing.F) {
	sa, sb := shake(f, true, true)
	var nonce [12]byte
	f.Add(sa.seal(make([]byte, 0, 2000), &nonce, typeData, 1, plaintext(segment{pay: payload(50, 1)})), 40)
	f.Add(sa.seal(make([]byte, 0, 2000), &nonce, typeControl, 2, control{kind: ctlPing, number: 1}.append(nil)), 1400)
	f.Add(bytes.Repeat([]byte{typeInit}, initLen), initLen)
	f.Add([]byte{16, 0, 0}, 1)
	e := New(Options{})
	f.Cleanup(func() { e.Close() })
	p := &peer{id: 3, search: search{cands: map[pathKey]*candidate{}}}
	p.conf.Store(&Peer{ID: 3, Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	sb.peer = p
	e.sessions.Store(&map[uint32]*session{sb.local: sb})
	f.Fuzz(func(t *testing.T, b []byte, seg int) {
		r := newReceiver(e)
		r.datagrams(netip.MustParseAddrPort("192.0.2.1:9"), bytes.Clone(b), min(max(seg, 1), 1<<16))
		r.flush()
	})
}

// FuzzHandshake has anybody begin one, answer one, or give a cookie.
func FuzzHandshake(f *testing.F) {
	a, b := ids(f)
	m1, at, err := a.initiate(b.public, 11, 5, true)
	must(f, err)
	m1, at.mac1 = addMACs(m1, b.public, nil)
	o, err := b.receive(m1)
	must(f, err)
	m2, _, err := o.respond(22, true)
	must(f, err)
	m2, _ = addMACs(m2, a.public, nil)
	var g gate
	from := netip.MustParseAddrPort("192.0.2.1:9")
	g.judge(1, m1, from)
	c := g.cookie(m1, b.public, from)
	for _, m := range [][]byte{m1, m2, c} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		checkMAC1(msg, b.public)
		if len(msg) > 2*macLen {
			var g gate
			for range calmRate + 1 {
				g.judge(1, msg, from)
			}
		}
		if o, err := b.receive(msg); err == nil && o.peer != a.public {
			t.Fatalf("taken: %+v", o)
		}
		_, fresh, err := a.initiate(b.public, 11, 5, true)
		must(t, err)
		if _, err := fresh.finish(msg, true); err == nil {
			t.Fatal("an answer to another initiation was taken")
		}
		if got, ok := openCookie(msg, b.public, at.mac1); ok && !bytes.Equal(msg[hsHeader:], c[hsHeader:]) {
			t.Fatalf("a forged cookie: %x", got)
		}
	})
}

func FuzzControl(f *testing.F) {
	f.Add(control{kind: ctlPing, number: 7}.append(nil))
	f.Add(control{kind: ctlPong, number: 7, addrs: at("192.0.2.1:9")}.append(nil))
	f.Add(control{kind: ctlCandidates, addrs: at("192.0.2.1:9", "[2001:db8::1]:9")}.append(nil))
	f.Add(control{kind: ctlUnknown, net: 1, addr: netip.MustParseAddr("10.0.0.1")}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseControl(b)
		if err != nil {
			return
		}
		again, err := parseControl(c.append(nil))
		if err != nil || again.kind != c.kind || again.number != c.number || again.net != c.net || again.addr != c.addr || len(again.addrs) != len(c.addrs) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
		for _, a := range c.addrs {
			if c.kind == ctlCandidates && !usable(a) {
				t.Fatal(a)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"n":1,"op":"hello"}`)
	f.Add(`{"n":2,"op":"set","config":{"privateKey":"AQ==","tap":"t0","peers":[{"id":1}]}}`)
	f.Add(`{"n":3,"op":"unknown","peer":1,"net":2,"addr":"10.0.0.1"}`)
	f.Fuzz(func(t *testing.T, s string) {
		b, err := newLines(strings.NewReader(s + "\n")).next()
		if err != nil {
			return
		}
		q, err := parseRequest(b)
		if err != nil || q.Config == nil || q.Config.Check() != nil {
			return
		}
		if _, err := json.Marshal(q); err != nil {
			t.Fatal(err)
		}
	})
}
