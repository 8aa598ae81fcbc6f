package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// place offers an instance to the best site that has not refused it yet. A refusal comes back as an observation, and the
// next call asks the next site.
func (c *Core) place(now time.Time, i *apps.Instance, seen map[skerry.AppKey]*around, fx *wire.Effects) {
	c.rounds++
	if i.Target != "" {
		k := c.Children.Get(i.Target)
		if r := c.suspects.shut(i.Target); r != nil {
			why := []wire.Reason{*r}
			c.Apps.NoPlace(now, i, &wire.Decision{At: now, Instance: i.ID, Tier: "root", Policy: "perWorker", Why: why}, fx)
			return
		}
		if r := unknownMode(c, i.Target, i.Spec); r != nil {
			c.Apps.NoPlace(now, i, &wire.Decision{At: now, Instance: i.ID, Tier: "root", Policy: "perWorker", Why: []wire.Reason{*r}}, fx)
			return
		}
		if k != nil && len(i.Rejected) == 0 {
			c.give(now, i, i.Target, nil, fx)
			return
		}
		c.Apps.NoPlace(now, i, &wire.Decision{At: now, Instance: i.ID, Tier: "root", Policy: "perWorker",
			Why: orWhy(i.Why, "cluster "+i.Target+" has no worker for it")}, fx)
		return
	}
	if site := c.Apps.DataAt(i); c.Children.Get(site) != nil {
		c.fed.questions.Drop(i.ID)
		c.placeWithData(now, i, site, fx)
		return
	}
	d, wait := choose(c, now, i, c.request(i, seen), fx)
	if wait {
		i.RetryAt = c.fed.questions.Until(i.ID)
		return
	}
	if d.Chosen == "" {
		// What the sites that were asked said tells more than that they were.
		d.Why = append(slices.Clone(i.Refusals), slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" })...)
		c.Apps.NoPlace(now, i, &d, fx)
		return
	}
	c.give(now, i, d.Chosen, &d, fx)
	a := seen[i.Service.App]
	a.at(d.Chosen, i)
	a.whole = a.whole.Sub(i.Spec.LeastCost())
}

// unknownMode says why a site does not get a service: it is of an earlier version, which does not know of an instance for each device and
// would run one. Each site reports what of that its workers and itself know.
func unknownMode(c *Core, site string, s *spec.ServiceSpec) *wire.Reason {
	if s.Mode != spec.ModePerDevice {
		return nil
	}
	if r := c.reports[site]; r != nil && slices.ContainsFunc(r.report.Classes, func(k wire.ClassAggregate) bool {
		return slices.Contains(k.Class.Features, spec.FeaturePerDevice)
	}) {
		return nil
	}
	return &wire.Reason{What: "features", Count: 1, Text: "cluster " + site + " reports no worker that knows mode perDevice",
		Hint: "upgrade the cluster, and a worker there that offers such devices"}
}

func orWhy(why []wire.Reason, text string) []wire.Reason {
	if len(why) > 0 {
		return why
	}
	return []wire.Reason{{What: "workers", Text: text}}
}

func (c *Core) give(now time.Time, i *apps.Instance, site string, d *wire.Decision, fx *wire.Effects) {
	i.Cluster = skerry.ClusterName(site)
	c.Apps.Place(now, i, site, c.tokens.mint(fx), d, fx)
	c.assign(now, i, fx)
	c.suspects.expectStart(now.Add(patience))
	c.fed.Take(site, i.Spec.LeastCost())
}

// assignment is what a site is told of an instance.
func (c *Core) assignment(i *apps.Instance) *spec.Assignment {
	var digests map[string]string
	if a := c.Apps.App(i.Service.App); a != nil {
		digests = a.Digests
	}
	as := i.Assignment(digests)
	as.Failover = c.failsOver(i)
	return as
}

// assign puts the instance into its site's desired set.
func (c *Core) assign(now time.Time, i *apps.Instance, fx *wire.Effects) {
	c.nets.dirty[i.Service.App] = true
	as := c.assignment(i)
	switch {
	case !stopsDisconnected(i):
	case !as.Failover:
		c.Apps.Bind(i, false, fx)
	case !i.Bound:
		c.failover.unsure[i.ID] = true
	}
	value := c.codec.Marshal(as)
	if len(c.opt.SealKey) > 0 {
		as.Seal = c.codec.SealOwn(c.opt.SealKey, i.Holder, value)
		value = c.codec.Marshal(as)
	}
	if err := c.Children.Put(i.Holder, wire.AssignmentKey(i.ID), value); err != nil {
		d := wire.Decision{At: now, Instance: i.ID, Tier: "root",
			Why: []wire.Reason{{What: "size", Text: err.Error(), Hint: "make the manifest smaller"}}}
		c.Apps.NoPlace(now, i, &d, fx)
	}
}

// commonIn finds the specification in the encoded assignment of an instance, which those of its service have as well.
func commonIn(codec *wire.Codec) func(key string, value []byte) (from, to int) {
	return func(key string, value []byte) (from, to int) {
		if !strings.HasPrefix(key, "inst/") {
			return 0, 0
		}
		return codec.SpecIn(value)
	}
}

// refreshChanged passes on what has changed, once for each instance: a change touches it several times.
func refreshChanged(c *Core, now time.Time, fx *wire.Effects) {
	seen := make(map[skerry.InstanceID]bool, len(fx.Changed))
	for _, ch := range fx.Changed {
		if i := c.Apps.Instance(ch.Instance); i != nil && !seen[i.ID] && i.Holder != "" && !i.Stopping && !i.State.Final() {
			seen[i.ID] = true
			c.refresh(now, i, fx)
		}
	}
}

// refresh passes on what may change while an instance runs.
func (c *Core) refresh(now time.Time, i *apps.Instance, fx *wire.Effects) {
	k := c.Children.Get(i.Holder)
	if k == nil {
		return
	}
	old, ok := k.Desired.Get(wire.AssignmentKey(i.ID))
	if !ok {
		if i.Target != "" && !i.Stopping { // it was told to end, and is to stay
			c.assign(now, i, fx)
		}
		return
	}
	var as assigned
	if c.codec.Unmarshal(old, &as) == nil && outdated(c, &as, i) {
		c.assign(now, i, fx)
		if as.Restart != i.Restart {
			c.reobserve(now, i, fx) // its site may have restarted it by itself, and tells that no second time
		}
	}
}

// assigned is the part of an assignment by which outdated decides. Most of an assignment is the service, and each change of an application
// asks this for each of its instances.
type assigned struct {
	Gen       skerry.Generation `cbor:"5,keyasint"`
	Revision  string            `cbor:"6,keyasint"`
	Fence     skerry.Fence      `cbor:"8,keyasint"`
	Restart   uint64            `cbor:"9,keyasint"`
	Failover  bool              `cbor:"14,keyasint"`
	Successor struct {
		Revision string `cbor:"1,keyasint"`
	} `cbor:"23,keyasint"`
	Seal     []byte `cbor:"24,keyasint"`
	Exchange string `cbor:"26,keyasint"`
}

// outdated reports whether what a site was told of an instance is no longer so.
func outdated(c *Core, as *assigned, i *apps.Instance) bool {
	return as.Restart != i.Restart || as.Gen != i.AssignedGen() || as.Revision != i.AssignedRevision() ||
		as.Successor.Revision != i.AskedRevision() || as.Failover != c.failsOver(i) || as.Exchange != i.Exchange ||
		as.Fence.RootEpoch < i.Fence.RootEpoch || // half of a commit was lost
		len(as.Seal) == 0 && len(c.opt.SealKey) > 0 // it is of before there were seals
}

// around is what the scheduler must know of an application while its instances are placed: where others of it are (each
// service at each site once), and what those without a place need together.
type around struct {
	peers []sched.Peer
	seen  map[[2]string]bool // site and service
	whole spec.Resources
	// unplaced are the services with limited links, at either end, of which nothing has a place.
	unplaced []sched.Linked
}

func (a *around) at(site string, i *apps.Instance) {
	if k := [2]string{site, i.Service.Service}; !a.seen[k] {
		a.seen[k] = true
		a.peers = append(a.peers, sched.Peer{Worker: site, Service: i.Service.Service, Labels: i.Spec.Labels, Links: i.Spec.Links})
		a.unplaced = slices.DeleteFunc(a.unplaced, func(l sched.Linked) bool { return l.Service == i.Service.Service })
	}
}

// waits notes that an instance has no place.
func (a *around) waits(i *apps.Instance) {
	a.whole = a.whole.Add(i.Spec.LeastCost())
	waits := func(l sched.Linked) bool { return l.Service == i.Service.Service }
	placed := func(p sched.Peer) bool { return p.Service == i.Service.Service }
	if !slices.ContainsFunc(a.unplaced, waits) && !slices.ContainsFunc(a.peers, placed) {
		a.unplaced = append(a.unplaced, sched.Linked{Service: i.Service.Service, Spec: i.Spec})
	}
}

// request is what the scheduler is asked for an instance. round keeps what it finds out of each application, so that
// many instances do not cost the square of their number.
func (c *Core) request(i *apps.Instance, round map[skerry.AppKey]*around) *sched.Request {
	a := round[i.Service.App]
	if a == nil {
		a = &around{seen: map[[2]string]bool{}}
		round[i.Service.App] = a
		for _, o := range c.Apps.InstancesOf(i.Service.App) {
			switch {
			case !o.Live():
			case o.Holder != "":
				a.at(o.Holder, o)
			default:
				a.waits(o)
			}
		}
	}
	return &sched.Request{Instance: i.ID, Service: i.Service.Service, Spec: i.Spec, Need: i.Spec.Need(),
		Avoid: append(slices.Clone(i.Shun), i.Rejected...), Peers: a.peers, Whole: a.whole, Linked: a.linkedWith(i)}
}

// linkedWith lists the services without a place that a limited link leads to from an instance's service, or from which one leads to it.
func (a *around) linkedWith(i *apps.Instance) (out []sched.Linked) {
	leads := func(links []spec.Link, to string) bool {
		return slices.ContainsFunc(links, func(l spec.Link) bool { return l.Limited() && l.Service == to })
	}
	for _, o := range a.unplaced {
		if o.Service != i.Service.Service && (leads(i.Spec.Links, o.Service) || leads(o.Spec.Links, i.Service.Service)) {
			out = append(out, o)
		}
	}
	return out
}

// Sites lists the clusters.
func (c *Views) Sites() []view.ClusterView {
	var out []view.ClusterView
	for _, name := range c.Children.Names() {
		k := c.Children.Get(name)
		s := view.ClusterView{Name: skerry.ClusterName(name), Connected: k.Connected, Lost: c.failover.lost[name], Since: k.Since,
			Version: k.Version, Instances: c.Apps.CountHeldBy(name)}
		if r := c.reports[name]; r != nil {
			s.Report, s.ReportAt = r.report, r.at
		}
		s.Trust = view.NewTrust(c.suspects.books[name])
		s.Report.Grants = wire.KnownGrants(s.Report.Grants)
		s.Heard, s.Cordon, s.Drain = k.Heard, c.suspects.cordons.reason(name), c.drainView(name)
		s.Labels = maps.Clone(c.labels.of[name])
		out = append(out, s)
	}
	return out
}
