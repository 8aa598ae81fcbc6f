//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/held"
	"skerry.dev/skerry/wire"
)

const errorsPer = 200 // ICMP errors in a second

// known asks the tables whether a packet for the target would go on.
func (d *Device) known(t held.Target) bool {
	a := address(t.Dst.As16())
	var s serviceValue
	if d.tables.services.m.Lookup(&serviceKey{a, t.Net}, &s) == nil {
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
	for _, f := range d.held.Take(time.Now(), d.known) {
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
			t := held.Target{Net: uint32(f.net), Dst: f.dst}
			// It may have become known while the packet was on its way.
			if repeats < held.All && d.known(t) {
				repeats++
				setKind(frame, overlay.FrameAgain)
				d.write(frame)
				continue
			}
			if d.held.Hold(t, frame, now) {
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
	net      wire.NetworkID
	src, dst netip.Addr
}

const etherLen = 14

// parseFrame reads a frame's header, and of its packet the addresses.
func parseFrame(data []byte) (f frame, ok bool) {
	if len(data) < etherLen || data[0] != 2 || data[6] != 2 {
		return f, false
	}
	f.kind, f.net = overlay.FrameKind(data[1]), wire.NetworkID(binary.BigEndian.Uint32(data[8:]))
	p := data[etherLen:]
	switch binary.BigEndian.Uint16(data[12:]) {
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
