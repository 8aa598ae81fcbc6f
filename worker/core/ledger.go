package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

const prefixInst = "inst/"

// ledger owns the list of instances here, their records, and what the cluster is told of each. It does not decide what becomes of them.
//
// An instance is in the list under its own name until it is cleaned up, and its record says what the list does after each step.
type ledger struct {
	up     *members.Parent
	codec  *wire.Codec
	freeze *freezer
	insts  map[skerry.InstanceID]*inst
	ready  bool // tasks of an earlier life were looked for
}

// load takes a record of an instance.
func (l *ledger) load(key string, value []byte) error {
	i := new(inst)
	if err := json.Unmarshal(value, i); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	l.insts[i.A.ID] = i
	return nil
}

// known notes that it is known what runs on the machine.
func (l *ledger) known() { l.ready = true }

// ids lists the instances, by name.
func (l *ledger) ids() []skerry.InstanceID {
	out := make([]skerry.InstanceID, 0, len(l.insts))
	for id := range l.insts {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// add begins with an instance.
func (l *ledger) add(i *inst, fx *wire.Effects) {
	l.insts[i.A.ID] = i
	l.save(i, fx)
}

// remove forgets an instance of which nothing is left on the machine. The cluster is not told: another one may follow under its name.
func (l *ledger) remove(i *inst, fx *wire.Effects) {
	delete(l.insts, i.A.ID)
	fx.Delete(prefixInst + string(i.A.ID))
	fx.Changed = append(fx.Changed, wire.Change{App: i.A.Service.App, Instance: i.A.ID, Deleted: true})
}

// save persists an instance and tells the cluster.
func (l *ledger) save(i *inst, fx *wire.Effects) {
	if l.insts[i.A.ID] != i {
		return // it ended within this step
	}
	i.shorten()
	data, err := json.Marshal(i)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(prefixInst+string(i.A.ID), data)
	fx.Changed = append(fx.Changed, wire.Change{App: i.A.Service.App, Instance: i.A.ID})
	l.tell(i)
}

// further tells of a step that goes into the store with the next change.
func (l *ledger) further(i *inst, fx *wire.Effects) {
	fx.Changed = append(fx.Changed, wire.Change{App: i.A.Service.App, Instance: i.A.ID})
	l.tell(i)
}

// observation is what the cluster learns of an instance.
func (l *ledger) observation(i *inst) wire.Observation {
	o := i.observation()
	o.Frozen = l.freeze.text(o.ID)
	return o
}

// tell has the cluster know how an instance fares.
func (l *ledger) tell(i *inst) { l.observe(l.observation(i)) }

// observe has the cluster know what is observed of an instance, which need not be here yet.
func (l *ledger) observe(o wire.Observation) {
	// It has bounded texts, so it always fits.
	_, _ = l.up.Observed.Put(wire.AssignmentKey(o.ID), l.codec.Marshal(&o))
}

// event tells of an instance, or with nil of the whole worker. Warnings go to the cluster.
func (l *ledger) event(now time.Time, i *inst, t wire.EventType, reason, text string, fx *wire.Effects) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: textOf(text)}
	if i != nil {
		e.App, e.Service, e.Instance, e.Org = i.A.Service.App, i.A.Service.Service, i.A.ID, i.A.Org
	}
	fx.Events = append(fx.Events, e)
	if t == wire.EventWarning {
		if _, err := l.up.Events.Append(l.codec.Marshal(e)); err != nil {
			fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "EventDropped", Text: err.Error(),
				Instance: e.Instance})
		}
	}
}

// audit lists what contradicts itself between two steps.
func (l *ledger) audit() (faults []string) {
	for id, i := range l.insts {
		if i.A.ID != id {
			faults = append(faults, fmt.Sprintf("instance %s is listed as %s", i.A.ID, id))
		}
		o := l.observation(i)
		if value, ok := l.up.Observed.Get(wire.AssignmentKey(id)); !ok || !bytes.Equal(value, l.codec.Marshal(&o)) {
			faults = append(faults, fmt.Sprintf("the cluster is told something else of %s than how it fares", id))
		}
	}
	return faults
}
