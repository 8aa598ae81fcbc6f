package sim

import (
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/internal/wire"
	"skerry.dev/skerry/worker"
)

// lies are what a worker may tell that is not so.
var lies = []string{
	"capacity",    // it has ten times what it has
	"load",        // what runs there suffers, or uses nothing; so does what runs elsewhere
	"coordinates", // it is somewhere else
	"others",      // instances of others run there, have failed, or have ended
	"never",       // it accepts what it is given and never runs it
}

// lie has a worker tell what is not so, from now on. Nobody expects anything of what is placed there any more.
func (r *run) lie(n *Node, about string) {
	w := r.w
	r.check.liars[n] = true
	if about == "never" {
		n.idle = true
	}
	if about == "capacity" {
		n.boasts = true
	}
	if !n.Up {
		return
	}
	switch about {
	case "capacity":
		w.tell(n, worker.Facts{Facts: w.machineOf(n)})
	case "load", "coordinates":
		use := map[skerry.InstanceID]skerry.QoS{}
		for _, id := range r.anyInstances(n) {
			use[id] = skerry.QoS{CPU: skerry.MilliCPU(w.rng.IntN(100_000)), Memory: skerry.Bytes(w.rng.Int64N(1 << 50)), Waiting: w.rng.Float64() * 3, Throttled: -1}
		}
		at := &skerry.Coordinate{Vec: [3]float64{w.rng.NormFloat64() * 1e6, 1e9, -1e9}, Height: 1e-9, Error: 0.001}
		w.tell(n, worker.Usage{Instances: use, Coordinate: at})
	case "others":
		up := n.Core.(*worker.Core).Up.Observed
		codec := wire.New()
		for _, id := range r.anyInstances(n) {
			i, _, ok := w.parentOf(n).Core.(*cluster.Core).Instance(id)
			if !ok || i.Worker == skerry.WorkerName(short(n)) {
				continue
			}
			o := skerry.Observation{ID: id, Gen: i.Gen, Fence: i.Fence, State: []skerry.State{skerry.Running, skerry.Failed, skerry.Terminated}[w.rng.IntN(3)], Ready: w.rng.IntN(2) == 0}
			if w.rng.IntN(3) == 0 {
				o.Fence.Sequence += 1 << 20
			}
			_, _ = up.Put(skerry.AssignmentKey(id), codec.Marshal(&o))
		}
		w.commit(n, n.outer.Tick(w.clock(n)), nil)
	}
}

// anyInstances lists instances at a worker's site, by id.
func (r *run) anyInstances(n *Node) []skerry.InstanceID {
	site := r.w.parentOf(n)
	if !site.Up {
		return nil
	}
	ids := map[skerry.InstanceID]bool{}
	for _, i := range site.Core.(*cluster.Core).Instances() {
		ids[i.ID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

// entrusted counts the instances of a service that sites have placed on members that lie.
func (k *checker) entrusted(at skerry.ServiceKey) (n int) {
	if len(k.liars) == 0 {
		return 0
	}
	for _, site := range k.w.Clusters {
		for _, i := range site.Core.(*cluster.Core).Instances() {
			if i.Service == at && i.Worker != "" && k.liars[k.w.Workers[site.Name+"/"+string(i.Worker)]] {
				n++
			}
		}
	}
	return n
}
