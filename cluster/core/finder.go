package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Actions and messages about what the core cannot find out by itself. It goes on when the answer or the deadline comes.
type (
	Measure  = questions.Measure
	Measured = questions.Measured
	Score    = questions.Score
	Scored   = questions.Scored
	Plugin   = questions.Plugin
	// SetPlugins replaces the list of plugins.
	SetPlugins struct{ List []Plugin }
)

// measuringWork is how many workers measure the round trip to a user.
const measuringWork = 8

// finder looks for places, and says what is wrong with those that instances have. It changes nothing but what is known of users, and asks
// only where plugins or workers know more.
//
//	an instance ─► request, policyOf ─► the scheduler ─► placeFree          one that has no place
//	                                      │          └─► better, besides   another one than its own
//	                                      └ plugins ─► consult ─► Score     ─► its answer, later
//	what it has ─► violation (its SLA), stays (why it may not move)
type finder struct {
	*books
	questions *questions.Questions
	started   time.Time // the site
}

// request is what the scheduler is asked for a placement.
func (f *finder) request(p *placement) *sched.Request {
	s := &p.A.Spec
	r := &sched.Request{Instance: p.A.ID, Service: p.A.Service.Service, Spec: s, Need: p.need(), Only: p.Pinned, Avoid: p.Avoid,
		Users:      p.Users,
		Contention: f.neighbours.Of(&p.A), Kept: f.keptFrom(p), Data: f.dataAt(p), Devices: p.A.Devices, Runtime: p.A.Runtime,
		Egress: f.admission.egressOf(p.A.Org, s) != nil, Level: f.admission.LevelOf(p.A.Org), Signed: f.admission.signersOf(p.A.Org) != nil}
	if r.Data != "" {
		r.Need.Storage -= f.volumes.Idle(p.claims()) // which is its own
	}
	if f.peersMatter(p) {
		r.Peers = f.peersOf(p, func(*placement) bool { return true })
	}
	if r.Far = f.far.Of(p.A.Service.App); r.Far != nil {
		r.Gateway = f.workers.middle()
	}
	return r
}

// policyOf finds the policy of an instance and the plugins to ask.
func (f *finder) policyOf(a *spec.Assignment) (sched.Policy, []questions.Plugin, *wire.Reason) {
	return f.questions.Policy(&a.Spec, f.limitedFrom(a.Service) || f.far.LeadsTo(a.Service))
}

// placeFree looks for a worker, of those that are held on their device only where no other will do: there an instance waits for
// somebody's approval.
func (f *finder) placeFree(now time.Time, policy sched.Policy, req *sched.Request) wire.Decision {
	held := f.frozenWorkers()
	if len(held) == 0 || req.Only != "" {
		return f.site.Place(now, policy, req, f.questions.Round())
	}
	avoid := req.Avoid
	req.Avoid = slices.Concat(avoid, held)
	d := f.site.Place(now, policy, req, f.questions.Round())
	if req.Avoid = avoid; d.Chosen == "" {
		d = f.site.Place(now, policy, req, f.questions.Round())
	}
	return d
}

func (f *finder) othersFit(p *placement) bool {
	policy, _, why := f.policyOf(&p.A)
	if why != nil {
		return false
	}
	req := f.request(p)
	req.Avoid = append(slices.Clone(p.Avoid), p.Worker)
	return f.site.Place(time.Time{}, policy, req, 0).Chosen != ""
}

// consult has plugins score the best candidates, and combines what they say. wait is true while they think.
func (f *finder) consult(now time.Time, p *placement, policy sched.Policy, plugins []Plugin, req *sched.Request, fx *wire.Effects) (
	wire.Decision, bool) {
	d, wait, score := f.questions.Consult(now, questions.Case{ID: p.A.ID, Plugins: plugins,
		Best:  func(round uint64) wire.Decision { return f.site.Best(now, policy, req, round, sched.PluginCandidates) },
		Query: func(d *wire.Decision) sched.PluginQuery { return f.pluginQuery(now, req, d) }})
	if score != nil {
		fx.Actions = append(fx.Actions, *score)
	}
	return d, wait
}

