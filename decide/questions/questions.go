// Package questions owns what a scheduler asks the world outside about an instance, and goes on with once the answer or the
// deadline has come: plugins about the best candidates, and, at a site, workers about the users of a service. It asks nobody
// itself, and is pure: no clock, no disk, no socket. The cores of root and cluster use it.
package questions

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Actions: what the core cannot find out by itself. It goes on when the answer or the deadline comes.
type (
	// Measure asks each worker named for the round trip to each target. The answer is Measured.
	Measure struct {
		ID      skerry.InstanceID
		Round   uint64
		Workers []string
		Targets []string // addresses, as in spec.User
	}
	// Score asks plugins about candidates. The answer is Scored.
	Score struct {
		ID      skerry.InstanceID
		Round   uint64
		Plugins []string
		Query   sched.PluginQuery
	}
)

// Messages: answers.
type (
	Measured struct {
		ID    skerry.InstanceID
		Round uint64
		// RTT holds, for each target, the round trip in milliseconds by worker; who got no answer is left out.
		RTT []map[string]float64
	}
	Scored struct {
		ID      skerry.InstanceID
		Round   uint64
		Answers []wire.PluginAnswer
	}
)

// Plugin is a scheduling plugin as the core knows it.
type Plugin struct {
	Name string
	// All services are shown to it; else those alone that name it as their policy.
	All bool
	// Reject refuses an instance when the plugin does not answer, as a rule about security must; else it is skipped.
	Reject bool
}

// ask is a question under way.
type ask struct {
	round   uint64
	until   time.Time
	answers []wire.PluginAnswer // of plugins; nil until they came
	plugins []string            // none: workers measure where users are,
	asked   map[string]bool     // candidates that the plugins were asked about
}

// MeasureTime is how long workers may measure.
const MeasureTime = 3 * time.Second

// Questions are the plugins and policies of a site, or the plugins of a root, and what was asked about instances and is not yet answered.
type Questions struct {
	policies map[string]sched.Policy
	plugins  map[string]Plugin
	open     map[skerry.InstanceID]*ask
	round    uint64 // of placing: ties fall by it
}

// New gives a site with these policies, and without plugins.
func New(policies map[string]sched.Policy) *Questions {
	return &Questions{policies: policies, plugins: map[string]Plugin{}, open: map[skerry.InstanceID]*ask{}}
}

// SetPlugins replaces the plugins.
func (q *Questions) SetPlugins(list []Plugin) {
	q.plugins = map[string]Plugin{}
	for _, p := range list {
		q.plugins[p.Name] = p
	}
}

// Round is the number of the last look for a place.
func (q *Questions) Round() uint64 { return q.round }

// Next gives the number of the next one.
func (q *Questions) Next() uint64 {
	q.round++
	return q.round
}

// Policy finds the policy of a service and the plugins to ask: those of the site, then the one that the service names. linked: a link with
// a limit leads to it from another service, which binds both ends, since either may be placed second.
func (q *Questions) Policy(s *spec.ServiceSpec, linked bool) (sched.Policy, []Plugin, *wire.Reason) {
	name := cmp.Or(s.Placement.Policy, spec.PolicyROM)
	if linked && name == spec.PolicyROM {
		name = spec.PolicyLDP
	}
	ask := q.Plugins(s)
	if own, ok := strings.CutPrefix(name, spec.PluginPrefix); ok {
		if _, known := q.plugins[own]; !known {
			return sched.Policy{}, nil, &wire.Reason{What: "policy", Count: 1, Text: fmt.Sprintf("the site has no scheduling plugin %q", own),
				Hint: "choose another policy, or ask the site's operator for the plugin"}
		}
		name = spec.PolicyLDP // its rules; the plugin ranks
	}
	if p, ok := q.policies[name]; ok {
		return p, ask, nil
	}
	return sched.Policy{}, nil, &wire.Reason{What: "policy", Count: 1, Text: fmt.Sprintf("the site has no scheduling policy %q", name),
		Hint: "choose another"}
}

