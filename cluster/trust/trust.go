// Package trust decides how far a site trusts each of its workers. It owns the evidence about every worker (package evidence has the
// rules), the capacity that a worker is believed to have, and the round trips that other workers measured to it. It never touches an
// instance or the scheduler: it returns findings, and the cluster's core, which alone imports it, acts on them. It is pure: no clock, no
// disk, no socket.
//
//	claim, report ─► check ─► plausible: accepted
//	                   └─ refuted: ignored, and counted ─► the worker is a suspect: its rank falls
//	                                 └─ three of a kind, a minute apart ─► quarantine ─ forgotten, or uncordoned ─► trusted
//
// In quarantine a worker gets nothing new. Its instances keep running.
package trust

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// growth is how many times the capacity that it had when it joined a worker may claim. More needs an operator.
	growth = 2
	// No instance uses so much, whatever the machine (its capacity may be stated lower than it is).
	impossibleCPU    skerry.MilliCPU = 1_000_000
	impossibleMemory                 = 64 << 10 * skerry.GiB
	// reviewEvery is how often suspects are judged again.
	reviewEvery = time.Minute
	// heardFor is how long a round trip that another worker measured counts, and heardBy how many there must be to judge by.
	heardFor = 10 * time.Minute
	heardBy  = 3
	// Round trips and coordinates disagree where one is more than so many times the other and so much.
	farFactor, farMs = 3, 50
)

// Site is what trust must know of a site.
type Site interface {
	// At gives the worker that answers round trips at an address, or "".
	At(probe string) string
	// Position is where a worker that is in touch claims to be, or nil.
	Position(worker string) *spec.Coordinate
}

// Record is the part of a worker's record that trust owns.
type Record struct {
	Trust  *evidence.Book  `json:"credit,omitempty"` // nil: nothing speaks against it
	Base   spec.Resources  `json:"base,omitzero"`    // what it had when it joined
	Claims *spec.Resources `json:"claims,omitempty"` // what it claims to have, where that is not believed
}

// Worker is how far one worker is trusted. The methods of nil are those of a worker that is trusted.
type Worker struct {
	name   string
	record Record
	heard  map[string]heard // round trips to it, by the worker that measured them
}

// heard is a round trip to a worker that another one measured.
type heard struct {
	ms float64
	at time.Time
}

// Finding is the result of a check.
type Finding struct {
	Worker  string
	Text    string // what was counted against the worker, or empty
	Changed bool   // its quarantine began, or ended
}

// Trust has the evidence about all workers of a site.
type Trust struct {
	site     Site
	workers  map[string]*Worker
	suspects map[string]*Worker // those with evidence
	due      time.Time          // of the next review, while there are suspects
}

// New makes a site without workers.
func New(site Site) *Trust {
	return &Trust{site: site, workers: map[string]*Worker{}, suspects: map[string]*Worker{}}
}

// Add enters a worker with its record; a new one has an empty record.
func (t *Trust) Add(name string, r Record) *Worker {
	w := &Worker{name: name, record: r}
	t.workers[name] = w
	if r.Trust != nil {
		t.suspects[name] = w
	}
	return w
}

// Remove forgets a worker.
func (t *Trust) Remove(name string) {
	delete(t.workers, name)
	delete(t.suspects, name)
}

// Record is to be saved with the worker's record.
func (w *Worker) Record() Record {
	if w == nil {
		return Record{}
	}
	return w.record
}

// Quarantine says why a worker gets nothing new, or nothing.
func (w *Worker) Quarantine() string {
	if w == nil || w.record.Trust == nil {
		return ""
	}
	return w.record.Trust.Quarantine
}

// Misplaced reports whether the coordinate of a worker is refuted.
func (w *Worker) Misplaced() bool { return w != nil && w.record.Trust.Suspected(evidence.Place) }

// Rank is by how much a worker's score counts, and why that is less than all; 0 stands for all.
func (w *Worker) Rank() (share float64, why string) {
	if w == nil || w.record.Trust.Clean() {
		return 0, ""
	}
	b := w.record.Trust
	if share = b.Rank(); share > 1-1e-3 {
		return 0, ""
	}
	return math.Round(share*100) / 100, b.Text()
}

// Start begins a life of the site: suspects are reviewed from then on.
func (t *Trust) Start(now time.Time) { t.due = now.Add(reviewEvery) }

