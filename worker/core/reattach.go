package core

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// reattach takes up what an earlier life of the agent left: what runs is watched on, what ended meanwhile has ended, what
// is gone (the machine was switched off) starts anew, what nobody knows is removed.
func (life *lifecycle) reattach(now time.Time, tasks []Task, fx *wire.Effects) {
	life.ledger.known()
	type key struct {
		id   skerry.InstanceID
		name string
	}
	found := map[key]Task{}
	for _, t := range tasks {
		k := key{t.ID, t.Name}
		instance := life.ledger.insts[t.ID]
		lost := life.strays.lost && (instance == nil || instance.Containers[t.Name] == nil)
		if lost || instance != nil && unwritten(instance, t) {
			life.strays.add(t)
			continue
		}
		if instance == nil || instance.Containers[t.Name] == nil || t.Attempt != instance.Containers[t.Name].Attempt {
			if instance == nil || instance.Containers[t.Name] == nil || t.Attempt != instance.Containers[t.Name].Attempt-1 {
				fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
			}
			continue
		}
		found[k] = t
	}
	for _, id := range life.ledger.ids() {
		instance := life.ledger.insts[id]
		if instance.Phase == skerry.PhaseExited && !instance.Ending {
			life.ledger.tell(instance)
			continue
		}
		lost, any := false, false
		var ended []Exited
		for _, name := range instance.names() {
			k := instance.Containers[name]
			t, ok := found[key{id, name}]
			switch {
			case k.Done:
			case ok && t.Running:
				any = true
				k.Running, k.Handle = true, t.Handle
				fx.Actions = append(fx.Actions, Watch{ID: id, Name: name, Attempt: k.Attempt, Handle: t.Handle})
			case ok:
				any = true
				k.Running, k.Handle = true, t.Handle
				ended = append(ended, t.ended())
			case k.Running || k.Attempt > 0:
				lost = lost || k.Running
				k.Running = false
			}
		}
		switch {
		case instance.Ending || instance.Phase == skerry.PhaseCutOff:
			life.stopNext(instance, fx)
		case instance.Left != nil:
			life.leftBehind(now, instance, fx)
		case !any && instance.fromCheckpoint() && instance.main().Attempt > 0:
			life.finish(now, instance, skerry.Failed, "its agent ended while it was being restored", fx)
		case !any && life.contact.overdue(now, instance):
			life.strays.drop(id, fx) // settle halts it before anything is started
		case !any:
			// Nothing of it is left: the machine was restarted, or it had not begun. This is no fault of its own.
			if lost {
				instance.Reason = "its machine was restarted"
				for _, s := range instance.A.Spec.Init {
					instance.container(s.Name).Done = false
				}
			}
			for _, s := range instance.A.Spec.Sidecars {
				if k := instance.Containers[s.Name]; k != nil {
					k.Crashes = 0 // main waits for its first start
				}
			}
			instance.Phase = skerry.PhaseFetching
			instance.unready(fx)
			life.prepare(instance, fx)
		default:
			life.resume(now, instance, fx)
		}
		life.setLimits(now, instance, fx)
		life.ledger.save(instance, fx)
		for _, e := range ended {
			life.exited(now, instance, e, fx)
		}
	}
}

// unwritten reports whether a task is of the first start of an instance, whose record follows when it runs (proceed). The instance takes it
// once it is prepared, which it is again.
func unwritten(i *inst, t Task) bool {
	return i.Phase == skerry.PhaseFetching && !i.Ending && !i.halted() && !i.fromCheckpoint() && len(i.Containers) == 0 && t.Attempt == 1
}

// resume goes on with an instance of which something still runs. A running main container is not touched.
func (life *lifecycle) resume(now time.Time, instance *inst, fx *wire.Effects) {
	for _, s := range instance.A.Spec.Sidecars {
		instance.postStart(s.Name, fx)
	}
	if instance.main().Running {
		instance.State, instance.Phase = skerry.Running, skerry.PhaseRunning
		if instance.A.Restart > instance.Restart {
			life.restartNow(now, instance, "restart was asked for", fx) // the agent ended before it was done
			return
		}
		if instance.postStart(spec.MainContainer, fx) {
			return
		}
		if !instance.Ready {
			instance.probe(fx)
			return
		}
		// A restart of the agent is no reason to take an instance's traffic away; its probes go on from ready.
		instance.probes = probeState{good: map[ProbeKind]int{}, bad: map[ProbeKind]int{}}
		instance.isUp(fx)
		instance.Ready, instance.Reason = true, ""
		return
	}
	instance.unready(fx)
	if instance.Phase != skerry.PhaseBackOff {
		life.proceed(now, instance, fx)
	} else {
		instance.retryAt = now
	}
}

// review brings, after a start, the instances in line with what the cluster wants here: a write of many records may have been cut
// short. A desired set that was lost says nothing.
func (c *Core) review(now time.Time, fx *wire.Effects) {
	if c.Up.Desired.Incarnation() == "" {
		return
	}
	var changed, deleted []string
	for key, value := range c.Up.Desired.All() {
		id, ok := strings.CutPrefix(key, "inst/")
		var a spec.Assignment
		if !ok || c.codec.Unmarshal(value, &a) != nil {
			continue
		}
		if i := c.ledger.insts[skerry.InstanceID(id)]; i == nil || a.Fence.Compare(i.A.Fence) > 0 && i.Next == nil || a.Restart > i.A.Restart ||
			a.Fence == i.A.Fence && a.Revision != i.wanted() {
			changed = append(changed, key)
		}
	}
	for _, id := range c.ledger.ids() {
		if _, _, ok := c.Up.Desired.Get(wire.AssignmentKey(id)); !ok {
			deleted = append(deleted, wire.AssignmentKey(id))
		}
	}
	c.desired(now, changed, deleted, fx)
}

// replay hands on, after a start, what earlier lives were told beside instances: all of it works without the cluster.
func (c *Core) replay(now time.Time, fx *wire.Effects) {
	var keys []string
	var routes []skerry.ServiceKey
	for key := range c.Up.Desired.All() {
		if !strings.HasPrefix(key, "inst/") {
			keys = append(keys, key)
		}
		if rest, ok := strings.CutPrefix(key, "route/"); ok {
			if k, ok := skerry.ParseServiceKey(rest); ok {
				routes = append(routes, k)
			}
		}
	}
	slices.Sort(keys)
	c.desired(now, keys, nil, fx)
	// What was wanted is wanted until the server says otherwise: the cluster would take the routes away.
	c.overlay.interest(routes)
}
