package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// amender changes what is the root's while that is away: by overrides, as operators and loads ask, and by ending what
// may not run for so long.
//
//	a change ─► amend ─► overrides ─► intake     the root is back ─► tellAmendments ─► its answer ─► giveBack
type amender struct {
	*lifecycle
	intake    *intake
	overlay   *overlay
	overrides *autonomy.Overrides
}

// ofRoot reports whether an application belongs to the root, and something of it is here.
func (am *amender) ofRoot(k skerry.AppKey) bool {
	if am.localApp(k) != nil {
		return false
	}
	if am.overrides.Has(k) {
		return true
	}
	for _, p := range am.byApp[k] {
		if p.Origin == "root" {
			return true
		}
	}
	return false
}

// amend changes an application that belongs to the root, which is away.
func (am *amender) amend(now time.Time, k skerry.AppKey, msg any, fx *wire.Effects) {
	if am.Up.Connected {
		fx.Err = skerry.Errorf(skerry.CodeWrongTier, "application %s belongs to the root; this site only runs it", k).
			WithHint("make the change at the root (`skerry context use`); here it can be changed while the root is away")
		return
	}
	if a, is := msg.(apps.Apply); is && a.DryRun {
		fx.Err = skerry.Errorf(skerry.CodeUnsupported, "application %s belongs to the root: only the root can tell what an apply would do", k)
		return
	}
	if s := am.overrides.Change(now, k, msg, fx); s != nil {
		am.amendEvent(now, k, wire.EventWarning, "Amended",
			"changed at site "+am.name+" while the root is away, by "+orNobody(s.Author)+": "+s.Text, fx)
	}
}

// amendEvent tells of an amendment here, and in its turn at the root.
func (am *amender) amendEvent(now time.Time, k skerry.AppKey, t wire.EventType, reason, text string, fx *wire.Effects) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: k, Org: am.overrides.Org(k), Cluster: skerry.ClusterName(am.name)}
	fx.Events = append(fx.Events, e)
	if reason == "Amended" {
		_, _ = am.Up.Events.Append(am.codec.Marshal(e)) // one that is too large to travel stays here
	}
}

// tellAmendments tells the root, which is back, what was changed here. Until it answers nothing more is.
func (am *amender) tellAmendments(now time.Time, fx *wire.Effects) {
	am.Apps.Freeze(true)
	for _, k := range am.overrides.Apps() {
		if told := am.overrides.Tell(k, am.number(fx), fx); told != nil {
			if _, err := am.Up.Observed.Put(wire.AmendmentKey(k), am.codec.Marshal(told)); err == nil {
				continue
			}
			am.amendEvent(now, k, wire.EventWarning, "Conflict", "what was changed here is too large to be told to the root, and is dropped", fx)
		}
		am.giveBack(now, k, fx) // what runs is what the root wants
	}
}

// asked takes an assignment of the root. That of a delegated application is looked at when the root has answered, but for fail-over:
// the root takes that as confirmed.
func (am *amender) asked(now time.Time, wanted *spec.Assignment, fx *wire.Effects) {
	if !am.overrides.Has(wanted.Service.App) {
		am.intake.accept(now, *wanted, "root", fx)
	} else if p := am.places[wanted.ID]; p != nil {
		am.takeFailover(now, p, wanted.Failover, fx)
	}
}

// amendedItem takes the root's answer to an amendment.
func (am *amender) amendedItem(now time.Time, key string, value []byte, fx *wire.Effects) {
	k, _ := wire.ParseAmendedKey(key)
	var answer wire.Amended
	if am.codec.Unmarshal(value, &answer) != nil || answer.App != k || !am.overrides.Awaits(&answer) {
		return
	}
	if answer.Adopted != 0 {
		am.amendEvent(now, k, wire.EventNormal, "Adopted",
			fmt.Sprintf("the root adopted what was changed here, as generation %d", answer.Adopted), fx)
	} else {
		am.amendEvent(now, k, wire.EventWarning, "Conflict", "the root did not adopt what was changed here: "+answer.Why, fx)
	}
	am.giveBack(now, k, fx)
}

// mend gives back what was delegated when a crash kept the change itself from being written down, or the end of giving back.
func (am *amender) mend(now time.Time, fx *wire.Effects) {
	for _, app := range am.overrides.Unchanged() {
		am.giveBack(now, app, fx)
	}
}

// giveBack makes a delegated application the root's again, and has here what the root wants here.
func (am *amender) giveBack(now time.Time, app skerry.AppKey, fx *wire.Effects) {
	am.overrides.Close(app, fx)
	am.Up.Observed.Delete(wire.AmendmentKey(app))
	wanted := map[skerry.InstanceID]spec.Assignment{}
	for key, value := range am.Up.Desired.All() {
		var a spec.Assignment
		if strings.HasPrefix(key, "inst/") && am.codec.Unmarshal(value, &a) == nil && wire.AssignmentKey(a.ID) == key && a.Service.App == app {
			wanted[a.ID] = a
		}
	}
	for _, id := range sortedIDs(am.byApp[app]) {
		p := am.places[id]
		if p == nil || p.Group != "" {
			continue
		}
		a, ok := wanted[id]
		if !ok {
			p.Origin = "root"
			am.remove(now, p, fx)
			continue
		}
		p.Origin, p.A.Gen = "root", 0 // taken up below, whatever its number
		p.Extra = 0
		if p.A.Restart > a.Restart {
			p.Extra = p.A.Restart - a.Restart
		}
	}
	for _, id := range sortedIDs(wanted) {
		am.intake.accept(now, wanted[id], "root", fx)
	}
	am.overlay.redirected(app)
}

