package core

import (
	"encoding/json"
	"iter"
	"maps"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Instances lists what the worker holds, for the device's own API.
func (c *Core) Instances() []wire.Observation {
	var out []wire.Observation
	for _, id := range c.ledger.ids() {
		out = append(out, c.ledger.observation(c.ledger.insts[id]))
	}
	for _, id := range c.freeze.pending() {
		if c.ledger.insts[id] == nil {
			out = append(out, wire.Observation{ID: id, State: skerry.WorkerScheduled, Frozen: c.freeze.text(id)})
		}
	}
	return out
}

// OverlayItems gives what the cluster said of the overlay last, before anything else happens.
func (c *Core) OverlayItems() []OverlayItem { return c.overlay.list() }

// Views lists what the worker holds as the API shows it.
func (c *Core) Views() []wire.Instance {
	out := make([]wire.Instance, 0, len(c.ledger.insts))
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		o := i.observation()
		v := wire.Instance{ID: id, Service: i.A.Service, Org: i.A.Org, Ordinal: i.A.Ordinal, Gen: i.A.Gen, Revision: i.A.Revision,
			State: o.State, Phase: o.Phase, Reason: o.Reason, Worker: skerry.WorkerName(c.opt.Name), Runtime: o.Runtime, Restarts: o.Restarts,
			Exit: o.Exit, Address: o.Address, Ports: o.Ports, Fence: i.A.Fence, CreatedAt: o.StartedAt, StartedAt: o.StartedAt,
			Stopping: i.Ending, Digest: o.Digest, Monitor: o.Monitor, Resources: i.A.Spec.Resources.OrNone()}
		if q, ok := c.reports.usage.Instances[id]; ok {
			v.QoS = &q
		}
		v.Conditions = []skerry.Condition{{Type: skerry.Ready, Status: o.Ready, Reason: o.Reason}}
		if o.CrashLoop != "" {
			v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.CrashLoop, Status: true, Reason: o.CrashLoop})
		}
		switch {
		case i.Limits != nil:
			v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.UpToDate, Reason: "its limits stay: " + i.Limits.Reason})
		case i.Resize != nil:
			v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.UpToDate, Reason: "its limits change while it runs"})
		}
		out = append(out, v)
	}
	return out
}

// Assignment finds what was asked for an instance, and the handle and attempt of one of its containers.
func (c *Core) Assignment(id skerry.InstanceID, name string) (a spec.Assignment, handle json.RawMessage, attempt int, ok bool) {
	i := c.ledger.insts[id]
	if i == nil {
		return a, nil, 0, false
	}
	if k := i.Containers[name]; k != nil {
		return i.A, k.Handle, k.Attempt, true
	}
	return i.A, nil, 0, true
}

// LastLog gives the handle of the last attempt of a container: while one is being started, the one before.
func LastLog(c *Core, id skerry.InstanceID, name string) json.RawMessage {
	if i := c.ledger.insts[id]; i != nil && i.Containers[name] != nil {
		if k := i.Containers[name]; len(k.Handle) == 0 && len(k.Old) > 0 {
			return k.Old[len(k.Old)-1]
		}
		return i.Containers[name].Handle
	}
	return nil
}

// Running calls fn for each container that runs.
func (c *Core) Running(fn func(a *spec.Assignment, name string, handle json.RawMessage)) {
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		for _, name := range i.names() {
			if k := i.Containers[name]; k.Running {
				fn(&i.A, name, k.Handle)
			}
		}
	}
}

// Containers calls fn for each container that was started, whether it still runs or not.
func (c *Core) Containers(fn func(a *spec.Assignment, name string, attempt int, handle json.RawMessage)) {
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		for _, name := range i.names() {
			if k := i.Containers[name]; len(k.Handle) > 0 {
				fn(&i.A, name, k.Attempt, k.Handle)
			}
		}
	}
}

// Images lists the digests that instances here refer to; they must not be collected.
func (c *Core) Images() map[string]bool {
	out := map[string]bool{}
	for _, i := range c.ledger.insts {
		maps.Insert(out, imagesOf(i))
	}
	return out
}

// imagesOf gives the digests that an instance refers to.
func imagesOf(i *inst) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, d := range i.A.Digest {
			if !yield(d, true) {
				return
			}
		}
		if i.Digest != "" {
			yield(i.Digest, true)
		}
	}
}

// View is an instance as the server may look at it, for as long as the core is not stepped.
type View struct{ i *inst }

// ViewOf finds an instance.
func ViewOf(c *Core, id skerry.InstanceID) (View, bool) {
	i := c.ledger.insts[id]
	return View{i}, i != nil
}

// All gives the instances, by their names.
func All(c *Core) iter.Seq[View] {
	return func(yield func(View) bool) {
		for _, id := range c.ledger.ids() {
			if !yield(View{c.ledger.insts[id]}) {
				return
			}
		}
	}
}

// Assignment is what was asked for; it is not to be changed.
func (v View) Assignment() *spec.Assignment { return &v.i.A }

// Address is where the instance is in the overlay; empty: it has no network of its own.
func (v View) Address() string { return v.i.Address }

// Ports are those of the host that lead to it.
func (v View) Ports() []wire.PortBinding { return v.i.Ports }

// Halted reports whether it has ended, or runs somewhere else.
func (v View) Halted() bool { return v.i.halted() }

// Ending reports whether it was taken back, and goes.
func (v View) Ending() bool { return v.i.Ending }

// Images gives the digests that it refers to.
func (v View) Images() iter.Seq2[string, bool] { return imagesOf(v.i) }

// Running gives the handles of its containers that run, by their names.
func (v View) Running() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for _, name := range v.i.names() {
			if k := v.i.Containers[name]; k.Running && !yield(name, k.Handle) {
				return
			}
		}
	}
}

// Ready reports whether the core knows what runs on the machine: Reattach has told it.
func Ready(c *Core) bool { return c.ledger.ready }

// Strays reports whether containers may run on the machine whose records were lost, and that nobody has named since.
func Strays(c *Core) bool { return c.strays.lost }

// Unwanted reports whether a snapshot was removed in this life: one that is still being made is not to be kept.
func Unwanted(c *Core, id spec.SnapshotID) bool { return c.snapshots.unwanted[id] }

// Warn has the core tell its cluster of something that concerns no instance.
func Warn(c *Core, now time.Time, reason, text string, fx *wire.Effects) {
	c.ledger.event(now, nil, wire.EventWarning, reason, text, fx)
}
