package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// Messages of operators.
type (
	// RemoveWorker forgets a worker that is not connected; its instances are placed elsewhere.
	RemoveWorker struct{ Name string }
	// CordonWorker keeps a worker from getting anything new; an empty reason ends that.
	CordonWorker struct{ Name, Reason string }
)

func (c *Core) childUp(now time.Time, hello *wire.Hello, fx *wire.Effects) {
	sets, events := c.Children.Up(now, hello)
	c.answered(hello.Name)
	fx.Result = &wire.Welcome{Sets: sets, Events: events, Incarnation: c.opt.Incarnation, Pace: c.opt.Pace}
	w := c.workers[hello.Name]
	if w == nil {
		w = &worker{Name: hello.Name, ports: map[string]int{}}
		c.addWorker(w, trust.Record{})
		c.saveWorker(w, fx)
	}
	if w.Carrier != hello.Carrier { // another kind of agent took over: it reads other items
		w.Carrier = hello.Carrier
		c.saveWorker(w, fx)
		c.resend(hello.Name)
	}
	if w.sight.Lost() {
		c.peers.Touch(now)
	}
	w.immodest, w.strangers, w.numbers = false, 0, members.Numbers{}
	w.urgency.Connected(now)
	c.detect.Up(w.Name)
	c.seeWorker(w)
	c.freed()
	c.siteEvent(fx, now, wire.EventNormal, "WorkerConnected", "worker "+hello.Name+" is connected", hello.Name)
	c.reports.reach(now, hello.Name, fx)
}

func (c *Core) removeWorker(now time.Time, name string, fx *wire.Effects) {
	w := c.workers[name]
	if w == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
		return
	}
	if k := c.Children.Get(name); k != nil && k.Connected {
		fx.Err = skerry.Errorf(skerry.CodeConflict, "worker %s is connected", name).WithHint("stop its agent first")
		return
	}
	if !w.sight.Lost() {
		c.guard.loseWorker(now, w, fx)
	}
	for _, id := range sortedIDs(c.originals) {
		if p := c.places[id]; p.Original.Worker == name {
			c.endOriginal(p)
			c.changed(now, p, fx)
		}
	}
	c.forgetClaims(now, name, fx)
	for _, p := range c.on(name) {
		switch {
		case c.stranded[p.A.ID] && p.Next != nil:
			c.takeOver(now, p, "its worker was removed", fx)
			c.endOriginal(p)
		case c.stranded[p.A.ID]:
			c.unstrand(p)
			c.move(now, p, "its worker was removed", false, fx)
		case p.ended() && !p.Removing && p.Group == "":
			// Its owner has yet to learn how it ended, and takes it back then.
		default:
			c.drop(now, p, fx)
		}
	}
	for _, id := range w.leaving.IDs() {
		c.left(name, id)
	}
	c.drainer.endDrain(now, w, fx)
	delete(c.held, name)
	delete(c.workers, name)
	c.detect.Remove(name)
	c.trust.Remove(name)
	c.releases.Remove(name)
	delete(c.rebuilder.left, name)
	c.answered(name)
	for id := range c.orphan {
		c.found(id, name)
	}
	c.expel(now, w, fx)
	c.peers.Remove(now, name)
	c.ingress.Tell(name, nil)
	c.site.Remove(name)
	fx.Delete(prefixWorker + name)
	c.sender.counted[name] = true
	c.Children.Remove(name, fx)
	c.uplink.Touch()
}

func (c *Core) cordonWorker(now time.Time, m CordonWorker, fx *wire.Effects) {
	w := c.workers[m.Name]
	if w == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", m.Name).WithHint("`skerry get workers` lists them")
		return
	}
	if w.Cordon = m.Reason; m.Reason == "" {
		c.drainer.endDrain(now, w, fx)
		c.guard.restoreTrust(now, w, fx)
	}
	c.saveWorker(w, fx)
	c.seeWorker(w)
	c.freed()
}
