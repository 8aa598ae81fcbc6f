package reconcile

import (
	"crypto/sha256"
	"encoding/binary"

	"skerry.dev/skerry/wire"
)

// sum is a digest as two lanes. Lanes are added with wrap-around, so that the order of items does not matter and one
// change costs one addition and one subtraction.
type sum struct{ a, b uint64 }

// sumOf hashes one item. The key's length goes first, so that no two (key, value) pairs give the same input.
func sumOf(key string, value []byte) sum {
	h := sha256.New()
	var n [binary.MaxVarintLen64]byte
	h.Write(n[:binary.PutUvarint(n[:], uint64(len(key)))])
	h.Write([]byte(key))
	h.Write(value)
	var out [sha256.Size]byte
	h.Sum(out[:0])
	return sum{binary.BigEndian.Uint64(out[:8]), binary.BigEndian.Uint64(out[8:16])}
}

func (s sum) add(t sum) sum { return sum{s.a + t.a, s.b + t.b} }
func (s sum) sub(t sum) sum { return sum{s.a - t.a, s.b - t.b} }

func (s sum) digest() (d wire.Digest) {
	binary.BigEndian.PutUint64(d[:8], s.a)
	binary.BigEndian.PutUint64(d[8:], s.b)
	return d
}

// DigestOf gives the digest of a whole set, for tests and tools.
func DigestOf(items map[string][]byte) wire.Digest {
	var s sum
	for k, v := range items {
		s = s.add(sumOf(k, v))
	}
	return s.digest()
}
