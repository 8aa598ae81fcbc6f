//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/resolver"
	"skerry.dev/skerry/wire"
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

// lookup is told that an instance asked for the name of a service. The channel is closed when its routes are here; nil:
// they are, or there is no such service. That an application's directory knows, so that nobody has routes fetched by names
// that he makes up.
func (f *overlayNet) lookup(app skerry.AppKey, service skerry.ServiceKey) <-chan struct{} {
	f.mu.Lock()
	ends := []skerry.ServiceKey{service}
	if n := f.nets[app]; n != nil {
		ends = nil
		for s := range n.Addressed() {
			if n.Real(s) == service {
				ends = n.Ends(s)
			}
		}
	}
	// Of the services of an alias all are asked for; the routes of the others come with those that are waited for, or soon after.
	missing := slices.IndexFunc(ends, func(k skerry.ServiceKey) bool { return f.routes[k] == nil })
	var wait chan struct{}
	if missing >= 0 {
		if wait = f.waiters[ends[missing]]; wait == nil && len(f.waiters) >= maxWaiters {
			f.mu.Unlock()
			return nil
		}
		if wait == nil {
			wait = make(chan struct{})
			f.waiters[ends[missing]] = wait
		}
	}
	for _, k := range ends {
		f.wanted[k] = time.Now()
	}
	f.mu.Unlock()
	if wait == nil {
		return nil // and not a channel that is nil
	}
	f.review(time.Now())
	return wait
}

// joinedAliasesLocked has the routes fetched of services that join an alias of which all routes are here: until they come it leads nowhere,
// and the packet that would ask for them is one that is lost.
func joinedAliasesLocked(f *overlayNet, was, is *wire.AppNetwork) {
	if was == nil {
		return
	}
	missing := func(k skerry.ServiceKey) bool { return f.routes[k] == nil }
	for i := range is.Aliases {
		for j := range was.Aliases {
			if was.Real(&was.Aliases[j]) != is.Real(&is.Aliases[i]) || slices.ContainsFunc(was.Ends(&was.Aliases[j]), missing) {
				continue
			}
			for _, k := range is.Ends(&is.Aliases[i]) {
				if missing(k) {
					f.wanted[k] = time.Now()
				}
			}
		}
	}
}
