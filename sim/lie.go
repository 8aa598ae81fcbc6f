package sim

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// lies are what a member may tell that is not so. Those of both kinds come first.
var lies = []string{
	"capacity",    // it has ten times what it has, and each time it lies ten times that
	"never",       // it accepts what it is given and never runs it
	"replay",      // it sends again what it sent before
	"load",        // a worker: what runs there suffers, or uses nothing; so does what runs elsewhere
	"coordinates", // a worker: it is somewhere else
	"others",      // a worker: instances of others run there, have failed, or have ended
	"counts",      // a site: numbers that contradict each other and what it says of single instances
	"health",      // a site: all that it was given runs and is ready
	"amendments",  // a site: it was told to run something else while it was alone, which it was not
}

// workerLies and siteLies are what the one and the other may lie about in generated scenarios.
var (
	workerLies = lies[:6]
	siteLies   = append(slices.Clone(lies[:3]), lies[6:8]...)
)

// lie has a member tell what is not so, from now on. Nobody expects anything of what is placed there any more.
func (r *run) lie(n *Node, about string) {
	if n.facts == nil {
		r.siteLie(n, about)
		return
	}
	w := r.w
	r.check.liars[n] = true
	switch about {
	case "never":
		n.idle = true
	case "capacity":
		n.boasts++
	case "coordinates":
		n.orphan = &spec.Coordinate{Vec: [3]float64{w.rng.NormFloat64() * 1e4, 1e4, -1e4}, Height: 1e-9, Error: 0.001}
	}
	if !n.Up {
		return
	}
	switch about {
	case "capacity":
		w.tell(n, worker.Facts{Facts: w.machineOf(n)})
	case "load", "coordinates":
		use := map[skerry.InstanceID]wire.QoS{}
		for _, id := range r.anyInstances(n) {
			use[id] = wire.QoS{CPU: skerry.MilliCPU(w.rng.IntN(100_000)), Memory: skerry.Bytes(w.rng.Int64N(1 << 50)),
				Waiting: w.rng.Float64() * 3, Throttled: -1}
		}
		w.tell(n, worker.Usage{Instances: use, Coordinate: n.orphan})
	case "others":
		up := n.Core.(*worker.Core).Up.Observed
		codec := wire.New()
		for _, id := range r.anyInstances(n) {
			i, _, ok := w.parentOf(n).Core.(*cluster.Core).Instance(id)
			if !ok || i.Worker == skerry.WorkerName(short(n)) {
				continue
			}
			o := wire.Observation{ID: id, Gen: i.Gen, Fence: i.Fence,
				State: []skerry.State{skerry.Running, skerry.Failed, skerry.Terminated}[w.rng.IntN(3)], Ready: w.rng.IntN(2) == 0}
			if w.rng.IntN(3) == 0 {
				o.Fence.Sequence += 1 << 20
			}
			_, _ = up.Put(wire.AssignmentKey(id), codec.Marshal(&o))
		}
		w.tick(n)
	case "replay":
		r.replay(n, &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Seq: 1})})
	}
}

// replay sends a report several times that is older than what was sent since.
func (r *run) replay(n *Node, old *wire.Report) {
	for range 4 {
		r.w.deliver(n, wire.Outgoing{Msg: old})
	}
}

// siteLie has a site lie, with all its workers: nothing that it says of them can be relied upon.
func (r *run) siteLie(n *Node, about string) {
	w := r.w
	r.check.distrust(n)
	if n.lies == nil {
		n.lies = map[string]bool{}
		n.outer = lyingSite{n.outer, n}
	}
	n.lies[about] = true
	if !n.Up {
		return
	}
	switch about {
	case "replay":
		r.replay(n, &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&wire.ClusterReport{Seq: 1})})
	case "health":
		c := n.Core.(*cluster.Core)
		codec := wire.New()
		for key := range c.Up.Desired.All() {
			value, _, ok := c.Up.Desired.Get(key)
			var a spec.Assignment
			if !ok || codec.Unmarshal(value, &a) != nil || wire.AssignmentKey(a.ID) != key {
				continue
			}
			_, _ = c.Up.Observed.Put(key, codec.Marshal(&wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Ready: true}))
		}
		w.tick(n)
	case "amendments":
		r.amends(n)
	}
}

