package apps

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Copy is another copy of an instance, at another holder than its own.
type Copy struct {
	Holder string       `json:"holder"`
	Fence  skerry.Fence `json:"fence"`
	Since  time.Time    `json:"since"`
}

// Strand notes that an instance's holder is out of touch for good as far as anybody knows. It stays where it is until a copy
// elsewhere is ready.
func (l *lifecycle) Strand(now time.Time, i *Instance, why string, fx *wire.Effects) {
	if i.Cut {
		return
	}
	i.Cut = true
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Reachable, false, why)
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Ready, false, why)
	i.Reason = why
	i.step(now, why)
	l.saveInstance(i, fx)
	l.Look(i.Service.App)
}

// Copying notes that a copy starts elsewhere.
func (l *lifecycle) Copying(now time.Time, i *Instance, next Copy, d *wire.Decision, fx *wire.Effects) {
	i.Next, i.Decision = &next, d
	i.step(now, "a copy starts at "+next.Holder)
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Replacing", "a copy starts at "+next.Holder+": "+orNothing(i.Reason)))
}

// NotCopied notes that the copy elsewhere, or the search for a place for one, came to its end.
func (l *lifecycle) NotCopied(now time.Time, i *Instance, reason, text string, fx *wire.Effects) {
	i.Next, i.Reason = nil, text
	i.step(now, text)
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventWarning, reason, text))
}

// TakeOver makes the copy elsewhere the instance. left is the copy left behind, or nil when it is known to end.
func (l *lifecycle) TakeOver(now time.Time, i *Instance, left *Copy, why string, fx *wire.Effects) {
	from := i.Holder
	i.Holder, i.Cluster, i.Fence, i.PriorFence = i.Next.Holder, skerry.ClusterName(i.Next.Holder), i.Next.Fence, nil
	i.Next, i.Left, i.Cut, i.Bound, i.Rejected, i.Refusals = nil, left, false, false, nil, nil
	i.State, i.Phase, i.Reason = skerry.ClusterScheduled, skerry.PhaseNone, ""
	i.QoS, i.Shared = nil, nil
	text := "runs at " + i.Holder + " now, before at " + orNothing(from) + ": " + why
	if left != nil {
		text += "; the copy left behind may run on until it is in touch again"
	}
	i.step(now, text)
	l.saveInstance(i, fx)
	l.Look(i.Service.App)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Replaced", text))
}

// Back notes that the holder of a stranded instance is in touch again.
func (l *lifecycle) Back(now time.Time, i *Instance, text string, fx *wire.Effects) {
	i.Cut, i.Next = false, nil
	i.step(now, text)
	l.saveInstance(i, fx)
	l.Look(i.Service.App)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Back", text))
}

// Restore makes the copy that was left behind the instance again, under a new token that it takes over in place.
func (l *lifecycle) Restore(now time.Time, i *Instance, fence skerry.Fence, why string, fx *wire.Effects) {
	from, held := i.Holder, i.Left.Fence
	i.Holder, i.Cluster, i.Fence, i.PriorFence = i.Left.Holder, skerry.ClusterName(i.Left.Holder), fence, &held
	i.Left, i.Next, i.Cut, i.Bound, i.Rejected, i.Refusals = nil, nil, false, false, nil, nil
	i.State, i.Phase, i.Reason = skerry.ClusterScheduled, skerry.PhaseNone, ""
	i.QoS, i.Shared = nil, nil
	text := "runs at " + i.Holder + " as before; the copy at " + orNothing(from) + " ends: " + why
	i.step(now, text)
	l.saveInstance(i, fx)
	l.Look(i.Service.App)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "KeptOriginal", text))
}

// LetGo forgets the copy that was left behind.
func (l *lifecycle) LetGo(now time.Time, i *Instance, why string, fx *wire.Effects) {
	at := i.Left.Holder
	i.Left = nil
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "KeptReplacement", "the copy at "+at+", which is in touch again, ends: "+why))
}

// Regrant starts an instance anew where it is, under a new token: its holder stopped it while it was out of touch.
func (l *lifecycle) Regrant(now time.Time, i *Instance, fence skerry.Fence, fx *wire.Effects) {
	i.Fence, i.PriorFence, i.Cut, i.Bound = fence, nil, false, false
	i.State, i.Phase, i.Reason = skerry.ClusterScheduled, skerry.PhaseNone, "starts again after its site was cut off"
	i.step(now, i.Reason)
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Resumed", i.Holder+" is in touch again and starts it again"))
}

// Bind notes whether an instance's holder has confirmed that it ends it by itself when it is out of touch.
func (l *lifecycle) Bind(i *Instance, bound bool, fx *wire.Effects) {
	if i.Bound != bound {
		i.Bound = bound
		l.saveInstance(i, fx)
	}
}
