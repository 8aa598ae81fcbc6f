package core

import (
	"encoding/json"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// sendTime is how long after an instance stopped serving its state may be on its way; a worker that is out of touch then has it go on.
const sendTime = 5 * time.Minute

// Messages of the server about what leaves.
type (
	// LeaveLocal asks for the state of an instance, for the copy that is to have a token. The result is a LeaveAnswer; a conflict
	// means that it may not leave yet.
	LeaveLocal struct {
		ID  skerry.InstanceID
		For skerry.Fence
	}
	// Left tells that the state is written, or why not: then it runs on, or has ended.
	Left struct {
		ID  skerry.InstanceID
		Err string
	}
	// Sent tells that all of it is with who asked.
	Sent struct{ ID skerry.InstanceID }
)

// LeaveAnswer is the result of LeaveLocal.
type LeaveAnswer struct {
	Handle    json.RawMessage
	Recipient string
}

func (life *lifecycle) leave(now time.Time, m LeaveLocal, fx *wire.Effects) {
	i := life.ledger.insts[m.ID]
	if i == nil || i.A.Leave == nil || i.A.Leave.For != m.For || i.Ending || i.Left != nil || i.resizing || i.restarting ||
		life.freeze.frozen() || !i.main().Running || i.main().stop || i.main().Hook {
		fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %q may not leave now", m.ID)
		return
	}
	i.Left = &leaving{For: m.For, Since: now}
	i.unready(fx)
	i.Phase, i.Reason = skerry.PhaseLeaving, "it moves to another worker with its memory"
	life.ledger.save(i, fx)
	fx.Result = LeaveAnswer{Handle: i.main().Handle, Recipient: i.A.Leave.Recipient}
}

func (life *lifecycle) left(now time.Time, i *inst, m Left, fx *wire.Effects) {
	if i.Left == nil {
		return
	}
	defer life.ledger.save(i, fx)
	if m.Err == "" {
		i.Left.Done = true
		life.comeBack(now, i, fx)
		return
	}
	i.Left = nil
	life.ledger.event(now, i, wire.EventWarning, "CheckpointFailed", m.Err, fx)
	if i.main().Running {
		i.Phase, i.Reason = skerry.PhaseRunning, ""
		i.probe(fx)
	} else if !i.Ending {
		life.again(now, i, "it ended while its state was written: "+m.Err, fx)
	}
}

// comeBack has an instance go on from the state that was written, if it is not to leave any more.
func (life *lifecycle) comeBack(now time.Time, i *inst, fx *wire.Effects) {
	l := i.Left
	if l == nil || !l.Done || i.Ending || i.main().Running || i.main().start {
		return
	}
	at := i.comesBackAt()
	if i.A.Leave != nil && i.A.Leave.For == l.For && (at.IsZero() || now.Before(at)) {
		return
	}
	i.Left, i.Resume = nil, true
	i.Phase, i.Reason = skerry.PhaseStarting, "it goes on here: it did not get to another worker"
	life.ledger.event(now, i, wire.EventWarning, "CameBack", i.Reason, fx)
	if i.Address == "" && len(i.Ports) == 0 && i.Runtime == "" {
		i.Phase = skerry.PhaseFetching
		life.prepare(i, fx)
	} else {
		life.proceed(now, i, fx)
	}
	life.ledger.save(i, fx)
}

// leftBehind takes up, after a start of the agent, an instance that was leaving. What was not wholly sent then goes on here.
func (life *lifecycle) leftBehind(now time.Time, i *inst, fx *wire.Effects) {
	if i.main().Running {
		i.Left = nil
		life.resume(now, i, fx)
		return
	}
	i.Left.Done = true
	if i.Left.Sent {
		return
	}
	i.Left, i.Resume = nil, true
	i.Phase, i.Reason = skerry.PhaseFetching, "it goes on here: its agent ended while it was to leave"
	life.prepare(i, fx)
}

// notRestored handles a start from another copy's state, or from its own, that failed. It reports whether that was all.
func (life *lifecycle) notRestored(now time.Time, i *inst, m Started, fx *wire.Effects) bool {
	if m.Name != spec.MainContainer {
		return false
	}
	if i.Resume {
		i.Resume = false
		life.ledger.event(now, i, wire.EventWarning, "StateLost", "it starts anew: "+m.Err, fx)
		return false
	}
	if !i.fromCheckpoint() {
		return false
	}
	if i.Ending {
		life.stopNext(i, fx)
		life.ledger.save(i, fx)
		return true
	}
	life.finish(now, i, skerry.Failed, m.Err, fx)
	return true
}
