//go:build linux

package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// oldTunnel keeps few sockets, as datapaths of earlier versions do.
type oldTunnel struct{ keptTunnel }

func (o *oldTunnel) Keep(ctx context.Context, sockets ...syscall.Conn) error {
	if len(sockets) > fewSockets {
		return errors.New("too many")
	}
	return o.keptTunnel.Keep(ctx, sockets...)
}

// TestSocketsOutlive: an agent takes up the listeners of the one before, with the clients that came in between. Those of no use stay until it
// is known that nothing else is wanted.
func TestSocketsOutlive(t *testing.T) {
	k := &keptTunnel{fakeTunnel: fakeTunnel{&fakeParts{}}}
	defer k.Keep(t.Context())
	listen := func(s *sockets, a netip.AddrPort, fresh bool) net.Listener {
		t.Helper()
		opened := false
		l, err := s.tcp(t.Context(), a, func() (net.Listener, error) {
			opened = true
			return net.Listen("tcp", a.String())
		})
		if err != nil || opened != fresh {
			t.Fatalf("%s is opened anew: %v; %v", a, opened, err)
		}
		return l
	}
	answers := func(a netip.AddrPort) bool {
		c, err := net.Dial("tcp", a.String())
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	a := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t)))
	b := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(freePort(t)))
	first := newSockets(k, slog.New(slog.DiscardHandler))
	for _, at := range []netip.AddrPort{a, b} {
		listen(first, at, true).Close() // the agent ends
	}
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	second := newSockets(k, slog.New(slog.DiscardHandler))
	l := listen(second, a, false)
	got, err := l.Accept()
	if err != nil || got.RemoteAddr().String() != c.LocalAddr().String() {
		t.Fatal(got, err)
	}
	got.Close()
	useless := func(key string) bool { return key != socketKey(l.Addr()) }
	second.release(t.Context(), false, useless)
	if !answers(b) {
		t.Error("a listener is let go that may be wanted again")
	}
	second.release(t.Context(), true, useless)
	if answers(b) || !answers(a) {
		t.Errorf("the useless one answers: %v, the other: %v", answers(b), answers(a))
	}
	// What this agent has and no longer offers goes at once.
	m := listen(second, b, true)
	m.Close()
	second.release(t.Context(), false, useless)
	if answers(b) {
		t.Error("a way in that was taken away is still kept")
	}
	l.Close()
}

// TestSocketsOfOldDatapath: names are kept though there are more sockets than the datapath takes.
func TestSocketsOfOldDatapath(t *testing.T) {
	k := &oldTunnel{keptTunnel{fakeTunnel: fakeTunnel{&fakeParts{}}}}
	defer k.Keep(t.Context())
	s := newSockets(k, slog.New(slog.DiscardHandler))
	for range fewSockets + 2 {
		l, err := s.tcp(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") })
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	pc, err := s.udp(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	if kept := s.keptLocked(t.Context()); kept[socketKey(pc.LocalAddr())] == nil || len(kept) != fewSockets {
		t.Errorf("of %d sockets that for names is missing", len(kept))
	} else {
		closeFiles(kept)
	}
}