func (f *finder) pluginQuery(now time.Time, r *sched.Request, d *wire.Decision) sched.PluginQuery {
	q := sched.PluginQuery{Version: sched.PluginVersion, Instance: r.Instance, Service: r.Service, Labels: r.Spec.Labels, Need: r.Need,
		Placement: r.Spec.Placement, Seed: d.Seed}
	peers := map[string]int{}
	for _, x := range r.Peers {
		peers[x.Worker]++
	}
	for _, k := range d.Top {
		w := f.workers[k.Name]
		if w == nil || w.Facts == nil {
			continue
		}
		x := sched.PluginCandidate{Name: k.Name, Score: k.Score, Arch: w.Facts.Arch, Area: w.Facts.Area, Labels: w.Facts.Labels,
			Location:   w.Facts.Location,
			Coordinate: w.coordinate(), Capacity: w.Facts.Capacity, Available: w.available(), Power: w.Facts.Power, Pressure: w.report.Pressure,
			Peers: peers[k.Name]}
		if !w.reportAt.IsZero() {
			x.Age = max(0, now.Sub(w.reportAt).Seconds())
		}
		q.Candidates = append(q.Candidates, x)
	}
	return q
}

// usersKnown reports whether the places of a service's users in the network are known, and else has them measured from a
// few random workers that could take the instance (Algorithm 2, lines 10 to 13).
func (f *finder) usersKnown(now time.Time, inst *placement, policy sched.Policy, fx *wire.Effects) bool {
	if f.questions.Measures(inst.A.ID) {
		return false
	}
	if !slices.ContainsFunc(policy.Rules, func(r sched.Rule) bool { _, users := r.(sched.Users); return users }) {
		return true
	}
	var targets []string
	want := &inst.A.Spec.Placement
	for _, u := range want.Users {
		if want.UserLatency(u) > 0 {
			targets = append(targets, u.Address)
		}
	}
	if len(targets) == 0 || inst.Located.Known(now) {
		return true
	}
	if f.admission.NoMeasuring {
		inst.Located.Set(now, want, nil, "the site's operator lets no worker measure round trips to users", f.workers.where)
		return true
	}
	if why := f.admission.checkUsers(inst.A.Org, want); why != "" {
		inst.Located.Set(now, want, nil, why, f.workers.where)
		return true
	}
	workers := f.site.Sample(policy, f.request(inst), f.questions.Next(), measuringWork)
	if len(workers) == 0 {
		inst.Located.Set(now, want, nil, "no worker that could take the instance knows its place in the network", f.workers.where)
		return true
	}
	fx.Actions = append(fx.Actions, f.questions.Measure(now, inst.A.ID, workers, targets))
	return false
}

// refreshUsers has the places of the users of an instance that runs measured again from time to time: users move.
func (f *finder) refreshUsers(now time.Time, p *placement, fx *wire.Effects) {
	f.questions.Unmeasured(now, p.A.ID) // else it would stay open for as long as it runs
	if p.Worker == "" || f.questions.Open(p.A.ID) || !p.Located.Old(now) {
		return
	}
	policy, _, why := f.policyOf(&p.A)
	if why == nil {
		f.usersKnown(now, p, policy, fx)
	}
}

