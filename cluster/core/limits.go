package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// takeAssignment takes another one for the same limits as the last.
func (l *lifecycle) takeAssignment(p *placement, a spec.Assignment) {
	if r := p.Resize; r != nil {
		a.Spec, r.Spec = p.A.Spec, a.Spec
		a.Revision, r.Revision = p.A.Revision, a.Revision
		a.Gen, r.Gen = p.A.Gen, a.Gen
	}
	keepGrants(p, &a, l.admission)
	p.A = a
}

// keepGrants gives an assignment that takes the place of another what the site decided when it gave that to its worker. A restart is a
// start, so that its images need the signatures that the policy asks for now.
func keepGrants(p *placement, a *spec.Assignment, policy *Admission) {
	a.Runtime, a.Devices, a.Level = p.A.Runtime, p.A.Devices, p.A.Level
	a.HostPaths, a.Egress, a.Signers = p.A.HostPaths, p.A.Egress, p.A.Signers
	if a.Restart > p.A.Restart {
		a.Signers = policy.signersOf(a.Org)
	}
}

// relimit looks whether an assignment is about limits of what runs. It reports whether nothing else has to be done about it.
func (l *lifecycle) relimit(now time.Time, p *placement, a spec.Assignment, fx *wire.Effects) bool {
	t := p.target()
	switch {
	case p.Worker == "" || p.ended():
		return false // it is started with them, if at all
	case p.Resize == nil && a.Revision == t.Revision:
		p.Limits = nil
		return false
	case p.Resize != nil && a.Revision == t.Revision:
		if a.Gen == t.Gen && a.Restart == t.Restart && a.Failover == t.Failover {
			return true
		}
		p.Resize.Spec, p.Resize.Gen = a.Spec, a.Gen
	case p.Limits != nil && p.Limits.Gen == a.Gen && p.Resize == nil:
		return true // it was refused
	default:
		if why := l.unlimited(p, &a); a.Revision != p.A.Revision && why != "" {
			p.Limits = &wire.LimitsRefusal{Gen: a.Gen, Reason: why}
			l.changed(now, p, fx)
			return true
		}
		l.abandon(p) // it was to start with what is wanted no longer
		l.revalue(p, func() { p.Resize = &resize{Spec: a.Spec, Revision: a.Revision, Gen: a.Gen, Peak: p.need()} })
		p.Limits = nil
	}
	keepGrants(p, &a, l.admission)
	p.A.Restart, p.A.Failover, p.A.Digest, p.A.Signers = a.Restart, a.Failover, a.Digest, a.Signers
	l.boundTo(p)
	l.changed(now, p, fx)
	l.send(p)
	l.sendNext(p)
	return true
}

// unlimited says why a placement cannot be given the limits of an assignment while it runs, or "".
func (l *lifecycle) unlimited(p *placement, a *spec.Assignment) string {
	w := l.workers[p.Worker]
	if w == nil || p.Obs.State != skerry.Running || p.Obs.Unreachable || l.stranded[p.A.ID] || p.Next != nil || p.Original != nil {
		return "it is being started or moved"
	}
	if w.Facts == nil || !slices.ContainsFunc(w.Facts.Runtimes, func(r wire.RuntimeReport) bool {
		return r.Name == p.Obs.Runtime && r.Passed && slices.Contains(r.Abilities, spec.AbilityResize)
	}) {
		return "runtime " + p.Obs.Runtime + " of its worker cannot change limits of what runs"
	}
	if why := l.admission.CheckQuota(l.usedBy(p.A.Org, p.A.ID), a); why != nil {
		return why.Text
	}
	now, left := p.need().Vector(), w.available().Vector()
	var short []string
	for i, v := range a.Spec.Need().Vector() {
		if more := v - now[i]; more > 0 && more > left[i] {
			short = append(short, spec.ResourceNames[i])
		}
	}
	if len(short) > 0 {
		return fmt.Sprintf("its worker has not enough %s left for it", strings.Join(short, " and "))
	}
	return ""
}

// resized takes what a worker says of limits that it was asked for.
func (l *lifecycle) resized(now time.Time, p *placement, fx *wire.Effects) {
	r := p.Resize
	if r == nil {
		return
	}
	switch o := &p.Obs; {
	case o.Limits != nil && o.Limits.Gen == r.Gen:
		p.Limits = o.Limits
	case o.Revision == r.Revision && o.Gen >= r.Gen:
		l.revalue(p, func() { p.settleLimits() })
		l.freed()
		if !l.mine(p) { // else its owner is here, and tells
			l.event(fx, now, p, wire.EventNormal, "Resized", "runs on with other limits")
		}
	}
}
