package cluster

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

// Messages: answers, and which plugins there are.
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
	// SetPlugins replaces the list of plugins.
	SetPlugins struct{ List []Plugin }
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
	probes  []string            // workers that measure
	answers []wire.PluginAnswer // of plugins; nil until they came
	plugins []string
	asked   map[string]bool // candidates that the plugins were asked about
}

const (
	measureTime   = 3 * time.Second
	usersGoodFor  = 5 * time.Minute
	usersRetry    = 20 * time.Second // where nobody answered
	askAgain      = 20 * time.Second // where plugins ruled out the only worker
	measuringWork = 8                // workers that measure the round trip to a user
)

func (c *Core) setPlugins(m SetPlugins) {
	c.plugins = map[string]Plugin{}
	for _, p := range m.List {
		c.plugins[p.Name] = p
	}
	for id := range c.seeking {
		c.places[id].again = time.Time{}
	}
	c.grew = true
}

// policy finds the policy of a service and the plugins to ask: those of the site, then the one that the service names.
func (c *Core) policy(s *spec.ServiceSpec) (sched.Policy, []Plugin, *wire.Reason) {
	name := cmp.Or(s.Placement.Policy, spec.PolicyROM)
	var ask []Plugin
	for _, n := range slices.Sorted(maps.Keys(c.plugins)) {
		if c.plugins[n].All {
			ask = append(ask, c.plugins[n])
		}
	}
	if own, ok := strings.CutPrefix(name, spec.PluginPrefix); ok {
		p, known := c.plugins[own]
		if !known {
			return sched.Policy{}, nil, &wire.Reason{What: "policy", Count: 1, Text: fmt.Sprintf("the site has no scheduling plugin %q", own),
				Hint: "choose another policy, or ask the site's operator for the plugin"}
		}
		if !p.All {
			ask = append(ask, p)
		}
		name = spec.PolicyLDP // its rules; the plugin ranks
	}
	if p, ok := c.opt.Policies[name]; ok {
		return p, ask, nil
	}
	return sched.Policy{}, nil, &wire.Reason{What: "policy", Count: 1, Text: fmt.Sprintf("the site has no scheduling policy %q", name), Hint: "choose another"}
}

// usersKnown reports whether the places of a service's users in the network are known, and else has them measured from a
// few random workers that could take the instance (Algorithm 2, lines 10 to 13).
func (c *Core) usersKnown(now time.Time, p *placement, policy sched.Policy, fx *wire.Effects) bool {
	if p.ask != nil && len(p.ask.plugins) == 0 {
		return false
	}
	if !slices.ContainsFunc(policy.Rules, func(r sched.Rule) bool { _, users := r.(sched.Users); return users }) {
		return true
	}
	var targets []string
	q := &p.A.Spec.Placement
	for _, u := range q.Users {
		if q.UserLatency(u) > 0 {
			targets = append(targets, u.Address)
		}
	}
	fresh := usersGoodFor
	if slices.ContainsFunc(p.Users, func(u wire.UserPosition) bool { return u.Unknown != "" }) {
		fresh = usersRetry
	}
	if len(targets) == 0 || p.Users != nil && now.Sub(p.UsersAt) < fresh {
		return true
	}
	if c.opt.Admission.NoMeasuring {
		c.setUsers(now, p, nil, "the site's operator lets no worker measure round trips to users")
		return true
	}
	if why := c.opt.Admission.checkUsers(p.A.Org, q); why != "" {
		c.setUsers(now, p, nil, why)
		return true
	}
	c.rounds++
	workers := c.site.Sample(policy, c.request(p), c.rounds, measuringWork)
	if len(workers) == 0 {
		c.setUsers(now, p, nil, "no worker that could take the instance knows its place in the network")
		return true
	}
	p.ask = &ask{round: c.rounds, until: now.Add(measureTime), probes: workers}
	fx.Actions = append(fx.Actions, Measure{ID: p.A.ID, Round: c.rounds, Workers: workers, Targets: targets})
	return false
}

// refreshUsers has the places of the users of an instance that runs measured again from time to time: users move.
func (c *Core) refreshUsers(now time.Time, p *placement, fx *wire.Effects) {
	if p.ask != nil && len(p.ask.plugins) == 0 && now.After(p.ask.until) {
		p.ask = nil
	}
	if p.Worker == "" || p.ask != nil || len(p.Users) == 0 || now.Sub(p.UsersAt) < usersGoodFor {
		return
	}
	policy, _, why := c.policy(&p.A.Spec)
	if why == nil {
		c.usersKnown(now, p, policy, fx)
	}
}

