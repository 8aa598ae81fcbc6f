package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// planner says what would become of instances, and how workers stand to them, changing nothing.
type planner struct {
	find *finder
}

// PlanApp tells where the instances of an application of the site's own would go, changing nothing.
func (pl *planner) PlanApp(now time.Time, app spec.Application, digests map[string]string) (view.Plan, error) {
	p, err := pl.find.Apps.Plan(now, app, digests)
	if err != nil {
		return view.Plan{}, err
	}
	out := view.Plan{Key: p.Key, Lost: p.Lost, Tier: string(wire.TierCluster)}
	for _, i := range p.Kept {
		k := view.PlannedCopy{Service: i.Service.Service, Instance: i.ID, Kept: true, Resized: p.Resized[i.ID], Copies: i.Want}
		if held := pl.find.places[i.ID]; held != nil {
			k.Worker = held.Worker
		}
		out.List = append(out.List, k)
	}
	var items []spec.Assignment
	for _, i := range p.New {
		items = append(items, *i.Assignment(nil))
	}
	for n, d := range pl.Plan(now, items) {
		out.List = append(out.List, view.PlannedCopy{Service: items[n].Service.Service, Worker: d.Chosen, Decision: &d,
			Copies: copiesOf(&items[n], &d)})
	}
	return out, nil
}

// copiesOf counts the copies that a perWorker or perDevice service would get.
func copiesOf(a *spec.Assignment, d *wire.Decision) int {
	if !a.Spec.Mode.HasCopies() {
		return 0
	}
	return len(d.Top)
}

// Plan tells what would become of instances if they came now, in this order, changing nothing. Each takes its room from
// the next. Round trips to users and plugins are not asked: what depends on them is told as unknown, or not considered.
func (pl *planner) Plan(now time.Time, items []spec.Assignment) []wire.Decision {
	site := pl.find.site.Clone()
	planned := map[string][]*spec.Assignment{}
	var peers []sched.Peer
	out := make([]wire.Decision, 0, len(items))
	for n := range items {
		a := &items[n]
		d := pl.planOne(now, site, a, planned[a.Org], peers, uint64(n)+pl.find.questions.Round())
		if d.Chosen != "" && !a.Spec.Mode.HasCopies() {
			planned[a.Org] = append(planned[a.Org], a)
			site.Take(d.Chosen, &sched.Request{Spec: &a.Spec, Need: a.Spec.Need()})
			peers = append(peers, sched.Peer{Worker: d.Chosen, Service: a.Service.Service, Labels: a.Spec.Labels, Links: a.Spec.Links})
		}
		out = append(out, d)
	}
	return out
}

// Verdicts is Plan in terms that the root may know.
func (pl *planner) Verdicts(now time.Time, items []spec.Assignment) []view.PlanVerdict {
	var out []view.PlanVerdict
	for n, d := range pl.Plan(now, items) {
		v := view.PlanVerdict{Fits: d.Chosen != "", Copies: copiesOf(&items[n], &d)}
		if !v.Fits {
			v.Why = uplink.InCounts(&items[n].Spec, d.Why)
		}
		out = append(out, v)
	}
	return out
}

func (pl *planner) planOne(now time.Time, site *sched.Site, assigned *spec.Assignment, planned []*spec.Assignment, peers []sched.Peer,
	seed uint64) wire.Decision {
	decision := wire.Decision{At: now, Instance: assigned.ID, Tier: string(wire.TierCluster), Policy: "admission", Seed: seed,
		Considered: site.Len()}
	why := pl.find.admission.Check(assigned)
	if why == nil {
		why = pl.find.admission.CheckCertificates(assigned)
	}
	if why == nil {
		used := pl.find.usedBy(assigned.Org, assigned.ID)
		for _, p := range planned {
			used.add(p)
		}
		why = pl.find.admission.CheckQuota(used, assigned)
	}
	policy, plugins, unknown := pl.find.policyOf(assigned)
	if why == nil {
		why = unknown
	}
	if why != nil {
		decision.Why = []wire.Reason{*why}
		return decision
	}
	req := pl.find.request(&placement{A: *assigned})
	req.Peers = append(req.Peers, peers...)
	for _, u := range assigned.Spec.Placement.Users {
		p := wire.UserPosition{}
		if assigned.Spec.Placement.UserLatency(u) > 0 {
			p.Unknown = "a plan does not measure; it is measured when the service is placed"
		}
		req.Users = append(req.Users, p)
	}
	if assigned.Spec.Mode.HasCopies() {
		decision.Policy = policy.Name
		pl.planCopies(now, site.Clone(), &group{A: *assigned}, policy, req, &decision)
		return decision
	}
	decision = site.Place(now, policy, req, seed)
	for _, p := range plugins {
		decision.Why = append(decision.Why, wire.Reason{What: "plugin", Text: fmt.Sprintf("plugin %s has a say when it is placed", p.Name)})
	}
	return decision
}

