//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry/overlay/resolver"
)

// naming is the overlay network's part in names; overlayNet.setting is held to change it.
type naming struct {
	named   resolver.Config
	names   *resolver.Resolver // nil: instances ask the host's name servers
	begin   func()             // begins to answer, once the first names are told; nil: it has begun
	sockets *sockets           // for names, and those of the ingress
}

// answer begins to answer instances' questions for names at an address of this host, as soon as names are known. The function
// that it gives ends that, and waits for the end.
func (f *overlayNet) answer(ctx context.Context, at netip.Addr) (hush func(), err error) {
	if !at.IsValid() {
		return nil, errors.New("answer names: this host's address towards instances is not known") // and not at all addresses of the host
	}
	addr := netip.AddrPortFrom(at, 53)
	pc, listener, err := f.listen(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("answer names at %s: %w", addr, err)
	}
	r := resolver.New(resolver.Options{Wanted: f.lookup, Log: f.log})
	var serving, asked sync.WaitGroup
	f.setting.Lock()
	f.mu.Lock()
	f.names, f.named = r, resolver.Config{}
	f.mu.Unlock()
	f.begin = func() {
		asked.Go(func() { _ = r.ServeUDP(pc) })
		serving.Go(func() { _ = r.ServeTCP(listener) })
	}
	f.setting.Unlock()
	f.nudge()
	return func() {
		f.setting.Lock()
		f.begin = nil
		f.setting.Unlock()
		_ = pc.SetReadDeadline(time.Now()) // what was read is answered, and the rest is left to the next agent
		asked.Wait()
		pc.Close()
		listener.Close()
		r.Close()
		serving.Wait()
	}, nil
}

// listen opens the sockets for questions, or takes up those of an earlier life of the agent, with the questions that came in
// between.
func (f *overlayNet) listen(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, net.Listener, error) {
	f.sockets.release(ctx, true, namesElsewhere(addr))
	pc, err := f.sockets.udp(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	l, err := f.sockets.tcp(ctx, addr, func() (net.Listener, error) { return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr)) })
	if err != nil {
		pc.Close()
		return nil, nil, err
	}
	return pc, l, nil
}
