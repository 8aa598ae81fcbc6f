//go:build linux

package tunnel

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
)

// TestPanicEndsNoTunnel: a datagram on which the datapath panics is lost, a request from the agent fails, and both go on.
func TestPanicEndsNoTunnel(t *testing.T) {
	said := make(words, 8)
	e := New(Options{Log: slog.New(slog.NewTextHandler(said, nil))})
	defer e.Close()
	s, err := openSocket(0)
	must(t, err)
	e.sock.Store(s)
	r, err := newUDPReader(e, s)
	must(t, err)
	r.run()
	defer r.close()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.port)))
	must(t, err)
	defer c.Close()
	relays := e.relayAt.Swap(nil)
	_, err = c.Write([]byte{typeData})
	must(t, err)
	t.Log(<-said)
	e.relayAt.Store(relays)
	_, err = c.Write([]byte{typeData})
	must(t, err)
	eventually(t, "the next datagram", func() bool { return e.count.all()["drop-malformed"] > 0 })
	if err := e.call(func() { panic("ouch") }); err == nil {
		t.Error("a request that panicked succeeded")
	}
	must(t, e.call(func() {}))
	e.inbox <- func() { panic("ouch") }
	t.Log(<-said)
	must(t, e.call(func() {}))
}

type words chan string

func (w words) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }
