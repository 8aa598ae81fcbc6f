//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// backends counts the flows of a client by backend.
func (h *host) backends(client netip.Addr, proto uint8) map[netip.Addr]int {
	h.w.t.Helper()
	out := map[netip.Addr]int{}
	m := h.dev.coll.Maps["other"]
	if proto == unix.IPPROTO_TCP {
		m = h.dev.coll.Maps["tcp"]
	}
	var k flowKey
	var v flowValue
	it := m.Iterate()
	for it.Next(&k, &v) {
		if k.Dir == 0 && from16(k.Client) == client && k.Proto == proto {
			out[from16(v.Other)]++
		}
	}
	must(h.w.t, it.Err())
	return out
}

// Turns are exact: 10,000 flows over five slots, two of them one instance's, are 2,000 each.
func TestTurnsAreEven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	b1, a2, b2 := w.inst("b1"), w.inst("a2"), w.inst("b2")
	must(t, h.dev.CleanUp())
	h.opts.Flows = 32768 // of which a client has half
	h.open()
	h.service(7, 1, b1, a2, a2, b2)
	const flows = 10000
	for k := range flows {
		f := ether(h.mac(), broadcast(), tcpSegment(client.a4, svc(1, false), uint16(10000+k), 80, 2, 0))
		if v := h.try("from_instance", client.device, f); v != verdictRedirect {
			t.Fatalf("verdict %d", v)
		}
		if k%3 == 0 { // a second packet of a flow does not count
			h.try("from_instance", client.device, f)
		}
	}
	used, err := h.dev.InUse()
	if err != nil || len(used) != 1 || !used[overlay.ServiceAddr{Net: 7, Addr: svc(1, false)}] {
		t.Errorf("in use: %v, %v", used, err)
	}
	got := h.backends(client.a4, unix.IPPROTO_TCP)
	if got[b1.a4] != flows/4 || got[a2.a4] != flows/2 || got[b2.a4] != flows/4 {
		t.Errorf("%v", got)
	}
	// Setting the same again disturbs nothing, not even the turn.
	h.set()
	if s, err := h.dev.Stats(); err != nil || s.Flows != flows || s.MapBytes == 0 || s.FlowsMax < flows {
		t.Errorf("%+v, %v", s, err)
	}
	// What is over goes.
	left, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1, Closing: 0, UDP: 1, ICMP: 1})
	must(t, err)
	eventually(t, "no flows", func() bool {
		left, err = h.dev.walk(sweepArgs{What: doSweep})
		must(t, err)
		return left.Flows == 0
	})
	var k flowKey
	var v flowValue
	if it := h.dev.coll.Maps["tcp"].Iterate(); it.Next(&k, &v) {
		t.Errorf("an entry is left: %+v %+v", k, v)
	}
}

// A flow stays with its backend whatever is added or drained; new ones follow the slots.
func TestFlowsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	for _, n := range []string{"b1", "a2", "b2"} {
		w.inst(n).serve(80)
	}
	h.service(7, 1, w.inst("b1"), w.inst("a2"))
	conns := map[string]net.Conn{}
	for range 2 {
		c, err := client.dial("tcp", svc(1, false), 80)
		must(t, err)
		defer c.Close()
		name, err := askOn(c)
		must(t, err)
		conns[name] = c
	}
	if len(conns) != 2 {
		t.Fatalf("two flows went to %v", conns)
	}
	u, err := client.dial("udp", svc(1, true), 80)
	must(t, err)
	defer u.Close()
	name, err := askOn(u)
	must(t, err)
	h.service(7, 1, w.inst("b2"))
	for range 10 {
		if again, err := askOn(u); err != nil || again != name {
			t.Errorf("%s, then %s, %v", name, again, err)
		}
		if got, err := client.ask("tcp", svc(1, false), 80); err != nil || got != "b2" {
			t.Errorf("a new flow went to %s, %v", got, err)
		}
	}
	for name, c := range conns {
		if err := echo(c, "still here"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// echo sends something on a connection and waits for it to come back.
func echo(c net.Conn, s string) error {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(s)); err != nil {
		return err
	}
	buf := make([]byte, len(s))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != s {
		return fmt.Errorf("%q, %w", buf, err)
	}
	return nil
}

// When a backend is no more, its clients hear of it at once, and no others.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		w := newWorld(t, plain4)
		h, client := w.hosts[0], w.inst("a1")
		w.inst("a2").serve(80)
		w.inst("b1").serve(80)
		h.service(7, 1, w.inst("a2"))
		h.service(7, 2, w.inst("b1"))
		dead, err := client.dial("tcp", svc(1, six), 80)
		must(t, err)
		defer dead.Close()
		_, err = askOn(dead)
		must(t, err)
		alive, err := client.dial("tcp", svc(2, six), 80)
		must(t, err)
		defer alive.Close()
		_, err = askOn(alive)
		must(t, err)
		must(t, h.dev.Reset(w.inst("a2").addr(six)))
		dead.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := dead.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}
		must(t, echo(alive, "alive"))
		// The same address and port can begin anew.
		h.service(7, 1, w.inst("b1"))
		if got, err := client.ask("tcp", svc(1, six), 80); err != nil || got != "b1" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// A client that has sent what is on its way when its flow ends is answered too.
