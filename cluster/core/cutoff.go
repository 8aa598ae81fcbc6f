package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// strandedRetry is how often a place is looked for again where there was none.
	strandedRetry = 10 * time.Second
)

// strand notes that the worker of an instance that ran is out of touch.
func (l *lifecycle) strand(now time.Time, p *placement, fx *wire.Effects) {
	l.beStranded(p.A.ID, true)
	p.again, p.room = time.Time{}, time.Time{}
	p.Served = p.Obs.Ready || p.Obs.Unreachable && p.Served
	p.Obs.Unreachable, p.Obs.Ready, p.Obs.Reason = true, false, "its worker is out of touch"
	if at := l.surelyStopped(p); !at.IsZero() {
		l.abandon(p) // two copies are not allowed, a half-made migration among them
		p.Obs.Reason = "its worker is out of touch and stops it; it gets a new place " + at.Sub(now).Round(time.Second).String() +
			" after that was noticed"
	} else if p.Next != nil {
		p.Next.Rescue = true
	}
	l.linked[p.A.Service.App] = true
	l.uplink.Touch()
	l.changed(now, p, fx)
}

// nowhere notes that a stranded instance finds no other place: the owner may know another site.
func (l *lifecycle) nowhere(now time.Time, p *placement, why []wire.Reason, fx *wire.Effects) {
	p.again = now.Add(strandedRetry)
	text := "its worker is out of touch, and no other of the site can take it"
	if len(why) > 0 {
		text += ": " + why[0].Text
	}
	if p.Obs.Violated != "" {
		return // told already
	}
	p.Obs.Violated = text
	if p.Origin == "root" {
		p.Obs.Violated = l.workers.redact(p, "its worker is out of touch, and no other of the site can take it")
	}
	p.Obs.Reason = text
	l.changed(now, p, fx)
	l.event(fx, now, p, wire.EventWarning, "Stranded", text)
}

// restore makes the copy that was left behind the instance again, and ends its replacement.
func (l *lifecycle) restore(now time.Time, p *placement, o wire.Observation, why string, fx *wire.Effects) {
	old, from := p.Original, p.Worker
	l.leaveCopy(p, nil)
	l.wait(p.A.ID, false)
	l.unstrand(p)
	l.abandon(p)
	l.letGo(p)
	if from != "" && !p.ended() {
		l.leave(p, from)
	}
	l.reserve(p, -1)
	p.A.Fence, p.A.PriorFence = l.mint(p, fx), &old.Fence
	l.left(old.Worker, p.A.ID)
	l.bind(p, old.Worker)
	p.A.Devices = o.Devices
	l.admission.confine(&p.A)
	l.claimAt(p, p.Worker)
	p.Placed, p.A.Runtime, p.Obs, p.qos, p.Refused = now, o.Runtime, o, nil, false
	p.Obs.Fence = p.A.Fence
	p.SLA.Given(o.Ready, o.Restarts)
	l.keepLimits(p, old.Need)
	l.reserve(p, 1)
	l.workers.addressPorts(p)
	l.send(p)
	l.uplink.Touch()
	l.changed(now, p, fx)
	if from == "" {
		from = "none"
	}
	l.event(fx, now, p, wire.EventNormal, "KeptOriginal", "runs on worker "+p.Worker+" as before; the copy on "+from+" ends: "+why)
}

// keepLimits counts what a copy that was left behind may have, until its worker confirms that it has the limits of now: they may have
// changed while it was out of touch.
func (l *lifecycle) keepLimits(p *placement, had spec.Resources) {
	switch w := l.workers[p.Worker]; {
	case p.Resize != nil:
		p.Resize.Peak = p.Resize.Peak.Most(had)
	case w != nil && w.resizes(p.Obs.Runtime) && p.Obs.Revision != p.A.Revision && had.Most(p.need()) != p.need():
		p.Resize = &resize{Spec: p.A.Spec, Revision: p.A.Revision, Gen: p.A.Gen, Peak: had}
	}
}

// resume starts an instance again that its worker stopped because it was cut off: it waits for a new token.
func (l *lifecycle) resume(now time.Time, p *placement, fx *wire.Effects) {
	if now.Before(l.endsElsewhere(p)) {
		l.move(now, p, "another copy of it may still run out of touch", false, fx)
		return
	}
	if l.awaitsRoot(p) {
		l.move(now, p, whyAwaitsRoot, false, fx)
		return
	}
	l.abandon(p) // a copy on its way would take over under a lower token
	p.A.Fence, p.A.PriorFence, p.A.Signers = l.mint(p, fx), nil, l.admission.signersOf(p.A.Org)
	p.Obs.Fence = p.A.Fence
	p.Obs.State, p.Obs.Phase, p.Obs.Ready, p.Obs.Reason = skerry.WorkerScheduled, skerry.PhaseNone, false,
		"starts again after its worker was cut off"
	l.send(p)
	l.changed(now, p, fx)
	l.event(fx, now, p, wire.EventNormal, "Resumed", "worker "+p.Worker+" is back in touch and starts it again")
}

// regrant takes over a new token of the owner for an instance that is here under the one that the owner names: the same copy
// was chosen again, and goes on as if nothing had been. Its worker learns of it in the same way.
func (l *lifecycle) regrant(now time.Time, p *placement, a spec.Assignment, fx *wire.Effects) bool {
	was := p.A.Fence
	if a.PriorFence == nil || a.PriorFence.RootEpoch != was.RootEpoch || a.Fence.RootEpoch <= was.RootEpoch ||
		a.Revision != p.target().Revision || p.Removing || p.Refused || p.Obs.Phase == skerry.PhaseCutOff {
		return false
	}
	if differs(p, &a) && l.admission.Check(&a) != nil { // whatever revision it claims; it is refused like a new one
		return false
	}
	l.abandon(p) // its token would be older than what it takes over
	held := was
	if k := l.Children.Get(p.Worker); k != nil {
		var o wire.Observation
		if value, orphaned, has := k.Observed.Get(wire.AssignmentKey(a.ID)); has && !orphaned && l.said(value, &o) == nil {
			held = o.Fence // it may not yet have heard of the one before
		}
	}
	l.takeAssignment(p, a)
	p.A.PriorFence = nil
	l.boundTo(p)
	if p.Worker != "" {
		p.A.Fence, p.A.PriorFence = l.mint(p, fx), &held
		l.send(p)
	}
	p.Obs.Fence, p.Obs.Gen = p.A.Fence, p.A.Gen
	l.changed(now, p, fx)
	l.event(fx, now, p, wire.EventNormal, "Regranted", "it goes on under a new token: its site was chosen again")
	return true
}
