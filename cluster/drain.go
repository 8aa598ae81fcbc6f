package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// drain is what an operator asked for: everything that can be is to leave a worker, make before break.
//
//	each instance: no place ──retry──► successor elsewhere ──ready──► it is the instance, the old copy ends
//	               bound here: stays, with the reason
//
// It goes on until the worker may be used again, so that what comes back late leaves as well.
type drain struct {
	Since    time.Time `json:"since"`
	Parallel int       `json:"parallel"`
	To       string    `json:"to,omitempty"` // the worker that is preferred
	Force    bool      `json:"force,omitempty"`
	Told     bool      `json:"told,omitempty"` // that nothing that can leave is left
	stays    map[skerry.InstanceID]stay
	retry    map[skerry.InstanceID]time.Time // no try before
}

// stay is why an instance is still there.
type stay struct {
	why   string
	tries bool // a place is looked for again and again
}

const (
	drainRetry = 5 * time.Second
	// failedRetry is how long after a successor was started another is, if it came to nothing.
	failedRetry = 30 * time.Second
	maxParallel = 100
)

// DrainWorker has everything that can leave a worker, and keeps new work from it. HoldWorker without a reason ends that.
type DrainWorker struct {
	Name     string
	Reason   string
	Parallel int    // migrations at once, at most 100; 0: one
	To       string // the worker that is to be preferred, or ""
	Force    bool   // also what keeps data on the worker, which it then loses
}

func (c *Core) drainWorker(now time.Time, m DrainWorker, fx *wire.Effects) {
	w := c.workers[m.Name]
	switch {
	case w == nil || m.To != "" && c.workers[m.To] == nil:
		name := m.Name
		if w != nil {
			name = m.To
		}
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
		return
	case m.To == m.Name:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "worker %s cannot be drained to itself", m.Name)
		return
	case m.Parallel < 0 || m.Parallel > maxParallel:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "%d migrations at once are out of range; from 1 to %d are allowed", m.Parallel, maxParallel)
		return
	}
	w.Drain = &drain{Since: now, Parallel: max(1, m.Parallel), To: m.To, Force: m.Force}
	w.Hold = cmp.Or(m.Reason, "it is drained")
	c.drains[m.Name] = true
	c.saveWorker(w, fx)
	c.seeWorker(w)
	c.freed()
	c.siteEvent(fx, now, wire.EventNormal, "Draining", "worker "+m.Name+" is drained: "+w.Hold, m.Name)
}

// endDrain lets what is on a worker stay there.
func (c *Core) endDrain(now time.Time, w *worker, fx *wire.Effects) {
	if w.Drain == nil {
		return
	}
	for _, id := range sortedIDs(w.Drain.stays) {
		if p := c.places[id]; p != nil && p.Worker == w.Name && p.drained {
			p.drained, p.Obs.Violated = false, ""
			c.changed(now, p, fx)
		}
	}
	w.Drain = nil
	delete(c.drains, w.Name)
}

// drainWorkers moves on what operators asked to be drained.
func (c *Core) drainWorkers(now time.Time, fx *wire.Effects) {
	c.drainDue = time.Time{}
	for _, name := range slices.Sorted(maps.Keys(c.drains)) {
		if w := c.workers[name]; !w.sight.Lost() { // else its instances are rescued as those of any lost worker
			c.drainOne(now, w, fx)
		}
	}
}

func (c *Core) drainOne(now time.Time, w *worker, fx *wire.Effects) {
	d := w.Drain
	moving, left := 0, 0
	list := c.on(w.Name)
	for _, p := range list {
		if p.Next != nil {
			moving++
		}
	}
	if d.stays == nil {
		d.stays, d.retry = map[skerry.InstanceID]stay{}, map[skerry.InstanceID]time.Time{}
	}
	stays := map[skerry.InstanceID]stay{}
	for _, p := range list {
		id := p.A.ID
		if p.Removing || p.ended() {
			continue
		}
		why := p.bound(d.Force)
		if why == "" && p.Obs.State == skerry.Running {
			why = c.uncarried(p)
		}
		if why != "" {
			stays[id] = stay{why: why}
			continue
		}
		left++
		if p.Next != nil {
			continue
		}
		if was, ok := d.stays[id]; ok {
			stays[id] = was
		}
		switch at := d.retry[id]; {
		case now.Before(at):
			c.drainAgain(at)
		case p.Obs.State != skerry.Running: // it serves nobody yet
			c.move(now, p, "its worker is drained", false, fx)
		case moving < d.Parallel:
			if c.drainAway(now, w, p, stays, fx) {
				moving++
			}
		}
	}
	d.stays = stays
	for id := range d.retry {
		if p := c.places[id]; p == nil || p.Worker != w.Name {
			delete(d.retry, id)
		}
	}
	if left == 0 && len(w.leaving) == 0 && !d.Told {
		d.Told = true
		c.saveWorker(w, fx)
		text := "worker " + w.Name + " is drained"
		if n := len(stays); n > 0 {
			text += fmt.Sprintf("; %d instances stay", n)
		}
		c.siteEvent(fx, now, wire.EventNormal, "Drained", text, w.Name)
	}
}

