//go:build linux

package worker

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// keptTunnel keeps sockets, as a datapath does.
type keptTunnel struct {
	fakeTunnel
	files []*os.File
}

func (k *keptTunnel) Keep(_ context.Context, sockets ...syscall.Conn) error {
	for _, f := range k.files {
		f.Close()
	}
	k.files = nil
	for _, s := range sockets {
		raw, err := s.SyscallConn()
		if err != nil {
			return err
		}
		var dup int
		if err := raw.Control(func(fd uintptr) { dup, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
			return err
		}
		k.files = append(k.files, os.NewFile(uintptr(dup), "kept"))
	}
	return nil
}

func (k *keptTunnel) Kept(context.Context) (out []*os.File, err error) {
	for _, f := range k.files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		_ = raw.Control(func(fd uintptr) {
			dup, _ := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			out = append(out, os.NewFile(uintptr(dup), "given"))
		})
	}
	return out, nil
}

// TestNamesOutlive lets a life of the agent end, and another take up its sockets with what came in between.
func TestNamesOutlive(t *testing.T) {
	k := &keptTunnel{fakeTunnel: fakeTunnel{&fakeParts{}}}
	defer k.Keep(t.Context())
	f := newOverlayNet(Overlay{Tunnel: k}, slog.New(slog.DiscardHandler))
	addr := netip.MustParseAddrPort("127.0.0.1:5353")
	pc, l, err := f.listen(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	pc.Close()
	l.Close()
	c, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("web?")); err != nil {
		t.Fatal(err)
	}
	s, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if pc, l, err = f.listen(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := pc.Read(b); err != nil || string(b[:n]) != "web?" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if a, err := l.Accept(); err != nil {
		t.Error(err)
	} else {
		a.Close()
	}
	pc.Close()
	l.Close()

	// The address of the bridge is another one: what was kept is of no use, and let go.
	other := netip.MustParseAddrPort("127.0.0.2:5353")
	if pc, l, err = f.listen(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	defer l.Close()
	if pc.LocalAddr().String() != other.String() || l.Addr().String() != other.String() {
		t.Errorf("listens at %s and %s", pc.LocalAddr(), l.Addr())
	}
	if again, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
		t.Errorf("the address from before: %v", err)
	} else {
		again.Close()
	}
	// Never at all addresses of the host.
	if _, err := f.answer(t.Context(), netip.Addr{}); err == nil {
		t.Error("answers without an address")
	}
}