// loans is what overrides see of a site.
type loans struct{ h *herald }

// Deployed implements autonomy.Site.
func (l loans) Deployed(k skerry.AppKey) (out []autonomy.Deployed) {
	for _, id := range sortedIDs(l.h.byApp[k]) {
		p := l.h.places[id]
		if p.Origin == "root" && p.Group == "" && p.A.Spec.Mode == spec.ModeService && !p.Removing && !p.Refused && !p.ended() {
			shown := l.h.show(p)
			shown.Devices = nil // what is made of it is kept, and older programs do not know them
			out = append(out, autonomy.Deployed{A: &p.A, Shown: shown})
		}
	}
	return out
}

// Token implements autonomy.Site.
func (l loans) Token(id skerry.InstanceID) (f skerry.Fence, here bool) {
	if p := l.h.places[id]; p != nil {
		return p.A.Fence, true
	}
	return f, false
}

// fates is what dependents see of a site.
type fates struct{ l *ledger }

// Ends implements autonomy.Fates.
func (f fates) Ends(id skerry.InstanceID) (after time.Duration, ok bool) {
	p := f.l.places[id]
	after, ok = p.stopsAfter()
	return after, ok && !p.Removing && !p.Refused && !p.ended() && p.Obs.Phase != skerry.PhaseCutOff
}

// endDisconnected ends what may not run for so long without the root.
func (am *amender) endDisconnected(now time.Time, fx *wire.Effects) {
	since, heard := am.uplink.Away()
	for _, id := range am.dependents.Overdue(now, since, heard) {
		p := am.places[id]
		why := "ended by its site, which has not heard the root since it started"
		if heard {
			why = "ended by its site, which has been out of touch with the root for " + now.Sub(since).Round(time.Second).String()
		}
		am.event(fx, now, p, wire.EventWarning, "CutOff", why)
		am.unstrand(p)
		am.abandon(p)
		am.endOriginal(p)
		am.endNow(p)
		am.leave(p, p.Worker)
		am.reserve(p, -1)
		am.questions.Drop(id)
		am.bind(p, "")
		am.wait(id, false)
		p.Obs = wire.Observation{ID: id, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled, Phase: skerry.PhaseCutOff, Reason: why,
			Restarts: p.Obs.Restarts, Restart: p.Obs.Restart}
		am.linked[p.A.Service.App] = true
		am.freed()
		am.changed(now, p, fx)
	}
}

// newerScale reports whether a copy's version says how its service scales, rather than another's. Of two versions with one number, as an
// update leaves them, that is the one which does not: it changes nothing.
func newerScale(p, than *placement) bool {
	if p.A.Gen != than.A.Gen {
		return p.A.Gen > than.A.Gen
	}
	if scales := p.A.Spec.Scale != nil; scales != (than.A.Spec.Scale != nil) {
		return !scales
	}
	return p.A.Revision < than.A.Revision
}

// autoscale changes the share of the root's services whose load asks for it.
func (am *amender) autoscale(now time.Time, fx *wire.Effects) {
	if away, _ := am.uplink.Away(); !am.scaling.Begin(now, away) {
		return
	}
	type share struct {
		autonomy.Share
		newest *placement
	}
	by := map[skerry.ServiceKey]*share{}
	for _, p := range am.places {
		if of := p.Origin == "root" || am.overrides.Has(p.A.Service.App); !of || p.Group != "" || p.A.Spec.Mode != spec.ModeService ||
			p.Removing || p.Refused || p.ended() {
			continue
		}
		s := by[p.A.Service]
		if s == nil {
			s = &share{}
			by[p.A.Service] = s
		}
		if s.newest == nil || newerScale(p, s.newest) {
			s.Spec, s.newest = &p.A.Spec, p
		}
		s.N++
		if p.Obs.Ready && am.workers.uses(p) {
			s.Load.Measured++
			s.Load.CPU += p.qos.CPU
		}
	}
	arrivals := am.arrivals()
	keys := make([]skerry.ServiceKey, 0, len(by))
	for service, s := range by {
		if s.Spec.Scale != nil { // of the newest version: what is left of one before may have followed its load
			keys = append(keys, service)
		}
	}
	slices.SortFunc(keys, func(a, b skerry.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
	for _, service := range keys {
		s := by[service]
		s.Before, s.Total = s.N, s.N
		if s.Spec.Replicas != nil {
			s.Total = *s.Spec.Replicas
		}
		if am.overrides.Has(service.App) {
			a := am.Apps.App(service.App)
			before, total, ok := am.overrides.Share(service)
			if a == nil || a.Deleting || !ok {
				continue
			}
			changed := a.Manifest.Spec.Service(service.Service)
			if changed == nil || changed.Scale == nil {
				continue
			}
			s.N, s.Before, s.Total = *changed.Replicas, before, total
		}
		s.Load.Arrivals(arrivals[service])
		if n, why := am.scaling.Want(now, service, &s.Share); n != s.N {
			var more wire.Effects
			if am.amend(now, service.App, apps.Scale{Service: service, Replicas: n, Actor: apps.LoadActor + why}, &more); more.Err == nil {
				fx.Merge(more)
			}
		}
	}
}
