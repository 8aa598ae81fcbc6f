package coord

import (
	"math"
	"math/rand/v2"
	"slices"

	"skerry.dev/skerry/spec"
)

// Constants of Vivaldi (Dabek, Cox, Kaashoek, Morris: Vivaldi, SIGCOMM 2004) and of its use in the field (Ledlie, Gardner,
// Seltzer: Network Coordinates in the Wild, NSDI 2007). Measured in docs/results/before-reports.md.
const (
	// stepShare (c_c) is the largest part of the way to the predicted place that one round trip moves a coordinate, and
	// errorShare (c_e) that of its error (Dabek, section 3.4; 4.2 finds 0.25 best for both speed and calm).
	stepShare  = 0.25
	errorShare = 0.25
	// Errors start at 1 and lie between these. One below leastError would keep a coordinate from moving ever again.
	firstError = 1
	leastError = 0.01
	mostError  = 1.5
	// A height starts at, and never falls below, what a network card takes: at 0 the force on it would be 0 for good.
	leastHeight = 0.01
	// fine is the round trip below which differences count as if it took so long: at a tenth of a millisecond the machines'
	// clocks and schedulers are measured, not the network.
	fine = 1.0
	// longest is the longest round trip, and distance of a peer's coordinate, that is believed.
	longest = 10_000.0
	// farthest bounds how far one round trip can move a coordinate, and with it what a liar can do.
	farthest = 250.0
	// gravity pulls towards the origin with the square of the distance, so that the whole does not drift away (Ledlie,
	// section 6.2): at 100 ms by a hundredth of a millisecond.
	gravity = 1000.0
	// window is how many round trips to a peer the median is taken of (Ledlie, section 4: a short moving percentile removes
	// what queues add; more would hide that a way has become slow).
	window = 3
	// young is the number of round trips during which the springs to all remembered peers pull at each of them, which finds
	// the place with a third of the datagrams; later they pull with a share that is as large as the error, for calm.
	young = 160
	// mostPeers bounds the peers that are remembered.
	mostPeers = 32
	// hurried is the number of round trips for which Hurry lasts.
	hurried = 64
	// enough is the number of round trips after which a coordinate is worth telling to others.
	enough = 32
)

// Vivaldi keeps the coordinate of one node. It is for one goroutine.
type Vivaldi struct{ s springs }

// NewVivaldi starts at the origin, knowing nothing. The seed chooses the first direction.
func NewVivaldi(seed uint64) *Vivaldi { return &Vivaldi{newSprings(spec.CoordinateDims, seed)} }

// Update takes a round trip to a peer, in milliseconds, and the coordinate that the peer gave. It gives false, and changes
// nothing, when one of them cannot be: not finite, not positive, longer than ten seconds, or a peer farther away than that.
func (v *Vivaldi) Update(peer string, other spec.Coordinate, rttMs float64) bool {
	if !(rttMs > 0 && rttMs <= longest) || !other.Valid() || !(v.Coordinate().RTT(other) <= longest) {
		return false
	}
	v.s.update(peer, body{other.Vec[:], other.Height, other.Error}, rttMs)
	return true
}

// Coordinate gives the coordinate now.
func (v *Vivaldi) Coordinate() spec.Coordinate {
	c := spec.Coordinate{Height: v.s.me.height, Error: v.s.me.err}
	copy(c.Vec[:], v.s.me.vec)
	return c
}

// Restore goes on from a coordinate that was kept, and gives false if that is none.
func (v *Vivaldi) Restore(c spec.Coordinate) bool {
	if !c.Valid() {
		return false
	}
	copy(v.s.me.vec, c.Vec[:])
	v.s.me.height, v.s.me.err, v.s.updates = max(c.Height, leastHeight), min(max(c.Error, leastError), mostError), young
	return true
}

// Hurry forgets the round trips taken, because the network has changed, and has the springs of all peers that are heard of
// from now on pull in full for a while.
func (v *Vivaldi) Hurry() {
	v.s.peers = nil
	v.s.updates = min(v.s.updates, max(enough, young-hurried))
}

// Known reports whether enough round trips were taken for the coordinate to be of use.
func (v *Vivaldi) Known() bool { return v.s.updates >= enough }

// Keep forgets all peers but these.
func (v *Vivaldi) Keep(peers []string) { v.s.keep(peers) }

func (s *springs) keep(peers []string) {
	s.peers = slices.DeleteFunc(s.peers, func(p *peer) bool { return !slices.Contains(peers, p.name) })
}

// springs are those between a node and its peers, in any number of dimensions.
type springs struct {
	me      body
	peers   []*peer
	updates int
	rng     *rand.Rand
}