func TestResetAnswersLateSegments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	w.inst("a2").serve(80)
	h.service(7, 1, w.inst("a2"))
	c, err := client.dial("tcp", svc(1, false), 80)
	must(t, err)
	defer c.Close()
	_, err = askOn(c)
	must(t, err)
	// As if the reset had been lost.
	tap := h.dev.tap.Swap(nil)
	must(t, h.dev.Reset(w.inst("a2").a4))
	eventually(t, "the reset is written", func() bool { return h.dev.ring.AvailableBytes() == 0 })
	h.dev.tap.Store(tap)
	c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = c.Write([]byte("x"))
	must(t, err)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
}

// More flows than the programs' buffer has room for end with one Reset.
func TestResetOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("a2"))
	const flows = 2000
	for k := range flows {
		h.try("from_instance", client.device, ether(h.mac(), broadcast(), tcpSegment(client.a4, svc(1, false), uint16(1000+k), 80, 16, 1)))
	}
	must(t, h.dev.Reset(w.inst("a2").a4))
	var k flowKey
	var v flowValue
	n := 0
	for it := h.dev.coll.Maps["tcp"].Iterate(); it.Next(&k, &v); n++ {
		if v.Flags&32 == 0 {
			t.Fatalf("%+v %+v", k, v)
		}
	}
	if n != flows {
		t.Errorf("%d entries for %d flows", n, flows)
	}
	// They are answered for a while, and then go.
	if _, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1 << 30}); err != nil || len(h.backends(client.a4, unix.IPPROTO_TCP)) > 1 {
		t.Errorf("%v", err)
	}
}

// A full table refuses new flows, says so, and keeps those that are there.
func TestFullTableRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	w.inst("b1").serve(80)
	h.service(7, 1, w.inst("b1"))
	c, err := client.dial("tcp", svc(1, false), 80)
	must(t, err)
	defer c.Close()
	_, err = askOn(c)
	must(t, err)
	refused := 0
	for k := range h.opts.Flows + 100 {
		if h.try("from_instance", client.device, ether(h.mac(), broadcast(), tcpSegment(client.a4, svc(1, false), uint16(1000+k), 81, 2, 0))) == verdictDrop {
			refused++
		}
	}
	if refused < 50 || h.count("drop-full") < 50 {
		t.Errorf("%d flows were refused, %d counted", refused, h.count("drop-full"))
	}
	must(t, echo(c, "still here"))
	if e := <-h.dev.Events(); e.Kind != overlay.EventFull || e.Src != client.a4 || e.Dst != svc(1, false) || e.Net != 7 {
		t.Errorf("%+v", e)
	}
	// Other protocols have a table of their own.
	if got, err := client.ask("udp", svc(1, false), 80); err != nil || got != "b1" {
		t.Errorf("%s, %v", got, err)
	}
}

// Whoever fills the table of flows with what nobody answers leaves room for others: a client has at most as many as are still free.
func TestOneClientLeavesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, hostile, honest := w.hosts[0], w.inst("a1"), w.inst("b1")
	w.inst("a2").serve(80)
	h.service(7, 1, w.inst("a2"))
	port := uint16(1000)
	flood := func(of *inst) (entered int) {
		for range 2 * h.opts.Flows {
			port++
			if h.try("from_instance", of.device, ether(h.mac(), broadcast(), tcpSegment(of.a4, svc(1, false), port, 81, 2, 0))) != verdictDrop {
				entered++
			}
		}
		return entered
	}
	shares := func() (own, all shareValue) {
		must(t, h.dev.coll.Maps["shares"].Lookup(address(hostile.a4.As16()), &own))
		must(t, h.dev.coll.Maps["all"].Lookup(uint32(0), &all))
		return own, all
	}
	first := flood(hostile)
	if half := h.opts.Flows / 2; first < half-2 || first > half+half/8 {
		t.Errorf("%d of %d flows are those of one client", first, h.opts.Flows)
	}
	for range 20 {
		if got, err := honest.ask("tcp", svc(1, false), 80); err != nil || got != "a2" {
			t.Fatalf("another client: %s, %v", got, err)
		}
	}
	// What was counted is what there is, also once it was counted anew.
	_, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1 << 30, Closing: 1 << 30, UDP: 1 << 30, ICMP: 1 << 30})
	must(t, err)
	if own, all := shares(); int(own.Flows) != first || all.Flows < own.Flows || int(all.Flows) > first+20 || int(all.Most) != h.opts.Flows {
		t.Errorf("%d flows: of the client %+v, of all %+v", first, own, all)
	}
	if more := flood(hostile); more > h.opts.Flows/16 {
		t.Errorf("%d more entered", more)
	}
}

