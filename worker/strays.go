package worker

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// keyRepaired is the record of a store that has lost others, until the cluster has named what is to run.
const keyRepaired = "repaired"

// strayTime is how long the worker is in touch with its cluster before it ends what runs of instances that the cluster did not name.
const strayTime = time.Minute

// takeStrays makes what runs on the machine a part of an instance whose record was lost, once it is prepared. What ended of it goes.
func (c *Core) takeStrays(now time.Time, i *inst, fx *skerry.Effects) {
	for _, t := range c.strays[i.A.ID] {
		k := i.container(t.Name)
		k.Attempt = max(k.Attempt, t.Attempt)
		if !t.Running || k.Running {
			fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
			continue
		}
		k.Handle, k.Running, k.Limits = t.Handle, true, unsure
		fx.Actions = append(fx.Actions, Watch{ID: t.ID, Name: t.Name, Attempt: t.Attempt, Handle: t.Handle})
	}
	delete(c.strays, i.A.ID)
	if i.main().Running {
		i.StartedAt = now
		for _, s := range i.A.Spec.Init {
			i.container(s.Name).Done = true
		}
	}
	i.Resize = &resize{Spec: i.A.Spec, Revision: i.A.Revision, Gen: i.A.Gen} // which limits they have is not known
	c.resume(now, i, fx)
	c.setLimits(now, i, fx)
	c.save(i, fx)
}

// straysEnd is when the cluster has had its time to name what runs; zero: not before it is in touch.
func (c *Core) straysEnd() time.Time {
	if !c.repaired || !c.ready || !c.Up.Connected || c.Up.Desired.Incarnation() == "" {
		return time.Time{}
	}
	for id := range c.strays {
		if i := c.insts[id]; i != nil && i.Phase == skerry.PhaseFetching {
			return time.Time{} // it takes them then
		}
	}
	return c.Up.Since.Add(strayTime)
}

// straysDue ends strays that the cluster does not want.
func (c *Core) straysDue(now time.Time, fx *skerry.Effects) {
	if at := c.straysEnd(); at.IsZero() || now.Before(at) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.strays)) {
		for _, t := range c.strays[id] {
			fx.Actions = append(fx.Actions, Discard{Handle: t.Handle})
		}
		delete(c.strays, id)
	}
	c.repaired = false
	fx.Delete(keyRepaired)
}
