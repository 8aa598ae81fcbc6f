package core

import (
	"cmp"
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const (
	drainRetry = 5 * time.Second
	// failedRetry is how long after a successor was started another is, if it came to nothing.
	failedRetry = 30 * time.Second
	maxParallel = 100
)

// DrainWorker has everything that can leave a worker, and keeps new work from it. CordonWorker without a reason ends that.
type DrainWorker struct {
	Name     string
	Reason   string
	Parallel int    // migrations at once, at most 100; 0: one
	To       string // the worker that is to be preferred, or ""
	Force    bool   // also what keeps data on the worker, which it then loses
}

// drainer moves on what operators asked to be drained, make before break, and says what stays.
type drainer struct {
	*lifecycle
	find   *finder
	drains *moves.Drains
}

func (dr *drainer) drainWorker(now time.Time, msg DrainWorker, fx *wire.Effects) {
	w := dr.workers[msg.Name]
	switch {
	case w == nil || msg.To != "" && dr.workers[msg.To] == nil:
		name := msg.Name
		if w != nil {
			name = msg.To
		}
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
		return
	case msg.To == msg.Name:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "worker %s cannot be drained to itself", msg.Name)
		return
	case msg.Parallel < 0 || msg.Parallel > maxParallel:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "%d migrations at once are out of range; from 1 to %d are allowed", msg.Parallel, maxParallel)
		return
	}
	w.Drain = dr.drains.Begin(msg.Name, &moves.Drain{Since: now, Parallel: max(1, msg.Parallel), To: msg.To, Force: msg.Force})
	w.Cordon = cmp.Or(msg.Reason, "it is drained")
	dr.saveWorker(w, fx)
	dr.seeWorker(w)
	dr.freed()
	dr.siteEvent(fx, now, wire.EventNormal, "Draining", "worker "+msg.Name+" is drained: "+w.Cordon, msg.Name)
}

// endDrain lets what is on a worker stay there.
func (dr *drainer) endDrain(now time.Time, w *worker, fx *wire.Effects) {
	for _, id := range dr.drains.End(w.Name) {
		if p := dr.places[id]; p != nil && p.Worker == w.Name && p.drained {
			p.drained, p.Obs.Violated = false, ""
			dr.changed(now, p, fx)
		}
	}
	w.Drain = nil
}

// drainWorkers moves on what operators asked to be drained.
func (dr *drainer) drainWorkers(now time.Time, fx *wire.Effects) {
	for _, name := range dr.drains.Start() {
		if w := dr.workers[name]; !w.sight.Lost() { // else its instances are rescued as those of any lost worker
			dr.drainOne(now, w, fx)
		}
	}
}

func (dr *drainer) drainOne(now time.Time, w *worker, fx *wire.Effects) {
	look := dr.drains.Look(w.Name)
	moving, left := 0, 0
	list := dr.on(w.Name)
	for _, inst := range list {
		if inst.Next != nil {
			moving++
		}
	}
	for _, inst := range list {
		if inst.Removing || inst.ended() {
			continue
		}
		why := inst.bound(look.Force)
		if why == "" && inst.Obs.State == skerry.Running {
			why = dr.workers.notCheckpointed(inst)
		}
		if why != "" {
			look.Stays(inst.A.ID, why)
			continue
		}
		left++
		if inst.Next != nil {
			continue
		}
		switch {
		case look.Waits(now, inst.A.ID):
		case inst.Obs.State != skerry.Running: // it serves nobody yet
			dr.move(now, inst, "its worker is drained", false, fx)
		case moving < look.Parallel:
			if dr.drainAway(now, w, inst, look, fx) {
				moving++
			}
		}
	}
	here := func(id skerry.InstanceID) bool { return dr.byWorker[w.Name][id] != nil }
	if news, n := look.End(here, left == 0 && dr.arriving(w.Name) == 0 && len(w.leaving) == 0); news {
		dr.saveWorker(w, fx)
		text := "worker " + w.Name + " is drained"
		if n > 0 {
			text += fmt.Sprintf("; %d instances stay", n)
		}
		dr.siteEvent(fx, now, wire.EventNormal, "Drained", text, w.Name)
	}
}

// drainAway starts a successor of an instance elsewhere. Where the site has no room the owner learns of it, who may know
// another site.
func (dr *drainer) drainAway(now time.Time, w *worker, inst *placement, look *moves.Look, fx *wire.Effects) bool {
	id := inst.A.ID
	if at := dr.endsElsewhere(inst); now.Before(at) {
		look.Tries(id, "a copy of it may still run on a worker that is out of touch, and there must not be another", at)
		return false
	}
	if k := dr.Children.Get(w.Name); inst.mayRun() && (k == nil || !k.Connected || w.sight.Quiet()) {
		look.Tries(id, "its worker is out of touch and may run it on, and there must not be another", now.Add(drainRetry))
		return false
	}
	decision, wait := dr.find.elsewhere(now, inst, w.Drain.To, fx)
	if wait {
		dr.drains.Again(now.Add(drainRetry))
		return false
	}
	if decision.Chosen != "" {
		inst.drained, inst.Obs.Violated = false, ""
		look.Leaves(id, now.Add(failedRetry))
		dr.migrate(now, inst, decision, "worker "+w.Name+" is drained", fx)
		return true
	}
	why := "no other worker of the site can take it"
	if len(decision.Why) > 0 {
		why += ": " + decision.Why[0].Text
	}
	look.Tries(id, why, now.Add(drainRetry))
	if !inst.drained {
		inst.drained = true
		inst.Obs.Violated = "its worker is drained, and " + why
		if inst.Origin == "root" {
			inst.Obs.Violated = dr.workers.redact(inst, inst.Obs.Violated)
		}
		dr.changed(now, inst, fx)
	}
	return false
}

// arriving counts the copies that are on their way to a worker, and leave it again once they have taken over.
func (dr *drainer) arriving(worker string) (n int) {
	for id := range dr.moving {
		if next := dr.places[id].Next; next != nil && next.Worker == worker {
			n++
		}
	}
	return n
}

// viewDrain tells how far a drain is.
func (dr *drainer) viewDrain(w *worker) *view.DrainView {
	drain := w.Drain
	if drain == nil {
		return nil
	}
	shown := &view.DrainView{Since: drain.Since, To: skerry.WorkerName(drain.To), Parallel: drain.Parallel, Left: dr.arriving(w.Name),
		Ending: len(w.leaving)}
	for _, p := range dr.on(w.Name) {
		why, tries, stays := drain.Stay(p.A.ID)
		switch {
		case p.Removing || p.ended():
		case p.Next != nil:
			shown.Moving++
			shown.Left++
		case stays:
			shown.Stays = append(shown.Stays, view.StayView{Instance: p.A.ID, Reason: why, Tries: tries})
			if tries {
				shown.Left++
			}
		default:
			shown.Left++
		}
	}
	shown.Done = drain.Told && shown.Left == 0 && shown.Ending == 0 // something may have come late
	return shown
}

// audit says which drains their workers do not know of.
func (dr *drainer) audit() []string {
	return dr.drains.Audit(func(worker string) *moves.Drain {
		if w := dr.workers[worker]; w != nil {
			return w.Drain
		}
		return nil
	})
}
