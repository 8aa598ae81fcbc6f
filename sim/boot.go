package sim

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/internal/loop"
	worker "skerry.dev/skerry/worker/core"
)

// Boot starts a node's process from its store.
func (w *World) Boot(n *Node) {
	n.life++
	repair(w, n)
	n.Core = n.make()
	n.outer = n.Core
	if w.wrap != nil {
		n.outer = w.wrap(n, n.Core)
	}
	if n.lies != nil {
		n.outer = lyingSite{n.outer, n}
	}
	n.Up, n.began = true, w.Now
	n.wake = time.Time{}
	n.disk.busy, n.disk.then, n.disk.inbox = false, nil, nil
	n.host = &host{w: w, n: n, life: n.life}
	n.loop = loop.NewEngine(outer{n}, n.host)
	if n.refusals == nil {
		n.refusals = loop.NewRefusals()
	}
	n.loop.Refusals = n.refusals
	n.engine = n.loop
	if w.drive != nil {
		n.engine = w.drive(n, n.loop)
	}
	w.read(n)
	n.engine.Add(n.start(n.Core, w.clock(n)))
	w.flush(n)
	if !n.Up {
		return // its store takes no writes
	}
	if w.guard != nil {
		w.guard.booted(n)
	}
	if _, ok := n.Core.(*worker.Core); ok {
		if !n.contact.IsZero() {
			w.Do(n, worker.Contact{At: n.contact.Add(n.skew)})
		}
		var list []worker.Task
		for _, t := range n.tasks {
			list = append(list, worker.Task{ID: t.id, Name: t.name, Attempt: t.attempt, Handle: []byte(`"` + key(t.id, t.name, t.attempt) + `"`),
				Running: t.running, Exit: t.exit, Restart: t.restart})
		}
		slices.SortFunc(list, func(a, b worker.Task) int { return strings.Compare(string(a.Handle), string(b.Handle)) })
		w.Do(n, worker.Reattach{Tasks: list})
	}
}

// repair does what internal/node does with a worker's store that is damaged: what is whole of it is kept. Either one record is lost, or
// the file cannot be read at all.
func repair(w *World, n *Node) {
	if n.repaired = n.disk.rotten; !n.repaired {
		return
	}
	n.repairs++
	n.disk.rotten, n.disk.before = false, nil
	if keys := slices.Sorted(maps.Keys(n.Store)); len(keys) > 0 && w.rng.IntN(2) == 0 {
		delete(n.Store, keys[w.rng.IntN(len(keys))])
		maps.DeleteFunc(n.Store, func(k string, _ []byte) bool { return strings.HasPrefix(k, members.DesiredRecords) })
	} else {
		clear(n.Store)
	}
	if w.guard != nil {
		w.guard.repaired(n)
	}
}

// read hands a node's store to its core.
func (w *World) read(n *Node) {
	load := func(k string, v []byte) error {
		if err := n.load(n.Core, k, v); err != nil {
			w.fault("%s: load %s: %v", n.Name, k, err)
		}
		return nil
	}
	if err := loop.Load(context.Background(), n, loop.InTurn(load)); err != nil {
		w.fault("%s: %v", n.Name, err)
	}
}
