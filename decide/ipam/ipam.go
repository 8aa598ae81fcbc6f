// Package ipam decides who has which address: service addresses of an application, blocks of instance addresses of a
// worker, and extents of a site. Every allocator is a value that can be stored as JSON. Nothing that was given back is
// given out again before it has rested, because routes and caches elsewhere may still lead there. The package is pure: it
// takes the time as an argument. Root and cluster import it.
package ipam

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Overlap gives the first of some prefixes that has an address in common with p.
func Overlap(p netip.Prefix, others []netip.Prefix) (netip.Prefix, bool) {
	for _, o := range others {
		if p.Overlaps(o) {
			return o, true
		}
	}
	return netip.Prefix{}, false
}

// subnets gives the number of prefixes of bits in p, at most 1<<32; 0 if there is none.
func subnets(p netip.Prefix, bits int) uint64 {
	if !p.IsValid() || bits < p.Bits() || bits > p.Addr().BitLen() {
		return 0
	}
	return 1 << min(bits-p.Bits(), 32)
}

// subnet gives the prefix number n of bits in p; n is below subnets.
func subnet(p netip.Prefix, bits int, n uint64) netip.Prefix {
	p = p.Masked()
	shift := p.Addr().BitLen() - bits
	if p.Addr().Is4() {
		b := p.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|uint32(n<<shift))
		return netip.PrefixFrom(netip.AddrFrom4(b), bits)
	}
	b := p.Addr().As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	// A shift of 64 and more gives 0 in Go.
	lo |= n << shift
	if shift >= 64 {
		hi |= n << (shift - 64)
	} else {
		hi |= n >> (64 - shift)
	}
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.PrefixFrom(netip.AddrFrom16(b), bits)
}

// hash spreads names evenly; it is the same on every machine and in every version.
func hash(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}
