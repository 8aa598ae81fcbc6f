package moves

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Prefix is that of the keys of the records of what instances hold that were told to end: the worker's name and the instance's follow.
const Prefix = "leaving/"

// Releasing is what an instance that was told to end still holds on a worker, so that nothing is placed on top of what still runs. It is
// kept: after a restart of the orchestrator it is as true as before.
type Releasing struct {
	Need    spec.Resources    `json:"need"`
	Ports   []string          `json:"ports,omitempty"`
	Service skerry.ServiceKey `json:"service"`
	Ordinal int               `json:"ordinal,omitempty"`
	Address string            `json:"address,omitempty"` // in the overlay: flows to it go on until it has ended
}

// Place is an instance on a worker that was told to end it.
type Place struct {
	Worker string
	ID     skerry.InstanceID
}

func (p Place) key() string { return Prefix + p.Worker + "/" + string(p.ID) }

// Leaving is what ends on one worker, by instance. Only Releases changes it.
type Leaving map[skerry.InstanceID]Releasing

// Releases is all that was told to end, and has not.
type Releases struct {
	workers map[string]Leaving
	of      map[skerry.ServiceKey]map[Place]bool
	read    map[Place]Releasing // until Start
}

// NewReleases gives a site where nothing ends.
func NewReleases() *Releases {
	return &Releases{workers: map[string]Leaving{}, of: map[skerry.ServiceKey]map[Place]bool{}, read: map[Place]Releasing{}}
}

// Record gives a new value of the type that a record is read into.
func Record() any { return new(Releasing) }

// Load takes a record.
func (r *Releases) Load(key string, value []byte) error {
	worker, id, _ := strings.Cut(strings.TrimPrefix(key, Prefix), "/")
	var h Releasing
	err := json.Unmarshal(value, &h)
	if err == nil {
		r.read[Place{worker, skerry.InstanceID(id)}] = h
	}
	return err
}

// Start counts again what was ending when the orchestrator ended. Of the rest, where ends says no, the record is deleted. It lists what is
// taken of workers.
func (r *Releases) Start(ends func(Place) bool, fx *wire.Effects) (taken []Place) {
	for _, p := range slices.SortedFunc(maps.Keys(r.read), func(a, b Place) int {
		return cmp.Or(strings.Compare(a.Worker, b.Worker), strings.Compare(string(a.ID), string(b.ID)))
	}) {
		if !ends(p) {
			fx.Delete(p.key())
			continue
		}
		r.enter(p, r.read[p])
		taken = append(taken, p)
	}
	r.read = nil
	return taken
}

// Add enters a worker.
func (r *Releases) Add(worker string) Leaving {
	r.workers[worker] = Leaving{}
	return r.workers[worker]
}

// Remove forgets a worker, on which nothing ends any more.
func (r *Releases) Remove(worker string) { delete(r.workers, worker) }

func (r *Releases) enter(p Place, h Releasing) {
	r.workers[p.Worker][p.ID] = h
	if r.of[h.Service] == nil {
		r.of[h.Service] = map[Place]bool{}
	}
	r.of[h.Service][p] = true
}

// Begin notes what an instance holds that is told to end, and gives the record; nil: the worker was told before, or is not known.
func (r *Releases) Begin(p Place, h Releasing) *wire.Write {
	if on, known := r.workers[p.Worker]; !known || on.Has(p.ID) {
		return nil
	}
	r.enter(p, h)
	data, err := json.Marshal(h)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return &wire.Write{Key: p.key(), Value: data}
}

// End notes that nothing is left of an instance, and gives what it held and the end of the record; nil: it held nothing.
func (r *Releases) End(p Place) (h Releasing, w *wire.Write) {
	h, ok := r.workers[p.Worker][p.ID]
	if !ok {
		return h, nil
	}
	delete(r.workers[p.Worker], p.ID)
	if delete(r.of[h.Service], p); len(r.of[h.Service]) == 0 {
		delete(r.of, h.Service)
	}
	return h, &wire.Write{Key: p.key()}
}

// Of runs over what ends of a service.
func (r *Releases) Of(k skerry.ServiceKey) func(yield func(Place, Releasing) bool) {
	return func(yield func(Place, Releasing) bool) {
		for p := range r.of[k] {
			if !yield(p, r.workers[p.Worker][p.ID]) {
				return
			}
		}
	}
}

// Workers runs over the workers on which something of an application ends, some of them twice.
func (r *Releases) Workers(app skerry.AppKey) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k, list := range r.of {
			if k.App != app {
				continue
			}
			for p := range list {
				if !yield(p.Worker) {
					return
				}
			}
		}
	}
}

// Has reports whether an instance ends on the worker.
func (l Leaving) Has(id skerry.InstanceID) bool {
	_, ok := l[id]
	return ok
}

// IDs lists the instances, sorted.
func (l Leaving) IDs() []skerry.InstanceID { return slices.Sorted(maps.Keys(l)) }

// Audit reports contradictions, against the workers that the site knows.
func (r *Releases) Audit(known func(worker string) bool) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for name, on := range r.workers {
		if !known(name) {
			bad("%d instances end on %s, which was removed", len(on), name)
		}
		for id, h := range on {
			if !r.of[h.Service][Place{name, id}] {
				bad("%s ends on %s, and not as one of %s", id, name, h.Service)
			}
		}
	}
	for k, list := range r.of {
		if len(list) == 0 {
			bad("an empty list is kept for %s", k)
		}
		for p := range list {
			if h, ok := r.workers[p.Worker][p.ID]; !ok || h.Service != k {
				bad("%s is listed as one of %s that ends on %s", p.ID, k, p.Worker)
			}
		}
	}
	return faults
}
