package cluster

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// locate works out where a user is from the round trips that workers measured, in milliseconds.
func (c *Core) locate(rtt map[string]float64) (out wire.UserPosition) {
	var from []spec.Coordinate
	var ms []float64
	for _, name := range slices.Sorted(maps.Keys(rtt)) {
		if w := c.workers[name]; w != nil && w.coordinate() != nil {
			from, ms = append(from, *w.coordinate()), append(ms, rtt[name])
		}
	}
	if len(from) == 0 {
		out.Unknown = "no worker got an answer from it"
		return out
	}
	out.Coordinate, out.Residual = coord.Trilaterate(from, ms)
	out.Probes = len(from)
	return out
}

// frame is a hash of the coordinates of the workers that measured the users of an instance.
func (c *Core) frame(p *placement) uint64 {
	h := fnv.New64a()
	for _, rtt := range p.heard {
		for _, name := range slices.Sorted(maps.Keys(rtt)) {
			at := append([]byte(name), 0)
			if w := c.workers[name]; w != nil && w.coordinate() != nil {
				for _, x := range append(w.coordinate().Vec[:], w.coordinate().Height) {
					at = binary.BigEndian.AppendUint64(at, math.Float64bits(x))
				}
			}
			h.Write(at)
		}
	}
	return h.Sum64()
}

// shiftUsers places users anew in a network whose workers have moved since: coordinates only mean something to each other,
// and all of them may turn and drift together while no round trip changes.
func (c *Core) shiftUsers(p *placement) {
	if p.heard == nil {
		return
	}
	h := c.frame(p)
	if h == p.heardAt {
		return
	}
	p.heardAt = h
	for i, rtt := range p.heard {
		if rtt == nil || i >= len(p.Users) {
			continue
		}
		if at := c.locate(rtt); at.Unknown == "" {
			p.Users[i] = at
		}
	}
}