// amends has a site claim that it was told to run a program of its own, with the rights of the machine, under the name of what it holds.
func (r *run) amends(n *Node) {
	c := n.Core.(*cluster.Core)
	codec := wire.New()
	held := maps.Collect(c.Up.Desired.All())
	for _, key := range slices.Sorted(maps.Keys(held)) {
		var a spec.Assignment
		if codec.Unmarshal(held[key], &a) != nil || wire.AssignmentKey(a.ID) != key || a.Spec.Mode != spec.ModeService {
			continue
		}
		svc := a.Spec
		svc.Runtime, svc.Command, svc.Security.Privileged = spec.RuntimeNative, []string{"/bin/sh"}, true
		m := wire.Amendment{App: a.Service.App, Seq: 1 << 40, Base: a.Gen, Author: "nobody", At: r.w.Now,
			Services: []wire.AmendedService{{Name: a.Service.Service, Replicas: 1, Before: 1, Spec: &svc,
				Instances: []wire.AmendedInstance{{ID: a.ID, Ordinal: a.Ordinal, Revision: a.Revision, Fence: a.Fence}}}}}
		_, _ = c.Up.Observed.Put(wire.AmendmentKey(a.Service.App), codec.Marshal(&m))
	}
	r.w.tick(n)
}

// lyingSite stands around the core of a site that lies.
type lyingSite struct {
	core
	n *Node
}

// distort changes what the site says.
func (l lyingSite) distort(fx wire.Effects) wire.Effects {
	codec := wire.New()
	if l.n.lies["never"] {
		fx.Sends = slices.DeleteFunc(fx.Sends, func(s wire.Outgoing) bool { _, set := s.Msg.(*wire.SetDelta); return set && s.To != "" })
	}
	for i, s := range fx.Sends {
		m, ok := s.Msg.(*wire.Report)
		var r wire.ClusterReport
		if !ok || s.To != "" || codec.Unmarshal(m.Payload, &r) != nil {
			continue
		}
		for j := range r.Classes {
			for k := range r.Classes[j].Available {
				m := &r.Classes[j].Available[k]
				if l.n.lies["capacity"] {
					m.Sum, m.Mean, m.StdDev = 10*m.Sum, 10*m.Mean, 10*m.StdDev
				}
				if l.n.lies["counts"] {
					m.Sum = -1 - m.Sum
				}
			}
		}
		if l.n.lies["counts"] {
			r.Instances += 1000
			for j := range r.Services {
				r.Services[j].Ready += 7
			}
		}
		fx.Sends[i].Msg = &wire.Report{Kind: m.Kind, Payload: codec.Marshal(&r)}
	}
	return fx
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

// entrusted counts the instances of a service that are placed on members that lie.
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
	for _, i := range k.w.RootCore().Apps.Instances(at) {
		if site := k.w.Clusters[i.Holder]; site != nil && k.liars[site] {
			n++
		}
	}
	return n
}

// distrust has nothing expected of what is placed on a member any more, nor of what a site says of its workers.
func (k *checker) distrust(n *Node) {
	k.liars[n] = true
	for _, child := range n.children {
		k.liars[child] = true
	}
}

// believe checks what is made of lies: no honest member is ever put in quarantine, and none in quarantine is given anything.
func (k *checker) believe(n *Node, fx *wire.Effects) {
	for _, event := range fx.Events {
		member := k.w.Clusters[string(event.Cluster)]
		if n != k.w.Root {
			member = k.w.Workers[n.Name+"/"+string(event.Worker)]
		}
		switch event.Reason {
		case "Implausible":
			if k.garbled[member] { // its parent cannot know that it did not say so
				k.distrust(member)
			}
		case "WorkerQuarantined", "ClusterQuarantined":
			if member == nil || !k.liars[member] && !k.liars[n] {
				k.fail(BrokenTrust, "%s, which is honest, is put in quarantine by %s: %s", event.Worker, n.Name, event.Text)
			}
			k.quarantined[member] = true
		case "QuarantineEnded", "ClusterRemoved":
			delete(k.quarantined, member)
		case "WorkerScheduled", "Scheduled":
			if k.quarantined[member] {
				k.fail(BrokenTrust, "%s is given %s by %s while it is in quarantine", member.Name, event.Instance, n.Name)
			}
		}
	}
}

// Step implements core.
func (l lyingSite) Step(now time.Time, msg any) wire.Effects {
	return l.distort(l.core.Step(now, msg))
}

// Tick implements core.
func (l lyingSite) Tick(now time.Time) wire.Effects { return l.distort(l.core.Tick(now)) }

// machineOf is what a worker's core learns of its machine.
func (w *World) machineOf(n *Node) wire.WorkerFacts {
	f := *n.facts
	if w.boast != nil {
		w.boast(&f)
	}
	for range min(n.boasts, 6) {
		f.Capacity.CPU, f.Capacity.Memory = 10*f.Capacity.CPU, 10*f.Capacity.Memory
	}
	return f
}
