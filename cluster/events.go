package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// siteEvent tells of something that is the site's own business; it does not go up.
func (c *Core) siteEvent(fx *wire.Effects, now time.Time, t wire.EventType, reason, text, worker string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Worker: skerry.WorkerName(worker), Cluster: skerry.ClusterName(c.opt.Name)})
}

// event tells of something that happened to an instance; for one of the root it also goes up, without workers' names.
func (c *Core) event(fx *wire.Effects, now time.Time, p *placement, t wire.EventType, reason, text string) {
	c.eventUp(fx, now, p, t, reason, text, text)
}

// eventUp is event where what goes up says less.
func (c *Core) eventUp(fx *wire.Effects, now time.Time, p *placement, t wire.EventType, reason, text, up string) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: p.A.Service.App, Service: p.A.Service.Service,
		Instance: p.A.ID, Worker: skerry.WorkerName(p.Worker), Cluster: skerry.ClusterName(c.opt.Name), Org: p.A.Org}
	fx.Events = append(fx.Events, e)
	if p.Origin == "root" && t == wire.EventWarning {
		e.Worker, e.Text = "", c.workers.anonymous(p, up)
		if p.Group != "" {
			e.Instance = p.Group // a copy's id names its worker
		}
		if _, err := c.Up.Events.Append(c.codec.Marshal(e)); err == nil {
			return // an event that is too large to travel stays here
		}
	}
}
