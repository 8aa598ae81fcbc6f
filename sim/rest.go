package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// atRest tells which invariant of a fleet without faults does not hold yet, and why; an empty text: the fleet is what its users
// want.
func (k *checker) atRest() (invariant, text string) {
	if k.rolled {
		return "", ""
	}
	wanted := map[skerry.ServiceKey]bool{}
	for _, name := range sortedNames(k.wishes) {
		u := k.wishes[name]
		if k.liars[u.owner] {
			continue
		}
		if !u.owner.Up {
			return BrokenLive, u.owner.Name + " is down"
		}
		is := u.kept()
		for _, service := range slices.Sorted(maps.Keys(is.services)) {
			at := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: u.app}, Service: service}
			wanted[at] = true
			var inv, why string
			switch s := is.services[service]; s.mode {
			case spec.ModePerWorker:
				inv, why = k.everyWorker(u, at, is.app)
			case spec.ModeJob:
				inv, why = k.done(u, at)
			default:
				inv, why = k.replicas(u, at, s.replicas)
			}
			if why != "" {
				return inv, why
			}
		}
	}
	for _, n := range k.w.nodes() {
		if k.liars[n] {
			continue
		}
		for _, id := range sortedIDs(k.here[n]) {
			if g := k.here[n][id]; g.running > 0 && !wanted[g.service] {
				return k.blame(n, BrokenLive), fmt.Sprintf("%s runs %s of %s, which nobody wants", n.Name, id, g.service)
			}
		}
	}
	if text := k.shown(); text != "" {
		return k.anyLiar(BrokenView), text
	}
	return "", ""
}

// blame gives the invariant that is broken by what a worker does.
func (k *checker) blame(n *Node, invariant string) string {
	if len(k.liars) > 0 && !k.liars[n] {
		return BrokenHarm
	}
	return invariant
}

// replicas checks that a service has as many live instances as it should, each ordinal once, and that its owner knows it.
func (k *checker) replicas(u *wish, at skerry.ServiceKey, want int) (string, string) {
	live := k.live(at)
	ready := 0
	for _, i := range controller(u.owner).Instances(at) {
		if i.IsReady() && !i.Stopping {
			ready++
		}
	}
	// Where there is no room for all of a new version, an update waits, and some of the old version run on beside it.
	for _, i := range controller(u.owner).Instances(at) {
		if i.Holder == "" && !i.Stopping && len(live) > 0 && k.roomFor(u.owner, i.Spec) == nil {
			return "", ""
		}
	}
	if k.entrusted(at) > 0 {
		return "", "" // whatever becomes of a service that a liar has a part of: its updates wait for it
	}
	for _, n := range slices.Sorted(maps.Keys(live)) {
		if list := live[n]; len(list) > 1 {
			return BrokenLive, fmt.Sprintf("number %d of %s runs %d times: %v", n, at, len(list), list)
		}
	}
	if len(live) > want {
		return BrokenLive, fmt.Sprintf("%d of %s run, %d are wanted", len(live), at, want)
	}
	if ready == want && len(live) == want {
		return k.limits(u, at)
	}
	for _, i := range controller(u.owner).Instances(at) {
		if i.IsReady() || i.Stopping {
			continue
		}
		if n := k.roomFor(u.owner, i.Spec); n != nil {
			return k.anyLiar(BrokenPlace), fmt.Sprintf("%s of %s is %s at %q (%s %v), and %s has room for it", i.ID, at, i.State, i.Holder, i.Reason, i.Why, n.Name)
		}
		return "", "" // nobody has room for it, so nobody is to blame
	}
	return k.anyLiar(BrokenLive), fmt.Sprintf("%d of %s run, %d are ready, %d are wanted", len(live), at, ready, want)
}

// limits checks that what runs of a service has the limits that its owner believes it has, and all have those of the manifest.
func (k *checker) limits(u *wish, at skerry.ServiceKey) (string, string) {
	needs := map[skerry.InstanceID]spec.Resources{}
	for n, m := range k.here {
		for id, g := range m {
			if g.running > 0 && g.service == at && !k.liars[n] {
				needs[id] = g.need
			}
		}
	}
	for _, i := range controller(u.owner).Instances(at) {
		if r := i.Resize; r != nil {
			return k.anyLiar(BrokenPlace), fmt.Sprintf("%s is still to get other limits: %s", i.ID, r.Reason)
		}
		if need, runs := needs[i.ID]; runs && need != i.Spec.LeastCost() {
			return k.anyLiar(BrokenPlace), fmt.Sprintf("%s has %v, its owner believes %v", i.ID, need, i.Spec.LeastCost())
		}
	}
	return "", ""
}

