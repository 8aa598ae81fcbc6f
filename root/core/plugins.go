package core

import (
	"slices"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Actions and messages about the root's own scheduling plugins, which judge clusters as those of a site judge workers.
type (
	// Score asks plugins about clusters. The answer is Scored.
	Score  = questions.Score
	Scored = questions.Scored
	Plugin = questions.Plugin
	// SetPlugins replaces the list of plugins.
	SetPlugins struct{ List []Plugin }
)

// federation is what sites are chosen by: their aggregates, and what plugins say.
type federation struct {
	*sched.Federation
	questions *questions.Questions
}

func newFederation() federation { return federation{sched.NewFederation(), questions.New(nil)} }

func setPlugins(c *Core, m SetPlugins) {
	c.fed.questions.SetPlugins(m.List)
	c.Apps.RetryNow()
}

// scored takes an answer of plugins; what waits for it goes on.
func scored(c *Core, m Scored) {
	q := c.fed.questions
	waits := !q.Until(m.ID).IsZero()
	if q.Scored(m); !waits || !q.Until(m.ID).IsZero() {
		return // too late, or about an earlier question
	}
	if i := c.Apps.Instance(m.ID); i != nil {
		i.RetryAt = time.Time{}
	}
	if s := c.failover.stranded[m.ID]; s != nil {
		s.again = time.Time{}
	}
}

// choose ranks the clusters for an instance, and has plugins judge the best. wait is true while they think.
func choose(core *Core, now time.Time, inst *apps.Instance, req *sched.Request, fx *wire.Effects) (decision wire.Decision, wait bool) {
	q := core.fed.questions
	plugins := q.Plugins(inst.Spec)
	if len(plugins) == 0 {
		q.Drop(inst.ID) // there were some when it was asked about
		_, decision = core.fed.Rank(now, req, core.rounds, 1)
		return decision, false
	}
	q.Next()
	q.Late(now, inst.ID)
	decision, wait, score := q.Consult(now, questions.Case{ID: inst.ID, Plugins: plugins,
		Best: func(round uint64) wire.Decision {
			_, decision := core.fed.Rank(now, req, round, sched.PluginCandidates)
			decision.Top = slices.DeleteFunc(decision.Top, func(k wire.Candidate) bool { return k.Out != nil })
			return decision
		},
		Query: func(d *wire.Decision) sched.PluginQuery { return pluginQuery(core, now, req, d) }})
	if score != nil {
		fx.Actions = append(fx.Actions, *score)
	}
	return decision, wait
}

func pluginQuery(core *Core, now time.Time, req *sched.Request, decision *wire.Decision) sched.PluginQuery {
	query := sched.PluginQuery{Version: sched.PluginVersion, Tier: "root", Instance: req.Instance, Service: req.Service,
		Labels: req.Spec.Labels, Need: req.Need, Placement: req.Spec.Placement, Seed: decision.Seed}
	for _, candidate := range decision.Top {
		x := sched.PluginCandidate{Name: candidate.Name, Score: candidate.Score,
			Coordinate: core.relations.gateways.space.Coordinate(candidate.Name)}
		for _, p := range req.Peers {
			if p.Worker == candidate.Name {
				x.Peers++
			}
		}
		if s := core.reports[candidate.Name]; s != nil {
			var sum spec.ResourceVector
			for _, class := range s.report.Classes {
				x.Workers += class.Workers
				for n, m := range class.Available {
					sum[n] += int64(max(0, min(m.Sum, mostOfAll)))
				}
			}
			x.Available, x.Age = spec.FromVector(sum), max(0, now.Sub(s.at).Seconds())
			if at := s.report.Centroid; at != nil && at.Valid() {
				x.Location = at
			}
		}
		query.Candidates = append(query.Candidates, x)
	}
	return query
}

// mostOfAll bounds what a class of workers is believed to have together, in any unit.
const mostOfAll = 1 << 60
