package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// report takes a site's aggregate, or says in a word why it has no effect.
func (c *Core) report(now time.Time, name string, msg *wire.Report, fx *wire.Effects) (ignored string) {
	var counts wire.ClusterReport
	old := c.reports[name]
	since := c.Children.Get(name).Since
	var fresh members.Numbers // of a connection without a report
	numbers := &fresh
	if old != nil && old.since.Equal(since) {
		numbers = &old.numbers
	}
	switch {
	case msg.Kind != wire.ReportCluster:
		return members.IgnoredReport
	case c.codec.Unmarshal(msg.Payload, &counts) != nil:
		return members.IgnoredUnreadable
	}
	switch numbers.Take(counts.Seq) {
	case members.Late:
		return members.IgnoredOld
	case members.Repeated:
		c.suspects.replays(now, name, fx)
		return members.IgnoredOld
	}
	counts.Bound()
	grew := old == nil || total(counts) > total(old.report)
	c.reports[name] = &siteReport{report: counts, at: now, since: since, numbers: *numbers}
	c.fed.SetReport(name, &counts)
	reported(c, name, old, &counts)
	c.suspects.examine(now, name, &counts, fx)
	if in := counts.Ingress; in != nil && in.Zone != "" {
		c.zones.claim(now, name, in.Zone, fx)
	}
	by := map[skerry.ServiceKey]wire.IngressUse{}
	for _, u := range counts.Arrivals[:min(len(counts.Arrivals), wire.MaxIngressUses)] {
		if !u.Valid() || !concerns(c, now, name, u.Service.App) {
			continue // a broken or hostile site would spoil what others tell
		}
		by[u.Service] = by[u.Service].Add(u)
	}
	c.Apps.Arrivals(now, name, by)
	c.nets.awaited(now, name, &counts)
	for _, q := range counts.Services {
		share := q.QoS
		share.CPU = min(max(share.CPU, 0), maxUse)
		apps.Used(c.Apps.Instances(q.Service), name, share)
	}
	if grew {
		c.Apps.RetryNow()
	}
	return ""
}

// maxUse is the most, in thousandths of a processor, that instances of a service at one site are believed to use.
const maxUse skerry.MilliCPU = 1e9

// total is a rough measure of what a site can take; when it grows, waiting instances are tried again.
func total(r wire.ClusterReport) float64 {
	sum := 0.0
	for _, k := range r.Classes {
		sum += k.Available[0].Sum + k.Available[1].Sum/float64(skerry.MiB) + float64(k.Workers)
	}
	return sum
}
