package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// MoveToCluster moves an instance to a certain other cluster, because somebody wants that. The result is the name of the
// instance there; what stands against it is an error.
type MoveToCluster struct {
	ID      skerry.InstanceID
	To, Why string
}

func (c *Core) moveToCluster(now time.Time, m MoveToCluster, fx *wire.Effects) {
	i, err := c.movable(now, m.ID, m.To)
	if err != nil {
		fx.Err = err
		return
	}
	id, refused := c.Apps.MoveTo(now, i, m.To, m.Why, fx)
	if refused != nil {
		fx.Err = refused
		return
	}
	fx.Result = id
}

// Movable gives what a certain other cluster would be offered of an instance, or why that may not be.
func (c *Core) Movable(now time.Time, id skerry.InstanceID, to string) (*spec.Assignment, error) {
	i, err := c.movable(now, id, to)
	if err != nil {
		return nil, err
	}
	return i.Assignment(nil), nil
}

// movable gives an instance that may be offered to a certain other cluster, or why it may not.
func (c *Core) movable(now time.Time, id skerry.InstanceID, to string) (*apps.Instance, error) {
	inst := c.Apps.Instance(id)
	switch {
	case inst == nil:
		return nil, noInstance(id)
	case c.Children.Get(to) == nil:
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", to).WithHint("`skerry get clusters` lists them")
	case inst.Holder == to:
		return nil, skerry.Errorf(skerry.CodeInvalid, "instance %s is at cluster %s already", id,
			to).WithHint("without a cluster it moves to another worker of its own")
	case inst.Spec == nil || inst.Holder == "":
		return nil, skerry.Errorf(skerry.CodeConflict, "instance %s has no place yet", id).WithHint("`skerry explain %s` shows why", id)
	}
	r := c.request(inst, map[skerry.AppKey]*around{})
	r.Avoid = nil
	for _, name := range c.Children.Names() {
		if name != to {
			r.Avoid = append(r.Avoid, name)
		}
	}
	if names, d := c.fed.Rank(now, r, c.rounds, 1); len(names) == 0 {
		var why []wire.Reason
		for _, k := range d.Top {
			if k.Name == to && k.Out != nil {
				why = []wire.Reason{*k.Out}
			}
		}
		if why == nil {
			why = slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" })
		}
		return nil, Unfit(id, to, why)
	}
	return inst, nil
}

// Unfit is the error of a cluster that cannot take an instance.
func Unfit(id skerry.InstanceID, to string, why []wire.Reason) error {
	err := skerry.Errorf(skerry.CodeConflict, "cluster %s cannot take instance %s", to, id)
	for _, r := range why {
		err.Problems = append(err.Problems, skerry.Problem{Path: r.What, Message: r.Text, Hint: r.Hint})
	}
	return err
}