// Plugins lists those to ask about a service: those that are shown every one, then the one that it names, if there is that one here.
func (q *Questions) Plugins(s *spec.ServiceSpec) (ask []Plugin) {
	for _, n := range slices.Sorted(maps.Keys(q.plugins)) {
		if q.plugins[n].All {
			ask = append(ask, q.plugins[n])
		}
	}
	own, _ := strings.CutPrefix(s.Placement.Policy, spec.PluginPrefix)
	if p, known := q.plugins[own]; known && !p.All && own != s.Placement.Policy {
		ask = append(ask, p)
	}
	return ask
}

// Open reports whether something was asked about an instance.
func (q *Questions) Open(id skerry.InstanceID) bool { return q.open[id] != nil }

// Measures reports whether workers measure where the users of an instance are.
func (q *Questions) Measures(id skerry.InstanceID) bool {
	a := q.open[id]
	return a != nil && len(a.plugins) == 0
}

// Judged reports whether plugins are asked about an instance.
func (q *Questions) Judged(id skerry.InstanceID) bool {
	a := q.open[id]
	return a != nil && len(a.plugins) > 0
}

// Until is when it is too late for the answer to what was asked about an instance, or the zero time where none is waited for.
func (q *Questions) Until(id skerry.InstanceID) time.Time {
	if a := q.open[id]; a != nil && a.answers == nil {
		return a.until
	}
	return time.Time{}
}

