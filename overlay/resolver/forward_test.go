package resolver

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry"
)

// upstreams are servers without a network: by "udp ADDR" or "tcp ADDR", what they answer to a question. Nil is silence.
type upstreams struct {
	mu    sync.Mutex
	serve map[string]func(q []byte) [][]byte
	asked []string
	names []string // as they were spelled
}

func (u *upstreams) dial(_ context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, network+" "+addr)
	serve := u.serve[network+" "+addr]
	if serve == nil {
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		buf := make([]byte, 4096)
		for {
			var q []byte
			var err error
			if network == "tcp" {
				q, err = readMessage(far)
			} else {
				var n int
				n, err = far.Read(buf)
				q = buf[:n]
			}
			if err != nil {
				return
			}
			var p dns.Parser
			if _, err := p.Start(q); err == nil {
				if question, err := p.Question(); err == nil {
					u.mu.Lock()
					u.names = append(u.names, question.Name.String())
					u.mu.Unlock()
				}
			}
			for _, a := range serve(q) {
				if network == "tcp" {
					err = writeMessage(far, a)
				} else {
					_, err = far.Write(a)
				}
				if err != nil {
					return
				}
			}
		}
	}()
	return near, nil
}

func (u *upstreams) take() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := strings.Join(u.asked, ", ")
	u.asked = nil
	return s
}

// respondWith makes an answer to a question with some addresses.
func respondWith(q []byte, ttl uint32, change func(*dns.Message), list ...string) []byte {
	var m dns.Message
	if err := m.Unpack(q); err != nil {
		panic(err)
	}
	m.Response, m.RecursionAvailable, m.Authoritative = true, true, true
	for _, a := range list {
		m.Answers = append(m.Answers, addressRecord(m.Questions[0].Name, netip.MustParseAddr(a), ttl))
	}
	if change != nil {
		change(&m)
	}
	out, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return out
}

func says(ttl uint32, list ...string) func([]byte) [][]byte {
	return func(q []byte) [][]byte { return [][]byte{respondWith(q, ttl, nil, list...)} }
}

func status(rc dns.RCode) func([]byte) [][]byte {
	return func(q []byte) [][]byte {
		return [][]byte{respondWith(q, 0, func(m *dns.Message) { m.RCode = rc })}
	}
}

func silent([]byte) [][]byte { return nil }

func forwarding(t *testing.T, serve map[string]func([]byte) [][]byte, servers ...string) (*Resolver, *upstreams) {
	u := &upstreams{serve: serve}
	r := New(Options{Dial: u.dial})
	t.Cleanup(func() { r.Close() })
	c := testConfig()
	for _, s := range servers {
		c.Upstreams = append(c.Upstreams, netip.MustParseAddrPort(s))
	}
	r.Set(c)
	return r, u
}

const a1, a2 = "192.0.2.1:53", "192.0.2.2:53"

func TestForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := forwarding(t, map[string]func([]byte) [][]byte{"udp " + a1: says(60, "198.51.100.7")}, a1)
		raw := askRaw(r, "10.64.0.1", question(t, "wWw.exaMple.org.", dns.TypeA, nil))
		if got := tell(t, raw); got != "198.51.100.7" || u.take() != "udp "+a1 {
			t.Fatal(got)
		}
		var m dns.Message
		if m.Unpack(raw) != nil || m.Questions[0].Name.String() != "wWw.exaMple.org." || m.Answers[0].Header.Name.String() != "wWw.exaMple.org." || m.Authoritative || !m.RecursionAvailable {
			t.Errorf("%+v", m)
		}
		if u.names[0] == "wWw.exaMple.org." || !strings.EqualFold(u.names[0], "www.example.org.") {
			t.Error("spelled", u.names[0])
		}
		// From the cache, in another spelling and with OPT; the time to live runs down.
		time.Sleep(20 * time.Second)
		raw = askRaw(r, "10.64.0.2", question(t, "www.example.org.", dns.TypeA, &dns.OPTResource{}))
		if got := tell(t, raw); got != "198.51.100.7, +opt" || u.take() != "" {
			t.Error(got)
		}
		if m.Unpack(raw) != nil || m.Answers[0].Header.TTL != 40 {
			t.Error(m.Answers[0].Header.TTL)
		}
		time.Sleep(41 * time.Second)
		if got := ask(t, r, "10.64.0.1", "www.example.org.", dns.TypeA); got != "198.51.100.7" || u.take() != "udp "+a1 {
			t.Error(got)
		}
		// Servers gone: what is too old is better than nothing.
		time.Sleep(2 * time.Minute)
		u.serve["udp "+a1] = silent
		raw = askRaw(r, "10.64.0.1", question(t, "www.example.org.", dns.TypeA, nil))
		if got := tell(t, raw); got != "198.51.100.7" || m.Unpack(raw) != nil || m.Answers[0].Header.TTL != staleTTL {
			t.Error(got, m.Answers[0].Header.TTL)
		}
		time.Sleep(7 * time.Hour)
		if got := ask(t, r, "10.64.0.1", "www.example.org.", dns.TypeA); got != "ServerFailure" {
			t.Error(got)
		}
		// Our own names never get there.
		u.take()
		for _, n := range []string{"a.b.skerry.", "skerry.", "x.web.default.shop.default.skerry.", "any.closest.web.default.nope.default.", "1.2.64.10.in-addr.arpa.", "cache."} {
			ask(t, r, "10.64.0.1", n, dns.TypeA)
		}
		if got := u.take(); got != "" {
			t.Error("asked", got)
		}
	})
}

