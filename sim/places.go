package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// place is where a worker is in the simulated network, and where it believes that it is.
type place struct {
	at     [2]float64 // milliseconds
	height float64    // that it has worked out: a link that becomes slow moves it up by and by
	turn   int        // whom it tells of next
}

const (
	// span is how wide the simulated network is, in milliseconds.
	span = 80
	// settling is how much of an error a coordinate loses with each measurement.
	settling = 0.15
	// heardEach is how many round trips a report tells.
	heardEach = 3
)

// locate gives a worker a place.
func (r *run) locate(n *Node, i int) {
	rng := rand.New(rand.NewPCG(r.s.Seed, uint64(100+i)))
	r.places[n] = &place{at: [2]float64{rng.Float64() * span, rng.Float64() * span}, height: 1}
}

// lag is the mean of what a worker's own link adds to a round trip, in milliseconds.
func (w *World) lag(n *Node) float64 {
	l := n.line
	d := w.Latency + l.delay + l.jitter/2
	return 2 * float64(d) / float64(time.Millisecond)
}

// whereabouts is the coordinate that a worker tells and the round trips that it measured to a few others. Datagrams that
// are lost are asked for again, and add nothing.
func (r *run) whereabouts(n *Node) (*spec.Coordinate, []wire.PeerRTT) {
	p := r.places[n]
	if p == nil {
		return nil, nil
	}
	w := r.w
	p.height += (w.lag(n) - p.height) * settling
	at := &spec.Coordinate{Vec: [3]float64{p.at[0], p.at[1], 0}, Height: max(p.height, 0.01), Error: 0.1}
	if n.orphan != nil {
		at = n.orphan
	}
	children := w.parentOf(n).children
	var list []wire.PeerRTT
	for k := 0; k < len(children) && len(list) < heardEach; k++ {
		o := children[p.turn%len(children)]
		p.turn++
		q := r.places[o]
		if o == n || q == nil || !o.Up || o.deaf() || n.deaf() {
			continue
		}
		ms := math.Hypot(p.at[0]-q.at[0], p.at[1]-q.at[1]) + w.lag(n) + w.lag(o)
		list = append(list, wire.PeerRTT{Probe: o.facts.Probe, Ms: ms * (0.9 + 0.3*w.rng.Float64())})
	}
	return at, list
}

// tellUse tells a worker's core what is used there, and where it is.
func (r *run) tellUse(n *Node, use map[skerry.InstanceID]wire.QoS) {
	at, list := r.whereabouts(n)
	r.w.tell(n, worker.Usage{Instances: use, Coordinate: at, Heard: list, RTT: r.w.machines.roundTrip(n), Loss: n.line.loss})
}
