package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/coord"
)

// Cluster is the root's view of one site: aggregates only.
type Cluster struct {
	Name   string
	Report skerry.ClusterReport
	// Pending is what was handed to the site since its last report; the root takes it off the sums itself.
	Pending   skerry.Resources
	Connected bool
	Preferred bool // holds other services of the same application
}

// RankClusters orders the sites that may hold an instance, best first (Oakestra, section 3.2: the priority list of the
// root scheduler). A site is ruled out only by what its aggregate proves impossible; the rest are ordered by the expected
// number of fitting workers, sites that hold the rest of the application first when they can expect at least one.
func RankClusters(now time.Time, r *Request, sites []*Cluster, seed uint64) ([]string, skerry.Decision) {
	d := skerry.Decision{At: now, Instance: r.Instance, Tier: "root", Policy: "aggregate", Seed: seed, Considered: len(sites)}
	rng := rand.New(rand.NewPCG(seed, uint64(len(sites))))
	type ranked struct {
		name  string
		score float64
		tie   float64
	}
	var list []ranked
	for _, c := range sites {
		if out := impossible(r, c); out != nil {
			out.Count = 1
			out.Text = c.Name + ": " + out.Text
			d.Why = append(d.Why, *out)
			d.Top = append(d.Top, skerry.Candidate{Name: c.Name, Out: out})
			continue
		}
		n := ExpectedFits(r, c)
		if c.Preferred && n >= 1 {
			n += 1e6
		}
		list = append(list, ranked{c.Name, n, rng.Float64()})
	}
	slices.SortFunc(list, func(a, b ranked) int {
		switch {
		case a.score != b.score:
			return sign(b.score - a.score)
		default:
			return sign(a.tie - b.tie)
		}
	})
	names := make([]string, 0, len(list))
	top := make([]skerry.Candidate, 0, len(list)+len(d.Top))
	for _, x := range list {
		names = append(names, x.name)
		top = append(top, skerry.Candidate{Name: x.name, Score: x.score})
	}
	d.Top = append(top, d.Top...)
	if len(d.Top) > 2*maxShown {
		d.Top = d.Top[:2*maxShown]
	}
	if len(names) > 0 {
		d.Chosen = names[0]
		d.Top[0].Chosen = true
	} else if len(sites) == 0 {
		d.Why = []skerry.Reason{{What: "clusters", Text: "no cluster has joined", Hint: "join one with `skerry token create --role cluster`"}}
	}
	return names, d
}

func sign(x float64) int {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}

// impossible gives the reason for which no worker of a site can fit.
func impossible(r *Request, c *Cluster) *skerry.Reason {
	if slices.Contains(r.Avoid, c.Name) {
		return &skerry.Reason{What: "rejected", Text: "it had no place for the instance just now"}
	}
	if !c.Connected {
		return &skerry.Reason{What: "connected", Text: "it is not connected"}
	}
	if a := r.Spec.Placement.Area; a != "" && !slices.Contains(c.Report.Areas, a) {
		return &skerry.Reason{What: "area", Text: fmt.Sprintf("it has no worker in area %q", a)}
	}
	if p := r.Spec.Placement; p.Location != nil && p.MaxDistance > 0 {
		if c.Report.Centroid == nil {
			return &skerry.Reason{What: "location", Text: "where its workers are is not known"}
		}
		if km := coord.GreatCircleKm(*p.Location, *c.Report.Centroid) - c.Report.RadiusKm; km > p.MaxDistance {
			return &skerry.Reason{What: "distance", Text: fmt.Sprintf("its nearest worker is at least %.0f km away", km)}
		}
	}
	workers, runtime := 0, ""
	var worst *skerry.Reason
	for i := range c.Report.Classes {
		k := &c.Report.Classes[i]
		workers += k.Workers
		ok, need := RuntimeFits(r.Spec, k.Class.Runtimes)
		if !ok {
			runtime = need
			continue
		}
		out := classImpossible(r, k)
		if out == nil {
			return nil
		}
		worst = out
	}
	switch {
	case worst != nil:
		return worst
	case runtime != "":
		return &skerry.Reason{What: "runtime", Text: "none of its workers has a working runtime " + runtime}
	}
	return &skerry.Reason{What: "workers", Text: fmt.Sprintf("it has %d workers in touch", workers)}
}

// classImpossible applies Samuelson's inequality: in a population of n no value lies further above the mean than sigma
// times the square root of n - 1. Coarse aggregates are not exact, so only their sum rules out.
func classImpossible(r *Request, k *skerry.ClassAggregate) *skerry.Reason {
	for i, need := range r.Need.Vector() {
		if need == 0 {
			continue
		}
		m := k.Available[i]
		most := math.Min(m.Sum, m.Mean+m.StdDev*math.Sqrt(float64(max(k.Workers-1, 0))))
		if k.Coarse {
			most = m.Sum
		}
		if float64(need) > most*(1+1e-9) {
			return &skerry.Reason{What: skerry.ResourceNames[i],
				Text: fmt.Sprintf("needs %s of %s, no worker can have more than %s free", amount(i, need), skerry.ResourceNames[i], amount(i, int64(most))),
				Hint: fmt.Sprintf("ask for less %s, or add a larger worker", skerry.ResourceNames[i])}
		}
	}
	return nil
}

// ExpectedFits estimates how many workers of a site have room: in each class that can run the service, the number of
// workers times the probability, taking each resource as normally distributed and independent, that all suffice.
func ExpectedFits(r *Request, c *Cluster) float64 {
	total := 0.0
	pending := c.Pending.Vector()
	workers := 0
	for i := range c.Report.Classes {
		workers += c.Report.Classes[i].Workers
	}
	for i := range c.Report.Classes {
		k := &c.Report.Classes[i]
		if ok, _ := RuntimeFits(r.Spec, k.Class.Runtimes); !ok || k.Workers == 0 {
			continue
		}
		p := 1.0
		for j, need := range r.Need.Vector() {
			if need == 0 {
				continue
			}
			m := k.Available[j]
			mean := m.Mean - float64(pending[j])/float64(max(workers, 1))
			if m.StdDev < 1e-9 {
				if float64(need) > mean {
					p *= 0.01 // the aggregate may be old; not proof
				}
				continue
			}
			p *= 0.5 * math.Erfc((float64(need)-mean)/(m.StdDev*math.Sqrt2))
		}
		total += float64(k.Workers) * p
	}
	return total
}
