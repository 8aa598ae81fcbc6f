package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Resize is a change of an instance's limits while it runs.
//
//	old revision ──differs in cpu and memory alone──► asked for ──its holder says that they apply──► new revision
//	     ▲                                              │   ▲
//	     │                                              │   └─ more memory is in use: asked for again and again, limits stay
//	     └──── cannot be done there, or no room: it is replaced as in any update
//
// It counts as an instance of the new revision from the moment on when it is asked for.
type Resize struct {
	Revision string            `json:"revision"`
	Gen      skerry.Generation `json:"generation"`
	Spec     *spec.ServiceSpec `json:"spec"`
	Since    time.Time         `json:"since"`
	Reason   string            `json:"reason,omitempty"` // why its holder keeps the old ones for now
}

// followLimits looks at changes that are under way after what is wanted has changed: they are taken back, or go on to other limits.
func (rs *rollouts) followLimits(now time.Time, a *App, s *spec.ServiceSpec, current, old []*Instance, fx *wire.Effects) (_, _ []*Instance) {
	rev := a.revisions[s.Name]
	for _, i := range slices.Clone(old) {
		if i.Resize == nil {
			continue
		}
		i.Taken, i.Resize = i.Resize, nil
		i.Gen = a.Gen // it is told under a newer one that they are taken back
		if i.Revision == rev {
			i.Spec = s
			i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
			old = slices.DeleteFunc(old, func(o *Instance) bool { return o == i })
			current = append(current, i)
		}
		rs.saveInstance(i, fx)
	}
	return current, old
}

// resize has old instances follow a revision that differs in their limits alone without being replaced, as many as there may be of
// the new one.
func (rs *rollouts) resize(now time.Time, a *App, s *spec.ServiceSpec, current, old []*Instance, limit int, fx *wire.Effects) (_, _ []*Instance) {
	if s.Update.Limits == spec.LimitsReplace || a.Paused[s.Name] != "" {
		return current, old
	}
	for _, i := range slices.Clone(old) {
		if len(current) >= limit {
			break
		}
		// A new one may have its number by now, made while it was out of reach.
		if !rs.resizable(a, s, i) || slices.ContainsFunc(current, func(o *Instance) bool { return o.Ordinal == i.Ordinal }) {
			continue
		}
		i.Resize = &Resize{Revision: a.revisions[s.Name], Gen: a.Gen, Spec: s, Since: now}
		text := limitsText(i.Spec) + " -> " + limitsText(s)
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, "its limits change while it runs: "+text)
		i.step(now, "other limits while it runs: "+text)
		rs.saveInstance(i, fx)
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Resizing", "its limits change while it runs: "+text))
		old = slices.DeleteFunc(old, func(o *Instance) bool { return o == i })
		current = append(current, i)
	}
	return current, old
}

// limitsText tells the limits of a service's main container.
func limitsText(s *spec.ServiceSpec) string {
	cpu, memory := "any", "any"
	if s.Resources.CPU > 0 {
		cpu = s.Resources.CPU.String()
	}
	if s.Resources.Memory > 0 {
		memory = s.Resources.Memory.String()
	}
	return "cpu " + cpu + ", memory " + memory
}

// notTakenBack has an instance replaced that got limits which are not wanted any more, and could not be given the others: what was
// asked for before they were taken back had been carried out, perhaps by a copy that took its place.
func (l *lifecycle) notTakenBack(now time.Time, i *Instance, o *wire.Observation, fx *wire.Effects) {
	a, no := l.apps[i.Service.App], o.Limits
	if a == nil || no == nil || no.InUse || no.Gen < i.Gen || i.Taken == nil || o.Revision != i.Taken.Revision || o.Revision == i.Revision {
		return
	}
	i.Revision, i.Spec, i.Fixed, i.Taken = o.Revision, i.Taken.Spec, a.revisions[i.Service.Service], nil
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, "it is replaced: "+no.Reason)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "NotResized", "it is replaced by one with the limits of before: "+no.Reason))
	l.Look(i.Service.App)
}

// limited takes what a holder says of limits that are being changed.
func (l *lifecycle) limited(now time.Time, i *Instance, o *wire.Observation, fx *wire.Effects) {
	r := i.Resize
	if r == nil {
		l.notTakenBack(now, i, o, fx)
		return
	}
	no := o.Limits
	if no == nil && o.Revision == "" && o.Gen >= r.Gen {
		no = &wire.LimitsRefusal{Gen: o.Gen, Reason: "its site cannot change limits of what runs"} // nor does it say so: it is older
	}
	switch {
	case no != nil && no.Gen < r.Gen: // about other ones
	case no != nil && no.InUse:
		r.Reason = no.Reason // its worker has told the event
		l.Look(i.Service.App)
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, "its limits stay: "+no.Reason)
	case no != nil:
		i.Resize, i.Fixed, i.Gen = nil, r.Revision, r.Gen
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, "it is replaced: "+no.Reason)
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "NotResized", "it is replaced by one with the new limits: "+no.Reason))
		l.Look(i.Service.App)
	case o.Revision == r.Revision && o.Gen >= r.Gen:
		i.Resize, i.Fixed, i.Revision, i.Gen, i.Spec, i.Limited = nil, "", r.Revision, r.Gen, r.Spec, now
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
		i.step(now, "has its new limits")
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Resized", "runs on with "+limitsText(r.Spec)))
		l.Look(i.Service.App)
	}
}

// freeOrdinal gives the first number that no instance of a service has.
func (l *ledger) freeOrdinal(sk skerry.ServiceKey, rev string) int { return l.freeOrdinals(sk, rev)() }

// freeOrdinals gives a function that gives one free number after the other, for instances that are made at once. It looks at those that
// there are a single time: of 10,000 that come together, a look for each took seconds.
func (l *ledger) freeOrdinals(sk skerry.ServiceKey, rev string) func() int {
	used := map[int]bool{}
	for _, i := range l.byService[sk] {
		if i.Live() && (i.Revision == rev || i.wanted() == rev) || i.Spec.KeepsData() {
			used[i.Ordinal] = true
		}
	}
	n := -1
	return func() int {
		for n++; used[n]; n++ {
		}
		return n
	}
}
