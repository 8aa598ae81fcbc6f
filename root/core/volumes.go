package core

import (
	"slices"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// publishClaims tells sites whose local volumes they are to keep. It goes out with the instances, so that a site never has data
// of which it was not told.
func (c *Core) publishClaims() {
	for _, v := range c.Apps.Reclaimed() {
		holder := c.Apps.Claimed(v)
		for _, name := range c.Children.Names() {
			if name != holder {
				c.Children.Delete(name, v.Key())
			}
		}
		if holder != "" {
			_ = c.Children.Put(holder, v.Key(), c.codec.Marshal(&v)) // it is small
		}
	}
}

// reviewClaims takes away, after a start, what no instance and no claim stands for: see reviewSets.
func (c *Core) reviewClaims() {
	for _, name := range c.Children.Names() {
		for _, key := range c.Children.Get(name).Desired.Keys() {
			v, ok := spec.ParseVolumeKey(key)
			if !ok || c.Apps.Claimed(v) == name {
				continue
			}
			if !slices.ContainsFunc(c.Apps.Instances(v.Service), func(i *apps.Instance) bool { return i.Ordinal == v.Ordinal }) {
				c.Children.Delete(name, key)
			}
		}
	}
}

// placeWithData gives an instance to the site that has its local volumes, or has it wait for that.
func (c *Core) placeWithData(now time.Time, i *apps.Instance, site string, fx *wire.Effects) {
	wait := func(why ...wire.Reason) {
		c.Apps.NoPlace(now, i, &wire.Decision{At: now, Instance: i.ID, Tier: "root", Policy: "volumes", Why: why}, fx)
	}
	if r := c.suspects.shut(site); r != nil {
		r.Text = "its local volumes are at cluster " + site + ": " + r.Text
		wait(*r)
		return
	}
	if !c.Apps.Allows(i.Spec, site) {
		wait(wire.Reason{What: "volumes", Text: "its local volumes are at cluster " + site + ", where its manifest does not allow it any more",
			Hint: "allow that cluster again, in the manifest or by its labels; to give the data up, delete the service"})
		return
	}
	if len(i.Rejected) == 0 {
		c.give(now, i, site, nil, fx)
		return
	}
	wait(append([]wire.Reason{{What: "volumes", Text: "its local volumes are at cluster " + site + ", which cannot take it now",
		Hint: "mend what is told below; to give the data up, delete the service"}}, i.Refusals...)...)
}

// Volumes lists the local volumes of all applications, and those that are kept without.
func (c *Views) Volumes() []view.VolumeView {
	list := c.Apps.Volumes("root")
	for i := range list {
		list[i].Worker = "" // which is the site's affair
		list[i].Scheduled = c.scheduled(&list[i])
	}
	return list
}

// scheduled gives what the site of volumes reports of the schedule of their snapshots, or what the manifest says before it has reported;
// nil: there is none.
func (c *Views) scheduled(shown *view.VolumeView) *wire.VolumeSchedule {
	child := c.Children.Get(string(shown.Cluster))
	if child == nil {
		return nil
	}
	s, away := new(wire.VolumeSchedule), !child.Connected || !child.Synced
	value, _, ok := child.Observed.Get(shown.Claim().Key())
	switch {
	case ok && c.codec.Unmarshal(value, s) == nil:
		s.Bound()
	case !away:
		return nil
	default:
		a := c.Apps.App(shown.Claim().Service.App)
		if a == nil || a.Manifest.Spec.Service(shown.Service) == nil {
			return nil
		}
		m := a.Manifest.Spec.Service(shown.Service).Snapshots
		if m == nil || m.Schedule == "" {
			return nil
		}
		s.Schedule, s.Keep = m.Schedule, m.Kept()
	}
	s.OutOfTouch = away
	return s
}
