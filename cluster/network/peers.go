package network

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"
	"sort"
	"time"

	"skerry.dev/skerry/wire"
)

const (
	// PeersEach is how many peers a worker measures round trips to. With 8 the error on a King-like matrix is a third
	// larger, with 16 hardly smaller (docs/results/before-reports.md).
	PeersEach = 12
	// peersStable of them stay for as long as they are there; the others are replaced one after the other, each after
	// PeersEach-peersStable times rotateEvery.
	peersStable = 6
	rotateEvery = 10 * time.Minute
	// ReviewLater gathers what changes within it before the peers of all are worked out anew.
	ReviewLater = 2 * time.Second
	// KeyPeers is the key of the record.
	KeyPeers = "peers/key"
)

// Members is what Peers must know of the workers of a site.
type Members interface {
	// Reachable lists the workers that others may measure to, and where they answer: host:port.
	Reachable() iter.Seq2[string, string]
	// Measuring lists the workers that know how to measure.
	Measuring() iter.Seq[string]
	// Tell gives a worker its peers, or takes them back: nil. It reports whether that could be done.
	Tell(worker string, p *wire.Peers) bool
}

// Peers chooses who measures round trips to whom. Workers that can be reached lie on a ring by a hash of their names;
// each worker's slots are points of the ring, and the next worker after a point is its peer. So who comes or goes changes
// the peers of few.
type Peers struct {
	KeyID   uint16 `json:"keyID"`
	Key     []byte `json:"key"`
	members Members
	ring    []spot
	at      map[string]string // by the address of its spot: the worker
	due     time.Time         // review then
	given   map[string]uint64 // by worker: a hash of what it was told
	secret  []byte            // keys are made of it
	renew   bool              // the key must change, because somebody has left for good
}

// spot is a worker on the ring.
type spot struct {
	hash uint64
	name string
	addr string
	told uint64 // hash of the address
}

// Spot is where a name is on the ring. It spreads names over all numbers (FNV-1a, then mix, because FNV leaves similar names close
// together).
func Spot(name string) uint64 {
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

// NewPeers makes a ring without workers. Keys are made of the secret.
func NewPeers(members Members, secret []byte) *Peers {
	return &Peers{members: members, given: map[string]uint64{}, secret: secret}
}

// Load takes the record.
func (p *Peers) Load(value []byte) error { return json.Unmarshal(value, p) }

// Due is when the peers of all are to be reviewed, or the zero time.
func (p *Peers) Due() time.Time { return p.due }

// At gives the worker that answers at an address, or "".
func (p *Peers) At(addr string) string { return p.at[addr] }

// Touch has the peers of all reviewed soon, because a worker came, went or moved.
func (p *Peers) Touch(now time.Time) {
	if at := now.Add(ReviewLater); p.due.IsZero() || at.Before(p.due) {
		p.due = at
	}
}

// Remove takes that a worker left for good. It knew the key of the others, which must change.
func (p *Peers) Remove(now time.Time, name string) {
	p.renew = true
	delete(p.given, name)
	p.Touch(now)
}

// Review works out the peers of all workers, when it is time, and tells those whose peers changed. Only workers that know how to measure
// are told, so that a site without any has no traffic of this kind. It gives the record, if that changed.
func (p *Peers) Review(now time.Time) (record []byte) {
	if p.due.IsZero() || now.Before(p.due) {
		return nil
	}
	p.ring, p.at = p.ring[:0], map[string]string{}
	for name, addr := range p.members.Reachable() {
		p.ring = append(p.ring, spot{Spot(name), name, addr, Spot(addr)})
		if o, taken := p.at[addr]; !taken || name < o {
			p.at[addr] = name
		}
	}
	slices.SortFunc(p.ring, func(a, b spot) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.name, b.name)) })
	p.due = time.Time{}
	if len(p.ring) == 0 {
		p.renew = false
		for name := range p.given {
			p.members.Tell(name, nil)
		}
		clear(p.given)
		return nil
	}
	if len(p.Key) == 0 || p.renew {
		p.renew = false
		p.KeyID++
		mac := hmac.New(sha256.New, p.secret)
		mac.Write(binary.BigEndian.AppendUint16(nil, p.KeyID))
		mac.Write(p.Key)
		p.Key = mac.Sum(nil)
		record = mustJSON(p)
	}
	if len(p.ring) > 1 {
		p.due = now.Add(time.Minute) // for rotation
	}
	for name := range p.members.Measuring() {
		_, _, told := p.choose(name, now)
		if told = mix(told ^ uint64(p.KeyID)); p.given[name] == told {
			continue
		}
		if p.members.Tell(name, &wire.Peers{KeyID: p.KeyID, Key: p.Key, List: p.of(name, now)}) {
			p.given[name] = told
		}
	}
	return record
}

// Audit reports contradictions in what is known of the ring, against the workers that the site knows.
func (p *Peers) Audit(known func(worker string) bool) (faults []string) {
	if !slices.IsSortedFunc(p.ring, func(a, b spot) int { return cmp.Compare(a.hash, b.hash) }) {
		faults = append(faults, "the ring is out of order")
	}
	on := map[string]string{}
	for _, s := range p.ring {
		on[s.name] = s.addr
	}
	for addr, name := range p.at {
		if on[name] != addr {
			faults = append(faults, addr+" leads to "+name+", not on the ring")
		}
	}
	for name := range p.given {
		if !known(name) {
			faults = append(faults, name+" was told of peers")
		}
	}
	if len(p.given) > 0 && len(p.Key) == 0 {
		faults = append(faults, "workers have peers, and no key")
	}
	return faults
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
}

// choose finds a worker's peers on the ring: their places there, and a hash of their addresses, whatever the order.
func (p *Peers) choose(name string, now time.Time) (at [PeersEach]int, n int, sum uint64) {
	self := Spot(name)
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
	const turning, period = PeersEach - peersStable, uint64(rotateEvery / time.Second)
	turn := (uint64(now.Unix()) + self%period) / period
	for slot := range uint64(min(PeersEach, others)) {
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
func (p *Peers) of(name string, now time.Time) (out []string) {
	at, n, _ := p.choose(name, now)
	for _, i := range at[:n] {
		out = append(out, p.ring[i].addr)
	}
	slices.Sort(out)
	return out
}
