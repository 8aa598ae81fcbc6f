package core

import (
	"encoding/json"
	"reflect"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Limited is a container that is to have other limits.
type Limited struct {
	Name    string
	Attempt int
	Handle  json.RawMessage
}

const (
	// unsure is the revision of a container's limits from the moment on when they are changed until that is known.
	unsure = "?"
	// limitsRetry is how long after limits were refused they are tried again.
	limitsRetry = 30 * time.Second
)

// EgressOf gives the policy that an instance is held to. A site of an earlier version sends the manifest's alone.
func EgressOf(a *spec.Assignment) *spec.Egress {
	if a.Egress != nil {
		return a.Egress
	}
	return a.Spec.Egress
}

// relimit takes the limits of an assignment, which are most often those that the instance has.
func (life *lifecycle) relimit(now time.Time, i *inst, a spec.Assignment, fx *wire.Effects) {
	if !reflect.DeepEqual(i.A.Egress, a.Egress) { // of the same service: the site's policy is another
		i.A.Egress = a.Egress
		fx.Actions = append(fx.Actions, SetEgress{ID: i.A.ID, Egress: EgressOf(&i.A)})
	}
	switch {
	case i.Resize == nil && a.Revision == i.A.Revision:
		i.A.Gen = a.Gen
	case i.Resize != nil && a.Revision == i.Resize.Revision && a.Gen == i.Resize.Gen: // told again
	default:
		i.Resize, i.Limits, i.resizeAt = &resize{Spec: a.Spec, Revision: a.Revision, Gen: a.Gen}, nil, time.Time{}
		life.setLimits(now, i, fx)
	}
	life.ledger.save(i, fx)
}

// setLimits brings what runs of an instance to the limits that it is to have, one step further.
func (life *lifecycle) setLimits(now time.Time, instance *inst, fx *wire.Effects) {
	resize := instance.Resize
	if resize == nil || instance.resizing || instance.Ending || !life.ledger.ready || !instance.resizeAt.IsZero() ||
		life.freeze.holds(instance.A.ID) {
		return
	}
	var list []Limited
	for _, name := range instance.names() {
		k := instance.Containers[name]
		if k.start && k.Limits != resize.Revision {
			return // it is seen to when it has started
		}
		if k.Running && k.Limits != resize.Revision && (k.Limits != "" || resize.Revision != instance.A.Revision) {
			list = append(list, Limited{name, k.Attempt, k.Handle})
		}
	}
	if len(list) > 0 {
		for _, l := range list {
			instance.Containers[l.Name].Limits = unsure
		}
		instance.resizing = true
		life.ledger.save(instance, fx)
		fx.Actions = append(fx.Actions, SetLimits{ID: instance.A.ID, Revision: resize.Revision, Spec: resize.Spec, Was: instance.A.Spec,
			Level: instance.A.Level, Containers: list})
		return
	}
	changed := resize.Revision != instance.A.Revision
	instance.A.Spec, instance.A.Revision, instance.A.Gen = resize.Spec, resize.Revision, resize.Gen
	instance.Resize, instance.Limits = nil, nil
	life.ledger.save(instance, fx)
	if changed {
		life.ledger.event(now, instance, wire.EventNormal, "Resized", "runs on with other limits", fx)
	}
}

// resized takes the answer of the machine.
func (life *lifecycle) resized(now time.Time, instance *inst, m Resized, fx *wire.Effects) {
	instance.resizing = false
	for _, l := range m.Containers {
		if k := instance.Containers[l.Name]; k != nil && k.Attempt == l.Attempt {
			switch {
			case m.Err == "":
				k.Limits = m.Revision
			case !m.Unsure:
				k.Limits = instance.A.Revision
			}
		}
	}
	if r := instance.Resize; m.Err == "" && r != nil && r.Revision != m.Revision && m.Revision != instance.A.Revision {
		// Others are wanted by now. These are what it has, and what it keeps if the others are refused.
		instance.A.Spec, instance.A.Revision = m.Spec, m.Revision
	}
	if r := instance.Resize; m.Err != "" && r != nil && r.Revision == m.Revision {
		if instance.Limits == nil || instance.Limits.InUse != m.InUse { // once, and not at each try
			life.ledger.event(now, instance, wire.EventWarning, "LimitsRefused", "its limits stay as they are: "+m.Err, fx)
		}
		instance.Limits = &wire.LimitsRefusal{Gen: r.Gen, Reason: m.Err, InUse: m.InUse}
		instance.resizeAt = now.Add(limitsRetry)
	} else {
		life.setLimits(now, instance, fx)
	}
	life.ledger.save(instance, fx)
}