// incapable lists the workers that cannot go on with an instance's memory, if that is wanted.
func (f *finder) incapable(p *placement) (out []string) {
	if !p.A.Spec.Checkpoints() || p.Worker == "" || f.stranded[p.A.ID] || !f.workers[p.Worker].canCheckpoint(p.Obs.Runtime) {
		return nil
	}
	for name, w := range f.workers {
		if !w.canCheckpoint(p.Obs.Runtime) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// better looks for a worker that would keep the SLA. Workers under pressure are no improvement, unless it is about something
// else (what, as violation has it; empty: nothing is violated) and the instance's own is no better off. wait is true while plugins
// think: a rule that they stand for also holds for where an instance moves to.
func (f *finder) better(now time.Time, p *placement, what string, fx *wire.Effects) (d wire.Decision, wait bool) {
	var reported *wire.Pressure
	if w := f.workers[p.Worker]; w != nil && what != "" && what != "waiting" && what != "pressure" {
		reported = w.report.Pressure
	}
	return f.besides(now, p, f.workers.shortOf(reported), fx)
}

// besides looks for a worker for an instance, other than its own and those named.
func (f *finder) besides(now time.Time, p *placement, others []string, fx *wire.Effects) (d wire.Decision, wait bool) {
	policy, plugins, why := f.policyOf(&p.A)
	if why != nil {
		return wire.Decision{Why: []wire.Reason{*why}}, false
	}
	if why := f.workers.notCheckpointed(p); why != "" {
		return wire.Decision{Why: []wire.Reason{{What: "checkpoint", Count: 1, Text: why}}}, false
	}
	req := f.request(p)
	req.Avoid = slices.Concat(req.Avoid, []string{p.Worker}, others, f.frozenWorkers(), f.incapable(p))
	round := f.questions.Next()
	if len(plugins) == 0 {
		return f.site.Place(now, policy, req, round), false
	}
	f.questions.Late(now, p.A.ID)
	return f.consult(now, p, policy, plugins, req, fx)
}

// elsewhere looks for another worker, first whether a certain one will do.
func (f *finder) elsewhere(now time.Time, p *placement, to string, fx *wire.Effects) (wire.Decision, bool) {
	if to != "" {
		if policy, plugins, why := f.policyOf(&p.A); why == nil && len(plugins) == 0 {
			req := f.request(p)
			req.Only, req.Avoid = to, slices.Concat(req.Avoid, f.incapable(p))
			if d := f.site.Place(now, policy, req, f.questions.Round()); d.Chosen != "" {
				return d, false
			}
		}
	}
	// A worker that is short of something is better than none.
	if d, wait := f.better(now, p, "", fx); wait || d.Chosen != "" {
		return d, wait
	}
	return f.besides(now, p, nil, fx)
}

// stays says why an instance is not moved to a better place, or "".
func (f *finder) stays(now time.Time, p *placement) string {
	w := f.workers[p.Worker]
	_, stops := p.A.Spec.OnDisconnect.StopAfter()
	switch r := p.A.Spec.Placement.Rigidness; {
	case w == nil || w.sight.Lost() || p.Removing || p.Refused || p.Obs.State != skerry.Running || !p.Obs.Ready || p.Obs.Unreachable:
		return "it does not serve"
	case p.Next != nil || p.Original != nil || p.Resize != nil || f.stranded[p.A.ID] || now.Before(f.endsElsewhere(p)):
		return "it is on its way already"
	case p.bound(false) != "":
		return p.bound(false)
	case f.workers.notCheckpointed(p) != "":
		return f.workers.notCheckpointed(p)
	case stops:
		return "it is never to run twice (onDisconnect: stopAfter)"
	case r != nil && *r == 0:
		return "it is not to be moved for a better place (rigidness 0)"
	case w.Cordon != "" || w.report.Frozen != "":
		return "its worker is held"
	}
	return ""
}

// relieve looks for a worker and a runtime in which an instance would be clear of its saturation point, the cheapest
// first, or says why there is none.
func (f *finder) relieve(now time.Time, inst *placement, share float64) (decision wire.Decision, runtime, why string) {
	if why := f.stays(now, inst); why != "" {
		return decision, "", why
	}
	policy, plugins, reason := f.policyOf(&inst.A)
	if reason != nil {
		return decision, "", reason.Text
	}
	if len(plugins) > 0 {
		return decision, "", "plugins are not asked about what runs"
	}
	here := f.workers[inst.Worker].Facts.RuntimeCosts()
	for _, name := range inst.A.Spec.Runtimes() {
		avoid := append(append(f.frozenWorkers(), f.incapable(inst)...), inst.Worker)
		some := false
		for at, w := range f.workers {
			r := w.report.Pressure
			bears := w.Facts != nil && slices.Contains(w.Facts.PassedRuntimes(), name) &&
				slices.Contains(inst.A.Spec.Relief(inst.A.Runtime, share, here, w.Facts.RuntimeCosts()), name)
			if !bears || r != nil && (r.Memory > pressureLimit/2 || r.CPU > pressureLimit) {
				avoid = append(avoid, at)
			} else {
				some = true
			}
		}
		if !some {
			continue
		}
		slices.Sort(avoid)
		spec := inst.A.Spec
		spec.Runtime = name
		req := f.request(inst)
		req.Spec, req.Avoid = &spec, slices.Concat(req.Avoid, avoid)
		if decision = f.site.Place(now, policy, req, f.questions.Next()); decision.Chosen != "" {
			return decision, name, ""
		}
	}
	return decision, "", "no other worker has room for it in a runtime that is known to bear it"
}

// violation says what of an instance's SLA does not hold now, in a word and in detail, or "", and to which service the link leads that
// it is about.
func (f *finder) violation(inst *placement) (what, text, link string) {
	w := f.workers[inst.Worker]
	if w == nil {
		return "", "", ""
	}
	// What crashes is restarted where it is, and moved when that does not help; that is not the place's fault.
	if inst.SLA.Fell(inst.Obs.Ready, inst.Obs.Restarts) && inst.Obs.Phase == skerry.PhaseRunning &&
		inst.Obs.Restart >= inst.A.Restart { // else somebody has it restarted
		return "availability", "it is not available: " + inst.Obs.Reason, ""
	}
	for i, v := range w.unpromised().Vector() {
		if v < 0 && inst.A.Spec.Need().Vector()[i] > 0 {
			return "promised", "its worker has less " + spec.ResourceNames[i] + " than was promised", ""
		}
	}
	if q := inst.qos; q != nil {
		// Short of CPU is who waits for it, has not what was promised, and is not held back by a limit of its own.
		if need := inst.A.Spec.Need().CPU; q.Waiting > moves.WaitingLimit && q.CPU < need*95/100 && q.Throttled < 0.05 {
			return "waiting", fmt.Sprintf("it gets %s of the %s cores promised, and waits for a processor %.0f %% of the time", q.CPU, need,
				100*q.Waiting), ""
		}
		for _, l := range inst.A.Spec.Links {
			if ms, ok := q.Links[l.Service]; ok && l.MaxLatency != nil && ms > float64(*l.MaxLatency)/1e6 {
				return "link", fmt.Sprintf("the round trip to %s takes %.1f ms, at most %s are allowed", l.Service, ms, *l.MaxLatency), l.Service
			}
		}
	}
	if r := w.report.Pressure; r != nil && r.Memory > pressureLimit {
		return "pressure", fmt.Sprintf("its worker stalls for lack of memory %.0f %% of the time", 100*r.Memory), ""
	}
	policy, _, why := f.policyOf(&inst.A)
	if why != nil {
		return "", "", ""
	}
	policy.Rules = slices.DeleteFunc(slices.Clone(policy.Rules), func(r sched.Rule) bool {
		_, users := r.(sched.Users)
		return !r.Lasting() || users && len(inst.Users) == 0 // not measured in this life of the store
	})
	if len(policy.Rules) == 0 {
		return "", "", ""
	}
	req := f.lasting(inst)
	if inst.limited() {
		if req.Far = f.far.Places(inst.A.Service.App); req.Far != nil {
			req.Gateway = f.workers.middle()
		}
	}
	if out := f.site.Fails(policy, req, inst.Worker); out != nil {
		return out.What, out.Text, out.Link
	}
	return "", "", ""
}

// keepsOriginal chooses between the instance and the copy that it replaced.
func (f *finder) keepsOriginal(p *placement, o wire.Observation) (keep bool, why string) {
	if o.Revision != "" && o.Revision != p.target().Revision {
		return false, "it has limits that are not wanted any more"
	}
	there := *p
	there.Worker, there.Obs, there.qos = p.Original.Worker, o, nil
	original, replacement := spec.CopyState{Ready: o.State == skerry.Running && o.Ready}, spec.CopyState{Ready: p.Obs.Ready}
	_, original.Violated, _ = f.violation(&there)
	_, replacement.Violated, _ = f.violation(p)
	return p.A.Spec.KeepsOriginal(original, replacement)
}

// gathers gives when an instance is to be looked at again that is to be spread, while a worker that this store knows
// has not come back since the start; zero: it waits for none.
func (f *finder) gathers(now time.Time, p *placement) (again time.Time) {
	end := f.started.Add(gatherFor)
	if p.A.Spec.Placement.Policy != spec.PolicySpread || p.Pinned != "" || !now.Before(end) {
		return again
	}
	for name, w := range f.workers {
		if k := f.Children.Get(name); w.Cordon == "" && w.Drain == nil && (k == nil || !k.Connected) {
			if again = now.Add(gatherLook); again.After(end) {
				return end
			}
			return again
		}
	}
	return again
}

// peersOf lists where other instances of the application are, those that matter.
func (l *ledger) peersOf(p *placement, matters func(o *placement) bool) []sched.Peer {
	var list []*placement
	for _, o := range l.byApp[p.A.Service.App] {
		if o != p && o.Worker != "" && !o.Removing && !o.ended() && matters(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *placement) int { return strings.Compare(string(a.A.ID), string(b.A.ID)) })
	out := make([]sched.Peer, 0, len(list))
	for _, o := range list {
		out = append(out, sched.Peer{Worker: o.Worker, Service: o.A.Service.Service, Labels: o.A.Spec.Labels, Links: o.A.Spec.Links})
	}
	return out
}

// lasting is request for the rules that hold for as long as an instance runs. It is asked with every report of a worker, so
// that of the others it lists only the ends of links with limits.
func (l *ledger) lasting(p *placement) *sched.Request {
	s := &p.A.Spec
	r := &sched.Request{Instance: p.A.ID, Service: p.A.Service.Service, Spec: s, Need: s.Need(), Only: p.Pinned, Users: p.Users}
	if l.limits[p.A.Service.App] > 0 {
		r.Peers = l.peersOf(p, func(o *placement) bool { return p.limits(o) || o.limits(p) })
	}
	return r
}

// peersMatter reports whether where other instances of the application are has a part in placing one; for most it has
// not, and listing them for each of thousands of replicas costs.
func (l *ledger) peersMatter(p *placement) bool {
	q := &p.A.Spec.Placement
	return len(q.Affinity)+len(q.AntiAffinity) > 0 || q.Policy == spec.PolicySpread || strings.HasPrefix(q.Policy, spec.PluginPrefix) ||
		l.limits[p.A.Service.App] > 0 || p.limited()
}

const (
	// gatherFor is how long what is to be spread waits, after the site's start, for the workers that were there before: the first to come
	// back would get all of it. It is longer than the time between two tries of a worker to connect.
	gatherFor = 20 * time.Second
	// gatherLook is how often it looks whether they are all there.
	gatherLook = 500 * time.Millisecond
)

// spots gives where the copies of a service belong, with the workers on which each can be, by name.
func (f *finder) spots(s *spec.ServiceSpec) map[spot][]string {
	out := map[spot][]string{}
	for _, name := range slices.Sorted(maps.Keys(f.workers)) {
		if s.Mode != spec.ModePerDevice {
			out[spot(name)] = []string{name}
			continue
		}
		for _, d := range spec.EachDevice(s, f.site.Devices(name)) {
			at := deviceSpot(name, &d)
			out[at] = append(out[at], name)
		}
	}
	return out
}

// notFor reports whether a spot is none for a group's service, whatever runs there.
func (f *finder) notFor(g *group, at spot, worker string) bool {
	device := at.device()
	if of := g.A.Spec.DeviceClasses(); device != "" && (len(of) != 1 || of[0] != spec.DeviceClass(device)) {
		return true
	}
	p := g.copyAt(at, worker)
	policy, _, why := f.policyOf(&p.A)
	return why == nil && f.site.Fails(policy.OfMachines(), f.request(p), worker) != nil
}
