package core

import (
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Views are what servers, and whoever looks on, may ask of a core. They change nothing.
type Views Core

// Views gives what may be asked.
func (c *Core) Views() *Views { return (*Views)(c) }

// AppPage lists a part of the applications, and says whether there are more after it.
func (c *Views) AppPage(page *apps.AppPage) (out []view.AppView, more bool) {
	picked, more := c.Apps.AppPage(page)
	out = make([]view.AppView, 0, len(picked))
	for _, a := range picked {
		v := c.Apps.View(a, "root", false)
		c.showIngress(&v)
		out = append(out, v)
	}
	return out, more
}

// AppView shows one application with its manifest.
func (c *Views) AppView(key skerry.AppKey, gen skerry.Generation) (view.AppView, error) {
	a := c.Apps.App(key)
	if a == nil {
		return view.AppView{}, skerry.Errorf(skerry.CodeNotFound, "there is no application %s", key).WithHint("`skerry get apps` lists them")
	}
	v := c.Apps.View(a, "root", true)
	c.showIngress(&v)
	return c.Apps.AsOf(v, gen)
}

// Explain tells how an instance came to its cluster.
func (c *Views) Explain(id skerry.InstanceID) (view.Explanation, error) {
	i := c.Apps.Instance(id)
	if i == nil {
		return view.Explanation{}, noInstance(id)
	}
	e := view.Explanation{Instance: i.Shown(), Decision: i.Decision, Deadline: i.Deadline, RetryAt: i.RetryAt, Tried: i.Rejected,
		Scale: c.Apps.Scale(i.Service)}
	if i.Spec != nil {
		e.Runtimes = i.Spec.RuntimeChoices(i.Runtime, nil)
		for n := range e.Runtimes { // of the one that it has its site knows more than what is published
			r := &e.Runtimes[n]
			r.Workers = c.workersWith(r.Runtime)
			if r.Chosen {
				r.Crowded = ""
				if k := slices.IndexFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.HeadRoom }); k >= 0 {
					r.Crowded = i.Conditions[k].Reason
				}
			}
		}
	}
	return e, nil
}

// Instance shows an instance.
func (c *Views) Instance(id skerry.InstanceID) (wire.Instance, error) {
	i := c.Apps.Instance(id)
	if i == nil {
		return wire.Instance{}, noInstance(id)
	}
	return i.Shown(), nil
}

// Holder gives the cluster that has an instance.
func (c *Views) Holder(id skerry.InstanceID) (string, error) {
	i := c.Apps.Instance(id)
	if i == nil {
		return "", noInstance(id)
	}
	if i.Holder == "" {
		return "", skerry.Errorf(skerry.CodeUnavailable, "instance %s has no place yet", id).WithHint("`skerry explain %s` shows why", id)
	}
	return i.Holder, nil
}

// Refused counts what was not taken of sites so far, by reason.
func (c *Views) Refused() map[string]int { return maps.Clone(c.relations.counts) }

// workersWith counts the workers, of clusters in touch, that have a runtime.
func (c *Views) workersWith(runtime string) (n int) {
	for _, name := range c.Children.Names() {
		if r := c.reports[name]; r != nil && c.Children.Get(name).Connected {
			for _, k := range r.report.Classes {
				if slices.ContainsFunc(k.Class.Runtimes, func(has string) bool { return spec.Offers(has, runtime) }) {
					n += max(k.Workers, 0)
				}
			}
		}
	}
	return n
}

func noInstance(id skerry.InstanceID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
}

// drainView shows how far the drain of a site is; nil: it is not drained.
func (c *Views) drainView(site string) *view.ClusterDrain {
	k := c.suspects.cordons.all[site]
	if k == nil || k.Parallel == 0 {
		return nil
	}
	shown := &view.ClusterDrain{Since: k.Since, Parallel: k.Parallel}
	held := c.Apps.HeldBy(site)
	replaced := c.Apps.Replaced(held)
	for _, i := range held {
		stay, stays := k.stays[i.ID]
		switch {
		case i.State.Final():
			continue
		case i.Stopping:
			shown.Ending++
			continue
		case replaced[i.ID]:
			shown.Moving++
		case stays:
			shown.Stays = append(shown.Stays, stay)
			if !stay.Tries {
				continue
			}
		}
		shown.Left++
	}
	shown.Done = k.Told && shown.Left == 0 && shown.Ending == 0 // something may have started there late
	return shown
}

// ImageUses lists what images are used for: by applications, and by upgrades that have not ended.
func (c *Views) ImageUses() apps.ImageUses {
	uses := c.Apps.ImageUses()
	for _, name := range slices.Sorted(maps.Keys(c.upgrades.all)) {
		if upgrade := c.upgrades.all[name]; !upgrade.State.Ended() {
			use := uses.Of(upgrade.Digest)
			use.UsedBy = append(use.UsedBy, "upgrade/"+name)
		}
	}
	return uses
}

// Upgrades lists the upgrades of clusters by name.
func (c *Views) Upgrades() []view.Upgrade {
	out := []view.Upgrade{}
	for _, name := range slices.Sorted(maps.Keys(c.upgrades.all)) {
		out = append(out, cloneUpgrade(c.upgrades.all[name]))
	}
	return out
}

// Upgrade shows one of them.
func (c *Views) Upgrade(name string) (view.Upgrade, error) {
	upgrade, err := c.upgrades.find(name)
	if err != nil {
		return view.Upgrade{}, err
	}
	return cloneUpgrade(upgrade), nil
}
