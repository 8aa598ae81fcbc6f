package worker

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Instances lists what the worker holds, for the device's own API.
func (c *Core) Instances() []wire.Observation {
	var out []wire.Observation
	for _, id := range c.ids() {
		o := c.insts[id].observation()
		o.Held = c.heldText(id)
		out = append(out, o)
	}
	for _, id := range slices.Sorted(maps.Keys(c.waits)) {
		if c.insts[id] == nil {
			out = append(out, wire.Observation{ID: id, State: skerry.WorkerScheduled, Held: c.heldText(id)})
		}
	}
	return out
}

// Views lists what the worker holds as the API shows it.
func (c *Core) Views() []wire.Instance {
	out := make([]wire.Instance, 0, len(c.insts))
	for _, id := range c.ids() {
		i := c.insts[id]
		o := i.observation()
		v := wire.Instance{ID: id, Service: i.A.Service, Org: i.A.Org, Ordinal: i.A.Ordinal, Gen: i.A.Gen, Revision: i.A.Revision, State: o.State, Phase: o.Phase, Reason: o.Reason,
			Worker: skerry.WorkerName(c.opt.Name), Runtime: o.Runtime, Restarts: o.Restarts, Exit: o.Exit, Address: o.Address, Ports: o.Ports, Fence: i.A.Fence,
			CreatedAt: o.StartedAt, StartedAt: o.StartedAt, Stopping: i.Ending, Digest: o.Digest, Resources: i.A.Spec.Resources}
		if q, ok := c.usage.Instances[id]; ok {
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
	i := c.insts[id]
	if i == nil {
		return a, nil, 0, false
	}
	if k := i.Containers[name]; k != nil {
		return i.A, k.Handle, k.Attempt, true
	}
	return i.A, nil, 0, true
}

// lastLog gives the handle of the last attempt of a container: while one is being started, the one before.
func lastLog(c *Core, id skerry.InstanceID, name string) json.RawMessage {
	if i := c.insts[id]; i != nil && i.Containers[name] != nil {
		if k := i.Containers[name]; len(k.Handle) == 0 && len(k.Old) > 0 {
			return k.Old[len(k.Old)-1]
		}
		return i.Containers[name].Handle
	}
	return nil
}

// Running calls fn for each container that runs.
func (c *Core) Running(fn func(a *spec.Assignment, name string, handle json.RawMessage)) {
	for _, id := range c.ids() {
		i := c.insts[id]
		for _, name := range i.names() {
			if k := i.Containers[name]; k.Running {
				fn(&i.A, name, k.Handle)
			}
		}
	}
}

// Images lists the digests that instances here refer to; they must not be collected.
func (c *Core) Images() map[string]bool {
	out := map[string]bool{}
	for _, i := range c.insts {
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