// Due is when suspects are to be reviewed, or the zero time.
func (t *Trust) Due() time.Time {
	if len(t.suspects) == 0 {
		return time.Time{}
	}
	return t.due
}

// Overdue lists the suspects, by name, when it is time to review them.
func (t *Trust) Overdue(now time.Time) []string {
	if len(t.suspects) == 0 || now.Before(t.due) {
		return nil
	}
	t.due = now.Add(reviewEvery)
	return slices.Sorted(maps.Keys(t.suspects))
}

// Review begins or ends the quarantine of a suspect, where it is time.
func (t *Trust) Review(now time.Time, name string) Finding {
	return Finding{Worker: name, Changed: t.workers[name].record.Trust.Judge(now)}
}

// Clear ends the suspicion of a worker of whose evidence nothing is left. It reports whether it did.
func (t *Trust) Clear(name string) bool {
	w := t.workers[name]
	if b := w.record.Trust; !b.Clean() || len(b.Entries) > 0 {
		return false
	}
	t.clear(w)
	return true
}

// Restore has a worker trusted again, by an operator. It gives the capacity that the worker claims, where that was not believed, and
// whether anything was counted.
func (t *Trust) Restore(name string) (claims *spec.Resources, suspected bool) {
	w := t.workers[name]
	if claims = w.record.Claims; claims != nil {
		w.record.Base, w.record.Claims = *claims, nil
	}
	suspected = !w.record.Trust.Clean()
	t.clear(w)
	return claims, suspected
}

func (t *Trust) clear(w *Worker) {
	w.record.Trust = nil
	delete(t.suspects, w.name)
}

// book gives the evidence about a worker, to add to.
func (t *Trust) book(name string) *evidence.Book {
	w := t.workers[name]
	if w.record.Trust == nil {
		w.record.Trust = &evidence.Book{}
	}
	t.suspects[name] = w
	return w.record.Trust
}

// finding is what follows from a check that counted something, or did not.
func (t *Trust) finding(now time.Time, name string, counted bool, text string) Finding {
	if !counted {
		return Finding{Worker: name}
	}
	return Finding{Worker: name, Text: text, Changed: t.workers[name].record.Trust.Judge(now)}
}

// Mark counts something that no honest worker says.
func (t *Trust) Mark(now time.Time, name string, kind evidence.Kind, text string) Finding {
	return t.finding(now, name, t.book(name).Mark(now, kind, text), text)
}

// Odd takes a message that an honest worker hardly ever sends.
func (t *Trust) Odd(now time.Time, name string, kind evidence.Kind, text string) Finding {
	return t.finding(now, name, t.book(name).Odd(now, kind, text), text)
}

// Slow takes that a worker did not start what another one started at once. The instances that it does run speak for it, where nothing was
// counted before.
func (t *Trust) Slow(now time.Time, name string, runs int, text string) Finding {
	if t.workers[name].record.Trust == nil {
		for range runs {
			t.book(name).Vouch(evidence.Starts)
		}
	}
	return t.Mark(now, name, evidence.Starts, text)
}

// Started takes that a worker started an instance.
func (t *Trust) Started(now time.Time, name string) {
	if w := t.workers[name]; w != nil && w.record.Trust != nil {
		w.record.Trust.Good(now, evidence.Starts)
	}
}

// Capacity takes a worker's account of its machine, and gives it as far as it is believed: a machine that grew to more than twice what it
// had when it joined counts as it was.
func (t *Trust) Capacity(now time.Time, name string, facts *wire.WorkerFacts) (*wire.WorkerFacts, Finding) {
	record := &t.workers[name].record
	had, claims := record.Base.Vector(), facts.Capacity.Vector()
	grown := false
	for i := range 2 { // processors and memory: room on disks comes and goes, and a device is plugged in
		switch {
		case had[i] <= 0:
			had[i] = max(claims[i], 0)
		case claims[i] > growth*had[i]:
			grown, claims[i] = true, had[i]
		}
	}
	record.Base = spec.FromVector(had)
	if !grown {
		record.Claims = nil
		return facts, Finding{Worker: name}
	}
	found, said := Finding{Worker: name}, facts.Capacity
	if record.Claims == nil || *record.Claims != said {
		record.Claims = &said
		const text = "it claims %s but had %s when it joined, which is what counts; `skerry uncordon %s` accepts the claim"
		found = t.Mark(now, name, evidence.Capacity, fmt.Sprintf(text, shortly(said), shortly(record.Base), name))
	}
	out := *facts
	out.Capacity = spec.FromVector(claims)
	return &out, found
}