// planCopies tells where the copies of a group would go: at which of its spots, and what of each worker the copies before leave to it.
func (pl *planner) planCopies(now time.Time, site *sched.Site, of *group, policy sched.Policy, req *sched.Request,
	decision *wire.Decision) {
	for _, was := range pl.find.groupsOf[of.A.Service] {
		for _, p := range pl.find.copies(was.A.ID) {
			if p.Worker != "" && !p.ended() {
				site.Give(p.Worker, pl.find.request(p))
			}
		}
	}
	spots := pl.find.spots(&of.A.Spec)
	on := map[string]int{}
	for _, at := range slices.Sorted(maps.Keys(spots)) {
		var why []wire.Reason
		for _, name := range spots[at] {
			p := of.copyAt(at, name)
			req.Only, req.Spec = name, &p.A.Spec
			one := site.Place(now, policy, req, decision.Seed)
			if one.Chosen == "" || at.device() != "" && on[name] >= spec.MaxCopiesWorker {
				why = append(why, one.Why...)
				continue
			}
			decision.Top = append(decision.Top, wire.Candidate{Name: name, Score: one.Top[0].Score, Chosen: true})
			decision.Chosen, why = name, nil
			on[name]++
			site.Take(name, req)
			break
		}
		decision.Why = append(decision.Why, why...)
	}
	if len(spots) == 0 && of.A.Spec.Mode == spec.ModePerDevice {
		decision.Why = []wire.Reason{{What: "devices", Text: "no worker offers a device " + of.A.Spec.Devices[0].String(),
			Hint: "plug one in, or let a worker offer what it finds (--device-class); `skerry get devices` lists them"}}
	}
}

// RuntimeChoices tells how each runtime stands to an instance, and how many workers have it.
func (pl *planner) RuntimeChoices(id skerry.InstanceID) []spec.RuntimeChoice {
	var out []spec.RuntimeChoice
	if p := pl.find.places[id]; p != nil {
		facts := &wire.WorkerFacts{}
		if w := pl.find.workers[p.Worker]; w != nil && w.Facts != nil {
			facts = w.Facts
		}
		out = p.A.Spec.RuntimeChoices(cmp.Or(p.Obs.Runtime, p.A.Runtime), facts.RuntimeCosts())
		for i := range out {
			if out[i].Chosen {
				out[i].Crowded = p.Strain.Crowded // by what it was seen to use, too
			}
			out[i].Processor = facts.Figure(out[i].Runtime)
		}
	} else if i := pl.find.Apps.Instance(id); i != nil && i.Spec != nil {
		out = i.Spec.RuntimeChoices("", nil)
	}
	for _, w := range pl.find.workers {
		if w.Facts == nil {
			continue // it has just joined
		}
		for _, name := range w.Facts.PassedRuntimes() {
			for i := range out {
				if spec.Offers(name, out[i].Runtime) {
					out[i].Workers++
				}
			}
		}
	}
	return out
}

// Explain tells how each class of the site's workers stands to an instance now: the one it has left out of account.
func (pl *planner) Explain(now time.Time, id skerry.InstanceID) []wire.ClassVerdict {
	p := pl.find.places[id]
	if p == nil {
		i := pl.find.Apps.Instance(id)
		if i == nil || i.Spec == nil {
			return nil
		}
		p = &placement{A: *i.Assignment(nil)}
	}
	policy, _, why := pl.find.policyOf(&p.A)
	if why != nil {
		return nil
	}
	site := pl.find.site
	if p.Worker != "" && !p.ended() {
		site = pl.find.site.Clone() // it would not stand in its own way
		site.Give(p.Worker, pl.find.request(p))
	}
	return site.Explain(now, policy, pl.find.request(p))
}
