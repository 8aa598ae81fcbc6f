package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/credit"
)

// A worker is believed until what it says cannot be. Each claim that is refuted is taken out of what the site reckons
// with, at once, and counted; what was counted lowers the worker's rank, and what comes again and again puts it in
// quarantine: it gets nothing new, as if an operator had cordoned it, until an operator says otherwise (HoldWorker
// without a reason) or it has been quiet for long. What runs there runs on.
//
//	claims that cannot be ──> mark ──> rank falls ──three, a minute apart──> quarantine ──forgotten, or uncordon──> as before

const (
	// growth is how many times what a worker had when it joined it may claim to have. More is believed from an operator.
	growth = 2
	// No instance uses so much, whatever the machine (its capacity may be stated lower than it is).
	impossibleCPU    skerry.MilliCPU = 1_000_000
	impossibleMemory                 = 64 << 10 * skerry.GiB
	// creditEvery is how often what was counted is looked at again.
	creditEvery = time.Minute
	// heardFor is how long a round trip that another worker measured counts, and heardBy how many there must be to judge by.
	heardFor = 10 * time.Minute
	heardBy  = 3
	// Round trips and coordinates disagree where one is more than so many times the other and so much.
	farFactor, farMs = 3, 50
	// maxHeard bounds the round trips of a report.
	maxHeard = peersEach
	// forged is by how much a token must be beyond any that was given: the store may be a backup's.
	forged = 1 << 16
)

// heard is a round trip to a worker that another one measured.
type heard struct {
	ms float64
	at time.Time
}

// book gives a worker's book, to be written into.
func (c *Core) book(w *worker) *credit.Book {
	if w.Credit == nil {
		w.Credit = &credit.Book{}
	}
	c.doubted[w.Name] = true
	return w.Credit
}

// marked tells what was counted against a worker, and does what follows.
func (c *Core) marked(now time.Time, w *worker, counted bool, text string, fx *skerry.Effects) {
	if !counted {
		return
	}
	c.siteEvent(fx, now, skerry.EventWarning, "Implausible", "worker "+w.Name+": "+text, w.Name)
	c.judgeWorker(now, w, fx)
	c.saveWorker(w, fx)
	c.seeWorker(w)
}

// judgeWorker puts a worker in quarantine or lets it out, where it is time.
func (c *Core) judgeWorker(now time.Time, w *worker, fx *skerry.Effects) {
	if !w.Credit.Judge(now) {
		return
	}
	c.reportDue = true
	c.saveWorker(w, fx)
	c.seeWorker(w)
	if w.Credit.Quarantine == "" {
		c.grew = true
		c.siteEvent(fx, now, skerry.EventNormal, "QuarantineEnded", "worker "+w.Name+" gets new work again: nothing more came for long", w.Name)
		return
	}
	c.siteEvent(fx, now, skerry.EventWarning, "WorkerQuarantined", "worker "+w.Name+" gets nothing new: "+w.Credit.Quarantine, w.Name)
	for _, p := range c.on(w.Name) { // what it has not started in all that time
		if p.starting() && p.Next == nil && now.Sub(p.Placed) >= patience && c.othersFit(p) {
			c.move(now, p, "its worker is in quarantine and has not started it", true, fx)
		}
	}
}

// reviewCredit looks again at the workers of whom something is counted.
func (c *Core) reviewCredit(now time.Time, fx *skerry.Effects) {
	if len(c.doubted) == 0 || now.Before(c.creditDue) {
		return
	}
	c.creditDue = now.Add(creditEvery)
	for _, name := range slices.Sorted(maps.Keys(c.doubted)) {
		w := c.workers[name]
		if w == nil || w.Credit == nil {
			delete(c.doubted, name)
			continue
		}
		c.judgeWorker(now, w, fx)
		if w.Credit.Clean() && len(w.Credit.Entries) == 0 {
			w.Credit = nil
			delete(c.doubted, name)
			c.saveWorker(w, fx)
		}
		c.seeWorker(w) // its rank rises by itself
	}
}

// forgive has a worker believed again, all that it says.
func (c *Core) forgive(now time.Time, w *worker, fx *skerry.Effects) {
	if w.Claims != nil {
		facts := *w.Facts
		facts.Capacity = *w.Claims
		w.Facts, w.Claims, w.Base = &facts, nil, facts.Capacity
	}
	if !w.Credit.Clean() {
		c.siteEvent(fx, now, skerry.EventNormal, "QuarantineEnded", "worker "+w.Name+" is believed again: an operator says so", w.Name)
	}
	w.Credit = nil
	delete(c.doubted, w.Name)
}

// believable takes a worker's account of its machine. A machine that grew to more than twice what it had when it joined is
// reckoned with as it was.
func (c *Core) believable(now time.Time, w *worker, f *skerry.WorkerFacts, fx *skerry.Effects) *skerry.WorkerFacts {
	had, claims := w.Base.Vector(), f.Capacity.Vector()
	tall := ""
	for i := range skerry.NumResources {
		if i > 1 { // room on disks comes and goes, and a device is plugged in
			break
		}
		switch {
		case had[i] <= 0:
			had[i] = max(claims[i], 0)
		case claims[i] > growth*had[i]:
			tall = skerry.ResourceNames[i]
			claims[i] = had[i]
		}
	}
	w.Base = skerry.FromVector(had)
	if tall == "" {
		w.Claims = nil
		return f
	}
	said := f.Capacity
	if w.Claims == nil || *w.Claims != said {
		w.Claims = &said
		text := fmt.Sprintf("it claims %s, had %s when it joined, and is reckoned with by that; `skerry uncordon %s` has it believed", shortly(said), shortly(w.Base), w.Name)
		c.marked(now, w, c.book(w).Mark(now, credit.Capacity, text), text, fx)
	}
	out := *f
	out.Capacity = skerry.FromVector(claims)
	return &out
}

