//go:build linux

package tunnel

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay"
)

// flow is an endless TCP stream between two stations; what arrives is checked.
type flow struct {
	t    testing.TB
	got  chan int64 // a byte count each time something came
	fail chan error
	c, s net.Conn
}

func stream2(t testing.TB, from, to *station, pace time.Duration) *flow {
	t.Helper()
	ln := to.listen(netip.AddrPortFrom(to.inner, 0).String())
	f := &flow{t: t, got: make(chan int64, 1), fail: make(chan error, 2)}
	var err error
	f.c, err = from.dial(ln.Addr().String())
	must(t, err)
	f.s, err = ln.Accept()
	must(t, err)
	t.Cleanup(f.stop)
	go func() {
		p := &pattern{}
		b := make([]byte, 16<<10)
		for {
			_, _ = p.Read(b)
			if _, err := f.c.Write(b); err != nil {
				f.fail <- err
				return
			}
			if pace > 0 {
				time.Sleep(pace)
			}
		}
	}()
	go func() {
		p := &pattern{}
		b, w := make([]byte, 64<<10), make([]byte, 64<<10)
		var total int64
		for {
			n, err := f.s.Read(b)
			if err != nil {
				f.fail <- err
				return
			}
			_, _ = p.Read(w[:n])
			if !bytes.Equal(b[:n], w[:n]) {
				f.fail <- fmt.Errorf("wrong bytes after %d", total)
				return
			}
			total += int64(n)
			select {
			case <-f.got:
			default:
			}
			f.got <- total
		}
	}()
	return f
}

func (f *flow) stop() { f.c.Close(); f.s.Close() }

// more waits until n bytes more have come.
func (f *flow) more(n int64) {
	f.t.Helper()
	limit := time.After(20 * time.Second)
	var first, last int64 = -1, 0
	for {
		select {
		case err := <-f.fail:
			f.t.Fatal(err)
		case last = <-f.got:
			if first < 0 {
				first = last
			}
			if last-first >= n {
				return
			}
		case <-limit:
			f.t.Fatalf("%d bytes came, not %d", last-first, n)
		}
	}
}

// TestRekeyByCount renews keys because many datagrams were sent.
func TestRekeyByCount(t *testing.T) {
	a, b := pair(t, true, timingVar+`={"RekeyMessages":2000}`)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	first := a.path().Handshake
	must(t, transfer(a, b, false, 20<<20))
	eventually(t, "other keys", func() bool { return a.path().Handshake != first })
	must(t, transfer(a, b, true, 1<<20))
}

// TestRoaming changes the address of one end under a stream, with the stream in either direction.
func TestRoaming(t *testing.T) {
	for _, out := range []bool{true, false} {
		t.Run(map[bool]string{true: "sender", false: "receiver"}[out], func(t *testing.T) {
			a, b := pair(t, false)
			peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
			a.sh("ip addr flush dev e0 scope global; ip addr add 10.1.0.1/24 dev e0")
			from, to := a, b
			if !out {
				from, to = b, a
			}
			must(t, transfer(a, b, false, 1000))
			f := stream2(t, from, to, time.Millisecond)
			f.more(100_000)
			for i := 3; i < 6; i++ {
				a.sh(fmt.Sprintf("ip addr flush dev e0; ip addr add 10.1.0.%d/24 dev e0", i))
				start := time.Now()
				f.more(200_000)
				t.Logf("%v until 200 kB more had come", time.Since(start))
				want := fmt.Sprintf("10.1.0.%d:4500", i)
				eventually(t, want, func() bool { return b.path().Endpoint.String() == want })
			}
		})
	}
}

