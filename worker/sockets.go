//go:build linux

package worker

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// socketKeeper is a Tunnel that keeps sockets while there is no agent.
type socketKeeper interface {
	// Keep hands sockets over, in the place of those that are kept. This agent uses them on.
	Keep(ctx context.Context, sockets ...syscall.Conn) error
	// Kept gives those that an earlier agent handed over, for the caller to close.
	Kept(ctx context.Context) ([]*os.File, error)
}

// fewSockets is how many every datapath keeps; those of earlier versions keep no more.
const fewSockets = 8

// sockets are those at which this worker answers names and takes clients of ingresses. Where there is a keeper they outlive the agent: who
// comes while there is none waits in the kernel for the next one.
type sockets struct {
	keeper socketKeeper // nil: they end with the agent
	log    *slog.Logger

	mu   sync.Mutex
	live map[string]syscall.Conn // opened or taken up by this agent, by what socketKey gives
}

func newSockets(t Tunnel, log *slog.Logger) *sockets {
	k, _ := t.(socketKeeper)
	return &sockets{keeper: k, log: log, live: map[string]syscall.Conn{}}
}

// socketKey names a socket. UDP comes first in order, because names matter most.
func socketKey(a net.Addr) string {
	if a.Network() == "udp" {
		return "1 udp " + a.String()
	}
	return "2 tcp " + a.String()
}

// tcpKey is the key of a listener at an address. One for all addresses is shown by its IPv6 form where the host has that.
func tcpKey(a netip.AddrPort, have func(string) bool) string {
	if a.Addr().IsUnspecified() {
		if k := socketKey(&net.TCPAddr{IP: net.IPv6unspecified, Port: int(a.Port())}); have(k) {
			return k
		}
	}
	return socketKey(net.TCPAddrFromAddrPort(a))
}

// udp listens at an address, or takes up the socket of an earlier agent.
func (s *sockets) udp(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.keptLocked(ctx)
	defer closeFiles(kept)
	var out *net.UDPConn
	if f := kept[socketKey(net.UDPAddrFromAddrPort(addr))]; f != nil {
		if c, err := net.FilePacketConn(f); err == nil {
			out = c.(*net.UDPConn)
		}
	}
	if out == nil {
		var err error
		if out, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
			return nil, err
		}
	}
	s.holdLocked(ctx, socketKey(out.LocalAddr()), out, kept)
	return out, nil
}

// tcp listens at an address by open, or takes up the socket of an earlier agent.
func (s *sockets) tcp(ctx context.Context, addr netip.AddrPort, open func() (net.Listener, error)) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.keptLocked(ctx)
	defer closeFiles(kept)
	var out net.Listener
	if f := kept[tcpKey(addr, func(k string) bool { return kept[k] != nil })]; f != nil {
		if l, err := net.FileListener(f); err == nil {
			out = l
		}
	}
	if out == nil {
		var err error
		if out, err = open(); err != nil {
			return nil, err
		}
	}
	if c, ok := out.(syscall.Conn); ok {
		s.holdLocked(ctx, socketKey(out.Addr()), c, kept)
	}
	return out, nil
}

// keptLocked gives what is kept, by key.
func (s *sockets) keptLocked(ctx context.Context) map[string]*os.File {
	out := map[string]*os.File{}
	if s.keeper == nil {
		return out
	}
	files, err := s.keeper.Kept(ctx)
	if err != nil {
		s.log.Warn("the sockets of an earlier agent", "err", err)
	}
	for _, f := range files {
		key := ""
		if c, err := net.FilePacketConn(f); err == nil {
			key = socketKey(c.LocalAddr())
			c.Close()
		} else if l, err := net.FileListener(f); err == nil {
			key = socketKey(l.Addr())
			l.Close()
		}
		if key == "" || out[key] != nil {
			f.Close()
			continue
		}
		out[key] = f
	}
	return out
}

func closeFiles(files map[string]*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// holdLocked has one more socket kept, beside the others.
func (s *sockets) holdLocked(ctx context.Context, key string, c syscall.Conn, kept map[string]*os.File) {
	s.live[key] = c
	all := map[string]syscall.Conn{}
	for k, f := range kept {
		all[k] = f
	}
	for k, c := range s.live {
		if open(c) {
			all[k] = c
		} else {
			delete(s.live, k)
		}
	}
	s.keepLocked(ctx, all)
}

// open reports whether a socket was not closed.
func open(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	return err == nil && raw.Control(func(uintptr) {}) == nil
}

func (s *sockets) keepLocked(ctx context.Context, all map[string]syscall.Conn) {
	if s.keeper == nil {
		return
	}
	var list []syscall.Conn
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[k])
	}
	err := s.keeper.Keep(ctx, list...)
	if err != nil && len(list) > fewSockets && ctx.Err() == nil {
		err = s.keeper.Keep(ctx, list[:fewSockets]...)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("names are not answered and clients are refused while the agent is restarted", "err", err)
	}
}

// release lets sockets go that are of no use any more: of those that this agent has, or, with all, also of those that an earlier one left.
func (s *sockets) release(ctx context.Context, all bool, useless func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.keptLocked(ctx)
	defer closeFiles(kept)
	left := map[string]syscall.Conn{}
	for k, f := range kept {
		if _, mine := s.live[k]; !(mine || all) || !useless(k) {
			left[k] = f
		}
	}
	for k, c := range s.live {
		switch {
		case useless(k) || !open(c):
			delete(s.live, k)
		default:
			left[k] = c
		}
	}
	if len(left) != len(kept) {
		s.keepLocked(ctx, left)
	}
}

// namesElsewhere reports whether a socket is for names at another address than this one.
func namesElsewhere(addr netip.AddrPort) func(key string) bool {
	return func(key string) bool {
		_, at, _ := strings.Cut(key[2:], " ")
		a, err := netip.ParseAddrPort(at)
		return err == nil && a.Port() == addr.Port() && a != addr
	}
}
