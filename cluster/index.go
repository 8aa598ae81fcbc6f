package cluster

import "skerry.dev/skerry"

// addPlacement puts a placement into the maps.
func (c *Core) addPlacement(p *placement) {
	c.places[p.A.ID] = p
	if p.Removing {
		c.removing[p.A.ID] = true
	}
	m := c.byApp[p.A.Service.App]
	if m == nil {
		m = map[skerry.InstanceID]*placement{}
		c.byApp[p.A.Service.App] = m
	}
	m[p.A.ID] = p
	c.boundTo(p)
	c.bind(p, p.Worker)
	if p.limited() {
		c.limits[p.A.Service.App]++
	}
}

// bind says which worker an instance is on; an empty name: none.
func (c *Core) bind(p *placement, worker string) {
	if old := c.byWorker[p.Worker]; old != nil {
		if delete(old, p.A.ID); len(old) == 0 {
			delete(c.byWorker, p.Worker)
		}
	}
	p.Worker = worker
	c.touchClaims(p)
	if worker == "" {
		c.settleLimits(p) // nothing is promised to it, and it will be started with them
		return
	}
	if c.byWorker[worker] == nil {
		c.byWorker[worker] = map[skerry.InstanceID]*placement{}
	}
	c.byWorker[worker][p.A.ID] = p
}

// forget takes a placement out of the maps.
func (c *Core) forget(p *placement) {
	app := p.A.Service.App
	if on := c.byWorker[p.Worker]; on != nil {
		if delete(on, p.A.ID); len(on) == 0 {
			delete(c.byWorker, p.Worker)
		}
	}
	delete(c.places, p.A.ID)
	c.touchClaims(p)
	delete(c.waiting, p.A.ID)
	c.starts.Done(p.A.ID)
	c.questions.Drop(p.A.ID)
	delete(c.removing, p.A.ID)
	delete(c.watched, p.A.ID)
	delete(c.stranded, p.A.ID)
	c.dependents.Bind(p.A.ID, false)
	c.endOriginal(p)
	delete(c.byApp[app], p.A.ID)
	if len(c.byApp[app]) == 0 {
		delete(c.byApp, app)
		c.neighbours.Forget(app)
	}
	if p.limited() {
		if c.limits[app]--; c.limits[app] == 0 {
			delete(c.limits, app)
		}
	}
}
