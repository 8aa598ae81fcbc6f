//go:build linux

package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/held"
	"skerry.dev/skerry/wire"
)

const errorsPer = 200 // resets in a second

// retry sends on what was waiting.
func (d *Device) retry() {
	k := d.now.Load()
	for _, f := range d.held.Take(time.Now(), k.has) {
		d.again(k, f)
	}
}

// again sends a packet on its way once more. What was not led anywhere at the first time is a connection to a service address
// for the kernel, and would not be led anywhere again.
func (d *Device) again(k *known, frame []byte) {
	if p, ok := parse(frame); ok && k.pool(p.dst) {
		d.forgetFlow(p)
	}
	d.write(frame)
}

func (k *known) pool(a netip.Addr) bool {
	for _, p := range k.pools {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (k *known) block(a netip.Addr) bool {
	for _, p := range k.blocks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// write gives a frame to the kernel as if it came from the tap's other side. One that does not fit is lost, like any packet.
func (d *Device) write(frame []byte) {
	if tap := d.tap.Load(); tap != nil && len(frame) > etherLen {
		copy(frame, agentMAC())
		_, _ = tap.Write(frame)
	}
}

// readTap takes what the tables leave to the agent.
func (d *Device) readTap(tap *os.File) {
	buf := make([]byte, 1<<17)
	told := map[overlay.Event]time.Time{}
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
		frame, now := buf[:n], time.Now()
		pkt, ok := parse(frame)
		if !ok {
			continue
		}
		if now.Unix() != second {
			second, answers, repeats = now.Unix(), 0, 0
		}
		k := d.now.Load()
		if frame[0] == 2 { // as a peer sent it
			e := overlay.Event{Kind: overlay.EventUnknown, Net: wire.NetworkID(binary.BigEndian.Uint32(frame[8:])), Src: pkt.src, Dst: pkt.dst,
				Peer: wire.PeerID(binary.BigEndian.Uint32(frame[2:]))}
			if _, here := k.local[pkt.dst]; here || !k.block(pkt.dst) || now.Sub(told[e]) < time.Second {
				continue
			}
			if len(told) > 1024 {
				clear(told)
			}
			told[e] = now
			d.tell(e)
			continue
		}
		network, ok := k.local[pkt.src]
		if !ok {
			continue
		}
		if service, dead := d.resets.service(pkt, now); dead {
			if answers++; answers <= errorsPer {
				d.write(answerReset(pkt, service))
			}
			continue
		}
		t := held.Target{Net: network, Dst: pkt.dst}
		// It may have become known while the packet was on its way.
		if repeats < held.All && k.has(t) {
			repeats++
			d.again(k, frame)
			continue
		}
		if d.held.Hold(t, frame, now) {
			d.tell(overlay.Event{Kind: overlay.EventMiss, Net: wire.NetworkID(network), Src: pkt.src, Dst: pkt.dst})
		}
		// Set may have come between the question and the holding.
		if d.now.Load().has(t) {
			d.retry()
		}
	}
}

func (d *Device) tell(e overlay.Event) {
	select {
	case d.events <- e:
	default:
		d.lost.Add(1)
	}
}

// packet is what the agent reads of one.
type packet struct {
	src, dst     netip.Addr
	proto        byte
	sport, dport uint16 // of ICMP: the number of an echo, and type and code
	body         []byte // behind the network's header
}

const etherLen = 14

// parse reads a frame's packet.
func parse(data []byte) (pkt packet, ok bool) {
	if len(data) < etherLen {
		return pkt, false
	}
	h := data[etherLen:]
	switch binary.BigEndian.Uint16(data[12:]) {
	case 0x0800:
		n := 0
		if len(h) >= 20 {
			n = int(h[0]&15) * 4
		}
		if n < 20 || n > len(h) || h[0]>>4 != 4 {
			return pkt, false
		}
		pkt.src, pkt.dst, pkt.proto, pkt.body = netip.AddrFrom4([4]byte(h[12:])), netip.AddrFrom4([4]byte(h[16:])), h[9], h[n:]
		if binary.BigEndian.Uint16(h[6:])&0x1fff != 0 {
			return pkt, true // a later fragment
		}
	case 0x86dd:
		if len(h) < 40 || h[0]>>4 != 6 {
			return pkt, false
		}
		pkt.src, pkt.dst, pkt.proto, pkt.body = netip.AddrFrom16([16]byte(h[8:])), netip.AddrFrom16([16]byte(h[24:])), h[6], h[40:]
	default:
		return pkt, false
	}
	switch pkt.proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE:
		if len(pkt.body) >= 4 {
			pkt.sport, pkt.dport = binary.BigEndian.Uint16(pkt.body), binary.BigEndian.Uint16(pkt.body[2:])
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(pkt.body) >= 8 {
			pkt.sport, pkt.dport = binary.BigEndian.Uint16(pkt.body[4:]), binary.BigEndian.Uint16(pkt.body)
		}
	}
	return pkt, true
}
