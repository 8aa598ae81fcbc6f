package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Contact tells, after the start of an agent, when an earlier life of it was last in touch with the cluster. Without it
// nothing is known of that, as after the machine's restart: what must not run while cut off then waits for the cluster.
type Contact struct{ At time.Time }

// contacts owns when the worker was last in touch with its cluster, and which instances were said to depend on that. It says what must
// stop, and stops nothing.
type contacts struct {
	ledger *ledger
	last   time.Time // the last contact before it was lost; zero: not known
	leased []Lease   // of the last KeepContact; nil: there was none
}

// lost notes that the cluster is out of touch, and when it was heard last; zero: now.
func (k *contacts) lost(now, heard time.Time) {
	if !k.ledger.up.Connected {
		return
	}
	if k.last = heard; k.last.IsZero() || k.last.After(now) {
		k.last = now
	}
}

// earlier takes when an earlier life was last in touch.
func (k *contacts) earlier(at time.Time) {
	if !k.ledger.up.Connected && at.After(k.last) {
		k.last = at
	}
}

// stopsAt is when an instance must stop because the cluster is out of touch, or the zero time. What has never heard of the
// cluster is overdue.
func (k *contacts) stopsAt(now time.Time, i *inst) time.Time {
	d, ok := i.A.Spec.OnDisconnect.StopAfter()
	if !ok || k.ledger.up.Connected || i.Ending || i.halted() {
		return time.Time{}
	}
	if k.last.IsZero() {
		return now
	}
	return k.last.Add(d)
}

// overdue reports whether an instance must stop now because the cluster is out of touch.
func (k *contacts) overdue(now time.Time, i *inst) bool {
	at := k.stopsAt(now, i)
	return !at.IsZero() && !now.Before(at)
}

// stopCutOff stops what may not run for so long without the cluster. Only a new token from there starts it again, because a
// replacement may run elsewhere by then.
func (c *Core) stopCutOff(now time.Time, fx *wire.Effects) {
	if !c.ledger.ready || c.Up.Connected {
		return
	}
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		if !c.contact.overdue(now, i) {
			continue
		}
		why := "stopped by its worker, which does not know the cluster's word since it started"
		if !c.contact.last.IsZero() {
			i.alone = now.Sub(c.contact.last)
			why = "stopped by its worker, which has been out of touch with the cluster for " + i.alone.Round(time.Second).String()
		}
		c.life.halt(now, i, why, fx)
	}
}

// Lease bounds how long an instance runs should its agent hang while the cluster is out of touch. Both times count from the last contact.
type Lease struct {
	ID     skerry.InstanceID
	Fence  skerry.Fence
	Stop   time.Duration // then it gets its stop signal
	Kill   time.Duration
	Ending bool
	Main   string // the handle of its main container; empty: that does not run
	Signal string // its stop signal; empty: the usual one
}

const (
	// What an agent that is only late has beyond onDisconnect and the grace, before the lease runs out. It is less than
	// what the cluster waits.
	lateStop = 3 * time.Second
	lateKill = 3 * time.Second
)

// leases lists what may not run for so long without the cluster, from before its first container starts until the last one has ended.
func (k *contacts) leases() (list []Lease) {
	for _, id := range k.ledger.ids() {
		i := k.ledger.insts[id]
		d, ok := i.A.Spec.OnDisconnect.StopAfter()
		if !ok || i.halted() && !busy(i) {
			continue
		}
		l := Lease{ID: id, Fence: i.A.Fence, Stop: d + lateStop, Kill: d + graceOf(i) + lateKill, Ending: i.Ending || i.halted(),
			Signal: i.A.Spec.StopSignal}
		if main := i.Containers[spec.MainContainer]; main != nil && main.Running {
			l.Main = string(main.Handle)
		}
		list = append(list, l)
	}
	return list
}

// keep has the moment of the last contact kept for as long as an instance depends on it, and says which these
// are. That there are none is said, too: the guard may go by a list of an earlier life. It goes on with that one until
// it is known what runs.
func (k *contacts) keep(known bool, fx *wire.Effects) {
	list := k.leases()
	if k.leased == nil && len(list) == 0 && !known || k.leased != nil && slices.Equal(list, k.leased) {
		return
	}
	k.leased = append([]Lease{}, list...)
	fx.Actions = append(fx.Actions, KeepContact{list})
}

// LeaseOver tells that an instance was ended in the agent's place, see KeepContact.
type LeaseOver struct {
	ID    skerry.InstanceID
	Fence skerry.Fence
	Alone time.Duration // out of touch with the cluster, until then
}

// audit lists what contradicts itself between two steps.
func (k *contacts) audit() (faults []string) {
	if k.leased != nil && !slices.Equal(k.leased, k.leases()) {
		faults = append(faults, "the leases that were told are not those of the instances here")
	}
	return faults
}
