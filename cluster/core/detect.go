package core

import (
	"time"

	"skerry.dev/skerry/cluster/detect"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/wire"
)

type (
	// Quiet tells that a worker's beats no longer come.
	Quiet struct {
		Name  string
		Heard time.Time // the last one
	}
	// Alive tells that a worker's beats come (again), or that it answered on its connection.
	Alive struct{ Name string }
	// Witnessed answers AskWitness.
	Witnessed struct {
		Suspect, Witness string
		Reached          bool
	}
)

// Actions.
type (
	// AskWitness has a worker try to reach another one, for a while -> Witnessed.
	AskWitness = detect.Ask
	// Disconnect ends a worker's connection, over which nothing comes.
	Disconnect struct{ Name string }
)

// lookout is what the detector sees of a site.
type lookout struct{ o *overlay }

// Link implements detect.Site.
func (s lookout) Link(worker string) (connected bool, since time.Time, known bool) {
	if k := s.o.Children.Get(worker); k != nil {
		return k.Connected, k.Since, true
	}
	return false, time.Time{}, false
}

// Reach implements detect.Site.
func (s lookout) Reach(worker string) (target string, peer wire.PeerID) {
	w := s.o.workers[worker]
	if w == nil || w.Facts == nil {
		return "", 0
	}
	return w.Facts.Probe, w.Peer
}

// Witnesses implements detect.Site.
func (s lookout) Witnesses() (out []string) {
	for name, w := range s.o.workers {
		if !w.external() && (w.reachable() || w.Peer != 0 && !w.sight.Lost()) {
			out = append(out, name)
		}
	}
	return out
}

// Exchange implements detect.Site: the routes of one of two workers lead to the other one.
func (s lookout) Exchange(a, b string) bool {
	return s.o.paths.Exchange(a, b)
}

// Spot implements detect.Site.
func (s lookout) Spot(worker string) uint64 { return network.Spot(worker) }

// Serves implements detect.Site.
func (s lookout) Serves(worker string) bool { return len(s.o.byWorker[worker]) > 0 }
