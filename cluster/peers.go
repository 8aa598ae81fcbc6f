package cluster

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
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
	at     map[string]string // by the address of its spot: the worker
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
	told uint64 // hash of the address
}

// hashOf spreads names over all numbers (FNV-1a, then mix, because FNV leaves similar names close together).
func hashOf(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// reachable reports whether others may be told to measure to a worker. What it says of itself is not trusted further.
func (w *worker) reachable() bool {
	if w.Facts == nil || w.Facts.Probe == "" || w.sight.Lost() {
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
	p.ring, p.at = p.ring[:0], map[string]string{}
	for name, w := range c.workers {
		if w.reachable() {
			p.ring = append(p.ring, spot{hashOf(name), name, w.Facts.Probe, hashOf(w.Facts.Probe)})
			if o, taken := p.at[w.Facts.Probe]; !taken || name < o {
				p.at[w.Facts.Probe] = name
			}
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
	for name, w := range c.workers {
		if w.Facts == nil || c.Kids.Get(name) == nil {
			continue
		}
		_, _, told := p.choose(name, now)
		if told = mix(told ^ uint64(p.KeyID)); p.given[name] == told {
			continue
		}
		item := skerry.Peers{KeyID: p.KeyID, Key: p.Key, List: p.of(name, now)}
		if c.Kids.Put(name, skerry.PeersKey, c.codec.Marshal(&item)) == nil {
			p.given[name] = told
		}
	}
}

// choose finds a worker's peers on the ring: their places there, and a hash of their addresses, whatever the order.
func (p *peering) choose(name string, now time.Time) (at [peersEach]int, n int, sum uint64) {
	self := hashOf(name)
	own := sort.Search(len(p.ring), func(i int) bool { return p.ring[i].hash >= self })
	for own < len(p.ring) && p.ring[own].hash == self && p.ring[own].name != name {
		own++
	}
	others := len(p.ring)
	if own < len(p.ring) && p.ring[own].name == name {
		others--
	} else {
		own = -1
	}
	// Workers rotate at different moments, and each of its slots after another.
	const turning, period = peersEach - peersStable, uint64(rotateEvery / time.Second)
	turn := (uint64(now.Unix()) + self%period) / period
	for slot := range uint64(min(peersEach, others)) {
		age := uint64(0)
		if slot >= peersStable {
			age = (turn + slot) / turning
		}
		point := mix(self ^ mix(slot<<48^age))
		i := sort.Search(len(p.ring), func(i int) bool { return p.ring[i].hash >= point }) % len(p.ring)
		for i == own || slices.Contains(at[:n], i) {
			i = (i + 1) % len(p.ring)
		}
		at[n] = i
		n++
		sum += p.ring[i].told
	}
	return at, n, sum
}

// of lists the addresses of a worker's peers, sorted.
func (p *peering) of(name string, now time.Time) (out []string) {
	at, n, _ := p.choose(name, now)
	for _, i := range at[:n] {
		out = append(out, p.ring[i].addr)
	}
	slices.Sort(out)
	return out
}
