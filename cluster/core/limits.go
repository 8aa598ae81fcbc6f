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
func (l *lifecycle) relimit(now time.Time, inst *placement, assigned spec.Assignment, fx *wire.Effects) bool {
	target := inst.target()
	switch {
	case inst.Worker == "" || inst.ended():
		return false // it is started with them, if at all
	case inst.Resize == nil && assigned.Revision == target.Revision:
		inst.Limits = nil
		return false
	case inst.Resize != nil && assigned.Revision == target.Revision:
		if assigned.Gen == target.Gen && assigned.Restart == target.Restart && assigned.Failover == target.Failover {
			return true
		}
		inst.Resize.Spec, inst.Resize.Gen = assigned.Spec, assigned.Gen
	case inst.Limits != nil && inst.Limits.Gen == assigned.Gen && inst.Resize == nil: // it was refused
		l.takeFailover(now, inst, assigned.Failover, fx)
		return true
	default:
		if why := l.unlimited(inst, &assigned); assigned.Revision != inst.A.Revision && why != "" {
			inst.Limits = &wire.LimitsRefusal{Gen: assigned.Gen, Reason: why}
			l.takeFailover(now, inst, assigned.Failover, fx)
			l.changed(now, inst, fx)
			return true
		}
		l.abandon(inst) // it was to start with what is wanted no longer
		l.revalue(inst, func() {
			inst.Resize = &resize{Spec: assigned.Spec, Revision: assigned.Revision, Gen: assigned.Gen, Peak: inst.need()}
		})
		inst.Limits = nil
	}
	keepGrants(inst, &assigned, l.admission)
	inst.A.Restart, inst.A.Failover, inst.A.Digest, inst.A.Signers = assigned.Restart, assigned.Failover, assigned.Digest, assigned.Signers
	l.boundTo(inst)
	l.changed(now, inst, fx)
	l.send(inst)
	l.sendNext(inst)
	return true
}

// takeFailover takes whether an instance fails over. It holds even where the rest of an assignment is refused: the root takes it as
// confirmed with the set that it was in.
func (l *lifecycle) takeFailover(now time.Time, p *placement, failover bool, fx *wire.Effects) {
	if p.A.Failover != failover {
		p.A.Failover = failover
		l.boundTo(p)
		l.changed(now, p, fx)
	}
}

// unlimited says why a placement cannot be given the limits of an assignment while it runs, or "".
func (l *lifecycle) unlimited(inst *placement, assigned *spec.Assignment) string {
	w := l.workers[inst.Worker]
	if w == nil || inst.Obs.State != skerry.Running || inst.Obs.Unreachable || l.stranded[inst.A.ID] || inst.Next != nil ||
		inst.Original != nil {
		return "it is being started or moved"
	}
	if !w.resizes(inst.Obs.Runtime) {
		return "runtime " + inst.Obs.Runtime + " of its worker cannot change limits of what runs"
	}
	if why := l.admission.CheckQuota(l.usedBy(inst.A.Org, inst.A.ID), assigned); why != nil {
		return why.Text
	}
	now, left := inst.need().Vector(), w.available().Vector()
	var short []string
	for i, v := range assigned.Spec.Need().Vector() {
		if more := v - now[i]; more > 0 && more > left[i] {
			short = append(short, spec.ResourceNames[i])
		}
	}
	if len(short) > 0 {
		return fmt.Sprintf("its worker has not enough %s left for it", strings.Join(short, " and "))
	}
	return ""
}

// resizes reports whether a worker changes limits of what runs in a runtime, and so tells which apply.
func (w *worker) resizes(runtime string) bool {
	return w.Facts != nil && slices.ContainsFunc(w.Facts.Runtimes, func(r wire.RuntimeReport) bool {
		return r.Name == runtime && r.Passed && slices.Contains(r.Abilities, spec.AbilityResize)
	})
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
