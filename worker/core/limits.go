package core

import (
	"encoding/json"
	"reflect"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// resize are limits that an instance is to have while it runs on. What is wanted, what each container has, and what is told
// are three things, so that a life of the agent that ends anywhere in between is followed by one that goes on:
//
//	assignment ──► Resize kept ──► containers unsure, kept ──SetLimits──► Resized ──► they have them ──► the instance's own
//	                    ▲                                                    │
//	                    └──────────── after a while, memory is in use ◄──────┘
type resize struct {
	Spec     spec.ServiceSpec  `json:"spec"`
	Revision string            `json:"revision"`
	Gen      skerry.Generation `json:"generation"`
}

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

// wanted is the revision that an instance has, or is to have.
func (i *inst) wanted() string {
	if i.Resize != nil {
		return i.Resize.Revision
	}
	return i.A.Revision
}

// revision is the one whose limits the instance has, or "" while that is changing.
func (i *inst) revision() string {
	for _, k := range i.Containers {
		if k.Running && k.Limits != "" && k.Limits != i.A.Revision {
			return ""
		}
	}
	return i.A.Revision
}

// EgressOf gives the policy that an instance is held to. A site of an earlier version sends the manifest's alone.
func EgressOf(a *spec.Assignment) *spec.Egress {
	if a.Egress != nil {
		return a.Egress
	}
	return a.Spec.Egress
}

// relimit takes the limits of an assignment, which are most often those that the instance has.
func (c *Core) relimit(now time.Time, i *inst, a spec.Assignment, fx *wire.Effects) {
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
		c.setLimits(now, i, fx)
	}
	c.save(i, fx)
}

// setLimits brings what runs of an instance to the limits that it is to have, one step further.
func (c *Core) setLimits(now time.Time, i *inst, fx *wire.Effects) {
	r := i.Resize
	if r == nil || i.resizing || i.Ending || !c.ready || !i.resizeAt.IsZero() || c.freeze != nil && c.approved != i.A.ID {
		return
	}
	var list []Limited
	for _, name := range i.names() {
		k := i.Containers[name]
		if k.start && k.Limits != r.Revision {
			return // it is seen to when it has started
		}
		if k.Running && k.Limits != r.Revision && (k.Limits != "" || r.Revision != i.A.Revision) {
			list = append(list, Limited{name, k.Attempt, k.Handle})
		}
	}
	if len(list) > 0 {
		for _, l := range list {
			i.Containers[l.Name].Limits = unsure
		}
		i.resizing = true
		c.save(i, fx)
		fx.Actions = append(fx.Actions, SetLimits{ID: i.A.ID, Revision: r.Revision, Spec: r.Spec, Was: i.A.Spec, Level: i.A.Level, Containers: list})
		return
	}
	changed := r.Revision != i.A.Revision
	i.A.Spec, i.A.Revision, i.A.Gen = r.Spec, r.Revision, r.Gen
	i.Resize, i.Limits = nil, nil
	c.save(i, fx)
	if changed {
		c.event(now, i, wire.EventNormal, "Resized", "runs on with other limits", fx)
	}
}

// resized takes the answer of the machine.
func (c *Core) resized(now time.Time, i *inst, m Resized, fx *wire.Effects) {
	i.resizing = false
	for _, l := range m.Containers {
		if k := i.Containers[l.Name]; k != nil && k.Attempt == l.Attempt {
			switch {
			case m.Err == "":
				k.Limits = m.Revision
			case !m.Unsure:
				k.Limits = i.A.Revision
			}
		}
	}
	if r := i.Resize; m.Err == "" && r != nil && r.Revision != m.Revision && m.Revision != i.A.Revision {
		// Others are wanted by now. These are what it has, and what it keeps if the others are refused.
		i.A.Spec, i.A.Revision = m.Spec, m.Revision
	}
	if r := i.Resize; m.Err != "" && r != nil && r.Revision == m.Revision {
		if i.Limits == nil || i.Limits.InUse != m.InUse { // once, and not at each try
			c.event(now, i, wire.EventWarning, "LimitsRefused", "its limits stay as they are: "+m.Err, fx)
		}
		i.Limits = &wire.LimitsRefusal{Gen: r.Gen, Reason: m.Err, InUse: m.InUse}
		i.resizeAt = now.Add(limitsRetry)
	} else {
		c.setLimits(now, i, fx)
	}
	c.save(i, fx)
}