// TestRestarts lets agents go and come, and datapaths: those that go on, those that were killed, those of another version.
func TestRestarts(t *testing.T) {
	a, b := pair(t, false)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	f := stream2(t, a, b, time.Millisecond)
	f.more(100_000)
	pid := a.client.Hello().PID

	a.client.Close() // the agent ends
	f.more(100_000)
	a.start() // and finds what it left
	if got := a.client.Hello().PID; got != pid {
		t.Errorf("datapath %d was replaced by %d", pid, got)
	}
	must(t, a.client.Set(t.Context(), a.conf)) // which changes nothing
	f.more(100_000)
	if n := a.path().RxBytes; n == 0 {
		t.Error("the peer was forgotten")
	}

	// Killed: the stream waits in the tap and in TCP until there is another one.
	must(t, unix.Kill(pid, unix.SIGKILL))
	eventually(t, "its end", func() bool { return holder(a.dir) == 0 })
	a.start()
	must(t, a.client.Set(t.Context(), a.conf))
	f.more(100_000)
	if got := a.client.Hello(); got.PID == pid || got.Version != "test" || got.Control != ControlVersion {
		t.Errorf("%+v", got)
	}

	// The other end, which only receives, comes back too: data for a session that it no longer knows has it begin one.
	must(t, b.client.Stop(t.Context()))
	if _, err := Connect(t.Context(), b.dir); err == nil {
		t.Error("a datapath that was stopped answers")
	}
	b.start()
	must(t, b.client.Set(t.Context(), b.conf))
	f.more(100_000)
}

func TestUnknownIsPassedOn(t *testing.T) {
	for _, sealed := range []bool{true, false} { // false: what it came of was not sealed, and there is no session
		t.Run(fmt.Sprint("sealed=", sealed), func(t *testing.T) { unknownIsPassedOn(t, sealed) })
	}
}

func unknownIsPassedOn(t *testing.T, sealed bool) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	if sealed {
		must(t, transfer(a, b, false, 1000))
	}
	addr := netip.MustParseAddr("10.40.0.99")
	must(t, b.client.Unknown(t.Context(), 1, 77, addr))
	limit := time.After(10 * time.Second)
	for {
		select {
		case ev, ok := <-a.client.Events():
			if !ok {
				t.Fatal("no more events")
			}
			if ev.Kind == EventUnknown {
				if ev.Peer != 2 || ev.Net != 77 || ev.Addr != addr {
					t.Errorf("%+v", ev)
				}
				return
			}
		case <-limit:
			t.Fatal("no event")
		}
	}
}

// TestPing asks peers for signs of life: of one that lives, of one that does not, and of somebody who is none.
func TestPing(t *testing.T) {
	a, b := pair(t, false)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	hears := func() bool {
		began := time.Now()
		for time.Since(began) < time.Second {
			since := time.Since(began)
			ago, ok, err := a.client.Ping(t.Context(), 2)
			must(t, err)
			if ok && ago < since {
				return true
			}
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}
	eventually(t, "a sign of life", hears) // without a packet between them before: it begins a session
	if _, ok, err := a.client.Ping(t.Context(), 99); ok || err != nil {
		t.Errorf("somebody was heard: %v", err)
	}
	must(t, b.client.Stop(t.Context()))
	eventually(t, "silence", func() bool { return !hears() }) // what it sent last may lie in a buffer
	b.start()
	must(t, b.client.Set(t.Context(), b.conf))
	eventually(t, "a sign of life again", hears)
}

// TestStrangers gives a datapath what none of its peers sent.
func TestStrangers(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	before := b.status().Counters
	var fd int
	must(t, a.in(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	defer unix.Close(fd)
	must(t, unix.Connect(fd, &unix.SockaddrInet4{Port: 4500, Addr: [4]byte{10, 1, 0, 2}}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300000}))
	send := func(msg []byte) { _, _ = unix.Write(fd, msg) }
	bPub, err := b.key.Public()
	must(t, err)
	stranger, err := newIdentity(Secret{99})
	must(t, err)
	// Noise, a handshake of a stranger, one without the first code, one for somebody else, a truncated one.
	send([]byte("hello"))
	send(make([]byte, 1400))
	send(append([]byte{typeData}, make([]byte, 200)...))
	send([]byte{16})
	m, _, err := stranger.initiate(bPub, 1, uint64(time.Now().UnixNano()), true)
	must(t, err)
	good, _ := addMACs(bytes.Clone(m), bPub, nil)
	send(good)
	send(append(bytes.Clone(m), make([]byte, 32)...))
	send(good[:100])
	other, _ := addMACs(bytes.Clone(m), stranger.public, nil)
	send(other)
	buf := make([]byte, 2000)
	if n, _, err := testenv.Recvfrom(fd, buf); err == nil {
		t.Errorf("a stranger was answered: %x", buf[:n])
	}
	// A flood of what costs something. It must not keep others out.
	for range 3000 {
		send(good)
	}
	must(t, transfer(a, b, false, 100_000))
	after := b.status().Counters
	if after["drop-handshake"] <= before["drop-handshake"] || after["drop-malformed"] <= before["drop-malformed"] || after["drop-unknown"] <= before["drop-unknown"] || after["drop-flood"] == 0 {
		t.Errorf("%v, then %v", before, after)
	}
	// During the flood a peer can still begin: b asks it to show its address.
	must(t, a.client.Stop(t.Context()))
	stop := make(chan bool)
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				send(good)
				time.Sleep(200 * time.Microsecond)
			}
		}
	}()
	a.start()
	must(t, a.client.Set(t.Context(), a.conf))
	err = transfer(a, b, false, 1000)
	close(stop)
	<-done
	must(t, err)
}

