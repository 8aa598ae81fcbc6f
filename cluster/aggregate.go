package cluster

import (
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/wire"
)

// Aggregate gives what the root learns of the site. Only workers that are in touch count (a dead worker leaves the next
// aggregate).
func (vs *views) Aggregate() wire.ClusterReport {
	var members []uplink.Member
	for _, name := range slices.Sorted(maps.Keys(vs.workers)) {
		w, k := vs.workers[name], vs.Kids.Get(name)
		if w.Facts == nil || w.sight.Lost() || k == nil || !k.Connected || w.refusing() != "" {
			continue
		}
		members = append(members, uplink.Member{Facts: w.Facts, Class: w.classKey(), Available: w.available(), Coordinate: w.coordinate()})
	}
	r := uplink.Fold(members)
	for _, p := range vs.places {
		if n := p.A.Spec.Placement.Priority; p.Worker != "" && p.Pinned == "" && !p.Removing && !p.ended() && (r.Lowest == nil || n < *r.Lowest) {
			r.Lowest = &n
		}
	}
	r.Instances = len(vs.places)
	r.Services, r.Ingress, r.Came = vs.foldQoS(), vs.foldIngress(), vs.foldCame()
	return r
}

// foldQoS sums what the root's services use here.
func (vs *views) foldQoS() []wire.ServiceQoS {
	by := map[skerry.ServiceKey]*wire.ServiceQoS{}
	for _, id := range sortedIDs(vs.places) {
		p := vs.places[id]
		if p.Origin != "root" || !vs.workers.uses(p) {
			continue
		}
		q := by[p.A.Service]
		if q == nil {
			q = &wire.ServiceQoS{Service: p.A.Service}
			by[p.A.Service] = q
		}
		q.QoS = q.QoS.Add(*p.qos)
		if p.Obs.Ready {
			q.Ready++
		}
	}
	out := make([]wire.ServiceQoS, 0, len(by))
	for _, q := range by {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b wire.ServiceQoS) int { return strings.Compare(a.Service.String(), b.Service.String()) })
	return out
}
