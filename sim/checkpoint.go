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
func (m machines) checkpointed(n *Node, a worker.StartContainer) {
	life, end := n.life, m.Now.Add(2*time.Minute)
	refuse := func(why string) {
		m.tell(n, worker.Started{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt, Err: why})
	}
	fails := func(at *Node) string {
		if m.Machine.Checkpoint == nil {
			return ""
		}
		return m.Machine.Checkpoint(at.Name)
	}
	away := func(x *Node) bool { return x.deaf() || m.cut[x.Name] } // what is sent goes by way of the site
	var try func()
	try = func() {
		if !n.Up || n.life != life {
			return
		}
		from := m.leaves(n, a.A.ID, a.A.Fence)
		if from == nil || away(from) || away(n) || m.Now.After(end) {
			if m.Now.After(end) {
				refuse("it may not leave")
			} else {
				m.at(m.Now.Add(100*time.Millisecond), try)
			}
			return
		}
		answer, ok := m.Do(from, worker.LeaveLocal{ID: a.A.ID, For: a.A.Fence}).(worker.LeaveAnswer)
		if !ok {
			m.at(m.Now.Add(100*time.Millisecond), try)
			return
		}
		there := from.life
		m.at(m.Now.Add(m.Machine.Stop), func() { // it is written
			if !from.Up || from.life != there {
				refuse("its worker ended")
				return
			}
			if why := fails(from); why != "" {
				m.tell(from, worker.Left{ID: a.A.ID, Err: why})
				refuse(why)
				return
			}
			memory := m.stateOf(from, answer.Handle)
			m.tell(from, worker.Left{ID: a.A.ID})
			m.at(m.Now.Add(m.Machine.Prepare), func() { // it is sent
				if !n.Up || n.life != life || away(n) {
					refuse("the way there was lost")
					return
				}
				if from.Up && from.life == there && !away(from) {
					m.tell(from, worker.Sent{ID: a.A.ID})
				} else {
					refuse("the way from there was lost")
					return
				}
				if why := fails(n); why != "" {
					refuse(why)
					return
				}
				m.startTask(n, a)
				m.memory(n, a, memory)
			})
		})
	}
	try()
}

// leaves finds the worker whose copy may leave for a token.
func (m machines) leaves(n *Node, id skerry.InstanceID, f skerry.Fence) *Node {
	for _, o := range m.childrenOf(m.parentOf(n)) {
		if c, ok := o.Core.(*worker.Core); ok && o.Up && o != n {
			if a, _, _, ok := c.Assignment(id, spec.MainContainer); ok && a.Leave != nil && a.Leave.For == f {
				return o
			}
		}
	}
	return nil
}

// stateOf ends a task and gives what it had in its memory.
func (m machines) stateOf(n *Node, handle json.RawMessage) string {
	var k string
	if json.Unmarshal(handle, &k) != nil || n.tasks[k] == nil {
		return ""
	}
	t := n.tasks[k]
	if n.states == nil {
		n.states = map[skerry.InstanceID]string{}
	}
	n.states[t.id] = t.memory
	m.endTask(n, t, wire.Exit{Code: 137, At: m.clock(n)})
	return t.memory
}

// memory gives a task that was started what it had in its memory.
func (m machines) memory(n *Node, a worker.StartContainer, memory string) {
	if t := n.tasks[key(a.A.ID, a.Name, a.Attempt)]; t != nil {
		t.memory = memory
	}
}
