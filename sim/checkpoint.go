package sim

import (
	"encoding/json"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// checkpointed plays the start of a container from the state of another copy: its worker is asked for that until it may leave, writes it,
// and sends it. fail gives up at a certain point, if the machine says so.
func (w *World) checkpointed(n *Node, a worker.StartContainer) {
	life, end := n.life, w.Now.Add(2*time.Minute)
	refuse := func(why string) {
		w.tell(n, worker.Started{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt, Err: why})
	}
	fails := func(at *Node) string {
		if w.Machine.Checkpoint == nil {
			return ""
		}
		return w.Machine.Checkpoint(at.Name)
	}
	away := func(x *Node) bool { return x.deaf() || w.cut[x.Name] } // what is sent goes by way of the site
	var try func()
	try = func() {
		if !n.Up || n.life != life {
			return
		}
		from := w.leaves(n, a.A.ID, a.A.Fence)
		if from == nil || away(from) || away(n) || w.Now.After(end) {
			if w.Now.After(end) {
				refuse("it may not leave")
			} else {
				w.at(w.Now.Add(100*time.Millisecond), try)
			}
			return
		}
		answer, ok := w.Do(from, worker.LeaveLocal{ID: a.A.ID, For: a.A.Fence}).(worker.LeaveAnswer)
		if !ok {
			w.at(w.Now.Add(100*time.Millisecond), try)
			return
		}
		there := from.life
		w.at(w.Now.Add(w.Machine.Stop), func() { // it is written
			if !from.Up || from.life != there {
				refuse("its worker ended")
				return
			}
			if why := fails(from); why != "" {
				w.tell(from, worker.Left{ID: a.A.ID, Err: why})
				refuse(why)
				return
			}
			memory := w.stateOf(from, answer.Handle)
			w.tell(from, worker.Left{ID: a.A.ID})
			w.at(w.Now.Add(w.Machine.Prepare), func() { // it is sent
				if !n.Up || n.life != life || away(n) {
					refuse("the way there was lost")
					return
				}
				if from.Up && from.life == there && !away(from) {
					w.tell(from, worker.Sent{ID: a.A.ID})
				} else {
					refuse("the way from there was lost")
					return
				}
				if why := fails(n); why != "" {
					refuse(why)
					return
				}
				w.startTask(n, a)
				w.memory(n, a, memory)
			})
		})
	}
	try()
}

// leaves finds the worker whose copy may leave for a token.
func (w *World) leaves(n *Node, id skerry.InstanceID, f skerry.Fence) *Node {
	for _, o := range w.childrenOf(w.parentOf(n)) {
		if c, ok := o.Core.(*worker.Core); ok && o.Up && o != n {
			if a, _, _, ok := c.Assignment(id, spec.MainContainer); ok && a.Leave != nil && a.Leave.For == f {
				return o
			}
		}
	}
	return nil
}

// stateOf ends a task and gives what it had in its memory.
func (w *World) stateOf(n *Node, handle json.RawMessage) string {
	var k string
	if json.Unmarshal(handle, &k) != nil || n.tasks[k] == nil {
		return ""
	}
	t := n.tasks[k]
	if n.states == nil {
		n.states = map[skerry.InstanceID]string{}
	}
	n.states[t.id] = t.memory
	w.endTask(n, t, wire.Exit{Code: 137, At: w.clock(n)})
	return t.memory
}

// memory gives a task that was started what it had in its memory.
func (w *World) memory(n *Node, a worker.StartContainer, memory string) {
	if t := n.tasks[key(a.A.ID, a.Name, a.Attempt)]; t != nil {
		t.memory = memory
	}
}
