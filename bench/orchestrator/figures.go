package orchestrator

import (
	"fmt"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// Turn is one deployment of one size, or, with no replicas, a rest with nothing deployed.
type Turn struct {
	Adapter  string
	Replicas int
	// Ready and Gone are from the call of deploy until all replicas were ready, and from that of delete until none was
	// left, in seconds; 0 at rest.
	Ready float64
	Gone  float64
	// Deploying has the seconds of processor time from deploy to ready, by kind; nil where processes were not measured.
	Deploying map[Kind]float64
	// Resting is what was used while nothing was to be done: the replicas ran, or there were none.
	Resting map[Kind]Use
	// Cannot is why the adapter cannot do this here; Failed is what went wrong. Either leaves the rest empty.
	Cannot string
	Failed string
}

// Use is what processes of one kind use.
type Use struct {
	CPU       float64 // seconds of processor time in each second
	PSS       float64 // bytes, at the end
	Processes int
}

// metric is something to read of a turn. Per replica is per replica of the deployment.
type metric struct {
	name, unit string
	rest       bool // of rests with nothing deployed
	of         func(r, rest *Turn) (float64, bool)
}

const mib = 1 << 20

// total adds up what kinds have; it is there if any is.
func total(kinds []Kind, of func(Kind) (float64, bool)) (sum float64, ok bool) {
	for _, k := range kinds {
		v, has := of(k)
		sum, ok = sum+v, ok || has
	}
	return sum, ok
}

// metrics are the rows of a report, in order. "all" is control and worker together, for orchestrators that have both in one process.
func metrics() []metric {
	list := []metric{
		{"ready", "s", false, func(r, _ *Turn) (float64, bool) { return r.Ready, true }},
		{"gone", "s", false, func(r, _ *Turn) (float64, bool) { return r.Gone, true }},
	}
	for _, g := range []struct {
		name  string
		kinds []Kind
	}{{"control", []Kind{Control}}, {"worker", []Kind{Worker}}, {"all", []Kind{Control, Worker}}} {
		use := func(r *Turn, read func(Use) float64) (float64, bool) {
			return total(g.kinds, func(k Kind) (float64, bool) { u, ok := r.Resting[k]; return read(u), ok })
		}
		cpu, pss := func(u Use) float64 { return 100 * u.CPU }, func(u Use) float64 { return u.PSS / mib }
		list = append(list,
			metric{"idle.cpu." + g.name, "% of a core", true, func(r, _ *Turn) (float64, bool) { return use(r, cpu) }},
			metric{"idle.memory." + g.name, "MiB", true, func(r, _ *Turn) (float64, bool) { return use(r, pss) }},
			metric{"deploy.cpu." + g.name, "ms/replica", false, func(r, _ *Turn) (float64, bool) {
				v, ok := total(g.kinds, func(k Kind) (float64, bool) { v, ok := r.Deploying[k]; return v, ok })
				return 1000 * v / float64(r.Replicas), ok
			}},
			metric{"running.cpu." + g.name, "% of a core", false, func(r, _ *Turn) (float64, bool) { return use(r, cpu) }},
			metric{"running.memory." + g.name, "MiB/replica", false, func(r, rest *Turn) (float64, bool) {
				if rest == nil {
					return 0, false
				}
				before, _ := use(rest, pss) // a kind that had no process used nothing
				now, ok := use(r, pss)
				return (now - before) / float64(r.Replicas), ok
			}})
	}
	return list
}

// ok reports whether there is something measured in a turn.
func (r *Turn) ok() bool { return r.Cannot == "" && r.Failed == "" }

// size names the figures of a deployment of so many replicas, or of none.
func size(replicas int) string {
	if replicas == 0 {
		return "nothing deployed"
	}
	return fmt.Sprintf("%d replicas", replicas)
}

// add adds a turn to the present round of a report; rest is that of the same round with nothing deployed, or nil.
func (t *Turn) add(r *report.Report, rest *Turn, set *published.Set) {
	group := size(t.Replicas)
	if t.Failed != "" {
		r.Fail(group, t.Adapter, t.Failed)
		return
	}
	for _, m := range metrics() {
		if m.rest != (t.Replicas == 0) {
			continue
		}
		if t.Cannot != "" {
			r.Figure(group, m.name, t.Adapter).Skip = t.Cannot
			return // it says so of the first
		}
		if v, has := m.of(t, rest); has {
			f := r.Figure(group, m.name, t.Adapter)
			f.Unit, f.Published = m.unit, beside(set, m.name, t.Replicas)
			r.Add(f, v)
		}
	}
}
