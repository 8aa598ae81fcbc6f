// Package detect finds out which workers of a site are lost. It owns what is known of each worker's silence: whether its beats come,
// since when they do not, who was asked about it, and the verdict. It never touches a connection, an instance or a route: it gives back
// what changed, and the cluster's core, which alone imports it, acts on that. It is pure: no clock, no disk, no socket.
//
//	connected --no beat--> quiet ----+--LostAfter--> lost (cut off | dead)
//	    |                            |
//	    +--connection ends--> silent-+--beat, connection--> connected
//
// A worker whose beats (package link/beat) or whose connection fail is suspected, and up to three other workers are asked to reach it.
// After LostAfter without a sign of life it is lost: cut off if one of them reaches it, else dead for all that can be known.
package detect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/wire"
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

// Site is what the detector must know of a site.
type Site interface {
	// Link tells of a worker's connection, and since when it has it, or has had none; known is false where it never had one.
	Link(worker string) (connected bool, since time.Time, known bool)
	// Reach is where a worker answers round trips, host:port or empty, and its number in the overlay, or 0.
	Reach(worker string) (target string, peer wire.PeerID)
	// Witnesses lists those that could be asked to reach another worker, in any order.
	Witnesses() []string
	// Exchange reports whether two workers exchange packets.
	Exchange(a, b string) bool
	// Spot is where a worker is on the ring of all.
	Spot(worker string) uint64
	// Serves reports whether anything on a worker may still be used.
	Serves(worker string) bool
}

// Options set up a detector.
type Options struct {
	LostAfter  time.Duration // a worker out of touch for so long is lost
	StartGrace time.Duration // for workers that have not been seen since the start
}

// Detector knows the silence of all workers of a site.
type Detector struct {
	opt     Options
	site    Site
	started time.Time
	workers map[string]*Worker
	// Lists of those among them, so that a site in order costs nothing:
	silent   map[string]*Worker // not connected, or quiet, and not yet lost
	suspects map[string]*Worker // with a suspicion
}

// Worker is what is known of one worker's silence. The methods of nil are those of a worker that is in touch.
type Worker struct {
	name      string
	lost      bool
	beats     bool      // they come
	quiet     time.Time // its beats no longer come: the last one; zero: they do, or never did
	suspicion *suspicion
}

// suspicion is what is found out about a worker that may be lost.
type suspicion struct {
	asked   []string        // the witnesses
	reached map[string]bool // those that reach it
	next    time.Time       // ask again then; zero: no more
	since   time.Time
}

// Ask has a witness try to reach a suspect, for a while.
type Ask struct {
	Suspect, Witness string
	Target           string      // where the suspect answers, host:port; empty: nowhere
	Peer             wire.PeerID // its number in the overlay; 0: it has none
	Wait             time.Duration
}

// New makes a detector that knows no worker.
func New(opt Options, site Site) *Detector {
	return &Detector{opt: opt, site: site, workers: map[string]*Worker{}, silent: map[string]*Worker{}, suspects: map[string]*Worker{}}
}

// Start tells when this life of the site began.
func (d *Detector) Start(now time.Time) { d.started = now }

// Add begins to watch a worker, and gives what is known of it.
func (d *Detector) Add(name string) *Worker {
	w := &Worker{name: name}
	d.workers[name] = w
	return w
}

// Remove forgets a worker.
func (d *Detector) Remove(name string) {
	delete(d.workers, name)
	delete(d.silent, name)
	delete(d.suspects, name)
}

// Lost reports whether the worker counts as lost.
func (w *Worker) Lost() bool { return w != nil && w.lost }

// Quiet reports whether the worker's beats have stopped.
func (w *Worker) Quiet() bool { return w != nil && !w.quiet.IsZero() }

// Beats reports whether the worker's beats come.
func (w *Worker) Beats() bool { return w != nil && w.beats }