func shortly(r skerry.Resources) string {
	return fmt.Sprintf("%s cores and %s of memory", r.CPU, r.Memory)
}

// examine looks for what cannot be in a report.
func (c *Core) examine(now time.Time, w *worker, r *skerry.WorkerReport, fx *skerry.Effects) {
	if text := impossible(r); text != "" || w.Credit != nil {
		c.marked(now, w, c.book(w).Check(now, credit.Use, text != "", text), text, fx)
	}
	c.hear(now, w, r.Heard)
	if text, wrong, known := c.misplaced(now, w); known && (wrong || w.Credit != nil) {
		b := c.book(w)
		if !wrong {
			b.Good(now, credit.Place)
		}
		c.marked(now, w, b.Check(now, credit.Place, wrong, text), text, fx)
	}
}

// impossible says what of a report no machine can use, or nothing.
func impossible(r *skerry.WorkerReport) string {
	for _, id := range sortedIDs(r.Instances) {
		q := r.Instances[id]
		switch {
		case q.CPU < 0 || q.Memory < 0 || q.CPU > impossibleCPU || q.Memory > impossibleMemory:
			return fmt.Sprintf("it reports that %s uses %s cores and %s of memory", id, q.CPU, q.Memory)
		case !(q.Waiting >= 0 && q.Waiting <= 1.5):
			return fmt.Sprintf("it reports that %s waits for a processor %g of the time", id, q.Waiting)
		}
	}
	if u := r.Used; u.CPU < 0 || u.Memory < 0 || u.CPU > impossibleCPU || u.Memory > impossibleMemory {
		return fmt.Sprintf("it reports that %s are used", shortly(u))
	}
	return ""
}

// hear keeps the round trips that a worker measured to others.
func (c *Core) hear(now time.Time, by *worker, list []skerry.PeerRTT) {
	for _, m := range list[:min(len(list), maxHeard)] {
		to := c.workers[c.peers.at[m.Probe]]
		if to == nil || to == by || !(m.Ms > 0 && m.Ms < 60_000) {
			continue
		}
		if to.heard == nil {
			to.heard = map[string]heard{}
		}
		to.heard[by.Name] = heard{m.Ms, now}
	}
}

// misplaced compares where a worker says that it is with the round trips to it that others measured. One of them may lie, or
// be wrong about its own place; most of at least three must disagree.
func (c *Core) misplaced(now time.Time, w *worker) (text string, wrong, known bool) {
	if w.report.Coordinate == nil || len(w.heard) == 0 {
		return "", false, false
	}
	all, far, worst := 0, 0, 0.0
	for name, m := range w.heard {
		o := c.workers[name]
		if o == nil || now.Sub(m.at) > heardFor || m.at.After(now) {
			delete(w.heard, name)
			continue
		}
		at := o.coordinate()
		if at == nil || o.sight.Lost() || o.Credit != nil && o.Credit.Quarantine != "" {
			continue
		}
		all++
		says := w.report.Coordinate.RTT(*at)
		if less, more := min(says, m.ms), max(says, m.ms); more > farFactor*less && more-less > farMs {
			far++
			worst = max(worst, more-less)
		}
	}
	if all < heardBy {
		return "", false, false
	}
	return fmt.Sprintf("its coordinate differs by up to %.0f ms from the round trips that %d of %d others measured", worst, far, all), far*3 > all*2, true
}

// coordinate is where a worker is as far as that is believed, or nil.
func (w *worker) coordinate() *skerry.Coordinate {
	if w.Credit.Doubted(credit.Place) {
		return nil
	}
	return w.report.Coordinate
}

// foreignToken looks whether a worker speaks for an instance that it was never given.
func (c *Core) foreignToken(now time.Time, w *worker, p *placement, o *skerry.Observation, fx *skerry.Effects) {
	text := ""
	switch {
	case w == nil:
	case o.Fence.ClusterTerm == c.opt.Term && o.Fence.Sequence > c.seq && o.Fence.Sequence-c.seq > forged:
		text = "it tells of " + string(p.A.ID) + " under a token that was never given"
	case p.Worker != "" && p.Worker != w.Name && o.Fence == p.A.Fence && o.Fence.Sequence > 0 && (p.Next == nil || p.Next.Worker != w.Name):
		text = "it tells of " + string(p.A.ID) + ", which another worker was given"
	}
	if text != "" {
		c.marked(now, w, c.book(w).Mark(now, credit.Tokens, text), text, fx)
	}
}

// reckon is by how much a worker's score counts, and why that is less than all; 0 stands for all.
func (w *worker) reckon() (share float64, why string) {
	if w.Credit.Clean() {
		return 0, ""
	}
	if share = w.Credit.Rank(); share > 1-1e-3 {
		return 0, ""
	}
	return math.Round(share*100) / 100, w.Credit.Text()
}