// setUsers works out where users are from the round trips measured, in the order of the users with a limit.
func (c *Core) setUsers(now time.Time, p *placement, rtts []map[string]float64, unknown string) {
	q := &p.A.Spec.Placement
	p.Users, p.UsersAt, p.heard = make([]wire.UserPosition, len(q.Users)), now, make([]map[string]float64, len(q.Users))
	next := 0
	for i, u := range q.Users {
		if q.UserLatency(u) == 0 {
			continue
		}
		if next >= len(rtts) {
			p.Users[i].Unknown = cmp.Or(unknown, "nobody measured it in time")
			continue
		}
		p.heard[i] = rtts[next]
		p.Users[i] = c.locate(rtts[next])
		next++
	}
	p.heardAt = c.frame(p)
}

func (c *Core) measured(now time.Time, m Measured) {
	p := c.places[m.ID]
	if p == nil || p.ask == nil || p.ask.round != m.Round {
		return // too late, or moved on
	}
	p.ask = nil
	before, heard := p.Users, p.heard
	c.setUsers(now, p, m.RTT, "")
	for i := range p.Users {
		// Who does not answer while the service runs is taken to be where it was.
		if p.Worker != "" && p.Users[i].Unknown != "" && i < len(before) {
			p.Users[i] = before[i]
			if i < len(heard) {
				p.heard[i] = heard[i]
			}
		}
	}
}

func (c *Core) scored(m Scored) {
	p := c.places[m.ID]
	if p == nil || p.ask == nil || p.ask.round != m.Round || p.ask.answers != nil {
		return
	}
	p.ask.answers = append([]wire.PluginAnswer{}, m.Answers...)
}

// consult has plugins score the best candidates, and combines what they say. wait is true while they think.
func (c *Core) consult(now time.Time, p *placement, policy sched.Policy, plugins []Plugin, req *sched.Request, fx *wire.Effects) (d wire.Decision, wait bool) {
	if p.ask != nil && p.ask.answers == nil {
		return d, true
	}
	round := c.rounds
	if p.ask != nil {
		round = p.ask.round // ties fall as they did, so that these are the candidates that plugins were asked about
	}
	d = c.site.Best(now, policy, req, round, sched.PluginCandidates)
	if p.ask != nil && d.Chosen != "" {
		// Who came in since then has not been judged. When nobody is left, they are asked about.
		asked := p.ask.asked
		d.Top = slices.DeleteFunc(d.Top, func(k wire.Candidate) bool { return !asked[k.Name] })
		if len(d.Top) == 0 {
			p.ask, round = nil, c.rounds
			d = c.site.Best(now, policy, req, round, sched.PluginCandidates)
		}
	}
	if d.Chosen == "" {
		p.ask = nil
		return d, false
	}
	if p.ask == nil {
		var names []string
		for _, x := range plugins {
			names = append(names, x.Name)
		}
		q := c.pluginQuery(now, req, &d)
		p.ask = &ask{round: round, until: now.Add(sched.PluginDeadline), plugins: names, asked: map[string]bool{}}
		for _, k := range q.Candidates {
			p.ask.asked[k.Name] = true
		}
		fx.Actions = append(fx.Actions, Score{ID: p.A.ID, Round: round, Plugins: names, Query: q})
		return d, true
	}
	answers := p.ask.answers
	p.ask = nil
	combine(&d, plugins, answers)
	return d, false
}

func (c *Core) pluginQuery(now time.Time, r *sched.Request, d *wire.Decision) sched.PluginQuery {
	q := sched.PluginQuery{Version: sched.PluginVersion, Instance: r.Instance, Service: r.Service, Labels: r.Spec.Labels, Need: r.Need, Placement: r.Spec.Placement, Seed: d.Seed}
	peers := map[string]int{}
	for _, x := range r.Peers {
		peers[x.Worker]++
	}
	for _, k := range d.Top {
		w := c.workers[k.Name]
		if w == nil || w.Facts == nil {
			continue
		}
		x := sched.PluginCandidate{Name: k.Name, Score: k.Score, Arch: w.Facts.Arch, Area: w.Facts.Area, Labels: w.Facts.Labels, Location: w.Facts.Location,
			Coordinate: w.coordinate(), Capacity: w.Facts.Capacity, Available: w.available(), Power: w.Facts.Power, Pressure: w.report.Pressure, Peers: peers[k.Name]}
		if !w.reportAt.IsZero() {
			x.Age = max(0, now.Sub(w.reportAt).Seconds())
		}
		q.Candidates = append(q.Candidates, x)
	}
	return q
}