// peer is what is known of the other end of a spring.
type peer struct {
	name string
	at   body
	ms   [window]float64 // the last round trips
	n    int
}

func newSprings(dims int, seed uint64) springs {
	return springs{me: body{make([]float64, dims), leastHeight, firstError}, rng: rand.New(rand.NewPCG(seed, 0x7669766c))}
}

// update takes a round trip, and lets the springs to the other peers pull once more, too: where they were and how far is
// still known, and it takes no datagram to ask again.
func (s *springs) update(name string, at body, rtt float64) {
	n := slices.IndexFunc(s.peers, func(p *peer) bool { return p.name == name })
	if n < 0 {
		n = len(s.peers)
		s.peers = append(s.peers, &peer{name: name})
		if n == mostPeers {
			s.peers, n = slices.Delete(s.peers, 0, 1), n-1
		}
	}
	p := s.peers[n]
	p.at = body{slices.Clone(at.vec), at.height, at.err}
	p.ms[p.n%window] = rtt
	p.n++
	s.updates++
	share := 1.0
	if s.updates > young {
		share = min(1, s.me.err) / 2
	}
	for _, o := range s.peers {
		if o != p {
			s.me.pull(o.at, o.median(), share, s.rng)
		}
	}
	s.me.learn(p.at, p.median())
	s.me.pull(p.at, p.median(), 1, s.rng)
}

// median of the last round trips; of two, the smaller, because what disturbs adds time.
func (p *peer) median() float64 {
	last := p.ms
	k := min(p.n, window)
	slices.Sort(last[:k])
	return last[(k-1)/2]
}

// body is a coordinate of any number of dimensions.
type body struct {
	vec         []float64
	height, err float64
}

// away gives the way from another: its length without heights.
func (b *body) away(o body) float64 {
	sum := 0.0
	for i := range b.vec {
		sum += sq(b.vec[i] - o.vec[i])
	}
	return math.Sqrt(sum)
}

// learn takes a round trip into the estimate of the own error (Dabek, figure 3).
func (b *body) learn(o body, rtt float64) {
	miss := min(math.Abs(b.rtt(o)-rtt)/max(rtt, fine), mostError)
	b.err += (miss - b.err) * errorShare * b.weight(o)
	b.err = min(max(b.err, leastError), mostError)
}

func (b *body) rtt(o body) float64 { return b.away(o) + b.height + o.height }

// weight is how much another's word counts against the own.
func (b *body) weight(o body) float64 {
	return b.err / (b.err + min(max(o.err, leastError), mostError))
}

// pull moves a coordinate by one round trip to another (Dabek, figure 3, with the height vectors of section 5.4).
func (b *body) pull(o body, rtt, share float64, rng *rand.Rand) {
	flat := b.away(o)
	dist := flat + b.height + o.height
	force := stepShare * b.weight(o) * (rtt - dist)
	bound := min(stepShare*max(rtt, fine), farthest)
	force = share * min(max(force, -bound), bound)
	if flat > 1e-6 {
		for i := range b.vec {
			b.vec[i] += force * (b.vec[i] - o.vec[i]) / dist
		}
	} else {
		// Two in one place part in any direction.
		dir, norm := make([]float64, len(b.vec)), 0.0
		for i := range dir {
			dir[i] = rng.NormFloat64()
			norm += sq(dir[i])
		}
		for i := range dir {
			b.vec[i] += force * dir[i] / math.Sqrt(norm)
		}
		return
	}
	b.height = max(leastHeight, b.height+force*(b.height+o.height)/dist)

	norm := 0.0
	for _, x := range b.vec {
		norm += sq(x)
	}
	norm = math.Sqrt(norm)
	if pull := sq(norm / gravity); norm > 0 {
		for i := range b.vec {
			b.vec[i] -= b.vec[i] / norm * min(pull, norm)
		}
	}
}

// Middle gives the middle of some coordinates, without a height, and the longest round trip from there to one of them, in
// milliseconds. Invalid ones are left out; it gives false when none is left.
func Middle(list []spec.Coordinate) (c spec.Coordinate, ms float64, ok bool) {
	n := 0.0
	for _, x := range list {
		if !x.Valid() {
			continue
		}
		n++
		for i := range x.Vec {
			c.Vec[i] += (x.Vec[i] - c.Vec[i]) / n
		}
		c.Error += (x.Error - c.Error) / n
	}
	for _, x := range list {
		if x.Valid() {
			ms = max(ms, c.RTT(x))
		}
	}
	return c, ms, n > 0
}
