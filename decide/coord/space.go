package coord

import (
	"hash/fnv"
	"maps"
	"slices"

	"skerry.dev/skerry/spec"
)

// Space is where the gateways of a federation's sites are to each other in the network, as the root works it out of the round trips that
// they measure. A site speaks of its own round trips alone, and what it says moves nobody but itself: it can make itself seem near or far,
// and the others stay where they are to each other.
//
//	both ends measured it ──► the longer of the two
//	one end did ────────────► what that says
//	neither did ────────────► the distance of their coordinates; before these are known, the way by the root
type Space struct {
	sites map[string]*gateway
}

// gateway is one site in the space.
type gateway struct {
	v     *Vivaldi
	heard map[string]float64 // by site: the round trip that it measured
	link  float64            // to the root; 0: not known
}

const (
	// MostGateways bounds the round trips that one site may tell of.
	MostGateways = 32
	// Two ends that measured one way agree if they differ by less than this factor, or by less than this many milliseconds; only then does
	// either of them find its place by it. What is wider than this is no round trip of one way (docs/RATIONALE.md).
	agreeFactor, agreeMs = 3, 50
)

// NewSpace makes a space without sites.
func NewSpace() *Space { return &Space{sites: map[string]*gateway{}} }

func (s *Space) of(site string) *gateway {
	g := s.sites[site]
	if g == nil {
		h := fnv.New64a()
		h.Write([]byte(site))
		g = &gateway{v: NewVivaldi(h.Sum64())}
		s.sites[site] = g
	}
	return g
}

// Plausible reports whether a round trip can be one, in milliseconds: it is finite, positive, and not longer than ten seconds.
func Plausible(ms float64) bool { return ms > 0 && ms <= longest }

// Hear takes all the round trips that a site measured to others, in place of those that it told of before. It gives how many of them
// cannot be, or are too many, and are ignored.
func (s *Space) Hear(site string, heard map[string]float64) (ignored int) {
	g := s.of(site)
	was := g.heard
	g.heard = map[string]float64{}
	for _, to := range slices.Sorted(maps.Keys(heard)) {
		if ms := heard[to]; to == site || !Plausible(ms) || len(g.heard) == MostGateways {
			ignored++
			continue
		}
		s.of(to)
		g.heard[to] = heard[to]
	}
	if maps.Equal(was, g.heard) {
		return ignored // it is said again whenever others say something
	}
	g.v.Keep(slices.Collect(maps.Keys(g.heard)))
	for range young / window / max(len(g.heard), 1) {
		s.Settle(site)
	}
	return ignored
}

// Settle has a site's springs pull once more: where the others are may have become clearer.
func (s *Space) Settle(site string) {
	g := s.sites[site]
	if g == nil {
		return
	}
	for _, to := range slices.Sorted(maps.Keys(g.heard)) {
		if ms, agreed := s.measured(site, to); agreed {
			g.v.Update(to, s.sites[to].v.Coordinate(), ms)
		}
	}
}

// Link takes the round trip on a site's own link, as the root measured it; what cannot be changes nothing.
func (s *Space) Link(site string, ms float64) {
	if Plausible(ms) {
		s.of(site).link = ms
	}
}

// Remove forgets a site.
func (s *Space) Remove(site string) {
	delete(s.sites, site)
	for _, g := range s.sites {
		delete(g.heard, site)
	}
}

// measured gives the longer of what two sites say of the way between them, or 0, and whether they agree.
func (s *Space) measured(a, b string) (ms float64, agreed bool) {
	there, back := s.sites[a].heard[b], s.sites[b].heard[a]
	lo, hi := min(there, back), max(there, back)
	return hi, lo == 0 || hi <= agreeFactor*lo || hi-lo <= agreeMs
}

// RTT gives the round trip between the gateways of two sites, in milliseconds, and whether anything is known of it.
func (s *Space) RTT(a, b string) (ms float64, ok bool) {
	g, h := s.sites[a], s.sites[b]
	switch {
	case a == b:
		return 0, true
	case g == nil || h == nil:
		return 0, false
	}
	if ms, _ := s.measured(a, b); ms > 0 {
		return ms, true
	}
	if g.v.Known() && h.v.Known() {
		return g.v.Coordinate().RTT(h.v.Coordinate()), true
	}
	return g.link + h.link, g.link > 0 && h.link > 0
}

// Linked reports whether the round trip on a site's own link is known.
func (s *Space) Linked(site string) bool { return s.sites[site] != nil && s.sites[site].link > 0 }

// Coordinate gives where a site's gateway is, or nil while that is not known.
func (s *Space) Coordinate(site string) *spec.Coordinate {
	g := s.sites[site]
	if g == nil || !g.v.Known() {
		return nil
	}
	c := g.v.Coordinate()
	return &c
}
