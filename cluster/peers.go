package cluster

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"time"

	"skerry.dev/skerry"
)

const (
	// peersEach is how many peers a worker measures round trips to. With 8 the error on a King-like matrix is a third
	// larger, with 16 hardly smaller (docs/BENCHMARKS.md).
	peersEach = 12
	// peersStable of them stay for as long as they are there; the others are replaced one after the other, each after
	// peersEach-peersStable times rotateEvery.
	peersStable = 6
	rotateEvery = 10 * time.Minute
	// reviewLater gathers what changes within it before the peers of all are worked out anew.
	reviewLater = 2 * time.Second
	keyPeers    = "peers/key"
)

// peering chooses who measures round trips to whom. Workers that can be reached lie on a ring by a hash of their names;
// each worker's slots are points of the ring, and the next worker after a point is its peer. So who comes or goes changes
// the peers of few.
type peering struct {
	KeyID  uint16 `json:"keyID"`
	Key    []byte `json:"key"`
	ring   []spot
	due    time.Time         // review then
	given  map[string]uint64 // by worker: a hash of what it was told
	secret []byte            // keys are made of it
	renew  bool              // the key must change, because somebody has left for good
}

// spot is a worker on the ring.
type spot struct {
	hash uint64
	name string
	addr string
}

func hashOf(parts ...any) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		switch v := p.(type) {
		case string:
			h.Write([]byte(v))
			h.Write([]byte{0})
		case uint64:
			h.Write(binary.BigEndian.AppendUint64(nil, v))
		}
	}
	// FNV of similar texts lies close together; this spreads it (MurmurHash3's finalizer).
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// reachable reports whether others may be told to measure to a worker. What it says of itself is not trusted further.
func (w *worker) reachable() bool {
	if w.Facts == nil || w.Facts.Probe == "" || w.lost {
		return false
	}
	a, err := netip.ParseAddrPort(w.Facts.Probe)
	return err == nil && a.Port() > 0 && a.Addr().IsValid() && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// peersChanged has the peers of all reviewed soon.
func (c *Core) peersChanged(now time.Time) {
	if at := now.Add(reviewLater); c.peers.due.IsZero() || at.Before(c.peers.due) {
		c.peers.due = at
	}
}

// reviewPeers works out the peers of all workers, when it is time, and tells those whose peers changed. Only workers that
// know how to measure are told, so that a site without any has no traffic of this kind.
func (c *Core) reviewPeers(now time.Time, fx *skerry.Effects) {
	p := &c.peers
	if p.due.IsZero() || now.Before(p.due) {
		return
	}
	p.ring = p.ring[:0]
	for name, w := range c.workers {
		if w.reachable() {
			p.ring = append(p.ring, spot{hashOf(name), name, w.Facts.Probe})
		}
	}
	slices.SortFunc(p.ring, func(a, b spot) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.name, b.name)) })
	p.due = time.Time{}
	if len(p.ring) == 0 {
		p.renew = false
		for name := range p.given {
			c.Kids.Delete(name, skerry.PeersKey)
		}
		clear(p.given)
		return
	}
	if len(p.Key) == 0 || p.renew {
		p.renew = false
		p.KeyID++
		mac := hmac.New(sha256.New, p.secret)
		mac.Write(binary.BigEndian.AppendUint16(nil, p.KeyID))
		mac.Write(p.Key)
		p.Key = mac.Sum(nil)
		fx.Put(keyPeers, mustJSON(p))
	}
	if len(p.ring) > 1 {
		p.due = now.Add(time.Minute) // for rotation
	}
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		if c.workers[name].Facts == nil || c.Kids.Get(name) == nil {
			continue
		}
		item := skerry.Peers{KeyID: p.KeyID, Key: p.Key, List: p.of(name, now)}
		told := hashOf(uint64(item.KeyID))
		for _, a := range item.List {
			told = hashOf(told, a)
		}
		if p.given[name] != told && c.Kids.Put(name, skerry.PeersKey, c.codec.Marshal(&item)) == nil {
			p.given[name] = told
		}
	}
}

// of lists the addresses of a worker's peers, sorted.
func (p *peering) of(name string, now time.Time) []string {
	others := len(p.ring)
	if slices.ContainsFunc(p.ring, func(s spot) bool { return s.name == name }) {
		others--
	}
	want := min(peersEach, others)
	if want <= 0 {
		return nil
	}
	var out []string
	taken := map[string]bool{name: true}
	// Workers rotate at different moments, and each of its slots after another.
	const turning = peersEach - peersStable
	turn := (uint64(now.Unix()) + hashOf(name)%uint64(rotateEvery/time.Second)) / uint64(rotateEvery/time.Second)
	for slot := range uint64(want) {
		age := uint64(0)
		if slot >= peersStable {
			age = (turn + slot) / turning
		}
		at := hashOf(name, slot, age)
		i := sort.Search(len(p.ring), func(i int) bool { return p.ring[i].hash >= at })
		for taken[p.ring[i%len(p.ring)].name] {
			i++
		}
		s := p.ring[i%len(p.ring)]
		taken[s.name] = true
		out = append(out, s.addr)
	}
	slices.Sort(out)
	return out
}
