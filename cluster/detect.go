package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// How a worker is found to be lost. Its beats (package link/beat) or its connection fail: it is suspected, and up to three
// other workers are asked to reach it. After LostAfter without a sign of life it is lost: cut off if one of them reaches it,
// else dead for all that can be known. What runs on it is then replaced (see original).
//
//	connected --no beat--> quiet ----+--LostAfter--> lost (cut off | dead)
//	    |                            |
//	    +--connection ends--> silent-+--beat, connection--> connected
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
	AskWitness struct {
		Suspect, Witness string
		Target           string        // where the suspect answers, host:port; empty: nowhere
		Peer             skerry.PeerID // its number in the overlay; 0: it has none
		Wait             time.Duration
	}
	// Disconnect ends a worker's connection, over which nothing comes.
	Disconnect struct{ Name string }
)

const (
	// witnesses is how many workers are asked about one that is suspected.
	witnesses = 3
	// With beats, but without a connection for so many times LostAfter, a worker is lost, too: it cannot be told anything.
	deafFactor = 10
	// A lost worker is asked for again every askLost, for askLostFor, while something of it may still serve.
	askLost    = 10 * time.Second
	askLostFor = 10 * time.Minute
)

// suspicion is what is found out about a worker that may be lost.
type suspicion struct {
	asked   []string        // the witnesses
	reached map[string]bool // those that reach it
	next    time.Time       // ask again then; zero: no more
	since   time.Time
}

func (c *Core) quiet(now time.Time, m Quiet, fx *skerry.Effects) {
	w := c.workers[m.Name]
	if w == nil || w.lost {
		return
	}
	w.beats = false
	if k := c.Kids.Get(m.Name); k == nil || !k.Connected && !m.Heard.After(k.Since) {
		return // its connection ended after that, and counts
	}
	w.quiet = m.Heard
	c.seeWorker(w)
	c.suspect(now, w, fx)
}

func (c *Core) alive(m Alive) {
	w := c.workers[m.Name]
	if w == nil {
		return
	}
	w.beats = true
	if !w.quiet.IsZero() {
		w.quiet = time.Time{}
		c.trust(w)
		c.seeWorker(w)
		c.grew = true
	}
}

// trust ends a suspicion.
func (c *Core) trust(w *worker) {
	w.suspicion = nil
	delete(c.suspects, w.Name)
}

// lostAt is when a silent worker counts as lost.
func (c *Core) lostAt(name string) time.Time {
	w, k := c.workers[name], c.Kids.Get(name)
	switch {
	case !w.quiet.IsZero():
		return w.quiet.Add(c.opt.LostAfter)
	case k.Since.Equal(c.started): // not seen in this life
		return k.Since.Add(max(c.opt.LostAfter, c.opt.StartGrace))
	case w.beats:
		return k.Since.Add(deafFactor * c.opt.LostAfter)
	}
	return k.Since.Add(c.opt.LostAfter)
}

// suspect begins to find out about a worker.
func (c *Core) suspect(now time.Time, w *worker, fx *skerry.Effects) {
	if w.suspicion != nil {
		return
	}
	w.suspicion = &suspicion{reached: map[string]bool{}, next: now, since: now}
	c.suspects[w.Name] = true
	c.askWitnesses(now, fx)
}

// askWitnesses asks about those who are suspected, where it is time.
func (c *Core) askWitnesses(now time.Time, fx *skerry.Effects) {
	for _, name := range slices.Sorted(maps.Keys(c.suspects)) {
		w := c.workers[name]
		s := w.suspicion
		if s.next.IsZero() || now.Before(s.next) {
			continue
		}
		s.next = time.Time{}
		wait := c.opt.LostAfter * 2 / 5
		switch {
		case !w.lost:
			s.next = now.Add(max(wait, time.Second))
		case now.Sub(s.since) < askLostFor && len(c.byWorker[name]) > 0:
			s.next = now.Add(max(askLost, wait))
		}
		if w.Facts == nil || w.Facts.Probe == "" && w.Peer == 0 {
			continue
		}
		s.asked = c.witnessesFor(w)
		for _, by := range s.asked {
			fx.Actions = append(fx.Actions, AskWitness{Suspect: name, Witness: by, Target: w.Facts.Probe, Peer: w.Peer, Wait: wait})
		}
	}
}

// witnessesFor chooses whom to ask: first those who exchange packets with it, who have a way to it through NATs, too; else those who come
// after it on the ring of all, so that no worker is everybody's witness.
func (c *Core) witnessesFor(w *worker) (out []string) {
	self := hashOf(w.Name)
	var list []*worker
	for _, o := range c.workers {
		if k := c.Kids.Get(o.Name); o != w && o.Carrier == "" && (o.reachable() || o.Peer != 0 && !o.lost) && k != nil && k.Connected && o.quiet.IsZero() {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *worker) int {
		if x, y := c.exchange(a, w), c.exchange(b, w); x != y {
			if x {
				return -1
			}
			return 1
		}
		x, y := hashOf(a.Name)-self, hashOf(b.Name)-self // around the ring
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, o := range list[:min(witnesses, len(list))] {
		out = append(out, o.Name)
	}
	return out
}

// exchange reports whether the routes of one of two workers lead to the other one.
func (c *Core) exchange(a, b *worker) bool {
	return c.routes.reach[a.Name][b.Name] > 0 || c.routes.reach[b.Name][a.Name] > 0
}

func (c *Core) witnessed(m Witnessed) {
	w := c.workers[m.Suspect]
	if w == nil || w.suspicion == nil || !slices.Contains(w.suspicion.asked, m.Witness) {
		return // it is back, or nobody asked
	}
	before := w.cutOff()
	if m.Reached {
		w.suspicion.reached[m.Witness] = true
	} else {
		delete(w.suspicion.reached, m.Witness)
	}
	if w.cutOff() == before {
		return
	}
	for _, p := range c.byWorker[w.Name] {
		c.linked[p.A.Service.App] = true
	}
	for at := range w.leaving {
		c.routes.dirty[w.leaving[at].service] = true
	}
}

// cutOff reports whether a worker is lost to the orchestrator alone: those who reach it may go on using what runs there.
func (w *worker) cutOff() bool { return w.lost && w.suspicion != nil && len(w.suspicion.reached) > 0 }

// verdict says what is known of a lost worker.
func (c *Core) verdict(w *worker) string {
	s := w.suspicion
	switch {
	case s == nil:
		return "not heard since the orchestrator started"
	case len(s.asked) == 0 && (w.Facts == nil || w.Facts.Probe == "" && w.Peer == 0):
		return "nobody can be asked about it: it answers no round trips, and takes no part in the overlay"
	case len(s.asked) == 0:
		return "there is no other worker to ask about it"
	case len(s.reached) > 0:
		return "cut off from the orchestrator: " + strings.Join(slices.Sorted(maps.Keys(s.reached)), ", ") + " can reach it"
	}
	return "it does not answer " + strings.Join(s.asked, ", ") + " either"
}
