package cluster

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

func (c *Core) quiet(now time.Time, m Quiet, fx *wire.Effects) {
	if c.detect.Silent(m.Name, m.Heard) {
		w := c.workers[m.Name]
		c.seeWorker(w)
		c.suspect(now, w, fx)
	}
}

func (c *Core) alive(m Alive) {
	if c.detect.Alive(m.Name) {
		c.seeWorker(c.workers[m.Name])
		c.retry()
	}
}

// suspect begins to find out about a worker.
func (c *Core) suspect(now time.Time, w *worker, fx *wire.Effects) {
	if c.detect.Suspect(now, w.Name) {
		c.askWitnesses(now, fx)
	}
}

func (c *Core) askWitnesses(now time.Time, fx *wire.Effects) {
	for _, q := range c.detect.Ask(now) {
		fx.Actions = append(fx.Actions, q)
	}
}

func (c *Core) witnessed(m Witnessed) {
	if !c.detect.Witnessed(m.Suspect, m.Witness, m.Reached) {
		return
	}
	for _, p := range c.byWorker[m.Suspect] {
		c.linked[p.A.Service.App] = true
	}
	w := c.workers[m.Suspect]
	for _, h := range w.leaving {
		c.interests.Touch(h.Service)
	}
}

// sight is what the detector sees of a site.
type sight struct{ o *overlay }

// Link implements detect.Site.
func (s sight) Link(worker string) (connected bool, since time.Time, known bool) {
	if k := s.o.Kids.Get(worker); k != nil {
		return k.Connected, k.Since, true
	}
	return false, time.Time{}, false
}

// Reach implements detect.Site.
func (s sight) Reach(worker string) (target string, peer wire.PeerID) {
	w := s.o.workers[worker]
	if w == nil || w.Facts == nil {
		return "", 0
	}
	return w.Facts.Probe, w.Peer
}

// Witnesses implements detect.Site.
func (s sight) Witnesses() (out []string) {
	for name, w := range s.o.workers {
		if w.Carrier == "" && (w.reachable() || w.Peer != 0 && !w.sight.Lost()) {
			out = append(out, name)
		}
	}
	return out
}

// Exchange implements detect.Site: the routes of one of two workers lead to the other one.
func (s sight) Exchange(a, b string) bool {
	return s.o.paths.Exchange(a, b)
}

// Spot implements detect.Site.
func (s sight) Spot(worker string) uint64 { return network.Spot(worker) }

// Serves implements detect.Site.
func (s sight) Serves(worker string) bool { return len(s.o.byWorker[worker]) > 0 }