// CutOff reports whether a worker is lost to the orchestrator alone: those who reach it may go on using what runs there.
func (w *Worker) CutOff() bool { return w.Lost() && w.suspicion != nil && len(w.suspicion.reached) > 0 }

// Up takes a new connection of a worker: it is in touch, and no longer suspected.
func (d *Detector) Up(name string) {
	*d.workers[name] = Worker{name: name}
	delete(d.suspects, name)
	d.See(name)
}

// See looks again at a worker whose connection may have changed.
func (d *Detector) See(name string) {
	if w := d.workers[name]; w != nil && d.isSilent(w) {
		d.silent[name] = w
	} else {
		delete(d.silent, name)
	}
}

func (d *Detector) isSilent(w *Worker) bool {
	connected, _, known := d.site.Link(w.name)
	return known && (!connected || w.Quiet()) && !w.lost
}

// Silent takes that a worker's beats no longer come, the last one at a time. It reports whether that makes it quiet.
func (d *Detector) Silent(name string, heard time.Time) bool {
	w := d.workers[name]
	if w == nil || w.lost {
		return false
	}
	w.beats = false
	connected, since, known := d.site.Link(name)
	if !known || !connected && !heard.After(since) {
		return false // its connection ended after that, and counts
	}
	w.quiet = heard
	d.See(name)
	return true
}

// Alive takes that a worker's beats come (again). It reports whether it was quiet.
func (d *Detector) Alive(name string) bool {
	w := d.workers[name]
	if w == nil {
		return false
	}
	w.beats = true
	if !w.Quiet() {
		return false
	}
	w.quiet, w.suspicion = time.Time{}, nil
	delete(d.suspects, name)
	d.See(name)
	return true
}

// Suspect begins to find out about a worker, unless that goes on already. It reports whether it did; Ask gives the questions.
func (d *Detector) Suspect(now time.Time, name string) bool {
	w := d.workers[name]
	if w.suspicion != nil {
		return false
	}
	w.suspicion = &suspicion{reached: map[string]bool{}, next: now, since: now}
	d.suspects[name] = w
	return true
}

// Lose makes a worker lost. It gives since when it has been out of touch.
func (d *Detector) Lose(name string) (since time.Time) {
	w := d.workers[name]
	if _, at, known := d.site.Link(name); known {
		since = at
	} else { // it was lost with a part of a commit, and the worker has not come back since
		since = d.started
	}
	if w.Quiet() {
		since = w.quiet
	}
	w.lost, w.quiet = true, time.Time{}
	delete(d.silent, name)
	return since
}

// lostAt is when a silent worker counts as lost.
func (d *Detector) lostAt(w *Worker) time.Time {
	_, since, _ := d.site.Link(w.name)
	switch {
	case w.Quiet():
		return w.quiet.Add(d.opt.LostAfter)
	case since.Equal(d.started): // not seen in this life
		return since.Add(max(d.opt.LostAfter, d.opt.StartGrace))
	case w.beats:
		return since.Add(deafFactor * d.opt.LostAfter)
	}
	return since.Add(d.opt.LostAfter)
}

