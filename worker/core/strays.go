package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// KeyRepaired is the record of a store that has lost others, until the cluster has named what is to run.
const KeyRepaired = "repaired"

// strayTime is how long the worker is in touch with its cluster before it ends what runs of instances that the cluster did not name.
const strayTime = time.Minute

// strays owns the containers that are on the machine without a record, until their instance takes them or they end: records were lost, or
// an earlier life of the agent started an instance and did not live to write that down.
type strays struct {
	lost  bool // records, in this life or one before, and the cluster has not had its time since
	tasks map[skerry.InstanceID][]Task
}

// expect notes that records were lost: what runs of instances that the store does not know are strays.
func (s *strays) expect() { s.lost = true }

// add takes a task of an instance whose record was lost.
func (s *strays) add(t Task) { s.tasks[t.ID] = append(s.tasks[t.ID], t) }

// drop removes those of an instance, which is not to run.
func (s *strays) drop(id skerry.InstanceID, fx *wire.Effects) {
	for _, t := range s.tasks[id] {
		fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
	}
	delete(s.tasks, id)
}

// join makes strays a part of their instance, once it is prepared, and reports whether there were any. other says that what runs is of
// another image than is wanted by now, or that nobody knows. Those that ended go if records were lost, because nobody knows when they ran;
// else ended has their ends.
func (s *strays) join(now time.Time, instance *inst, fx *wire.Effects) (joined, other bool, ended []Exited) {
	list := s.tasks[instance.A.ID]
	if len(list) == 0 {
		return false, false, nil
	}
	delete(s.tasks, instance.A.ID)
	for _, task := range list {
		ctr := instance.container(task.Name)
		ctr.Attempt = max(ctr.Attempt, task.Attempt)
		if !task.Running && s.lost || ctr.Running {
			fx.Actions = append(fx.Actions, Discard{Handle: task.Handle})
			continue
		}
		ctr.Handle, ctr.Monitor, ctr.Running, ctr.Limits = task.Handle, task.Monitor, true, unsure
		if task.Name == spec.MainContainer {
			instance.Restart = min(instance.Restart, task.Restart) // one that was asked for meanwhile is still to come
			other = instance.Digest != "" && task.Digest != instance.Digest
		}
		// What an earlier life had just started has its postStart before it; what ran when records were lost had it long ago.
		ctr.Hook = !s.lost && task.Running && spec.PostStartOf(&instance.A.Spec, task.Name) != nil
		if !task.Running {
			ended = append(ended, task.ended())
			continue
		}
		fx.Actions = append(fx.Actions, Watch{ID: task.ID, Name: task.Name, Attempt: task.Attempt, Handle: task.Handle})
	}
	if instance.main().Running {
		instance.StartedAt = now
		for _, s := range instance.A.Spec.Init {
			instance.container(s.Name).Done = true
		}
	}
	instance.Resize = &resize{Spec: instance.A.Spec, Revision: instance.A.Revision, Gen: instance.A.Gen} // which limits they have is not known
	return true, other, ended
}

// due is when the cluster has had its time to name what runs; zero: not before it is in touch.
func (s *strays) due(up *members.Parent, insts map[skerry.InstanceID]*inst) time.Time {
	if !s.lost || !up.Connected || up.Desired.Incarnation() == "" {
		return time.Time{}
	}
	for id := range s.tasks {
		if i := insts[id]; i != nil && i.Phase == skerry.PhaseFetching {
			return time.Time{} // it takes them then
		}
	}
	return up.Since.Add(strayTime)
}

// end ends, when they are due, strays that the cluster does not want.
func (s *strays) end(now time.Time, up *members.Parent, insts map[skerry.InstanceID]*inst, fx *wire.Effects) {
	if at := s.due(up, insts); at.IsZero() || now.Before(at) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		for _, t := range s.tasks[id] {
			fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
		}
		if insts[id] == nil { // with its network and files
			fx.Actions = append(fx.Actions, Cleanup{ID: id})
		}
	}
	clear(s.tasks)
	s.lost = false
	fx.Delete(KeyRepaired)
}

// audit lists what contradicts itself between two steps.
func (s *strays) audit(insts map[skerry.InstanceID]*inst) (faults []string) {
	for id := range s.tasks {
		if !s.lost && (insts[id] == nil || insts[id].Phase != skerry.PhaseFetching) {
			faults = append(faults, fmt.Sprintf("instance %s has strays, no records were lost, and it will not take them", id))
		}
	}
	slices.Sort(faults)
	return faults
}
