package ipam

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	"skerry.dev/skerry"
)

// DefaultPool is where sites get their IPv4 extents from unless an operator says otherwise.
func DefaultPool() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64}), 10) }

// ExtentBits is the length of the prefix of a site's IPv4 extent: 4096 addresses, 64 blocks, 1024 extents in the default
// pool. A site takes a further one when the first is used up.
const ExtentBits = 20

// Extent chooses a prefix of bits for a site out of a pool: the first from where a hash of the site's name and of the
// number of extents that it has points, that overlaps nothing taken (extents of other sites as far as they are known,
// its own, and networks of its hosts). Sites that cannot ask each other so rarely choose the same.
func Extent(pool netip.Prefix, bits int, site string, have int, taken []netip.Prefix) (netip.Prefix, error) {
	count := subnets(pool, bits)
	if count == 0 {
		return netip.Prefix{}, fmt.Errorf("pool %s has no prefix of %d bits", pool, bits)
	}
	start := hash("extent", site, fmt.Sprint(have)) % count
	for i := uint64(0); i < min(count, 1<<20); i++ {
		p := subnet(pool, bits, (start+i)%count)
		if _, hit := Overlap(p, taken); !hit {
			return p, nil
		}
	}
	return netip.Prefix{}, skerry.Errorf(skerry.CodeFull, "no prefix of %d bits is left in %s for site %s", bits, pool, site).
		WithHint("give the federation a larger pool of instance addresses")
}

// ULA gives the unique local prefix of 48 bits that belongs to an id, such as a federation's: fd and 40 bits of a hash
// (RFC 4193, section 3.2.2, with the id in place of time and machine).
func ULA(id string) netip.Prefix {
	sum := sha256.Sum256([]byte("skerry ula\x00" + id))
	b := [16]byte{0xfd}
	copy(b[1:6], sum[:5])
	return netip.PrefixFrom(netip.AddrFrom16(b), 48)
}

// Subnet64 gives the prefix of 64 bits with a number, such as a worker's, in a larger one. A /48 has 65,536.
func Subnet64(in netip.Prefix, number uint32) (netip.Prefix, error) {
	if !in.Addr().Is6() || uint64(number) >= subnets(in, 64) {
		return netip.Prefix{}, fmt.Errorf("%s has no prefix of 64 bits with number %d", in, number)
	}
	return subnet(in, 64, uint64(number)), nil
}

// Twin gives the IPv6 address of an instance: the IPv4 one, which is unique in the federation, in the low bits of its
// worker's prefix.
func Twin(worker netip.Prefix, v4 netip.Addr) netip.Addr {
	b, low := worker.Masked().Addr().As16(), v4.As4()
	copy(b[12:], low[:])
	return netip.AddrFrom16(b)
}