// TestForeignAddresses has a peer send what is not from its prefixes.
func TestForeignAddresses(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	b.conf.Peers[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16")}
	must(t, b.client.Set(t.Context(), b.conf))
	before := b.path().RxBytes
	c, err := a.in2(func() (net.Conn, error) {
		return net.DialTimeout("tcp", netip.AddrPortFrom(b.inner, 9).String(), time.Second)
	})
	if err == nil {
		c.Close()
	}
	if err == nil || b.path().RxBytes != before || b.status().Counters["drop-handshake"] == 0 && b.status().Counters["drop-source"] == 0 {
		t.Errorf("%v; %d bytes; %v", err, b.path().RxBytes-before, b.status().Counters)
	}
}

// TestWrongKey has a peer whose key is another than the configured one.
func TestWrongKey(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	b.conf.Peers[0].Key[0] ^= 1
	must(t, b.client.Set(t.Context(), b.conf))
	a.sh("ip link set t0 mtu 1404") // whatever wakes it
	c, err := a.in2(func() (net.Conn, error) {
		return net.DialTimeout("tcp", netip.AddrPortFrom(b.inner, 9).String(), time.Second)
	})
	if err == nil {
		c.Close()
		t.Fatal("connected")
	}
	if p := a.path(); p.Path != overlay.PathNone || p.TxBytes != 0 {
		t.Errorf("%+v", p)
	}
	// And with the right one, without a restart.
	b.conf.Peers[0].Key[0] ^= 1
	must(t, b.client.Set(t.Context(), b.conf))
	must(t, transfer(a, b, false, 1000))
}

func (s *space) in2(f func() (net.Conn, error)) (c net.Conn, err error) {
	err = s.in(func() (err error) {
		c, err = f()
		return err
	})
	return c, err
}

// TestIPv6Wire has nothing but IPv6 between the hosts.
func TestIPv6Wire(t *testing.T) {
	a, b := pair(t, true)
	a.sh("ip -4 addr flush dev e0")
	b.sh("ip -4 addr flush dev e0")
	peers(a, b, at("[fd01::1]:4500"), at("[fd01::2]:4500"))
	must(t, transfer(a, b, false, 5<<20))
	must(t, transfer(b, a, true, 5<<20))
	if p := a.path(); p.Endpoint.String() != "[fd01::2]:4500" {
		t.Errorf("%+v", p)
	}
}

// TestChaCha pairs a machine that has instructions for AES with one that has not.
func TestChaCha(t *testing.T) {
	a, b := newStation(t, 1), newStation(t, 2)
	cable(a.space, "e0", b.space, "e0", true)
	a.sh("ip addr add 10.1.0.1/24 dev e0")
	b.sh("ip addr add 10.1.0.2/24 dev e0")
	b.args = []string{"--no-aes"}
	a.start()
	b.start()
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 2<<20))
	if p := a.path(); p.Cipher != "ChaCha20-Poly1305" {
		t.Errorf("%+v", p)
	}
}

