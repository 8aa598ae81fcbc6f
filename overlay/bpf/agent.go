//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
)

const (
	holdFor   = time.Second
	heldEach  = 16   // packets for one destination
	heldAll   = 1024 // packets, and destinations; half of it for one network, so that no application takes all
	again     = time.Second
	errorsPer = 200 // ICMP errors in a second
)

// target is a destination in a network.
type target struct {
	net uint32
	dst netip.Addr
}

type waiting struct {
	frames [][]byte
	since  time.Time
	told   time.Time
}

// held are packets of which the destination is not known.
type held struct {
	mu     sync.Mutex
	by     map[target]*waiting
	frames int
}

func newHeld() *held { return &held{by: map[target]*waiting{}} }

// hold keeps a packet for a while, if there is room, and says whether its destination is to be told.
func (h *held) hold(t target, frame []byte, now time.Time) (tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	w := h.by[t]
	targets, frames := h.of(t.net)
	if w == nil {
		if len(h.by) >= heldAll || targets >= heldAll/2 {
			return false // told again with the next packet
		}
		w = &waiting{since: now}
		h.by[t] = w
	}
	if len(w.frames) == 0 {
		w.since = now
	}
	if len(w.frames) < heldEach && h.frames < heldAll && frames < heldAll/2 {
		w.frames = append(w.frames, append([]byte(nil), frame...))
		h.frames++
	}
	if now.Sub(w.told) >= again {
		w.told = now
		return true
	}
	return false
}

// of counts a network's destinations and packets.
func (h *held) of(net uint32) (targets, frames int) {
	for t, w := range h.by {
		if t.net == net {
			targets++
			frames += len(w.frames)
		}
	}
	return targets, frames
}

// expire forgets what was held for too long.
func (h *held) expire(now time.Time) {
	for t, w := range h.by {
		if now.Sub(w.since) > holdFor {
			h.frames -= len(w.frames)
			w.frames = nil
			if now.Sub(w.told) >= again {
				delete(h.by, t)
			}
		}
	}
}

// take gives the packets of which the destination is known by now.
func (h *held) take(now time.Time, known func(target) bool) (out [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	for t, w := range h.by {
		if len(w.frames) > 0 && known(t) {
			out = append(out, w.frames...)
			h.frames -= len(w.frames)
			delete(h.by, t)
		}
	}
	return out
}

// known asks the tables whether a packet for the target would go on.
func (d *Device) known(t target) bool {
	a := address(t.dst.As16())
	var s serviceValue
	if d.tables.services.m.Lookup(&serviceKey{a, t.net}, &s) == nil {
		return s.Slots > 0
	}
	var i instanceValue
	if d.tables.instances.m.Lookup(&a, &i) == nil {
		return true
	}
	var r routeValue
	if d.tables.routes.m.Lookup(&routeKey{128, a}, &r) != nil || r.Kind != routePeer {
		return false
	}
	var p peerValue
	return d.tables.peers.m.Lookup(&r.Peer, &p) == nil
}

// retry sends on what was waiting.
func (d *Device) retry() {
	for _, f := range d.held.take(time.Now(), d.known) {
		setKind(f, overlay.FrameAgain)
		d.write(f)
	}
}

// write gives a frame to the programs. One that does not fit is lost, like any packet.
func (d *Device) write(frame []byte) {
	if tap := d.tap.Load(); tap != nil && frame != nil {
		_, _ = tap.Write(frame)
	}
}

// readTap takes what the programs leave to the agent.
func (d *Device) readTap(tap *os.File) {
	buf := make([]byte, 1<<17)
	var second int64
	var answers, repeats int
	for {
		n, err := tap.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-d.closing:
				return
			case <-time.After(100 * time.Millisecond): // the device is down, or being deleted
				continue
			}
		}
		frame := buf[:n]
		f, ok := parseFrame(frame)
		if !ok {
			continue
		}
		now := time.Now()
		if now.Unix() != second {
			second, answers, repeats = now.Unix(), 0, 0
		}
		switch f.kind {
		case overlay.FrameMiss:
			t := target{uint32(f.net), f.dst}
			// It may have become known while the packet was on its way.
			if repeats < heldAll && d.known(t) {
				repeats++
				setKind(frame, overlay.FrameAgain)
				d.write(frame)
				continue
			}
			if d.held.hold(t, frame, now) {
				d.tell(overlay.Event{Kind: overlay.EventMiss, Net: f.net, Src: f.src, Dst: f.dst})
			}
			// Set may have come between the question and the holding.
			if d.known(t) {
				d.retry()
			}
		case overlay.FrameTooBig:
			mtu := d.mtu()
			if mtu == 0 {
				continue
			}
			if pieces := cut(frame, mtu); pieces != nil {
				for _, p := range pieces {
					d.write(p)
				}
				continue
			}
			if answers++; answers <= errorsPer {
				d.write(forgeTooBig(frame, mtu))
			}
		case overlay.FrameDead:
			if answers++; answers <= errorsPer {
				d.write(answerReset(frame))
			}
		}
	}
}

// mtu is the one that the programs go by.
func (d *Device) mtu() int {
	var c configValue
	if d.coll.Maps["config"].Lookup(uint32(0), &c) != nil {
		return 0
	}
	return int(c.MTU)
}

// frame is one of the agent's tap.
type frame struct {
	kind     overlay.FrameKind
	net      skerry.NetworkID
	src, dst netip.Addr
}

const etherLen = 14

// parseFrame reads a frame's header, and of its packet the addresses.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < etherLen || b[0] != 2 || b[6] != 2 {
		return f, false
	}
	f.kind, f.net = overlay.FrameKind(b[1]), skerry.NetworkID(binary.BigEndian.Uint32(b[8:]))
	p := b[etherLen:]
	switch binary.BigEndian.Uint16(b[12:]) {
	case 0x0800:
		if len(p) < 20 || p[0]>>4 != 4 || headerLen(p) < 20 || headerLen(p) > len(p) {
			return f, false
		}
		f.src, f.dst = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	case 0x86dd:
		if len(p) < 40 || p[0]>>4 != 6 {
			return f, false
		}
		f.src, f.dst = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
	default:
		return f, false
	}
	return f, true
}

func headerLen(p []byte) int { return int(p[0]&15) * 4 }

func setKind(f []byte, k overlay.FrameKind) { f[1] = byte(k) }
