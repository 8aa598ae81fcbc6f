package otlp

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

// trackLimit bounds the deployments that are under way; of more, the oldest are not told.
const trackLimit = 10000

// stepLimit bounds what is told of one: its beginning, and the last ones. An instance that crashes for days has ever further ones, and a
// site says which they are.
const stepLimit = 32

// Deployments makes a trace of how each instance comes to run, from what a role sees of it. Root, cluster and worker tell their parts of it
// apart, to whichever collectors they have: the trace of an instance and of a generation of its application has the same identifier
// everywhere, and each tier's span is the parent of the next one's, without a word about it between them.
type Deployments struct {
	e    *Exporter
	tier wire.Tier
	name string // of the cluster or worker
	now  func() time.Time

	under map[skerry.InstanceID]*deployment
	order []skerry.InstanceID
}

// deployment is an instance that has yet to get ready.
type deployment struct {
	gen   skerry.Generation
	steps []step
}

type step struct {
	at   time.Time
	name string
}

// Deployments begins to tell of deployments, at a tier.
func (e *Exporter) Deployments(tier wire.Tier, name string) *Deployments {
	return &Deployments{e: e, tier: tier, name: name, now: time.Now, under: map[skerry.InstanceID]*deployment{}}
}

// Follow tells of what a journal announces, until ctx ends. list gives the instances.
func (d *Deployments) Follow(ctx context.Context, from *journal.Journal, list func(context.Context) ([]wire.Instance, error)) error {
	sub := from.Subscribe()
	defer sub.Close()
	changed := map[skerry.InstanceID]bool{}
	var rest <-chan time.Time // a list of many takes the role's time
	all := true               // until a list was had
	for {
		for wait := !all || rest != nil; wait || len(sub.C) > 0; {
			select {
			case n := <-sub.C:
				all = all || n.Missed
				if c := n.Change; c != nil && c.Deleted {
					d.forget(c.Instance)
				} else if c != nil && c.Instance != "" {
					changed[c.Instance] = true
				}
			case <-rest:
				rest = nil
			case <-ctx.Done():
				return nil
			}
			wait = !all && len(changed) == 0 || rest != nil
		}
		began := d.now()
		instances, err := list(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // as while the role starts
			rest = time.After(time.Second)
			continue
		}
		rest = time.After(min(10*d.now().Sub(began), time.Second))
		for n := range instances {
			if i := &instances[n]; all || changed[i.ID] {
				d.saw(i)
			}
		}
		clear(changed)
		all = false
	}
}

// saw takes up what has become of an instance. What is seen first when it runs already has no beginning, and is not told.
func (d *Deployments) saw(inst *wire.Instance) {
	now, ready := d.now(), skerry.HasCondition(inst.Conditions, skerry.Ready)
	over := ready || inst.State == skerry.Failed || inst.State == skerry.Terminated || inst.Stopping
	dep := d.under[inst.ID]
	if dep != nil && dep.gen != inst.Gen { // it was replaced before it got ready
		d.forget(inst.ID)
		dep = nil
	}
	switch {
	case dep == nil && (over || inst.State == skerry.Running || inst.Restarts > 0):
		return
	case dep == nil:
		if len(d.order) == trackLimit {
			d.forget(d.order[0])
		}
		dep = &deployment{gen: inst.Gen}
		d.under[inst.ID] = dep
		d.order = append(d.order, inst.ID)
	}
	if name := stepName(inst.State, inst.Phase); len(dep.steps) == 0 || dep.steps[len(dep.steps)-1].name != name {
		dep.add(step{now, name})
	}
	if over {
		if len(inst.Timeline) > 0 { // which has the moments themselves
			dep.steps = dep.steps[:0]
			for _, s := range inst.Timeline {
				dep.add(step{s.At, stepName(s.State, s.Phase)})
			}
		}
		if c := inst.CreatedAt; !c.IsZero() && c.Before(dep.steps[0].at) {
			dep.steps = slices.Insert(dep.steps, 0, step{c, "Accepted"})
		}
		d.tell(inst, dep, now, ready || inst.State == skerry.Terminated && (inst.Exit == nil || inst.Exit.Code == 0))
		d.forget(inst.ID)
	}
}

func (d *deployment) add(s step) {
	if len(d.steps) == stepLimit {
		d.steps = slices.Delete(d.steps, 1, 2)
	}
	d.steps = append(d.steps, s)
}

func (d *Deployments) forget(id skerry.InstanceID) {
	if d.under[id] != nil {
		delete(d.under, id)
		d.order = slices.DeleteFunc(d.order, func(x skerry.InstanceID) bool { return x == id })
	}
}

func stepName(s skerry.State, p skerry.Phase) string {
	if p != "" {
		return string(p)
	}
	return string(s)
}

// tell makes a span of this tier's part, and one for each of its steps.
func (d *Deployments) tell(inst *wire.Instance, dep *deployment, now time.Time, ready bool) {
	id := string(inst.ID) + " " + strconv.FormatUint(uint64(inst.Gen), 10)
	trace := digest("trace", id, 16)
	whole := span{Trace: trace, ID: digest(string(d.tier), id, 8),
		Name: string(d.tier) + " " + inst.Service.App.Name + "/" + inst.Service.Service,
		Kind: kindInternal, Start: at(dep.steps[0].at), End: at(now), Attributes: attributes(map[string]string{
			"skerry.namespace": inst.Service.App.Namespace, "skerry.app": inst.Service.App.Name, "skerry.service": inst.Service.Service,
			"skerry.instance": string(inst.ID), "skerry.generation": strconv.FormatUint(uint64(inst.Gen), 10), "skerry.runtime": inst.Runtime,
			"skerry." + string(d.tier): d.name})}
	switch d.tier {
	case wire.TierCluster:
		if inst.ID.MintedBy() == "r" { // a cluster has applications of its own
			whole.Parent = digest(string(wire.TierRoot), id, 8)
		}
	case wire.TierWorker:
		whole.Parent = digest(string(wire.TierCluster), id, 8)
	}
	if !ready {
		whole.Status = &status{inst.Reason, codeError}
	}
	d.e.spans.add(whole)
	for n := range dep.steps {
		end := now
		if n+1 < len(dep.steps) {
			end = dep.steps[n+1].at
		} else if len(dep.steps) > 1 {
			continue // it is the last one's name, at which it ended
		}
		d.e.spans.add(span{Trace: trace, ID: digest(string(d.tier)+" step "+strconv.Itoa(n), id, 8), Parent: whole.ID, Name: dep.steps[n].name,
			Kind: kindInternal, Start: at(dep.steps[n].at), End: at(end)})
	}
}

func digest(what, of string, n int) hexID {
	sum := sha256.Sum256([]byte("skerry " + what + " " + of))
	return sum[:n]
}