// A client reaches itself through a service address that leads to it alone.
func TestClientIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	client.serve(80)
	h.service(7, 1, client)
	for _, six := range []bool{false, true} {
		c, err := client.dial("tcp", svc(1, six), 80)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 64)
		if n, err := c.Read(b); err != nil || string(b[:3]) != "a1 " {
			t.Errorf("%q, %v", b[:n], err)
		}
		c.Close()
		if err := client.ping(svc(1, six), 100); err != nil {
			t.Error(err)
		}
	}
	// With others to choose from it is led to them.
	w.inst("b1").serve(80)
	h.service(7, 2, client, w.inst("b1"))
	for range 8 {
		if got, err := client.ask("tcp", svc(2, false), 80); err != nil || got != "b1" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// initial is how a QUIC connection begins, and short how each later packet does.
func initial() []byte { return []byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8} }
func short() []byte   { return []byte{0x43, 1, 2, 3, 4, 5, 6, 7, 8, 9} }

// A QUIC client that goes on from another port stays with its backend.
func TestConnectionMigrates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("b1"), w.inst("a2"), w.inst("b2"))
	at := func(sport uint16, payload []byte) netip.Addr {
		before := h.backends(client.a4, unix.IPPROTO_UDP)
		h.try("from_instance", client.device, ether(h.mac(), broadcast(), udp(client.a4, svc(1, false), sport, 443, payload)))
		for a, n := range h.backends(client.a4, unix.IPPROTO_UDP) {
			if n != before[a] {
				return a
			}
		}
		return netip.Addr{}
	}
	first := at(5000, initial())
	for k := range uint16(5) {
		if got := at(6000+k, short()); got != first {
			t.Errorf("migrated from %s to %s", first, got)
		}
	}
	// What is not QUIC takes turns.
	seen := map[netip.Addr]bool{}
	for k := range uint16(3) {
		seen[at(7000+k, []byte("\x00anything"))] = true
	}
	if len(seen) != 3 {
		t.Errorf("other datagrams went to %v", seen)
	}
}

// Protocols without ports, and SCTP, are led by what they have.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("a2"))
	raw := func(i *inst, proto int) int {
		var fd int
		must(t, kernel.In(i.ns, func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
			if err == nil {
				err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
			}
			return err
		}))
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, proto := range []int{unix.IPPROTO_SCTP, 253} {
		server, c := raw(w.inst("a2"), proto), raw(client, proto)
		// Ports 4660 and 80, a tag, and a sum which must arrive as it was sent.
		msg := []byte{0x12, 0x34, 0, 80, 1, 2, 3, 4, 0xde, 0xad, 0xbe, 0xef, 9, 9, 9, 9}
		must(t, unix.Sendto(c, msg, 0, &unix.SockaddrInet4{Addr: svc(1, false).As4()}))
		buf := make([]byte, 1500)
		n, from, err := testenv.Recvfrom(server, buf)
		if err != nil || n != 20+len(msg) || string(buf[20:n]) != string(msg) || from.(*unix.SockaddrInet4).Addr != client.a4.As4() {
			t.Fatalf("protocol %d: %d bytes from %v, %v", proto, n, from, err)
		}
		answer := append([]byte(nil), msg...)
		copy(answer, []byte{0, 80, 0x12, 0x34})
		must(t, unix.Sendto(server, answer, 0, from))
		n, from, err = testenv.Recvfrom(c, buf)
		if err != nil || string(buf[20:n]) != string(answer) || from.(*unix.SockaddrInet4).Addr != svc(1, false).As4() {
			t.Errorf("protocol %d: the client gets %x from %v, %v", proto, buf[:n], from, err)
		}
	}
}

// An ICMP error about a flow tells the client of the packet that it has sent.
func TestErrorsComeBack(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"b1", "a2"} {
		w := newWorld(t, plain4)
		h, client := w.hosts[0], w.inst("a1")
		h.service(7, 1, w.inst(to))
		for _, six := range []bool{false, true} {
			c, err := client.dial("udp", svc(1, six), 9) // nobody listens
			must(t, err)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Write([]byte("x"))
			must(t, err)
			if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s, IPv6 %v: the client sees %v", to, six, err)
			}
			c.Close()
		}
	}
}

// An error that a client sends about an answer reaches the backend as one about what it sent.
func TestErrorsGoForth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("a2"))
	server := w.inst("a2").listen(80)
	for _, six := range []bool{false, true} {
		c, err := client.dial("udp", svc(1, six), 80)
		must(t, err)
		_, err = c.Write([]byte("x"))
		must(t, err)
		_, from := hears(server, 10*time.Second)
		c.Close()
		var back *net.UDPConn
		must(t, kernel.In(w.inst("a2").ns, func() error {
			// A socket of the same address and port that is connected hears errors.
			server.Close()
			// A process that another test starts just now has the closed socket until it executes its program.
			end := time.Now().Add(10 * time.Second)
			for {
				var err error
				back, err = net.DialUDP("udp", &net.UDPAddr{Port: 80}, net.UDPAddrFromAddrPort(from))
				if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		}))
		back.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = back.Write([]byte("y"))
		must(t, err)
		if _, err := back.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("IPv6 %v: the server sees %v", six, err)
		}
		back.Close()
		server = w.inst("a2").listen(80)
	}
}
