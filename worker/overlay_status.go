//go:build linux

package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Overlay tells how the worker fares in the overlay.
func (s *Server) Overlay(ctx context.Context) overlay.Status {
	if s.overlayNet == nil {
		return overlay.Status{Off: cmp.Or(s.opt.NoOverlay, "it is switched off")}
	}
	st := s.overlayNet.status(ctx)
	if e := s.workerIngress.Load(); e != nil {
		n := e.in.Stats()
		st.Counters["ingress-connections"], st.Counters["ingress-refused"] = n.Conns, n.Refused
		for _, r := range n.Routes {
			st.Counters["ingress-requests"] += r.Total
			st.Counters["ingress-failed"] += r.Failed
		}
	}
	return st
}

// overlayView is what the site's operator is told of that.
func overlayView(st overlay.Status) view.OverlayView {
	v := view.OverlayView{Off: st.Off, Handling: st.Path, Why: st.Why, Cipher: st.Cipher, NoWireGuard: st.NoWireGuard, Services: st.Services,
		Flows: st.Flows, FlowsMax: st.FlowsMax}
	for _, r := range st.Relays {
		v.Relays = append(v.Relays, view.RelayView{Name: r.Name, Over: r.Over, Reason: r.Reason})
	}
	for _, p := range st.Peers {
		if len(v.Peers) == view.MaxPathViews {
			v.More = len(st.Peers) - len(v.Peers)
			break
		}
		v.Peers = append(v.Peers, view.PathView{Peer: p.Peer, Name: p.Name, Path: string(p.Path), Reason: p.Reason, Endpoint: p.Endpoint,
			RTTMs: float64(p.RTT) / float64(time.Millisecond), Loss: p.Loss, RxBytes: p.RxBytes, TxBytes: p.TxBytes, Handshake: p.Handshake})
	}
	return v
}

func (f *overlayNet) status(ctx context.Context) (st overlay.Status) {
	st = overlay.Status{Path: f.Path, Why: f.Why, Counters: map[string]int64{}}
	f.mu.Lock()
	plain := map[wire.PeerID]*wire.OverlayPeer{}
	if n := f.node; n != nil {
		st.ID, st.Blocks, st.V6 = n.ID, n.Blocks, n.V6
		for id, p := range f.peers {
			if f.plainLocked(p) {
				plain[id] = p
			}
		}
	}
	st.Routes = len(f.routes)
	f.mu.Unlock()
	f.setting.Lock()
	st.Services = len(f.told.Services)
	if f.names != nil {
		for k, v := range f.names.Stats() {
			st.Counters["name-"+k] = v
		}
	}
	f.setting.Unlock()
	if d, err := f.Device.Stats(); err == nil {
		st.Flows, st.FlowsMax, st.MapBytes = d.Flows, d.FlowsMax, d.MapBytes
		maps.Copy(st.Counters, d.Counters)
	}
	for _, id := range slices.Sorted(maps.Keys(plain)) {
		st.Peers = append(st.Peers, overlay.PathStatus{Peer: id, Name: plain[id].Name, Path: overlay.PathPlain, Endpoint: plain[id].Plain})
	}
	defer f.linkStatus(&st)
	if f.Tunnel == nil {
		return st
	}
	if t, err := f.Tunnel.Status(ctx); err == nil {
		st.Port, st.Cipher, st.Seen, st.Relays = t.Port, t.Cipher, t.Candidate, t.Relays
		for _, p := range t.Peers {
			if plain[p.Peer] == nil {
				st.Peers = append(st.Peers, p)
			}
		}
		for k, v := range t.Counters {
			st.Counters["tunnel-"+k] = v
		}
	} else {
		st.Why = "the datapath does not answer: " + err.Error()
	}
	slices.SortFunc(st.Peers, func(a, b overlay.PathStatus) int { return int(a.Peer) - int(b.Peer) })
	return st
}
