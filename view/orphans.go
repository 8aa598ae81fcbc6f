package view

import (
	"cmp"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Orphan is an instance that runs and that the store does not know, as after a restored backup. It is left alone until somebody adopts or
// ends it. Or it is what a worker keeps and its site does not take up: volumes or a snapshot, until somebody deletes them.
type Orphan struct {
	Instance skerry.InstanceID `json:"instance" doc:"Empty for volumes and snapshots."`
	// Kept names volumes, as WORKER/vol/NAMESPACE/APPLICATION/SERVICE/REPLICA, or a snapshot, as WORKER/snap/ID. Empty: it is an instance.
	Kept string `json:"kept,omitempty" doc:"Name of volumes or a snapshot that a worker keeps and its site does not take up."`
	// Service and Org are empty where nobody holds what the instance was assigned.
	Service skerry.ServiceKey `json:"service,omitzero"`
	Org     string            `json:"org,omitempty"`
	// Worker is where it runs, at a site; Cluster, at the root.
	Worker    skerry.WorkerName  `json:"worker,omitempty"`
	Cluster   skerry.ClusterName `json:"cluster,omitempty"`
	State     skerry.State       `json:"state,omitempty"`
	Ready     bool               `json:"ready,omitempty"`
	StartedAt time.Time          `json:"startedAt,omitzero"`
	// Problem says why it cannot be adopted; empty: it can.
	Problem string `json:"problem,omitempty"`
}

// Name is how commands name it.
func (o *Orphan) Name() string { return cmp.Or(o.Kept, string(o.Instance)) }

// OrphansRunning counts the instances among orphans.
func OrphansRunning(list []Orphan) (n int) {
	for _, o := range list {
		if o.Kept == "" {
			n++
		}
	}
	return n
}

// NewOrphan describes an orphan by what is held of its assignment, nil for nothing, and by what was observed of it last.
func NewOrphan(id skerry.InstanceID, a *spec.Assignment, o *wire.Observation) Orphan {
	out := Orphan{Instance: id, State: o.State, Ready: o.Ready, StartedAt: o.StartedAt}
	switch {
	case o.Phase == skerry.PhaseStopping:
		out.Problem = "it is being ended"
		if a == nil {
			return out
		}
	case a == nil:
		out.Problem = "nobody holds what it was assigned"
		return out
	case a.Spec.Mode != spec.ModeService:
		out.Problem = "only services are adopted, and this is a " + string(a.Spec.Mode)
	case o.State != skerry.Running || o.Fence.RootEpoch != a.Fence.RootEpoch || a.Fence.Sequence != 0 && o.Fence != a.Fence: // the root leaves the rest to the site
		out.Problem = "it does not run as it was assigned last"
	}
	out.Service, out.Org = a.Service, a.Org
	return out
}

// NoOrphan says why what was named is none.
func NoOrphan(name string, known bool) *skerry.Error {
	if known {
		return skerry.Errorf(skerry.CodeConflict, "instance %q is no orphan: it belongs to an application", name).WithHint("`skerry delete instance` has it replaced")
	}
	return skerry.Errorf(skerry.CodeNotFound, "there is no orphan %q", name).WithHint("`skerry get orphans` lists them")
}
