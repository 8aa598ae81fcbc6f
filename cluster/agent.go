package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// UpgradeWorker has a worker's agent go over to another program. Whether that does is the worker's to see; it tells in its facts.
type UpgradeWorker struct {
	Name string
	view.UpgradeRequest
}

// maxWindow is the longest trial of a program.
const maxWindow = time.Hour

func (c *Core) upgradeWorker(now time.Time, m UpgradeWorker, fx *wire.Effects) {
	w := c.workers[m.Name]
	switch window, steady := time.Duration(m.Window), time.Duration(m.Steady); {
	case w == nil:
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", m.Name).WithHint("`skerry get workers` lists them")
		return
	case w.Carrier != "":
		fx.Err = skerry.Errorf(skerry.CodeUnsupported, "the agent of worker %s is not Skerry's", m.Name).WithHint("replace its program on the device")
		return
	case m.Image == "":
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "an image with the new program is missing")
		return
	case window < 0 || window > maxWindow:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "a trial of %s is out of range; up to %s are allowed", window, maxWindow)
		return
	case steady < 0 || steady > maxWindow || window > 0 && steady > window:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "the new program cannot be required to work for %s within %s", steady, window)
		return
	}
	o := wire.AgentOrder{Seq: 1, Image: m.Image, Window: m.Window, Steady: m.Steady}
	if w.Agent != nil {
		o.Seq = w.Agent.Seq + 1
	}
	if w.Facts != nil && w.Facts.Agent != nil { // it may know of more than this store, which was restored from a backup
		o.Seq = max(o.Seq, w.Facts.Agent.Order+1)
	}
	if fx.Err = c.Kids.Put(m.Name, wire.AgentKey, c.codec.Marshal(&o)); fx.Err != nil {
		return
	}
	w.Agent = &o
	c.saveWorker(w, fx)
	c.siteEvent(fx, now, wire.EventNormal, "Upgrading", "worker "+m.Name+" is to go over to "+m.Image, m.Name)
}

// upgraded tells the site how a worker's upgrade ended, once.
func (rp *reports) upgraded(now time.Time, w *worker, was *wire.WorkerFacts, fx *wire.Effects) {
	a := w.Facts.Agent
	if a == nil || was != nil && was.Agent != nil && *was.Agent == *a {
		return
	}
	switch a.Stage {
	case wire.AgentPassed:
		rp.siteEvent(fx, now, wire.EventNormal, "Upgraded", "worker "+w.Name+" went from "+a.From+" to "+a.To, w.Name)
	case wire.AgentFailed:
		rp.siteEvent(fx, now, wire.EventWarning, "UpgradeFailed", "worker "+w.Name+" stays with its program: "+a.Why, w.Name)
	}
}