func (k *checker) anyLiar(invariant string) string {
	if len(k.liars) > 0 {
		return BrokenHarm
	}
	return invariant
}

// roomFor finds a worker that has room for an instance, by what runs on it.
func (k *checker) roomFor(owner *Node, s *spec.ServiceSpec) *Node {
	for _, n := range k.w.nodes() {
		if n.facts == nil || k.liars[n] || owner != k.w.Root && k.w.parentOf(n) != owner {
			continue
		}
		if s.Placement.Cluster != "" && k.w.parentOf(n).Name != s.Placement.Cluster || k.portTaken(n, s) {
			continue
		}
		if n.facts.Capacity.Sub(k.used[n]).Fits(s.LeastCost()) {
			return n
		}
	}
	return nil
}

// portTaken reports whether a host port that a service needs is in use on a worker.
func (k *checker) portTaken(n *Node, s *spec.ServiceSpec) bool {
	for _, p := range s.Ports {
		if p.HostPort <= 0 {
			continue
		}
		for _, g := range k.here[n] {
			if g.running > 0 && slices.Contains(g.ports, p.HostPort) {
				return true
			}
		}
	}
	return false
}

// everyWorker checks that each worker with room runs a copy of a perWorker service.
func (k *checker) everyWorker(u *wish, at skerry.ServiceKey, app *spec.Application) (string, string) {
	for _, n := range k.w.nodes() {
		if n.facts == nil || k.liars[n] || u.owner != k.w.Root && k.w.parentOf(n) != u.owner {
			continue
		}
		copies := 0
		for _, g := range k.here[n] {
			if g.running > 0 && g.service == at {
				copies++
			}
		}
		switch {
		case copies > 1:
			return k.blame(n, BrokenLive), fmt.Sprintf("%d copies of %s run on %s", copies, at, n.Name)
		case copies == 0 && n.facts.Capacity.Sub(k.used[n]).Fits(app.Spec.Service(at.Service).LeastCost()):
			return k.blame(n, BrokenPlace), fmt.Sprintf("%s has room for %s and does not run it", n.Name, at)
		}
	}
	return "", ""
}

// done checks that the present run of a job has an end.
func (k *checker) done(u *wish, at skerry.ServiceKey) (string, string) {
	a := controller(u.owner).App(at.App)
	if a == nil || len(a.Runs[at.Service]) == 0 {
		return BrokenPlace, fmt.Sprintf("job %s has not begun", at)
	}
	r := a.Runs[at.Service][len(a.Runs[at.Service])-1]
	for _, i := range controller(u.owner).Instances(at) {
		if i.Holder == "" && !i.Stopping && k.roomFor(u.owner, i.Spec) == nil {
			return "", ""
		}
	}
	if r.Result == "" && k.entrusted(at) > 0 {
		return "", ""
	}
	if r.Result == "" {
		return k.anyLiar(BrokenPlace), fmt.Sprintf("job %s has not ended: %d succeeded, %d failed", at, r.Succeeded, r.Failed)
	}
	if live := k.live(at); len(live) > 0 {
		return BrokenLive, fmt.Sprintf("job %s has ended, and %v run", at, live)
	}
	return "", ""
}

// snapshot lists what runs where.
func (k *checker) snapshot() (out []string) {
	for _, n := range k.w.nodes() {
		for id, g := range k.here[n] {
			if g.running > 0 && !k.liars[n] {
				out = append(out, fmt.Sprintf("%s on %s under %s, start %d", id, n.Name, g.fence, g.starts))
			}
		}
	}
	slices.Sort(out)
	return out
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func sortedIDs[V any](m map[skerry.InstanceID]V) []skerry.InstanceID {
	return slices.Sorted(maps.Keys(m))
}

// nodes lists all nodes: the root, sites, workers, by name.
func (w *World) nodes() []*Node {
	out := append([]*Node{w.Root}, slices.SortedFunc(maps.Values(w.Clusters), byName)...)
	return append(out, slices.SortedFunc(maps.Values(w.Workers), byName)...)
}

func byName(a, b *Node) int { return cmp.Compare(a.Name, b.Name) }