// combine ranks the candidates anew by what plugins said: who is ruled out by one is out, and the scores of those that
// answered are averaged. A plugin that did not answer is skipped, or refuses the instance, as its operator set it up.
func combine(d *wire.Decision, plugins []Plugin, answers []wire.PluginAnswer) {
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
		d.Plugins = append(d.Plugins, a)
		d.Policy += "+" + spec.PluginPrefix + p.Name
		if a.Skipped != "" {
			why := wire.Reason{What: "skipped", Count: 1, Text: fmt.Sprintf("plugin %s was skipped: %s", p.Name, a.Skipped)}
			if p.Reject {
				d.Chosen, d.Top = "", nil
				why.Text = fmt.Sprintf("plugin %s gave no answer: %s", p.Name, a.Skipped)
				why.Hint = "the site refuses what this plugin does not judge; ask its operator"
				d.Why = append(d.Why, why)
				return
			}
			d.Why = append(d.Why, why)
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
			for _, k := range d.Top {
				if s, ok := a.Scores[k.Name]; ok {
					sums[k.Name] += s
				} else {
					sums[k.Name] += k.Score
				}
			}
		}
	}
	d.Chosen = ""
	for i := range d.Top {
		k := &d.Top[i]
		k.Chosen, k.Out = false, out[k.Name]
		if counted > 0 {
			k.Score = sums[k.Name] / float64(counted)
		}
	}
	slices.SortStableFunc(d.Top, func(a, b wire.Candidate) int {
		if (a.Out == nil) != (b.Out == nil) {
			if a.Out == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Score, a.Score)
	})
	if len(d.Top) > 0 && d.Top[0].Out == nil {
		d.Top[0].Chosen, d.Chosen = true, d.Top[0].Name
		return
	}
	for _, k := range d.Top {
		if i := slices.IndexFunc(d.Why, func(r wire.Reason) bool { return r.Text == k.Out.Text }); i >= 0 {
			d.Why[i].Count++
			continue
		}
		d.Why = append(d.Why, *k.Out)
	}
}

// seeking runs over the instances that look for a place.
func (c *Core) seeking(yield func(skerry.InstanceID) bool) {
	for id := range c.waiting {
		if !yield(id) {
			return
		}
	}
	for id := range c.stranded {
		if c.places[id].Next == nil && !yield(id) {
			return
		}
	}
}

// expire ends questions that nobody answered in time and successors that did not get ready.
func (c *Core) expire(now time.Time, fx *wire.Effects) {
	for id := range c.seeking {
		p := c.places[id]
		switch {
		case p.ask != nil && !now.Before(p.ask.until) && len(p.ask.plugins) == 0:
			p.ask = nil
			c.setUsers(now, p, nil, "")
		case p.ask != nil && !now.Before(p.ask.until) && p.ask.answers == nil:
			p.ask.answers = []wire.PluginAnswer{}
		}
	}
	for _, id := range sortedIDs(c.moving) {
		p := c.places[id]
		if now.Sub(p.Next.Since) >= migrationTime(&p.A.Spec) {
			c.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" did not get ready: "+p.Next.Obs.Reason)
			c.abandon(p)
			c.changed(now, p, fx)
		}
	}
}

// nextExpiry is when expire has something to do next, or the zero time.
func (c *Core) nextExpiry() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id := range c.seeking {
		p := c.places[id]
		if p.ask != nil && p.ask.answers == nil {
			consider(p.ask.until)
		}
		if !p.again.IsZero() {
			consider(p.again)
		}
		if !p.room.IsZero() && p.ask == nil && p.again.IsZero() {
			consider(p.room) // while it asks, or waits for longer, it does not look
		}
	}
	for id := range c.watched {
		if p := c.places[id]; p != nil {
			consider(p.sla.judged.Add(lookEvery))
		}
	}
	for id := range c.moving {
		if p := c.places[id]; p != nil && p.Next != nil {
			consider(p.Next.Since.Add(migrationTime(&p.A.Spec)))
		}
	}
	return next
}
