package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// BlockBits is the length of the prefix of a block: 64 addresses.
const BlockBits = 26

// Blocks are the blocks of instance addresses of a site's workers. The zero value holds none.
type Blocks struct{ list []Block } // by address

// Block is one that a holder has, or that rests.
type Block struct {
	Prefix netip.Prefix `json:"prefix"`
	Holder string       `json:"holder"`              // a worker; the last one while it rests
	Until  time.Time    `json:"restsUntil,omitzero"` // zero: it is held
}

// Take gives a holder one more block out of the prefixes of the site, none of whose addresses is in avoid: the networks
// that the site's hosts are in. The first that is free is taken, so that a site uses few of its prefixes. When all are
// held, rest or are to be avoided the error has code full, and the site needs a further prefix.
func (b *Blocks) Take(now time.Time, holder string, site, avoid []netip.Prefix) (netip.Prefix, error) {
	b.expire(now)
	for _, p := range site {
		if !p.Addr().Is4() {
			continue
		}
		for n, count := uint64(0), subnets(p, BlockBits); n < count; {
			q := subnet(p, BlockBits, n)
			if o, hit := Overlap(q, avoid); hit {
				n = past(p, o, n)
				continue
			}
			if _, taken := b.find(q); !taken {
				b.insert(Block{Prefix: q, Holder: holder})
				return q, nil
			}
			n++
		}
	}
	held, resting := 0, 0
	for _, e := range b.list {
		if e.Until.IsZero() {
			held++
		} else {
			resting++
		}
	}
	return netip.Prefix{}, skerry.Errorf(skerry.CodeFull,
		"no block of addresses is left for %s: %d are in use, %d rest, and the others are in networks of hosts", holder, held, resting).
		WithHint("give the site a further prefix")
}

// Restore gives a holder a block that it is known to have, and reports whether it was not held so far. It gives false, too, if somebody
// else has it, or if it rests.
func (b *Blocks) Restore(holder string, p netip.Prefix) bool {
	if _, taken := b.find(p); taken || p.Bits() != BlockBits || p != p.Masked() || !p.Addr().Is4() {
		return false
	}
	b.insert(Block{Prefix: p, Holder: holder})
	return true
}

// past gives the number of the first block in p that lies behind o, above n.
func past(p, o netip.Prefix, n uint64) uint64 {
	if o.Bits() >= BlockBits {
		return n + 1
	}
	size := uint64(1) << (BlockBits - max(o.Bits(), p.Bits()))
	return (n/size + 1) * size
}

func (b *Blocks) find(p netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(b.list, p, func(e Block, p netip.Prefix) int { return e.Prefix.Addr().Compare(p.Addr()) })
}

func (b *Blocks) insert(e Block) {
	i, _ := b.find(e.Prefix)
	b.list = slices.Insert(b.list, i, e)
}

func (b *Blocks) expire(now time.Time) {
	b.list = slices.DeleteFunc(b.list, func(e Block) bool { return !e.Until.IsZero() && !now.Before(e.Until) })
}

// Return takes a block back from its holder; it rests until a time at which surely nobody sends there any more. It
// gives false if the holder does not have it.
func (b *Blocks) Return(holder string, p netip.Prefix, until time.Time) bool {
	i, ok := b.find(p)
	if !ok || b.list[i].Prefix != p || b.list[i].Holder != holder || !b.list[i].Until.IsZero() {
		return false
	}
	b.list[i].Until = until
	return true
}

// ReturnAll takes back all blocks of a holder, and gives them.
func (b *Blocks) ReturnAll(holder string, until time.Time) []netip.Prefix {
	held := b.Of(holder)
	for _, p := range held {
		b.Return(holder, p, until)
	}
	return held
}

// Of lists the blocks that a holder has, in order.
func (b *Blocks) Of(holder string) (out []netip.Prefix) {
	for _, e := range b.list {
		if e.Holder == holder && e.Until.IsZero() {
			out = append(out, e.Prefix)
		}
	}
	return out
}

// Len counts the blocks that are held or rest.
func (b *Blocks) Len() int { return len(b.list) }

// Resting counts the blocks that a holder had and that rest.
func (b *Blocks) Resting(now time.Time, holder string) (n int) {
	for _, e := range b.list {
		if e.Holder == holder && now.Before(e.Until) {
			n++
		}
	}
	return n
}

// Overlapping lists the held blocks that have addresses in common with a host's networks, such as those of a worker
// that joins later: instances in them cannot be told from machines there.
func (b *Blocks) Overlapping(networks []netip.Prefix) (out []Block) {
	for _, e := range b.list {
		if _, hit := Overlap(e.Prefix, networks); hit && e.Until.IsZero() {
			out = append(out, e)
		}
	}
	return out
}

// MarshalJSON gives the stored form; equal states are equal bytes.
func (b Blocks) MarshalJSON() ([]byte, error) { return json.Marshal(append([]Block{}, b.list...)) }

// UnmarshalJSON reads the stored form, and refuses one with a block that appears twice or is none.
func (b *Blocks) UnmarshalJSON(data []byte) error {
	var in []Block
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	n := Blocks{}
	for _, e := range in {
		if _, twice := n.find(e.Prefix); twice || !e.Prefix.Addr().Is4() || e.Prefix.Bits() != BlockBits || e.Prefix != e.Prefix.Masked() {
			return fmt.Errorf("block %s is stored twice, or is none", e.Prefix)
		}
		n.insert(e)
	}
	*b = n
	return nil
}
