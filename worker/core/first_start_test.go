package core

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestFirstStartIsFound: a first start is written down with what comes of it. An agent that is killed before that finds the tasks, prepares
// the instance again and takes them up: nothing is started twice, and the end of a job that ran counts.
func TestFirstStartIsFound(t *testing.T) {
	side := spec.SideContainer{Name: "side"}
	for name, c := range map[string]struct {
		tasks    []Task
		sidecars []spec.SideContainer
		prepared Prepared
		starts   []string // containers that are started then
		state    skerry.State
		discards int
	}{
		"nothing had begun": {starts: []string{"main"}, state: skerry.WorkerScheduled},
		"it runs":           {tasks: []Task{{Name: "main", Running: true}}, state: skerry.Running},
		"it has ended":      {tasks: []Task{{Name: "main"}}, state: skerry.Terminated},
		"it has failed":     {tasks: []Task{{Name: "main", Exit: wire.Exit{Code: 3}}}, state: skerry.Failed},
		"only a sidecar runs": {tasks: []Task{{Name: "side", Running: true}}, sidecars: []spec.SideContainer{side},
			starts: []string{"main"}, state: skerry.WorkerScheduled},
		"it cannot be prepared again": {tasks: []Task{{Name: "main", Running: true}}, prepared: Prepared{Err: "no image", Permanent: true},
			state: skerry.Failed, discards: 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			a.Spec.Restart.Policy, a.Spec.Sidecars = "never", c.sidecars
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			d.wants(a)
			fx := d.step(Prepared{ID: a.ID, Fence: a.Fence, Address: "10.0.0.1", Runtime: "oci",
				Ports: []wire.PortBinding{{Name: "http", HostPort: 30000}}})
			written := slices.ContainsFunc(fx.Writes, func(w wire.Write) bool { return strings.HasPrefix(w.Key, prefixInst) })
			if written || !has[StartContainer](fx.Actions) {
				t.Fatalf("the start waits for a record: %+v, %+v", fx.Actions, fx.Writes)
			}
			d.start()
			for n := range c.tasks {
				c.tasks[n].ID, c.tasks[n].Attempt, c.tasks[n].Handle = a.ID, 1, json.RawMessage(`"`+c.tasks[n].Name+`"`)
			}
			if fx = d.step(Reattach{Tasks: c.tasks}); !has[Prepare](fx.Actions) || has[Discard](fx.Actions) {
				t.Fatalf("after the kill: %+v, want it prepared, and nothing of it removed", fx.Actions)
			}
			c.prepared.ID, c.prepared.Fence, c.prepared.Address = a.ID, a.Fence, "10.0.0.1"
			fx = d.step(c.prepared)
			var starts []string
			discards := 0
			for _, act := range fx.Actions {
				switch act := act.(type) {
				case StartContainer:
					starts = append(starts, act.Name)
				case Discard:
					discards++
				}
			}
			i := d.c.ledger.insts[a.ID]
			if !slices.Equal(starts, c.starts) || i.State != c.state || discards != c.discards {
				t.Errorf("started %q, state %s, %d removed; want %q, %s, %d", starts, i.State, discards, c.starts, c.state, c.discards)
			}
			if d.kv[prefixInst+string(a.ID)] == nil {
				t.Error("there is no record of it")
			}
		})
	}
}

// TestEndOfAnUnwrittenStart: what an earlier life had started goes if its instance is to end before it is prepared again.
func TestEndOfAnUnwrittenStart(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	d.wants(a)
	d.step(Prepared{ID: a.ID, Fence: a.Fence, Address: "10.0.0.1"})
	d.start()
	d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Handle: json.RawMessage(`"it runs"`), Running: true}}})
	next := a
	next.Fence.Sequence++
	if acts := d.wants(next); !has[Discard](acts) {
		t.Errorf("another copy is wanted: %+v, want the task removed", acts)
	}
	d.step(Prepared{ID: a.ID, Fence: a.Fence, Err: "cancelled"})
	d.step(Cleaned{ID: a.ID})
	if i := d.c.ledger.insts[a.ID]; i == nil || i.A.Fence != next.Fence || !i.preparing {
		t.Errorf("the worker knows %+v, want the next copy being prepared", i)
	}
}
