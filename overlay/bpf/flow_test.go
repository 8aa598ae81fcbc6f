//go:build linux

package bpf

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// backends counts the flows of a client by backend.
func (h *host) backends(client netip.Addr, proto uint8) map[netip.Addr]int {
	h.T.Helper()
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
	planetest.Must(h.T, it.Err())
	return out
}

// Turns are exact: 10,000 flows over five slots, two of them one instance's, are 2,000 each.
func TestTurnsAreEven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	b1, a2, b2 := w.Inst("b1"), w.Inst("a2"), w.Inst("b2")
	planetest.Must(t, h.dev.CleanUp())
	h.opts.Flows = 32768 // of which a client has half
	h.Open()
	h.Service(7, 1, b1, a2, a2, b2)
	const flows = 10000
	for k := range flows {
		f := h.Frame(planetest.TCP(client.A4, planetest.Svc(1, false), uint16(10000+k), 80, 2, 0))
		if v := h.try("from_instance", client.Device, f); v != verdictRedirect {
			t.Fatalf("verdict %d", v)
		}
		if k%3 == 0 { // a second packet of a flow does not count
			h.try("from_instance", client.Device, f)
		}
	}
	used, err := h.dev.InUse()
	if err != nil || len(used) != 1 || !used[overlay.ServiceAddr{Net: 7, Addr: planetest.Svc(1, false)}] {
		t.Errorf("in use: %v, %v", used, err)
	}
	got := h.backends(client.A4, unix.IPPROTO_TCP)
	if got[b1.A4] != flows/4 || got[a2.A4] != flows/2 || got[b2.A4] != flows/4 {
		t.Errorf("%v", got)
	}
	// Setting the same again disturbs nothing, not even the turn.
	h.Set()
	if s, err := h.dev.Stats(); err != nil || s.Flows != flows || s.MapBytes == 0 || s.FlowsMax < flows {
		t.Errorf("%+v, %v", s, err)
	}
	// What is over goes.
	left, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1, Closing: 0, UDP: 1, ICMP: 1})
	planetest.Must(t, err)
	planetest.Eventually(t, "no flows", func() bool {
		left, err = h.dev.walk(sweepArgs{What: doSweep})
		planetest.Must(t, err)
		return left.Flows == 0
	})
	var k flowKey
	var v flowValue
	if it := h.dev.coll.Maps["tcp"].Iterate(); it.Next(&k, &v) {
		t.Errorf("an entry is left: %+v %+v", k, v)
	}
}

// A client that has sent what is on its way when its flow ends is answered too.
func TestResetAnswersLateSegments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	c, err := client.Dial("tcp", planetest.Svc(1, false), 80)
	planetest.Must(t, err)
	defer c.Close()
	_, err = planetest.AskOn(c)
	planetest.Must(t, err)
	// As if the reset had been lost.
	tap := h.dev.tap.Swap(nil)
	planetest.Must(t, h.dev.Reset(w.Inst("a2").A4))
	planetest.Eventually(t, "the reset is written", func() bool { return h.dev.ring.AvailableBytes() == 0 })
	h.dev.tap.Store(tap)
	c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = c.Write([]byte("x"))
	planetest.Must(t, err)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
}

// More flows than the programs' buffer has room for end with one Reset.
func TestResetOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	h.Service(7, 1, w.Inst("a2"))
	const flows = 2000
	for k := range flows {
		h.try("from_instance", client.Device, h.Frame(planetest.TCP(client.A4, planetest.Svc(1, false), uint16(1000+k), 80, 16, 1)))
	}
	planetest.Must(t, h.dev.Reset(w.Inst("a2").A4))
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
	if _, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1 << 30}); err != nil || len(h.backends(client.A4, unix.IPPROTO_TCP)) > 1 {
		t.Errorf("%v", err)
	}
}