// drainAway starts a successor of an instance elsewhere. Where the site has no room the owner learns of it, who may know
// another site.
func (c *Core) drainAway(now time.Time, w *worker, p *placement, stays map[skerry.InstanceID]stay, fx *wire.Effects) bool {
	id := p.A.ID
	if at := c.endsElsewhere(p); now.Before(at) {
		stays[id] = stay{"a copy of it may still run on a worker that is out of touch, and there must not be another", true}
		w.Drain.retry[id] = at
		c.drainAgain(at)
		return false
	}
	if k := c.Kids.Get(w.Name); c.mayRun(p) && (k == nil || !k.Connected || w.sight.Quiet()) {
		stays[id] = stay{"its worker is out of touch and may run it on, and there must not be another", true}
		at := now.Add(drainRetry)
		w.Drain.retry[id] = at
		c.drainAgain(at)
		return false
	}
	d, wait := c.elsewhere(now, p, w.Drain.To, fx)
	if wait {
		c.drainAgain(now.Add(drainRetry))
		return false
	}
	if d.Chosen != "" {
		delete(stays, id)
		p.drained, p.Obs.Violated = false, ""
		w.Drain.retry[id] = now.Add(failedRetry)
		c.migrate(now, p, d, "worker "+w.Name+" is drained", fx)
		return true
	}
	why := "no other worker of the site can take it"
	if len(d.Why) > 0 {
		why += ": " + d.Why[0].Text
	}
	stays[id] = stay{why, true}
	at := now.Add(drainRetry)
	w.Drain.retry[id] = at
	c.drainAgain(at)
	if !p.drained {
		p.drained = true
		p.Obs.Violated = "its worker is drained, and " + why
		if p.Origin == "root" {
			p.Obs.Violated = c.anonymous(p, p.Obs.Violated)
		}
		c.changed(now, p, fx)
	}
	return false
}

// elsewhere looks for another worker, first whether a certain one will do.
func (c *Core) elsewhere(now time.Time, p *placement, to string, fx *wire.Effects) (wire.Decision, bool) {
	if to != "" {
		if policy, plugins, why := c.policy(&p.A.Spec); why == nil && len(plugins) == 0 {
			req := c.request(p)
			req.Only, req.Avoid = to, slices.Concat(req.Avoid, c.incapable(p))
			if d := c.site.Place(now, policy, req, c.rounds); d.Chosen != "" {
				return d, false
			}
		}
	}
	// A worker that is short of something is better than none.
	if d, wait := c.better(now, p, "", fx); wait || d.Chosen != "" {
		return d, wait
	}
	return c.besides(now, p, nil, fx)
}

func (c *Core) drainAgain(at time.Time) {
	if c.drainDue.IsZero() || at.Before(c.drainDue) {
		c.drainDue = at
	}
}

// bound says why an instance cannot leave its worker without losing what it is there for, or "".
func (p *placement) bound(force bool) string {
	s := &p.A.Spec
	switch {
	case p.Pinned != "":
		return "it is the worker's own copy of a service that runs once per worker"
	case s.Placement.Worker != "":
		return "its manifest names this worker"
	case s.Mode == spec.ModeJob || s.Mode == spec.ModeCron:
		return "it runs to its end"
	case !force && s.KeepsData():
		return "it keeps data in its local volumes, which do not go along"
	case !force && len(s.HostPaths()) > 0:
		return "it keeps data at " + s.HostPaths()[0] + " of this worker, which does not go along"
	}
	return ""
}

// viewDrain tells how far a drain is.
func (c *Core) viewDrain(w *worker) *view.DrainView {
	d := w.Drain
	if d == nil {
		return nil
	}
	v := &view.DrainView{Since: d.Since, To: skerry.WorkerName(d.To), Parallel: d.Parallel, Done: d.Told, Ending: len(w.leaving)}
	for _, p := range c.on(w.Name) {
		s, stays := d.stays[p.A.ID]
		switch {
		case p.Removing || p.ended():
		case p.Next != nil:
			v.Moving++
			v.Left++
		case stays:
			v.Stays = append(v.Stays, view.StayView{Instance: p.A.ID, Reason: s.why, Tries: s.tries})
			if s.tries {
				v.Left++
			}
		default:
			v.Left++
		}
	}
	return v
}
