package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/wire"
)

const kernelPort = 51821

// cover is what paths of a case add to packets.
func (l *lane) cover() int {
	if l.name == caseKernel {
		return overlay.LinkCover
	}
	return overlay.Cover
}

// kernel gives a host a device of the kernel's WireGuard, and says so in the configuration of its data plane.
func (l *lane) kernel(i int, c *overlay.Config, to *overlay.Peer) error {
	host, o := l.hosts[i], l.hosts[1-i]
	if l.keys[i] == ([32]byte{}) {
		for k := range l.keys {
			s, _, err := newSecret()
			if err != nil {
				return err
			}
			l.keys[k] = s
		}
	}
	err := host.ns.do(func() (err error) {
		l.links[i], err = wireguard.New(wireguard.Options{Worker: fmt.Sprint("bench", host.n), Key: l.keys[i], Port: kernelPort})
		return err
	})
	if u, ok := errors.AsType[*wireguard.Unsupported](err); ok {
		return &skipped{u.Reason}
	}
	if err != nil {
		return err
	}
	l.later(l.links[i].CleanUp)
	key, err := wireguard.Public(l.keys[1-i])
	if err != nil {
		return err
	}
	local := l.links[i].Local()
	c.Local.Link, to.Link = &local, &overlay.LinkPath{Prefix: wireguard.Prefix(key), Use: true}
	return l.links[i].Set(l.ctx, wireguard.Config{MTU: 1500 - overlay.LinkCover,
		Peers: []wireguard.Peer{{ID: wire.PeerID(o.n), Key: key, At: netip.AddrPortFrom(o.addr, kernelPort)}}})
}

// meet waits until both kernels have met.
func (l *lane) meet() error {
	return within(l.ctx, 20*time.Second, "the WireGuard devices reach each other", func() (bool, error) {
		return len(l.links[0].Up()) == 1 && len(l.links[1].Up()) == 1, nil
	})
}
