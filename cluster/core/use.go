package core

import (
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// WorkerUse is what a worker that is in touch uses now.
type WorkerUse struct {
	Name     string
	Used     spec.Resources            // by the whole machine, as it says
	Capacity spec.Resources            // as far as that is believed; nothing if it has not said
	Running  int                       // instances
	Restarts map[skerry.InstanceID]int // of each of its instances, since it was first started
}

// Use gives what each worker uses that is in touch and has reported.
func (vs *views) Use() []WorkerUse {
	by := map[string]*WorkerUse{}
	for name, w := range vs.workers {
		if k := vs.Children.Get(name); k != nil && k.Connected && !w.sight.Lost() && !w.reportAt.IsZero() {
			u := &WorkerUse{Name: name, Used: w.report.Used, Restarts: map[skerry.InstanceID]int{}}
			if w.Facts != nil {
				u.Capacity = w.Facts.Capacity
			}
			by[name] = u
		}
	}
	for id, p := range vs.places {
		if u := by[p.Worker]; u != nil {
			if u.Restarts[id] = p.Obs.Restarts; p.Obs.State == skerry.Running {
				u.Running++
			}
		}
	}
	out := make([]WorkerUse, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[name])
	}
	return out
}
