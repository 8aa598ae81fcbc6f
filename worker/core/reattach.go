package core

import (
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// reattach takes up what an earlier life of the agent left: what runs is watched on, what ended meanwhile has ended, what
// is gone (the machine was switched off) starts anew, what nobody knows is removed.
func (c *Core) reattach(now time.Time, tasks []Task, fx *wire.Effects) {
	c.ready = true
	type key struct {
		id   skerry.InstanceID
		name string
	}
	found := map[key]Task{}
	for _, t := range tasks {
		k := key{t.ID, t.Name}
		i := c.insts[t.ID]
		if c.strays.lost && (i == nil || i.Containers[t.Name] == nil) {
			c.strays.tasks[t.ID] = append(c.strays.tasks[t.ID], t)
			continue
		}
		if i == nil || i.Containers[t.Name] == nil || t.Attempt != i.Containers[t.Name].Attempt {
			if i == nil || i.Containers[t.Name] == nil || t.Attempt != i.Containers[t.Name].Attempt-1 {
				fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
			}
			continue
		}
		found[k] = t
	}
	for _, id := range c.ids() {
		i := c.insts[id]
		if i.Phase == skerry.PhaseExited && !i.Ending {
			c.tell(i)
			continue
		}
		lost, any := false, false
		var ended []Exited
		for _, name := range i.names() {
			k := i.Containers[name]
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
				ended = append(ended, Exited{ID: id, Name: name, Attempt: k.Attempt, Exit: t.Exit})
			case k.Running || k.Attempt > 0:
				lost = lost || k.Running
				k.Running = false
			}
		}
		switch {
		case i.Ending || i.Phase == skerry.PhaseCutOff:
			c.stopNext(i, fx)
		case i.Left != nil:
			c.leftBehind(now, i, fx)
		case !any && i.fromCheckpoint() && i.main().Attempt > 0:
			c.finish(now, i, skerry.Failed, "its agent ended while it was being restored", fx)
		case !any && c.overdue(now, i):
			// settle halts it before anything is started.
		case !any:
			// Nothing of it is left: the machine was restarted, or it had not begun. This is no fault of its own.
			if lost {
				i.Reason = "its machine was restarted"
				for _, s := range i.A.Spec.Init {
					i.container(s.Name).Done = false
				}
			}
			for _, s := range i.A.Spec.Sidecars {
				if k := i.Containers[s.Name]; k != nil {
					k.Crashes = 0 // main waits for its first start
				}
			}
			i.Phase = skerry.PhaseFetching
			c.unready(i, fx)
			c.prepare(i, fx)
		default:
			c.resume(now, i, fx)
		}
		c.setLimits(now, i, fx)
		c.save(i, fx)
		for _, e := range ended {
			c.exited(now, i, e, fx)
		}
	}
	for k, v := range c.Up.Desired.All() {
		if len(k) > 3 && k[:3] == "ep/" {
			c.endpoints(v, fx)
		} else if k == wire.PeersKey {
			c.peers(v, fx)
		}
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
		if i := c.insts[skerry.InstanceID(id)]; i == nil || a.Fence.Compare(i.A.Fence) > 0 && i.Next == nil || a.Restart > i.A.Restart || a.Fence == i.A.Fence && a.Revision != i.wanted() {
			changed = append(changed, key)
		}
	}
	for _, id := range c.ids() {
		if _, _, ok := c.Up.Desired.Get(wire.AssignmentKey(id)); !ok {
			deleted = append(deleted, wire.AssignmentKey(id))
		}
	}
	c.desired(now, changed, deleted, fx)
}

// resume goes on with an instance of which something still runs. A running main container is not touched.
func (c *Core) resume(now time.Time, i *inst, fx *wire.Effects) {
	if i.main().Running {
		i.State, i.Phase = skerry.Running, skerry.PhaseRunning
		if i.A.Restart > i.Restart {
			c.restartNow(now, i, "restart was asked for", fx) // the agent ended before it was done
			return
		}
		if !i.Ready {
			c.probe(i, fx)
			return
		}
		// A restart of the agent is no reason to take an instance's traffic away; its probes go on from ready.
		i.probes = probeState{good: map[ProbeKind]int{}, bad: map[ProbeKind]int{}}
		c.isUp(i, fx)
		i.Ready, i.Reason = true, ""
		return
	}
	c.unready(i, fx)
	if i.Phase != skerry.PhaseBackOff {
		c.proceed(now, i, fx)
	} else {
		i.retryAt = now
	}
}