func shortly(r spec.Resources) string {
	return fmt.Sprintf("%s cores and %s of memory", r.CPU, r.Memory)
}

// Use looks for usage in a report that no machine has.
func (t *Trust) Use(now time.Time, name string, r *wire.WorkerReport) Finding {
	text := impossible(r)
	if text == "" && t.workers[name].record.Trust == nil {
		return Finding{Worker: name}
	}
	return t.finding(now, name, t.book(name).Check(now, evidence.Use, text != "", text), text)
}

// impossible says which usage in a report no machine has, or nothing.
func impossible(r *wire.WorkerReport) string {
	for _, id := range slices.Sorted(maps.Keys(r.Instances)) {
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

// Place takes the round trips that a worker measured, and compares where it claims to be with those that others measured to it.
func (t *Trust) Place(now time.Time, name string, claimed *spec.Coordinate, measured []wire.PeerRTT) Finding {
	t.hear(now, name, measured)
	w := t.workers[name]
	text, wrong, known := t.misplaced(now, w, claimed)
	if !known || !wrong && w.record.Trust == nil {
		return Finding{Worker: name}
	}
	b := t.book(name)
	if !wrong {
		b.Good(now, evidence.Place)
	}
	return t.finding(now, name, b.Check(now, evidence.Place, wrong, text), text)
}

// hear keeps the round trips that a worker measured to others.
func (t *Trust) hear(now time.Time, by string, list []wire.PeerRTT) {
	for _, m := range list {
		to := t.workers[t.site.At(m.Probe)]
		if to == nil || to.name == by || !(m.Ms > 0 && m.Ms < 60_000) {
			continue
		}
		if to.heard == nil {
			to.heard = map[string]heard{}
		}
		to.heard[by] = heard{m.Ms, now}
	}
}

// misplaced compares a coordinate with the round trips that others measured. One of them may lie, or be wrong about its own place; most of
// at least three must disagree.
func (t *Trust) misplaced(now time.Time, worker *Worker, claimed *spec.Coordinate) (text string, wrong, known bool) {
	if claimed == nil || len(worker.heard) == 0 {
		return "", false, false
	}
	all, far, worst := 0, 0, 0.0
	for name, m := range worker.heard {
		o := t.workers[name]
		if o == nil || now.Sub(m.at) > heardFor || m.at.After(now) {
			delete(worker.heard, name)
			continue
		}
		at := t.site.Position(name)
		if at == nil || o.Misplaced() || o.Quarantine() != "" {
			continue
		}
		all++
		says := claimed.RTT(*at)
		if less, more := min(says, m.ms), max(says, m.ms); more > farFactor*less && more-less > farMs {
			far++
			worst = max(worst, more-less)
		}
	}
	if all < heardBy {
		return "", false, false
	}
	text = fmt.Sprintf("its coordinate differs by up to %.0f ms from the round trips that %d of %d others measured", worst, far, all)
	return text, far*3 > all*2, true
}

// Audit reports contradictions in the evidence, against the workers that the site knows.
func (t *Trust) Audit(known map[string]*Worker) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for name, w := range t.workers {
		if known[name] != w || w.name != name {
			bad("there is evidence about %s, which was removed", name)
		}
		if (t.suspects[name] == w) != (w.record.Trust != nil) {
			bad("%s: its list says that it is a suspect: %v", name, t.suspects[name] == w)
		}
		if c, b := w.record.Claims, w.record.Base; c != nil && c.CPU <= growth*b.CPU && c.Memory <= growth*b.Memory {
			bad("%s: its claim of %s is not believed, and it had %s", name, shortly(*c), shortly(b))
		}
		if w.heard[name] != (heard{}) {
			bad("%s measured a round trip to itself", name)
		}
	}
	for name := range known {
		if t.workers[name] == nil {
			bad("%s can have no evidence", name)
		}
	}
	for name := range t.suspects {
		if t.workers[name] == nil {
			bad("%s is gone, and still a suspect", name)
		}
	}
	return faults
}
