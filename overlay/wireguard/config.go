package wireguard

import (
	"bytes"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// Config is what changes in the life of a Link.
type Config struct {
	// MTU is the longest packet of instances, in bytes; 0: it is not known, and the device's stays.
	MTU   int
	Peers []Peer
	// Relays tell how the device's port is seen from outside; none: that is not found out.
	Relays []Relay
}

// Peer is another worker whose kernel has WireGuard.
type Peer struct {
	ID   wire.PeerID
	Name string // for people
	Key  wire.OverlayKey
	// At is where it may be reached; the zero value: that is not known, and it has to begin.
	At netip.AddrPort
}

// Relay is where a worker finds out how its port is seen.
type Relay struct {
	UDP netip.AddrPort // IPv4; others are left out
	ID  wire.PeerID    // this worker's
	Key [32]byte       // of this worker at this relay
}

// Unsupported says that this machine, or the agent's privileges, do not allow kernel WireGuard.
type Unsupported struct {
	Reason, Cure string
}

func (u *Unsupported) Error() string { return u.Reason + "; " + u.Cure }

// Prefix gives the addresses that stand for a worker on WireGuard devices: unique local ones of a hash of its key. To make
// a key of which another's prefix follows takes 2^88 tries.
func Prefix(key wire.OverlayKey) netip.Prefix {
	sum := sha256.Sum256(append([]byte("skerry wireguard prefix\x00"), key[:]...))
	a := [16]byte{0: 0xfd}
	copy(a[1:overlay.LinkBits/8], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), overlay.LinkBits)
}

// Public gives the public half of a private key.
func Public(private [32]byte) (out wire.OverlayKey, err error) {
	k, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return out, fmt.Errorf("wireguard: private key: %w", err)
	}
	copy(out[:], k.PublicKey().Bytes())
	return out, nil
}

// check says what is wrong with a configuration.
func (c Config) check(own wire.OverlayKey) error {
	if c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535) {
		return fmt.Errorf("wireguard: MTU %d must be 576 to 65535", c.MTU)
	}
	ids, keys := map[wire.PeerID]bool{}, map[wire.OverlayKey]bool{own: true}
	for i, p := range c.Peers {
		switch {
		case p.ID == 0 || ids[p.ID]:
			return fmt.Errorf("wireguard: peers[%d].id %d is zero or there twice", i, p.ID)
		case p.Key.IsZero() || keys[p.Key]:
			return fmt.Errorf("wireguard: peers[%d].key of %d is empty, this worker's, or there twice: a key names one peer", i, p.ID)
		case p.At.IsValid() && (p.At.Port() == 0 || p.At.Addr().IsUnspecified() || p.At.Addr().IsMulticast()):
			return fmt.Errorf("wireguard: peers[%d].at %s is no address of a host with a port", i, p.At)
		}
		ids[p.ID], keys[p.Key] = true, true
	}
	return nil
}

// datagram makes a UDP datagram of IPv4, without the IP header.
func datagram(from, to netip.AddrPort, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	b = append(append(b, 0, 0), payload...)
	sum := uint32(17 + len(b))
	for _, part := range [][]byte{from.Addr().Unmap().AsSlice(), to.Addr().Unmap().AsSlice(), b} {
		for i, x := range part {
			sum += uint32(x) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum = ^sum & 0xffff; sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], uint16(sum))
	return b
}

// payloadOf reads what is in a whole UDP datagram of IPv4 between two ports.
func payloadOf(b []byte, from, to uint16) ([]byte, bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[9] != 17 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return nil, false
	}
	head := int(b[0]&15) * 4
	if head < 20 || len(b) < head+8 {
		return nil, false
	}
	u := b[head:]
	n := int(binary.BigEndian.Uint16(u[4:]))
	if binary.BigEndian.Uint16(u) != from || binary.BigEndian.Uint16(u[2:]) != to || n < 8 || n > len(u) {
		return nil, false
	}
	return u[8:n], true
}

// reading is what the kernel tells of its device.
type reading struct {
	port  uint16
	peers map[wire.OverlayKey]peerReading
}

const (
	echoRequest = 128
	echoReply   = 129
	echoLen     = 40 + 8 + 8
	icmp6       = 58
)

// question makes an echo request from one worker's prefix to another's.
func question(from, to netip.Prefix, number uint64) []byte {
	b := make([]byte, echoLen)
	b[0], b[5], b[6], b[7] = 0x60, echoLen-40, icmp6, 64
	copy(b[8:], from.Addr().AsSlice())
	copy(b[24:], to.Addr().AsSlice())
	b[40] = echoRequest
	for i := range 8 {
		b[48+i] = byte(number >> (8 * i))
	}
	sum := uint32(echoLen-40) + icmp6
	for i := 8; i < echoLen; i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	b[42], b[43] = byte(^sum>>8), byte(^sum)
	return b
}

// parseAnswer reads the answer to a question: who gives it, and its number. WireGuard has seen to it that it is whose it says.
func parseAnswer(b []byte, own netip.Prefix) (from netip.Prefix, number uint64, ok bool) {
	if len(b) != echoLen || b[0]>>4 != 6 || b[6] != icmp6 || b[40] != echoReply || !bytes.Equal(b[24:40], own.Addr().AsSlice()) {
		return from, 0, false
	}
	a := netip.AddrFrom16([16]byte(b[8:24]))
	from, err := a.Prefix(overlay.LinkBits)
	for i := range 8 {
		number |= uint64(b[48+i]) << (8 * i)
	}
	return from, number, err == nil && from.Addr() == a
}
