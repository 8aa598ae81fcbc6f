package core

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// lifecycle decides what becomes of each instance here: it owns the way that inst draws, from what is assigned and what the machine
// answers to the next action. It does not know the desired set: the core says what is assigned, what ends and what is to be halted.
type lifecycle struct {
	ledger  *ledger
	freeze  *freezer
	reports *reporter
	volumes *volumeBook
	strays  *strays
	contact *contacts
	asOne   bool // as Options.AsOne
}

// take hands a message to the instance that it is for. Late answers for instances that are gone have no effect.
func (life *lifecycle) take(now time.Time, msg any, fx *wire.Effects) {
	switch m := msg.(type) {
	case Prepared:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.prepared(now, i, m, fx)
		}
	case Started:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.started(now, i, m, fx)
		}
	case Waits:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.waits(i, m, fx)
		}
	case HookDone:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.hookDone(now, i, m, fx)
		}
	case Exited:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.exited(now, i, m, fx)
		}
	case SideEnded:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.sideEnded(now, i, m, fx)
		}
	case Probed:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.probed(now, i, m, fx)
		}
	case Left:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.left(now, i, m, fx)
		}
	case Sent:
		if i := life.ledger.insts[m.ID]; i != nil && i.Left != nil {
			i.Left.Sent = true
			life.ledger.save(i, fx)
		}
	case Resized:
		if i := life.ledger.insts[m.ID]; i != nil {
			life.resized(now, i, m, fx)
		}
	case LeaseOver:
		life.leaseOver(now, m, fx)
	case ImageMended:
		life.mended(now, m, fx)
	case HookFailed:
		if i := life.ledger.insts[m.ID]; i != nil {
			if m.Start {
				life.hookFailed(now, i, m.Name, m.Text, fx)
			} else {
				life.ledger.event(now, i, wire.EventWarning, "PreStopFailed", "container "+m.Name+": "+m.Text, fx)
			}
		}
	case Quiet:
		if i := life.ledger.insts[m.ID]; i != nil && i.draining {
			i.draining = false
			life.stopNext(i, fx)
		}
	case Cleaned:
		if i := life.ledger.insts[m.ID]; i != nil && i.cleaning {
			life.cleaned(now, i, m, fx)
		}
	default:
		panic(fmt.Sprintf("worker core does not know message %T", msg))
	}
}

func (life *lifecycle) halt(now time.Time, i *inst, why string, fx *wire.Effects) {
	life.ledger.event(now, i, wire.EventWarning, "CutOff", why, fx)
	i.unready(fx)
	life.strays.drop(i.A.ID, fx)
	i.State, i.Phase, i.Reason, i.retryAt, i.restarting = skerry.WorkerScheduled, skerry.PhaseCutOff, why, time.Time{}, false
	if i.preparing {
		fx.Actions = append(fx.Actions, Cancel{ID: i.A.ID})
	}
	life.stopNext(i, fx)
	life.ledger.save(i, fx)
}

// regrant takes over a new token for an instance that runs under the one that the cluster names: the same copy was chosen
// again, and goes on as if nothing had been.
func (life *lifecycle) regrant(now time.Time, i *inst, a spec.Assignment, fx *wire.Effects) bool {
	if a.PriorFence == nil || *a.PriorFence != i.A.Fence || a.Revision != i.A.Revision && a.Revision != i.wanted() || i.Ending ||
		i.preparing || i.Phase == skerry.PhaseCutOff {
		return false
	}
	i.A.Fence, i.A.PriorFence, i.A.Ordinal, i.A.Leave = a.Fence, a.PriorFence, a.Ordinal, a.Leave
	life.relimit(now, i, a, fx)
	return true
}

// leaseOver takes up that an instance was ended in the agent's place. An agent that goes on after it hung may have stopped the instance by
// itself before it hears of that: who came first is what is told.
func (life *lifecycle) leaseOver(now time.Time, m LeaseOver, fx *wire.Effects) {
	i := life.ledger.insts[m.ID]
	if i == nil || i.A.Fence != m.Fence || i.Ending {
		return
	}
	why := "stopped in place of its worker's agent, which hung or was not there, and out of touch with the cluster for " +
		m.Alone.Round(time.Second).String()
	switch {
	case !i.halted():
		life.halt(now, i, why, fx)
	case i.Phase == skerry.PhaseCutOff && m.Alone < i.alone:
		i.Reason, i.alone = why, 0
		life.ledger.event(now, i, wire.EventWarning, "CutOff", why, fx)
		life.ledger.save(i, fx)
	}
}

// ImageMended tells that a part of an image was found damaged on this machine, and was put right.
type ImageMended struct {
	ID   skerry.InstanceID
	Text string
}

// HookFailed tells that what is to be done before a container ends went wrong. It ends all the same.
type HookFailed struct {
	ID         skerry.InstanceID
	Name, Text string
	Start      bool // of a sidecar that the server starts: what was to be done after its start, and the server has ended it
}

// mended tells of an image that was put right.
func (life *lifecycle) mended(now time.Time, m ImageMended, fx *wire.Effects) {
	life.ledger.event(now, life.ledger.insts[m.ID], wire.EventWarning, "ImageRepaired", m.Text, fx)
}
