package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// MigrateInstance moves one instance to another worker, because somebody wants that. The result is the worker's name; what
// stands against it is an error with the reasons.
type MigrateInstance struct {
	ID     skerry.InstanceID
	To     string // the only worker that will do, or ""
	Reason string
	Force  bool   // also what keeps data on its worker, which it then loses
	Actor  string // who wants it
	Root   bool   // somebody at the root, who learns nothing of workers
}

// transfers moves single instances because somebody wants that.
type transfers struct {
	*lifecycle
	find *finder
}

func (tr *transfers) migrateInstance(now time.Time, m MigrateInstance, fx *wire.Effects) {
	p := tr.places[m.ID]
	if p == nil {
		fx.Err = NoInstance(m.ID)
		if _, _, ok := tr.Instance(m.ID); ok {
			fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %s has no place that it could leave", m.ID).WithHint("`skerry explain %s` shows more", m.ID)
		}
		return
	}
	policy, err := tr.movable(now, p, &m)
	if err == nil {
		fx.Result, err = tr.moveByHand(now, p, policy, &m, fx)
	}
	if err != nil && m.Root {
		err.Message, err.Hint = tr.workers.redact(p, err.Message), tr.workers.redact(p, err.Hint)
	}
	if err != nil {
		fx.Err = err
	}
}

// moveByHand starts a successor on the worker that was asked for, or the best other one, and gives its name.
func (tr *transfers) moveByHand(now time.Time, inst *placement, policy sched.Policy, msg *MigrateInstance, fx *wire.Effects) (string,
	*skerry.Error) {
	avoid := slices.Concat([]string{inst.Worker}, tr.frozenWorkers(), tr.find.incapable(inst))
	if msg.To == "" {
		avoid = append(avoid, inst.Avoid...)
	}
	var d wire.Decision
	for _, short := range [][]string{tr.workers.shortOf(nil), nil} { // a worker that is short of something is better than none
		r := tr.find.request(inst)
		r.Only, r.Avoid = msg.To, slices.Concat(avoid, short)
		if d = tr.site.Place(now, policy, r, tr.questions.Next()); d.Chosen != "" {
			break
		}
	}
	if d.Chosen == "" {
		return "", unmoved(msg, &inst.A.Spec, d.Why)
	}
	why := "asked for by " + orNobody(msg.Actor)
	if msg.Reason != "" {
		why += ": " + msg.Reason
	}
	tr.migrate(now, inst, d, why, fx)
	return d.Chosen, nil
}

// movable gives the policy by which another worker is looked for, or why none may be.
func (tr *transfers) movable(now time.Time, inst *placement, msg *MigrateInstance) (policy sched.Policy, err *skerry.Error) {
	conflict := func(text string) *skerry.Error {
		return skerry.Errorf(skerry.CodeConflict, "instance %s cannot move: %s", msg.ID, text)
	}
	to, child := tr.workers[msg.To], tr.Children.Get(inst.Worker)
	switch {
	case msg.To != "" && to == nil:
		return policy, skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", msg.To).WithHint("`skerry get workers` lists them")
	case msg.To != "" && msg.To == inst.Worker:
		return policy, skerry.Errorf(skerry.CodeInvalid, "instance %s is on worker %s already", msg.ID, msg.To)
	case inst.Next != nil:
		return policy, conflict("it is on its way to worker " + inst.Next.Worker + " already, " + inst.Next.Why)
	case tr.stranded[msg.ID] || inst.Original != nil || inst.Worker != "" && (child == nil || !child.Connected):
		return policy, conflict("its worker is out of touch").WithHint("it gets another place by itself, if it may have one; `skerry explain %s` shows it", msg.ID)
	case inst.Removing || inst.Refused || inst.Obs.State != skerry.Running:
		return policy, conflict("it does not run").WithHint("`skerry explain %s` shows why", msg.ID)
	case inst.Resize != nil:
		return policy, conflict("its limits are just being changed").WithHint("try again in a moment")
	case now.Before(tr.endsElsewhere(inst)):
		return policy, conflict("a copy of it may still run on a worker that is out of touch, and there must not be another").WithHint("try again when that is back")
	case to != nil && to.report.Frozen != "":
		return policy, conflict("worker " + msg.To + " is frozen on its device and ignores requests: " + to.report.Frozen)
	}
	if why := inst.bound(msg.Force); why != "" {
		err := conflict(why)
		if inst.bound(true) == "" {
			err = err.WithHint("--force moves it without its data")
		}
		return policy, err
	}
	if why := tr.workers.notCheckpointed(inst); why != "" && !msg.Force {
		return policy, conflict(why).WithHint("--force moves it without its memory")
	}
	policy, plugins, unknown := tr.find.policyOf(&inst.A)
	if unknown != nil {
		return policy, unmoved(msg, &inst.A.Spec, []wire.Reason{*unknown})
	}
	if len(plugins) > 0 {
		return policy, skerry.Errorf(skerry.CodeUnsupported,
			"instance %s cannot be moved by hand: the scheduling plugin %s takes part in its placement, and is asked only when a worker is drained", msg.ID, plugins[0].Name).
			WithHint("drain its worker, or delete the instance: its service gets another")
	}
	return policy, nil
}

// unmoved is the refusal to move an instance that no other worker can take, with what rules them out.
func unmoved(m *MigrateInstance, spec *spec.ServiceSpec, why []wire.Reason) *skerry.Error {
	err := skerry.Errorf(skerry.CodeConflict, "no other worker of the site can take instance %s", m.ID)
	if m.To != "" {
		err = skerry.Errorf(skerry.CodeConflict, "worker %s cannot take instance %s", m.To, m.ID)
	}
	for n := range why { // its own worker is passed over as one that was tried
		if r := &why[n]; r.What == "tried" && r.Count <= 1 {
			*r = wire.Reason{What: "placed", Count: 1, Text: "it is there already"}
		}
	}
	if m.Root {
		why = uplink.InCounts(spec, why)
	}
	for _, r := range why {
		err.Problems = append(err.Problems, skerry.Problem{Path: r.What, Message: r.Text, Hint: r.Hint})
	}
	return err
}
