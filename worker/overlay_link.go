//go:build linux

package worker

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/wire"
)

// link tells WireGuard of its peers, and takes up which of them are reached by it.
func (f *overlayNet) link(ctx context.Context) error {
	f.mu.Lock()
	ask := f.Tunnel != nil && slices.ContainsFunc(slices.Collect(maps.Values(f.peers)),
		func(p *wire.OverlayPeer) bool { return p.WireGuard != nil })
	f.mu.Unlock()
	var direct map[wire.PeerID]netip.Addr
	if ask {
		// It may be busy, or be started again; where it reached peers before stands until it says otherwise.
		if st, err := f.Tunnel.Status(ctx); err == nil {
			direct = map[wire.PeerID]netip.Addr{}
			for _, p := range st.Peers {
				if p.Path == overlay.PathDirect {
					direct[p.Peer] = p.Endpoint.Addr()
				}
			}
		}
	}
	var parent netip.Addr
	if f.Parent != nil {
		parent = f.Parent()
	}
	f.mu.Lock()
	if direct != nil {
		f.direct = direct
	}
	c := wireguard.Config{Peers: f.linkedLocked()}
	for _, r := range f.node.Relays {
		if udp := at(r.UDP, parent); udp.IsValid() {
			c.Relays = append(c.Relays, wireguard.Relay{UDP: udp, ID: f.node.ID, Key: r.Key})
		}
	}
	for _, i := range f.insts {
		if f.ofBlocksLocked(i.at) && i.at.MTU > c.MTU {
			c.MTU = i.at.MTU
		}
	}
	f.mu.Unlock()
	var err error
	if f.linked == nil || !reflect.DeepEqual(c, *f.linked) {
		if err = f.WireGuard.Set(ctx, c); err == nil {
			f.linked = &c
		}
	}
	up := f.WireGuard.Up()
	f.mu.Lock()
	f.up = up
	f.mu.Unlock()
	return err
}

// turned takes up that other peers are reached, or that this worker's port is seen at another address.
func (f *overlayNet) turned() {
	seen := f.WireGuard.Reflexive()
	f.mu.Lock()
	moved := f.seen != seen
	f.seen = seen
	f.mu.Unlock()
	if moved {
		go f.facts()
	}
	f.nudge()
}

// linkedLocked are the peers that WireGuard is to reach: those of this site whose kernels have it, on networks that nobody trusts.
// At is the address where the tunnel reaches them now, at their port for WireGuard as it is seen from here: behind a NAT that gives
// each end of a connection a port of its own it leads nowhere, and packets go by the tunnel. While the tunnel does not reach them, because
// nothing is sent by it, nothing is tried.
func (f *overlayNet) linkedLocked() (out []wireguard.Peer) {
	claimed := map[wire.OverlayKey]bool{f.WireGuard.Public(): true}
	for _, id := range slices.Sorted(maps.Keys(f.peers)) {
		p := f.peers[id]
		// As in sealedLocked, a key is that of who had it first.
		if p.WireGuard == nil || p.Indirect || p.WireGuard.Key.IsZero() || claimed[p.WireGuard.Key] || f.plainLocked(p) {
			continue
		}
		claimed[p.WireGuard.Key] = true
		w := wireguard.Peer{ID: id, Name: p.Name, Key: p.WireGuard.Key}
		if a := f.direct[id]; a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && p.WireGuard.Port != 0 {
			w.At = netip.AddrPortFrom(a, p.WireGuard.Port)
			if r := p.WireGuard.Reflexive; r.Addr() == a && r.Port() != 0 {
				w.At = r
			}
		}
		out = append(out, w)
	}
	return out
}

// linkStatus puts the paths by WireGuard in the place of those by the tunnel, and beside the others why they are not by it.
func (f *overlayNet) linkStatus(st *overlay.Status) {
	st.NoWireGuard = f.NoWireGuard
	if f.WireGuard == nil {
		return
	}
	st.WireGuard = f.WireGuard.Port()
	by := map[wire.PeerID]overlay.PathStatus{}
	for _, p := range f.WireGuard.Status() {
		by[p.Peer] = p
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range st.Peers {
		p := &st.Peers[i]
		l, linked := by[p.Peer]
		why := ""
		switch {
		case p.Path == overlay.PathPlain:
		case linked && l.Path == overlay.PathWireGuard && f.up[p.Peer]:
			// What went by the tunnel before is not forgotten.
			l.RxBytes, l.TxBytes = l.RxBytes+p.RxBytes, l.TxBytes+p.TxBytes
			*p = l
		case linked:
			why = l.Reason
		case f.peers[p.Peer] != nil && f.peers[p.Peer].Indirect:
			why = "not between sites"
		case f.peers[p.Peer] != nil && f.peers[p.Peer].WireGuard == nil:
			why = "the peer has none"
		}
		if why != "" {
			if p.Reason != "" {
				p.Reason += "; "
			}
			p.Reason += fmt.Sprintf("no kernel WireGuard: %s", why)
		}
	}
}