// TestClockSetBack has a peer come back with a clock that shows the past: after a moment of silence it is let in, because
// a device without a battery is no attacker.
func TestClockSetBack(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	id, err := newIdentity(Secret{8})
	must(t, err)
	them, err := newIdentity(Secret{16})
	must(t, err)
	must(t, e.call(func() {
		e.id = id
		p := &peer{id: 2, key: them.public, search: search{cands: map[pathKey]*candidate{}}}
		p.conf.Store(&Peer{ID: 2, Key: them.public})
		e.keys[them.public] = p
		from := origin{addr: at("192.0.2.1:9")[0]}
		begin := func(stamp uint64, now time.Duration) int {
			m, _, err := them.initiate(id.public, 5, stamp, true)
			must(t, err)
			m, _ = addMACs(m, id.public, nil)
			var before, after *session
			if len(p.sessions) > 0 {
				before = p.sessions[0]
			}
			e.initiation(from, m, now)
			if len(p.sessions) > 0 {
				after = p.sessions[0]
			}
			if before == after {
				return 0
			}
			return 1
		}
		now := 10 * time.Second
		if begin(100, now) != 1 || begin(100, now) != 0 || begin(99, now+time.Millisecond) != 1 {
			t.Error("the first ones")
		}
		p.lastRx.Store(int64(now + time.Second))
		if begin(98, now+2*time.Second) != 0 {
			t.Error("a replay disturbs a peer that is there")
		}
		if begin(98, now+10*time.Second) != 1 || begin(97, now+11*time.Second) != 0 {
			t.Error("one in a while after silence")
		}
		if begin(101, now+11*time.Second) != 1 {
			t.Error("the right time")
		}
		// Once the session is used, its stamp counts.
		s := p.sessions[len(p.sessions)-1]
		s.stamp = 98
		s.confirmed.Store(false)
		e.confirm(s, from)
		p.lastRx.Store(int64(now + 12*time.Second))
		if begin(99, now+12*time.Second) != 1 || begin(99, now+12*time.Second) != 0 {
			t.Error("after the past was confirmed")
		}
	}))
}

func TestControlSocket(t *testing.T) {
	a := newStation(t, 1)
	a.start()
	st, err := os.Stat(a.dir + "/" + socketFile)
	must(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Error(st.Mode())
	}
	raw, err := net.Dial("unix", a.dir+"/"+socketFile)
	must(t, err)
	defer raw.Close()
	for _, q := range []string{"{", `{"n":1,"op":"set"}`, `{"n":2,"op":"dance"}`, `{"n":3,"op":"set","config":{}}`} {
		_, err := io.WriteString(raw, q+"\n")
		must(t, err)
		b, err := newLines(raw).next()
		must(t, err)
		if !bytes.Contains(b, []byte(`"error":`)) {
			t.Errorf("%s: %s", q, b)
		}
	}
	if err := a.client.Set(t.Context(), Config{}); err == nil {
		t.Error("an empty configuration was taken")
	}
	if _, err := Connect(t.Context(), t.TempDir()); err == nil {
		t.Error("nobody answered")
	}
}

// TestSetAgain has a configuration fail halfway and then succeed, and ports and taps change.
func TestSetAgain(t *testing.T) {
	a, b := pair(t, false)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	var taken *net.UDPConn
	must(t, a.in(func() (err error) {
		taken, err = net.ListenUDP("udp", &net.UDPAddr{Port: 4600})
		return err
	}))
	bad := a.conf
	bad.Port, bad.Tap = 4600, "t1"
	if err := a.client.Set(t.Context(), bad); err == nil {
		t.Error("a port that is taken was taken again")
	}
	taken.Close()
	must(t, a.client.Set(t.Context(), bad))
	if st := a.status(); st.Port != 4600 {
		t.Errorf("%+v", st)
	}
	must(t, a.client.Set(t.Context(), a.conf)) // back; the peer learns of the other port by what comes from there
	must(t, transfer(a, b, false, 1000))
	must(t, transfer(b, a, false, 1000))
}

// TestOtherVersion finds a datapath that speaks another control version, and replaces it.
func TestOtherVersion(t *testing.T) {
	s := newStation(t, 1)
	lock, err := os.Create(s.dir + "/" + lockFile)
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	ln, err := net.Listen("unix", s.dir+"/"+socketFile)
	must(t, err)
	asked := make(chan string, 4)
	go func() {
		defer close(asked)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		l := newLines(c)
		for {
			b, err := l.next()
			if err != nil {
				return
			}
			q, _ := parseRequest(b)
			asked <- q.Op
			a := answer{Number: q.Number, Hello: &Hello{Control: ControlVersion - 1, PID: 1 << 30}}
			if q.Op == opStop {
				ln.Close()
				_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
			}
			if (&conn{Conn: c}).write(a) != nil || q.Op == opStop {
				return
			}
		}
	}()
	s.start()
	if got := s.client.Hello(); got.Control != ControlVersion || got.Version != "test" {
		t.Errorf("%+v", got)
	}
	var ops []string
	for op := range asked {
		ops = append(ops, op)
	}
	if fmt.Sprint(ops) != "[hello stop]" {
		t.Error(ops)
	}
}
