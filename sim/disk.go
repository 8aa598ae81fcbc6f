package sim

import (
	"time"

	"skerry.dev/skerry"
)

// disk is what a node's store is kept on. What was committed stays; what was not when the node died is kept, lost or torn.
type disk struct {
	// slow is how long a commit takes; 0: no time at all. While one goes on, the core takes no messages, as in internal/loop.
	slow  time.Duration
	busy  bool
	going []skerry.Write // what is being committed
	inbox []inbound      // what waits for the commit to end
}

// inbound is a message to a core, and who wants to know what came of it; done may be nil.
type inbound struct {
	msg  any
	done func(result any)
}

// batch is how many messages share a commit, as in internal/loop.
const batch = 256

// write puts records into the store.
func (n *Node) write(list []skerry.Write) {
	for _, x := range list {
		if x.Value == nil {
			delete(n.Store, x.Key)
		} else {
			n.Store[x.Key] = x.Value
		}
	}
}

// tell gives a node a message that nobody waits for.
func (w *World) tell(n *Node, msg any) { w.ask(n, msg, nil) }

// ask gives a node a message, and done its result once all that follows from it is on the disk. A node that dies before
// gives none.
func (w *World) ask(n *Node, msg any, done func(result any)) {
	if n.disk.busy {
		n.disk.inbox = append(n.disk.inbox, inbound{msg, done})
		return
	}
	fx := n.outer.Step(w.clock(n), msg)
	res := result(&fx)
	w.commit(n, fx, func() {
		if done != nil {
			done(res)
		}
	})
}

// commit persists effects, which takes the time that the disk needs, and then carries them out.
func (w *World) commit(n *Node, fx skerry.Effects, done func()) {
	if n.disk.slow == 0 || len(fx.Writes) == 0 {
		w.apply(n, fx)
		if done != nil {
			done()
		}
		return
	}
	n.disk.busy, n.disk.going = true, fx.Writes
	life := n.life
	w.at(w.Now.Add(n.disk.slow), func() {
		if n.life != life {
			return
		}
		n.disk.busy, n.disk.going = false, nil
		w.apply(n, fx)
		if done != nil {
			done()
		}
		w.drain(n)
	})
}

// drain works through what waited for a commit, so that it shares the next one.
func (w *World) drain(n *Node) {
	if n.disk.busy || !n.Up || len(n.disk.inbox) == 0 {
		return
	}
	list := n.disk.inbox
	n.disk.inbox = nil
	if len(list) > batch {
		list, n.disk.inbox = list[:batch], list[batch:]
	}
	var all skerry.Effects
	var then []func()
	for _, in := range list {
		fx := n.outer.Step(w.clock(n), in.msg)
		all.Merge(fx)
		if in.done != nil {
			res := result(&fx)
			then = append(then, func() { in.done(res) })
		}
	}
	life := n.life
	w.commit(n, all, func() {
		for _, fn := range then {
			fn()
		}
		if n.life == life {
			w.drain(n)
		}
	})
}

// tear decides what a crash leaves of a commit that was going on: nothing, all of it, or the records before some point. The
// last happens to what is more than the store takes at once.
func (w *World) tear(n *Node) {
	list := n.disk.going
	n.disk.busy, n.disk.going, n.disk.inbox = false, nil, nil
	if len(list) == 0 {
		return
	}
	last := map[string]int{}
	for i, x := range list {
		last[x.Key] = i
	}
	kept := make([]skerry.Write, 0, len(last))
	for i, x := range list {
		if last[x.Key] == i {
			kept = append(kept, x)
		}
	}
	switch w.rng.IntN(3) {
	case 0:
		n.write(kept)
	case 1:
		n.write(kept[:w.rng.IntN(len(kept)+1)])
	}
}
