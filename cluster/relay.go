package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/roundtrip"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/wire"
)

// startRelay opens the site's relay for one life, and tells the core where it is. A site whose relay cannot open works
// without: workers that do not reach each other directly then have no path. It gives what is to run beside it, or nil.
func (s *Server) startRelay(ctx context.Context, l *loop.Loop) func() error {
	if s.opt.Relay == "" {
		return nil
	}
	run, err := s.openRelay(ctx, l)
	if err != nil {
		s.opt.Log.Error("the site has no relay", "err", err, "hint", "workers behind NATs need it; choose another address with --relay")
	}
	return run
}

func (s *Server) openRelay(ctx context.Context, life *loop.Loop) (func() error, error) {
	addr, err := net.ResolveUDPAddr("udp", s.opt.Relay)
	if err != nil {
		return nil, err
	}
	at := addr.AddrPort()
	if !at.Addr().IsValid() {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	cert, pin, err := relayCertificate()
	if err != nil {
		return nil, err
	}
	var r *relay.Server // nobody is answered before the root has said with which key
	meter := roundtrip.Share(func(b []byte, to netip.AddrPort) error { return r.Send(b, to) }, s.opt.Log)
	r, err = relay.New(relay.Options{Name: s.opt.Name, UDP: at, TLS: at, Certificate: cert, Log: s.opt.Log,
		Probe: func(b []byte, from netip.AddrPort) { meter.Take(time.Now(), b, from) }})
	if err != nil {
		return nil, err
	}
	s.relay.Store(r)
	context.AfterFunc(ctx, func() { r.Close() })
	up := core.RelayUp{UDP: reachedAt(at, r.UDP()), TLS: reachedAt(at, r.TLS()), Pin: pin}
	if s.opt.RelayPublic != "" {
		if up.Public, err = publicAddress(s.opt.RelayPublic, r.UDP().Port()); err != nil {
			return nil, err
		}
	} else if s.opt.Root != nil {
		up.Public = netip.AddrPortFrom(outbound(s.opt.Root.Addrs()), r.UDP().Port())
		if !up.Public.Addr().IsValid() {
			up.Public = netip.AddrPort{}
		}
	}
	life.Post(up)
	if s.opt.Root == nil {
		return nil, nil
	}
	s.meter.Store(meter)
	return func() error { return measureGateways(ctx, life, meter, up.Public) }, nil
}

// gatewayEvery is how often it is looked whether round trips to other sites have changed.
const gatewayEvery = 2 * time.Second

// measureGateways measures round trips to the gateways of other sites, and tells the core of them, until ctx ends.
func measureGateways(ctx context.Context, life *loop.Loop, meter *roundtrip.Meter, public netip.AddrPort) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { meter.Run(ctx) })
	tick := time.NewTicker(gatewayEvery)
	defer tick.Stop()
	var told *wire.Gateway
	for {
		now := &wire.Gateway{Heard: meter.Heard(coord.MostGateways)}
		if public.IsValid() {
			now.Probe = public.String()
		}
		for i := range now.Heard {
			now.Heard[i].Ms = max(now.Heard[i].Ms, core.LeastHeard)
		}
		if !core.SameGateway(told, now) {
			told = now
			life.Post(core.GatewayHeard{Gateway: *now})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// reachedAt is what workers hear of an address that is listened on: an unspecified one stays so, with the port that was given.
func reachedAt(asked, got netip.AddrPort) netip.AddrPort {
	if asked.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), got.Port())
	}
	return netip.AddrPortFrom(asked.Addr(), got.Port())
}

// publicAddress reads what an operator gave: an address, with or without a port.
func publicAddress(s string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	u, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("the relay's public address: %w", err)
	}
	return netip.AddrPortFrom(u.AddrPort().Addr().Unmap(), u.AddrPort().Port()), nil
}

// outbound is the address that this machine has towards others. Nothing is sent to find out.
func outbound(addrs []string) netip.Addr {
	for _, a := range addrs {
		c, err := net.Dial("udp", a)
		if err != nil {
			continue
		}
		defer c.Close()
		if u, ok := c.LocalAddr().(*net.UDPAddr); ok && !u.IP.IsLoopback() {
			return u.AddrPort().Addr().Unmap()
		}
	}
	return netip.Addr{}
}

// relayCertificate makes a certificate for this life of the relay. Workers are told its key over their link, and trust no
// name and no time in it.
func relayCertificate() (cert tls.Certificate, pin [32]byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, pin, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "skerry relay"}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return cert, pin, err
	}
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return cert, pin, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(spki), nil
}