// An instance that may go nowhere outside asks nobody there either, by whatever kind of name, nor for what others have asked; its own
// names it has. It is let out when its policy opens something.
func TestNamesOfTheOutsideStayThere(t *testing.T) {
	r, u := forwarding(t, map[string]func([]byte) [][]byte{"udp " + a1: says(60, "198.51.100.7")}, a1)
	c := testConfig()
	c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort(a1)}
	c.Instances[0].Inside = true
	r.Set(c)
	if got := ask(t, r, "10.64.0.2", "www.example.org.", dns.TypeA); got != "198.51.100.7" {
		t.Fatal(got)
	}
	u.take()
	for _, src := range []string{"10.64.0.1", "fd00::1", "::ffff:10.64.0.1"} {
		for name, kind := range map[string]dns.Type{"www.example.org.": dns.TypeA, "c2VjcmV0.example.org.": dns.TypeTXT, "7.100.51.198.in-addr.arpa.": dns.TypePTR, "org.": dns.TypeNS, ".": dns.TypeNS} {
			if got := ask(t, r, src, name, kind); got != "Refused" || u.take() != "" {
				t.Errorf("%s asks for %s: %s", src, name, got)
			}
		}
	}
	if got := ask(t, r, "10.64.0.1", "db.", dns.TypeA); got != "10.30.2.1" {
		t.Errorf("its own: %s", got)
	}
	c.Instances[0].Inside = false
	r.Set(c)
	if got := ask(t, r, "10.64.0.1", "other.example.org.", dns.TypeA); got != "198.51.100.7" {
		t.Errorf("let out: %s", got)
	}
}

func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := map[string]func([]byte) [][]byte{"udp " + a1: silent, "udp " + a2: says(60, "198.51.100.7")}
		r, u := forwarding(t, serve, a1, a2)
		start := time.Now()
		if got := ask(t, r, "10.64.0.1", "a.example.org.", dns.TypeA); got != "198.51.100.7" || time.Since(start) != time.Second {
			t.Error(got, time.Since(start))
		}
		// The silent one comes last for a while.
		u.take()
		start = time.Now()
		if got := ask(t, r, "10.64.0.1", "b.example.org.", dns.TypeA); got != "198.51.100.7" || time.Since(start) != 0 || u.take() != "udp "+a2 {
			t.Error(got, time.Since(start))
		}
		time.Sleep(holdDown)
		serve["udp "+a1] = status(rcodeServFail)
		if got := ask(t, r, "10.64.0.1", "c.example.org.", dns.TypeA); got != "198.51.100.7" || u.take() != "udp "+a1+", udp "+a2 {
			t.Error(got)
		}
		delete(serve, "udp "+a2)
		start = time.Now()
		if got := ask(t, r, "10.64.0.1", "d.example.org.", dns.TypeA); got != "ServerFailure" || time.Since(start) > 5*time.Second {
			t.Error(got, time.Since(start))
		}
		// No such name is an answer, and kept for a short time.
		no := func(q []byte) [][]byte {
			return [][]byte{respondWith(q, 0, func(m *dns.Message) {
				m.RCode = rcodeNoName
				m.Authorities = []dns.Resource{{Header: dns.ResourceHeader{Name: dns.MustNewName("org."), Type: dns.TypeSOA, Class: dns.ClassINET, TTL: 9000},
					Body: &dns.SOAResource{NS: dns.MustNewName("x."), MBox: dns.MustNewName("y."), MinTTL: 8000}}}
			})}
		}
		serve["udp "+a1] = no
		u.take()
		for range 2 {
			if got := ask(t, r, "10.64.0.1", "e.example.org.", dns.TypeA); got != "NameError, soa" {
				t.Error(got)
			}
			time.Sleep(maxKeepNo - time.Second)
		}
		ask(t, r, "10.64.0.1", "e.example.org.", dns.TypeA)
		if got := u.take(); got != "udp "+a1+", udp "+a1 {
			t.Error(got)
		}
	})
}

func TestForgedAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forged := func(f func(m *dns.Message)) func([]byte) [][]byte {
			return func(q []byte) [][]byte {
				return [][]byte{respondWith(q, 60, f, "203.0.113.66"), respondWith(q, 60, nil, "198.51.100.7")}
			}
		}
		serve := map[string]func([]byte) [][]byte{"tcp " + a1: says(60, "198.51.100.7")}
		r, u := forwarding(t, serve, a1)
		for name, c := range map[string]struct {
			serve func([]byte) [][]byte
			asked string
		}{
			"id":       {forged(func(m *dns.Message) { m.ID++ }), "udp " + a1},
			"name":     {forged(func(m *dns.Message) { m.Questions[0].Name = dns.MustNewName("evil.example.") }), "udp " + a1},
			"type":     {forged(func(m *dns.Message) { m.Questions[0].Type = dns.TypeAAAA }), "udp " + a1},
			"question": {forged(func(m *dns.Message) { m.Response = false }), "udp " + a1},
			// Another spelling: of who guesses, or of a server that does not keep it; TCP tells.
			"spelling": {forged(func(m *dns.Message) {
				m.Questions[0].Name = dns.MustNewName(strings.ToLower(m.Questions[0].Name.String()))
			}), "udp " + a1 + ", tcp " + a1},
			"rubbish": {func(q []byte) [][]byte {
				return [][]byte{{1, 2, 3}, respondWith(q, 60, nil, "198.51.100.7")}
			}, "udp " + a1},
			"cut": {func(q []byte) [][]byte {
				return [][]byte{respondWith(q, 60, func(m *dns.Message) { m.Truncated = true }, "203.0.113.66")}
			}, "udp " + a1 + ", tcp " + a1},
		} {
			u.serve["udp "+a1] = c.serve
			got := ask(t, r, "10.64.0.1", name+".a-long-name-with-many-letters.example.org.", dns.TypeA)
			if asked := u.take(); got != "198.51.100.7" || asked != c.asked {
				t.Errorf("%s: %s, asked %s", name, got, asked)
			}
		}
	})
}

// TestSimpleServers asks forwarders of small routers: one spells names in lower case and has no TCP, one refuses OPT.
func TestSimpleServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lower := func(q []byte) [][]byte {
			return [][]byte{respondWith(q, 60, func(m *dns.Message) {
				m.Questions[0].Name = dns.MustNewName(strings.ToLower(m.Questions[0].Name.String()))
			}, "198.51.100.7")}
		}
		r, u := forwarding(t, map[string]func([]byte) [][]byte{"udp " + a1: lower}, a1)
		for _, want := range []string{"udp " + a1 + ", tcp " + a1 + ", udp " + a1, "udp " + a1} {
			if got := ask(t, r, "10.64.0.1", strings.Repeat("x", len(want))+".a-long-name.example.org.", dns.TypeA); got != "198.51.100.7" {
				t.Error(got)
			}
			if asked := u.take(); asked != want {
				t.Errorf("asked %s, want %s", asked, want)
			}
		}
		r, u = forwarding(t, map[string]func([]byte) [][]byte{"udp " + a2: func(q []byte) [][]byte {
			if q[11] > 0 {
				return status(rcodeFormErr)(q)
			}
			return says(60, "198.51.100.7")(q)
		}}, a2)
		for i, want := range []string{"udp " + a2 + ", udp " + a2, "udp " + a2} {
			if got := ask(t, r, "10.64.0.1", strings.Repeat("x", i+1)+".example.org.", dns.TypeA); got != "198.51.100.7" {
				t.Error(got)
			}
			if asked := u.take(); asked != want {
				t.Errorf("asked %s, want %s", asked, want)
			}
		}
	})
}

func TestSameQuestionIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(q []byte) [][]byte { time.Sleep(500 * time.Millisecond); return says(60, "198.51.100.7")(q) }
		r, u := forwarding(t, map[string]func([]byte) [][]byte{"udp " + a1: slow}, a1)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got := ask(t, r, "10.64.0.1", "www.example.org.", dns.TypeA); got != "198.51.100.7" {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if got := u.take(); got != "udp "+a1 {
			t.Error(got)
		}
	})
}

func TestLongAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var many []string
		for i := range 60 {
			many = append(many, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String())
		}
		r, _ := forwarding(t, map[string]func([]byte) [][]byte{"udp " + a1: says(60, many...)}, a1)
		msg := question(t, "www.example.org.", dns.TypeA, nil)
		if got := tell(t, askRaw(r, "10.64.0.1", msg)); got != "truncated" {
			t.Error(got)
		}
		if got := tell(t, askRaw(r, "10.64.0.1", question(t, "www.example.org.", dns.TypeA, &dns.OPTResource{}))); !strings.HasSuffix(got, ", 198.51.100.59, +opt") {
			t.Error(got)
		}
		resp, _ := r.respond(netip.AddrPortFrom(ip("10.64.0.1"), 1), msg, 65535)
		if got := tell(t, resp); strings.Count(got, ",") != 59 {
			t.Error(got)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(3)
	now := time.Unix(1000, 0)
	for i := range 10 {
		c.put(cacheKey{name: string(rune('a' + i))}, message{raw: make([]byte, 12), any: true, ttl: 1 << 30}, now)
		c.get(cacheKey{name: "a"}, now)
	}
	if e, fresh := c.get(cacheKey{name: "a"}, now.Add(maxKeepNo-1)); e == nil || !fresh || c.lru.Len() != 3 || len(c.byID) != 3 {
		t.Error("the last used are kept", c.byID)
	}
	if _, fresh := c.get(cacheKey{name: "a"}, now.Add(maxKeepNo)); fresh {
		t.Error("kept for too long")
	}
}

