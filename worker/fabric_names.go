//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"skerry.dev/skerry/overlay/resolver"
)

// socketKeeper is a Tunnel that keeps sockets while there is no agent.
type socketKeeper interface {
	// Keep hands sockets over, in the place of those that are kept. This agent uses them on.
	Keep(ctx context.Context, sockets ...syscall.Conn) error
	// Kept gives those that an earlier agent handed over, for the caller to close.
	Kept(ctx context.Context) ([]*os.File, error)
}

// answer begins to answer instances' questions for names at an address of this host, as soon as names are known. The function
// that it gives ends that, and waits for the end.
func (f *fabric) answer(ctx context.Context, at netip.Addr) (hush func(), err error) {
	if !at.IsValid() {
		return nil, errors.New("answer names: this host's address towards instances is not known") // and not at all addresses of the host
	}
	addr := netip.AddrPortFrom(at, 53)
	pc, l, err := f.listen(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("answer names at %s: %w", addr, err)
	}
	r := resolver.New(resolver.Options{Wanted: f.lookup, Log: f.log})
	var serving sync.WaitGroup
	f.setting.Lock()
	f.mu.Lock()
	f.names, f.named = r, resolver.Config{}
	f.mu.Unlock()
	f.begin = func() {
		serving.Go(func() { _ = r.ServeUDP(pc) })
		serving.Go(func() { _ = r.ServeTCP(l) })
	}
	f.setting.Unlock()
	f.nudge()
	return func() {
		f.setting.Lock()
		f.begin = nil
		f.setting.Unlock()
		pc.Close()
		l.Close()
		r.Close()
		serving.Wait()
	}, nil
}

// listen opens the sockets for questions, or takes up those of an earlier life of the agent, with the questions that came in
// between.
func (f *fabric) listen(ctx context.Context, addr netip.AddrPort) (pc *net.UDPConn, l *net.TCPListener, err error) {
	k, keeps := f.Tunnel.(socketKeeper)
	if keeps {
		files, err := k.Kept(ctx)
		if err != nil {
			f.log.Warn("the sockets for names of an earlier agent", "err", err)
		}
		for _, file := range files {
			pc, l = takeUp(file, addr, pc, l)
			file.Close()
		}
		if len(files) > 0 && (pc == nil || l == nil) {
			_ = k.Keep(ctx) // they are of another address, or of another version
		}
	}
	defer func() {
		if err == nil {
			return
		}
		if pc != nil {
			pc.Close()
		}
		if l != nil {
			l.Close()
		}
	}()
	if pc == nil {
		if pc, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
			return nil, l, err
		}
	}
	if l == nil {
		if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr)); err != nil {
			return pc, nil, err
		}
	}
	if keeps {
		if err := k.Keep(ctx, pc, l); err != nil {
			f.log.Warn("names are not answered while the agent is restarted", "err", err)
		}
	}
	return pc, l, nil
}

// takeUp makes of a socket that was kept what it is, if it is for questions at this address.
func takeUp(file *os.File, addr netip.AddrPort, pc *net.UDPConn, l *net.TCPListener) (*net.UDPConn, *net.TCPListener) {
	if c, err := net.FilePacketConn(file); err == nil {
		if u, ok := c.(*net.UDPConn); ok && pc == nil && u.LocalAddr().String() == addr.String() {
			return u, l
		}
		c.Close()
	} else if c, err := net.FileListener(file); err == nil {
		if t, ok := c.(*net.TCPListener); ok && l == nil && t.Addr().String() == addr.String() {
			return pc, t
		}
		c.Close()
	}
	return pc, l
}