// Due is when it is too late for the next answer that is waited for, or the zero time.
func (q *Questions) Due() (next time.Time) {
	for id := range q.open {
		if at := q.Until(id); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Keep forgets what was asked about instances other than those.
func (q *Questions) Keep(these func(id skerry.InstanceID) bool) {
	maps.DeleteFunc(q.open, func(id skerry.InstanceID, _ *ask) bool { return !these(id) })
}

// Drop forgets what was asked about an instance.
func (q *Questions) Drop(id skerry.InstanceID) { delete(q.open, id) }

// Measure asks workers for the round trips to the users of an instance.
func (q *Questions) Measure(now time.Time, id skerry.InstanceID, workers, targets []string) Measure {
	q.open[id] = &ask{round: q.round, until: now.Add(MeasureTime)}
	return Measure{ID: id, Round: q.round, Workers: workers, Targets: targets}
}

// Measured reports whether an answer is waited for, and ends the question.
func (q *Questions) Measured(m Measured) bool {
	a := q.open[m.ID]
	if a == nil || a.round != m.Round {
		return false // too late, or moved on
	}
	delete(q.open, m.ID)
	return true
}

// Scored takes what plugins answered.
func (q *Questions) Scored(m Scored) {
	if a := q.open[m.ID]; a != nil && a.round == m.Round && a.answers == nil {
		a.answers = append([]wire.PluginAnswer{}, m.Answers...)
	}
}

// Late goes on without an answer to what was asked about an instance, when it is too late for one.
func (q *Questions) Late(now time.Time, id skerry.InstanceID) {
	if a := q.open[id]; a != nil && a.answers == nil && !now.Before(a.until) {
		a.answers = []wire.PluginAnswer{}
	}
}

// Unmeasured ends a measurement when it is too late for an answer. It reports whether it did.
func (q *Questions) Unmeasured(now time.Time, id skerry.InstanceID) bool {
	if !q.Measures(id) || now.Before(q.open[id].until) {
		return false
	}
	delete(q.open, id)
	return true
}

// Case is an instance about which plugins are asked: the best workers for it by a policy, and what plugins are told of these.
type Case struct {
	ID      skerry.InstanceID
	Plugins []Plugin
	Best    func(round uint64) wire.Decision
	Query   func(*wire.Decision) sched.PluginQuery
}

// Consult has plugins score the best candidates, and combines what they say. wait is true while they think; score is what to ask them.
func (q *Questions) Consult(now time.Time, k Case) (decision wire.Decision, wait bool, score *Score) {
	a := q.open[k.ID]
	if a != nil && a.answers == nil {
		return decision, true, nil
	}
	round := q.round
	if a != nil {
		round = a.round // ties fall as they did, so that these are the candidates that plugins were asked about
	}
	decision = k.Best(round)
	if a != nil && decision.Chosen != "" {
		// Who came in since then has not been judged. When nobody is left, they are asked about.
		decision.Top = slices.DeleteFunc(decision.Top, func(x wire.Candidate) bool { return !a.asked[x.Name] })
		if len(decision.Top) == 0 {
			a, round = nil, q.round
			decision = k.Best(round)
		}
	}
	delete(q.open, k.ID)
	if decision.Chosen == "" {
		return decision, false, nil
	}
	if a != nil {
		combine(&decision, k.Plugins, a.answers)
		return decision, false, nil
	}
	var names []string
	for _, x := range k.Plugins {
		names = append(names, x.Name)
	}
	query := k.Query(&decision)
	a = &ask{round: round, until: now.Add(sched.PluginDeadline), plugins: names, asked: map[string]bool{}}
	for _, x := range query.Candidates {
		a.asked[x.Name] = true
	}
	q.open[k.ID] = a
	return decision, true, &Score{ID: k.ID, Round: round, Plugins: names, Query: query}
}

// Audit reports questions about instances that are gone.
func (q *Questions) Audit(there func(id skerry.InstanceID) bool) (faults []string) {
	for id, a := range q.open {
		if !there(id) {
			faults = append(faults, fmt.Sprintf("%s is gone, and round %d is about it", id, a.round))
		}
	}
	return faults
}

// combine ranks the candidates anew by what plugins said: who is ruled out by one is out, and the scores of those that
// answered are averaged. A plugin that did not answer is skipped, or refuses the instance, as its operator set it up.
func combine(decision *wire.Decision, plugins []Plugin, answers []wire.PluginAnswer) {
	by := map[string]wire.PluginAnswer{}
	for _, a := range answers {
		by[a.Plugin] = a
	}
	var sums map[string]float64
	counted := 0
	out := map[string]*wire.Reason{}
	for _, p := range plugins {
		a, ok := by[p.Name]
		if !ok {
			a = wire.PluginAnswer{Plugin: p.Name, Skipped: "it did not answer in time"}
		}
		decision.Plugins = append(decision.Plugins, a)
		decision.Policy += "+" + spec.PluginPrefix + p.Name
		if a.Skipped != "" {
			why := wire.Reason{What: "skipped", Count: 1, Text: fmt.Sprintf("plugin %s was skipped: %s", p.Name, a.Skipped)}
			if p.Reject {
				decision.Chosen, decision.Top = "", nil
				why.Text = fmt.Sprintf("plugin %s gave no answer: %s", p.Name, a.Skipped)
				why.Hint = "the site refuses what this plugin does not judge; ask its operator"
				decision.Why = append(decision.Why, why)
				return
			}
			decision.Why = append(decision.Why, why)
			continue
		}
		for name, text := range a.Out {
			if out[name] == nil {
				out[name] = &wire.Reason{What: "plugin", Count: 1, Text: fmt.Sprintf("plugin %s rules it out: %s", p.Name, text)}
			}
		}
		if len(a.Scores) > 0 {
			if sums == nil {
				sums = map[string]float64{}
			}
			counted++
			for _, k := range decision.Top {
				if s, ok := a.Scores[k.Name]; ok {
					sums[k.Name] += s
				} else {
					sums[k.Name] += k.Score
				}
			}
		}
	}
	decision.Chosen = ""
	for i := range decision.Top {
		k := &decision.Top[i]
		k.Chosen, k.Out = false, out[k.Name]
		if counted > 0 {
			k.Score = sums[k.Name] / float64(counted)
		}
	}
	slices.SortStableFunc(decision.Top, func(a, b wire.Candidate) int {
		if (a.Out == nil) != (b.Out == nil) {
			if a.Out == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Score, a.Score)
	})
	if len(decision.Top) > 0 && decision.Top[0].Out == nil {
		decision.Top[0].Chosen, decision.Chosen = true, decision.Top[0].Name
		return
	}
	for _, k := range decision.Top {
		if i := slices.IndexFunc(decision.Why, func(r wire.Reason) bool { return r.Text == k.Out.Text }); i >= 0 {
			decision.Why[i].Count++
			continue
		}
		decision.Why = append(decision.Why, *k.Out)
	}
}