// TestSockets asks over real sockets of loopback.
func TestSockets(t *testing.T) {
	r := New(Options{Dial: noDial(t)})
	c := testConfig()
	c.Instances = append(c.Instances, Instance{Addrs: []netip.Addr{ip("127.0.0.1")}, Service: sk("shop", "web"), Local: true})
	r.Set(c)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.ServeUDP(pc) })
	wg.Go(func() { _ = r.ServeTCP(l) })
	res := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr := pc.LocalAddr().String()
		if network == "tcp" {
			addr = l.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	got, err := res.LookupHost(t.Context(), "any.closest.web.default.shop.default.skerry.")
	if err != nil || strings.Join(got, " ") != "10.30.1.2 fd30:5ce7::a1e:102" && strings.Join(got, " ") != "fd30:5ce7::a1e:102 10.30.1.2" {
		t.Error(got, err)
	}
	if _, list, err := res.LookupSRV(t.Context(), "http", "tcp", "web.skerry."); err != nil || len(list) != 1 || list[0].Port != 8080 {
		t.Error(list, err)
	}
	// Two questions on one TCP connection.
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if err := writeMessage(conn, question(t, "web.", dns.TypeA, nil)); err != nil {
			t.Fatal(err)
		}
		in, err := readMessage(conn)
		if err != nil || tell(t, in) != "10.30.1.1" {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if r.ServeUDP(pc) != net.ErrClosed || r.Close() != nil {
		t.Error("served after the end")
	}
}

func FuzzRespond(f *testing.F) {
	f.Add(question(f, "any.closest.web.default.shop.default.skerry.", dns.TypeA, &dns.OPTResource{}), false)
	f.Add(question(f, "_http._tcp.web.skerry.", dns.TypeSRV, nil), true)
	f.Add(question(f, "2.1.30.10.in-addr.arpa.", dns.TypePTR, nil), false)
	f.Add(question(f, "www.example.org.", dns.TypeA, &dns.OPTResource{Options: []dns.Option{{Code: optSubnet, Data: []byte{0, 1, 8, 0, 10}}}}), false)
	r := New(Options{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
	c := testConfig()
	c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort(a1)}
	r.Set(c)
	f.Fuzz(func(t *testing.T, msg []byte, tcp bool) {
		limit := 0
		if tcp {
			limit = 65535
		}
		resp, later := r.respond(netip.AddrPortFrom(ip("10.64.0.1"), 1), msg, limit)
		if later != nil {
			resp = later(context.Background())
		}
		if resp == nil {
			return
		}
		if len(resp) < 12 || resp[2]&0x80 == 0 || binary.BigEndian.Uint16(resp) != binary.BigEndian.Uint16(msg) || !tcp && len(resp) > maxUDP {
			t.Fatalf("%x to %x", resp, msg)
		}
		var m dns.Message
		if err := m.Unpack(resp); err != nil {
			t.Fatalf("%v: %x to %x", err, resp, msg)
		}
	})
}

func FuzzWalk(f *testing.F) {
	q := question(f, "www.example.org.", dns.TypeA, &dns.OPTResource{})
	f.Add(respondWith(q, 60, nil, "198.51.100.7", "2001:db8::1"))
	f.Add(respondWith(q, 60, func(m *dns.Message) { m.RCode = rcodeNoName }))
	f.Add(append(q, 0xc0, 12, 0, 1))
	ask, _ := parseQuery(q, 0)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, ok := walk(in)
		if !ok {
			return
		}
		_, _ = accept(q, in)
		out := m.answer(&ask, 5, 30)
		if len(out) > ask.limit {
			t.Fatal("too long")
		}
		if again, ok := walk(out); !ok || again.ttl > 30 || again.tc != m.tc && len(m.raw)+11 <= ask.limit {
			t.Fatalf("%x became %x", in, out)
		}
	})
}

func BenchmarkLocal(b *testing.B) {
	r := New(Options{})
	c := testConfig()
	for i := range 1000 {
		s := sk("shop", "s"+strings.Repeat("x", i%20)+string(rune('a'+i%26)))
		c.Apps[0].Services = append(c.Apps[0].Services, Service{Key: s, Addrs: addrs(5, 3)})
	}
	r.Set(c)
	msg := question(b, "any.closest.web.default.shop.default.skerry.", dns.TypeA, &dns.OPTResource{})
	src := netip.AddrPortFrom(ip("10.64.0.1"), 1)
	b.ReportAllocs()
	for b.Loop() {
		if resp, _ := r.respond(src, msg, 0); resp == nil {
			b.Fatal("no answer")
		}
	}
}

// The servers outside are silent, and an instance asks them as often as it may: its names of ours, those too whose
// addresses have to be asked for first, are answered as always.
func TestSilentServersHoldUpNoNameOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstreams{serve: map[string]func([]byte) [][]byte{"udp " + a1: silent}}
		ready := make(chan struct{})
		r := New(Options{Dial: u.dial, Wanted: func(skerry.AppKey, skerry.ServiceKey) <-chan struct{} { return ready }})
		defer r.Close()
		c := testConfig()
		c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort(a1)}
		r.Set(c)
		var wg sync.WaitGroup
		for n := range maxSlowEach {
			resp, later := r.respond(netip.AddrPortFrom(ip("10.64.0.2"), 1), question(t, fmt.Sprintf("h%d.example.org.", n), dns.TypeA, nil), 0)
			if resp != nil {
				t.Fatal("answered")
			}
			wg.Go(func() { later(t.Context()) })
		}
		if got := ask(t, r, "10.64.0.2", "one-more.example.org.", dns.TypeA); got != "ServerFailure" {
			t.Error(got)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			c.Apps[1].Services = append(c.Apps[1].Services, Service{Key: sk("blog", "late"), Addrs: addrs(7, 0)})
			r.Set(c)
			close(ready)
		})
		if got := ask(t, r, "10.64.0.2", "late.skerry.", dns.TypeA); got != "10.30.7.1" {
			t.Error(got)
		}
		wg.Wait()
	})
}
