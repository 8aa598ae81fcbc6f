package worker

import (
	"time"

	"skerry.dev/skerry"
)

// Contact tells, after the start of an agent, when an earlier life of it was last in touch with the cluster. Without it
// nothing is known of that, as after the machine's restart: what must not run while cut off then waits for the cluster.
type Contact struct{ At time.Time }

// stopsAt is when an instance must stop because the cluster is out of touch, or the zero time. What has never heard of the
// cluster is overdue.
func (c *Core) stopsAt(now time.Time, i *inst) time.Time {
	d, ok := i.A.Spec.OnDisconnect.StopAfter()
	if !ok || c.Up.Connected || i.Ending || i.halted() {
		return time.Time{}
	}
	if c.contact.IsZero() {
		return now
	}
	return c.contact.Add(d)
}

// overdue reports whether an instance must stop now because the cluster is out of touch.
func (c *Core) overdue(now time.Time, i *inst) bool {
	at := c.stopsAt(now, i)
	return !at.IsZero() && !now.Before(at)
}

// halted reports whether the containers of an instance have ended, or are ending, for good as far as this worker decides.
func (i *inst) halted() bool {
	return i.Phase == skerry.PhaseExited || i.Phase == skerry.PhaseCutOff || i.Left != nil
}

// stopCutOff stops what may not run for so long without the cluster. Only a new token from there starts it again, because a
// replacement may run elsewhere by then.
func (c *Core) stopCutOff(now time.Time, fx *skerry.Effects) {
	if !c.ready || c.Up.Connected {
		return
	}
	for _, id := range c.ids() {
		i := c.insts[id]
		if !c.overdue(now, i) {
			continue
		}
		why := "stopped by its worker, which does not know the cluster's word since it started"
		if !c.contact.IsZero() {
			why = "stopped by its worker, which has been out of touch with the cluster for " + now.Sub(c.contact).Round(time.Second).String()
		}
		c.halt(now, i, why, fx)
	}
}

func (c *Core) halt(now time.Time, i *inst, why string, fx *skerry.Effects) {
	c.event(now, i, skerry.EventWarning, "CutOff", why, fx)
	c.unready(i, fx)
	i.State, i.Phase, i.Reason, i.retryAt, i.restarting = skerry.WorkerScheduled, skerry.PhaseCutOff, why, time.Time{}, false
	if i.preparing {
		fx.Actions = append(fx.Actions, Cancel{ID: i.A.ID})
	}
	c.stopNext(i, fx)
	c.save(i, fx)
}

// regrant takes over a new token for an instance that runs under the one that the cluster names: the same copy was chosen
// again, and goes on as if nothing had been.
func (c *Core) regrant(now time.Time, i *inst, a skerry.Assignment, fx *skerry.Effects) bool {
	if a.Held == nil || *a.Held != i.A.Fence || a.Revision != i.A.Revision && a.Revision != i.wanted() || i.Ending || i.preparing || i.Phase == skerry.PhaseCutOff {
		return false
	}
	i.A.Fence, i.A.Held, i.A.Ordinal, i.A.Leave = a.Fence, a.Held, a.Ordinal, a.Leave
	c.relimit(now, i, a, fx)
	return true
}

// keepContact has the moment of the last contact kept for as long as an instance depends on it.
func (c *Core) keepContact(fx *skerry.Effects) {
	depends := false
	for _, i := range c.insts {
		if _, ok := i.A.Spec.OnDisconnect.StopAfter(); ok {
			depends = true
			break
		}
	}
	if depends != c.keeps {
		c.keeps = depends
		fx.Actions = append(fx.Actions, KeepContact{depends})
	}
}
