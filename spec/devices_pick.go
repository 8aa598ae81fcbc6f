package spec

import (
	"math/bits"
	"slices"
	"strings"
)

// PickDevices chooses devices for a service among those that are free, the first ones that fit: those that it names, then those of each
// class. For its gpus and tpus it has those of the worker's classes. A device that has several names is given once. missing is a request
// for which there are too few; nil: there are enough.
func (s *ServiceSpec) PickDevices(free []DeviceOffer, accelerators Accelerators) (names []string, missing *DeviceRequest) {
	wanted := inOrder(s.deviceRequests(accelerators))
	m := newMatching(wanted[:min(len(wanted), MaxDevicesInstance)], free)
	for i, r := range m.wanted {
		clear(m.seen)
		if !m.give(i) {
			return nil, r
		}
	}
	for _, n := range m.given {
		names = append(names, free[n].Name)
	}
	return names, nil
}

// matching gives devices to requests by Kuhn, The Hungarian Method for the Assignment Problem (1955): a request may push another one on to
// a device that fits that, too. All sets are of bits, one for each offer. With as many requests and offers as there can be (64 and 512)
// that takes 160000 steps at most, however they are chosen. A site does it for each worker that it looks at, and whoever writes manifests,
// or runs a worker, chooses the labels.
type matching struct {
	wanted []*DeviceRequest
	fits   [][]uint64 // by request: the offers that fit
	given  []int      // by request: its offer
	device []int      // by offer: the first offer of the same device, which stands for that
	same   map[int][]int
	holder map[int]int // by device: the request that has it
	held   []uint64    // all offers of devices that a request has
	seen   []uint64    // all offers of devices that were tried for the present request
	steps  int         // looks at a name or label, and at words of sets
}

// trait is a label; without a key, a device's name or class.
type trait struct{ key, value string }

func (r *DeviceRequest) traits() []trait {
	out := []trait{{"", r.wanted()}}
	for k, v := range r.Match {
		out = append(out, trait{k, v})
	}
	return out
}

func newMatching(wanted []*DeviceRequest, free []DeviceOffer) *matching {
	words := (len(free) + 63) / 64
	pairs := &matching{wanted: wanted, given: make([]int, len(wanted)), held: make([]uint64, words), seen: make([]uint64, words),
		same: map[int][]int{}, holder: map[int]int{}}
	have := map[trait][]uint64{} // of what is asked for
	for i, r := range wanted {
		if i == 0 || r != wanted[i-1] {
			for _, t := range r.traits() {
				have[t] = make([]uint64, words)
			}
		}
	}
	nodes := map[string]int{}
	for offer := range free {
		dev := &free[offer]
		first, known := nodes[dev.Node]
		if !known || dev.Node == "" {
			first = offer
		}
		nodes[dev.Node] = first
		pairs.device, pairs.same[first] = append(pairs.device, first), append(pairs.same[first], offer)
		note := func(t trait) {
			pairs.steps++
			if set, ok := have[t]; ok {
				set[offer/64] |= 1 << (offer % 64)
			}
		}
		note(trait{"", dev.Name})
		if class, _, ok := strings.Cut(dev.Name, "="); ok {
			note(trait{"", class})
		}
		for k, v := range dev.Labels {
			note(trait{k, v})
		}
	}
	for i, r := range wanted {
		if i > 0 && r == wanted[i-1] { // several of a class
			pairs.fits = append(pairs.fits, pairs.fits[i-1])
			continue
		}
		traits := r.traits()
		set := slices.Clone(have[traits[0]])
		for _, t := range traits[1:] {
			for w, with := range have[t] {
				pairs.steps++
				set[w] &= with
			}
		}
		pairs.fits = append(pairs.fits, set)
	}
	return pairs
}

// give gives a request a device, and has others move on if it must.
func (m *matching) give(request int) bool {
	for w, fits := range m.fits[request] { // one that nobody has is better than one that another must give up
		m.steps++
		if free := fits &^ m.held[w]; free != 0 {
			m.take(request, w*64+bits.TrailingZeros64(free))
			return true
		}
	}
	for w, fits := range m.fits[request] {
		m.steps++
		for left := fits &^ m.seen[w]; left != 0; left = fits &^ m.seen[w] { // others see some meanwhile
			m.steps++
			n := w*64 + bits.TrailingZeros64(left)
			m.mark(m.seen, n)
			if m.give(m.holder[m.device[n]]) {
				m.take(request, n)
				return true
			}
		}
	}
	return false
}

func (m *matching) take(request, offer int) {
	m.given[request], m.holder[m.device[offer]] = offer, request
	m.mark(m.held, offer)
}

// mark puts all offers of an offer's device into a set.
func (m *matching) mark(set []uint64, offer int) {
	for _, n := range m.same[m.device[offer]] {
		m.steps++
		set[n/64] |= 1 << (n % 64)
	}
}