// Overdue lists the workers that have been silent for too long, by name.
func (d *Detector) Overdue(now time.Time) (out []string) {
	for name, w := range d.silent {
		if !now.Before(d.lostAt(w)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Due is when somebody is overdue or must be asked about, or the zero time.
func (d *Detector) Due() (next time.Time) {
	consider := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, w := range d.silent {
		consider(d.lostAt(w))
	}
	for _, w := range d.suspects {
		consider(w.suspicion.next)
	}
	return next
}

// Busy reports whether any worker is silent or suspected.
func (d *Detector) Busy() bool { return len(d.silent)+len(d.suspects) > 0 }

// Ask gives the questions about those who are suspected, where it is time, by name.
func (d *Detector) Ask(now time.Time) (out []Ask) {
	for _, name := range slices.Sorted(maps.Keys(d.suspects)) {
		worker := d.workers[name]
		s := worker.suspicion
		if s.next.IsZero() || now.Before(s.next) {
			continue
		}
		s.next = time.Time{}
		wait := d.opt.LostAfter * 2 / 5
		switch {
		case !worker.lost:
			s.next = now.Add(max(wait, time.Second))
		case now.Sub(s.since) < askLostFor && d.site.Serves(name):
			s.next = now.Add(max(askLost, wait))
		}
		target, peer := d.site.Reach(name)
		if target == "" && peer == 0 {
			continue
		}
		s.asked = d.choose(name)
		for _, by := range s.asked {
			out = append(out, Ask{Suspect: name, Witness: by, Target: target, Peer: peer, Wait: wait})
		}
	}
	return out
}

// choose gives those to ask about a suspect, of those that are connected and not silent themselves: first those who exchange packets with
// it, who have a way to it through NATs, too; else those who come after it on the ring of all, so that no worker is everybody's witness.
func (d *Detector) choose(suspect string) []string {
	self := d.site.Spot(suspect)
	list := slices.DeleteFunc(d.site.Witnesses(), func(name string) bool {
		connected, _, known := d.site.Link(name)
		return name == suspect || !known || !connected || d.workers[name].Quiet()
	})
	slices.SortFunc(list, func(a, b string) int {
		if x, y := d.site.Exchange(a, suspect), d.site.Exchange(b, suspect); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(d.site.Spot(a)-self, d.site.Spot(b)-self), strings.Compare(a, b)) // around the ring
	})
	return list[:min(witnesses, len(list))]
}

// Witnessed takes the answer to a question. It reports whether that changed whether the suspect is cut off.
func (d *Detector) Witnessed(suspect, witness string, reached bool) (changed bool) {
	w := d.workers[suspect]
	if w == nil || w.suspicion == nil || !slices.Contains(w.suspicion.asked, witness) {
		return false // it is back, or nobody asked
	}
	before := w.CutOff()
	if reached {
		w.suspicion.reached[witness] = true
	} else {
		delete(w.suspicion.reached, witness)
	}
	return w.CutOff() != before
}

// Verdict says what is known of a lost worker.
func (d *Detector) Verdict(name string) string {
	s := d.workers[name].suspicion
	target, peer := d.site.Reach(name)
	switch {
	case s == nil:
		return "not heard since the orchestrator started"
	case len(s.asked) == 0 && target == "" && peer == 0:
		return "nobody can be asked about it: it answers no round trips, and takes no part in the overlay"
	case len(s.asked) == 0:
		return "there is no other worker to ask about it"
	case len(s.reached) > 0:
		return "cut off from the orchestrator: " + strings.Join(slices.Sorted(maps.Keys(s.reached)), ", ") + " can reach it"
	}
	return "it does not answer " + strings.Join(s.asked, ", ") + " either"
}

// Audit gives what contradicts itself in the detector's books, against the workers that the site knows.
func (d *Detector) Audit(known map[string]*Worker) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for name, w := range d.workers {
		if known[name] != w {
			bad("%s is watched, and removed", name)
		}
		if (d.silent[name] == w) != d.isSilent(w) {
			bad("%s: its list says that it is silent: %v; lost %v, quiet %v", name, d.silent[name] == w, w.lost, w.Quiet())
		}
		if (d.suspects[name] == w) != (w.suspicion != nil) {
			bad("%s: its list says that it is suspected: %v", name, d.suspects[name] == w)
		}
		if w.Quiet() && (w.lost || w.beats) {
			bad("%s is quiet; lost %v, its beats come: %v", name, w.lost, w.beats)
		}
	}
	for name := range known {
		if d.workers[name] == nil {
			bad("nobody watches %s", name)
		}
	}
	for _, list := range []map[string]*Worker{d.silent, d.suspects} {
		for name := range list {
			if d.workers[name] == nil {
				bad("%s is gone, and still listed", name)
			}
		}
	}
	return faults
}