// A full table refuses new flows, says so, and keeps those that are there.
func TestFullTableRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	w.Inst("b1").Serve(80)
	h.Service(7, 1, w.Inst("b1"))
	c, err := client.Dial("tcp", planetest.Svc(1, false), 80)
	planetest.Must(t, err)
	defer c.Close()
	_, err = planetest.AskOn(c)
	planetest.Must(t, err)
	refused := 0
	for k := range h.opts.Flows + 100 {
		frame := h.Frame(planetest.TCP(client.A4, planetest.Svc(1, false), uint16(1000+k), 81, 2, 0))
		if h.try("from_instance", client.Device, frame) == verdictDrop {
			refused++
		}
	}
	if refused < 50 || h.Count("drop-full") < 50 {
		t.Errorf("%d flows were refused, %d counted", refused, h.Count("drop-full"))
	}
	planetest.Must(t, planetest.Echo(c, "still here"))
	if e := <-h.dev.Events(); e.Kind != overlay.EventFull || e.Src != client.A4 || e.Dst != planetest.Svc(1, false) || e.Net != 7 {
		t.Errorf("%+v", e)
	}
	// Other protocols have a table of their own.
	if got, err := client.Ask("udp", planetest.Svc(1, false), 80); err != nil || got != "b1" {
		t.Errorf("%s, %v", got, err)
	}
}

// Whoever fills the table of flows with what nobody answers leaves room for others: a client has at most as many as are still free.
func TestOneClientLeavesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, hostile, honest := w.hosts[0], w.Inst("a1"), w.Inst("b1")
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	port := uint16(1000)
	flood := func(of *planetest.Inst) (entered int) {
		for range 2 * h.opts.Flows {
			port++
			if h.try("from_instance", of.Device, h.Frame(planetest.TCP(of.A4, planetest.Svc(1, false), port, 81, 2, 0))) != verdictDrop {
				entered++
			}
		}
		return entered
	}
	shares := func() (own, all shareValue) {
		planetest.Must(t, h.dev.coll.Maps["shares"].Lookup(address(hostile.A4.As16()), &own))
		planetest.Must(t, h.dev.coll.Maps["all"].Lookup(uint32(0), &all))
		return own, all
	}
	first := flood(hostile)
	if half := h.opts.Flows / 2; first < half-2 || first > half+half/8 {
		t.Errorf("%d of %d flows are those of one client", first, h.opts.Flows)
	}
	for range 20 {
		if got, err := honest.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
			t.Fatalf("another client: %s, %v", got, err)
		}
	}
	// What was counted is what there is, also once it was counted anew.
	_, err := h.dev.walk(sweepArgs{What: doSweep, Established: 1 << 30, Closing: 1 << 30, UDP: 1 << 30, ICMP: 1 << 30})
	planetest.Must(t, err)
	if own, all := shares(); int(own.Flows) != first || all.Flows < own.Flows || int(all.Flows) > first+20 || int(all.Most) != h.opts.Flows {
		t.Errorf("%d flows: of the client %+v, of all %+v", first, own, all)
	}
	if more := flood(hostile); more > h.opts.Flows/16 {
		t.Errorf("%d more entered", more)
	}
}

// initial is how a QUIC connection begins, and short how each later packet does.
func initial() []byte { return []byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8} }
func short() []byte   { return []byte{0x43, 1, 2, 3, 4, 5, 6, 7, 8, 9} }

// A QUIC client that goes on from another port stays with its backend.
func TestConnectionMigrates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	h.Service(7, 1, w.Inst("b1"), w.Inst("a2"), w.Inst("b2"))
	at := func(sport uint16, payload []byte) netip.Addr {
		before := h.backends(client.A4, unix.IPPROTO_UDP)
		h.try("from_instance", client.Device, h.Frame(planetest.UDP(client.A4, planetest.Svc(1, false), sport, 443, payload)))
		for a, n := range h.backends(client.A4, unix.IPPROTO_UDP) {
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

// An error that a client sends about an answer reaches the backend as one about what it sent.
func TestErrorsGoForth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	h.Service(7, 1, w.Inst("a2"))
	server := w.Inst("a2").Listen(80)
	for _, six := range []bool{false, true} {
		c, err := client.Dial("udp", planetest.Svc(1, six), 80)
		planetest.Must(t, err)
		_, err = c.Write([]byte("x"))
		planetest.Must(t, err)
		_, from := planetest.Hears(server, 10*time.Second)
		c.Close()
		var back *net.UDPConn
		planetest.Must(t, kernel.In(w.Inst("a2").NS, func() error {
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
		planetest.Must(t, err)
		if _, err := back.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("IPv6 %v: the server sees %v", six, err)
		}
		back.Close()
		server = w.Inst("a2").Listen(80)
	}
}
