package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestMovedFromWhoIsOutOfTouch: an instance that must not run twice is moved, and the worker that is to end it turns out not to have heard
// of it. What the other one has not started yet is taken back, until the first has surely stopped its copy.
func TestMovedFromWhoIsOutOfTouch(t *testing.T) {
	c, p, now := movedSite(t)
	told := func() bool {
		_, ok := c.Children.Get("x").Desired.Get(wire.AssignmentKey(p.A.ID))
		return ok
	}
	c.Step(now, ChildDown{Name: "w"})
	now = now.Add(c.opt.LostAfter)
	c.Tick(now)
	if !c.workers["w"].sight.Lost() || p.Worker != "" || told() {
		t.Fatalf("lost %v, it is on %q, told %v", c.workers["w"].sight.Lost(), p.Worker, told())
	}
	until := c.surelyStoppedOn(p, "w")
	if c.Tick(until.Add(-time.Second)); told() {
		t.Errorf("it starts on x %s before it must have ended on w", time.Second)
	}
	if c.Tick(until); !told() || p.Worker != "x" {
		t.Errorf("it is on %q, told %v", p.Worker, told())
	}
}

// TestDrainedAfterWhoIsOutOfTouch: the same, and the other one runs it already when it is drained: a third copy waits, too.
func TestDrainedAfterWhoIsOutOfTouch(t *testing.T) {
	c, p, now := movedSite(t)
	var fx wire.Effects
	c.runs(now, p, &fx)
	c.join(now, "y")
	c.Step(now, ChildDown{Name: "w"})
	now = now.Add(c.opt.LostAfter)
	if c.Tick(now); p.Worker != "x" {
		t.Fatalf("it is on %q", p.Worker)
	}
	c.Step(now, DrainWorker{Name: "x"})
	until := c.surelyStoppedOn(p, "w")
	c.Tick(until.Add(-time.Second))
	if why, _, stays := c.workers["x"].Drain.Stay(p.A.ID); p.Next != nil || !stays {
		t.Errorf("a copy starts on %v %s before the first must have ended; why it stays: %q", p.Next, time.Second, why)
	}
	if c.Tick(until); p.Next == nil || p.Next.Worker != "y" {
		t.Errorf("it does not move: %+v", p.Next)
	}
}

// movedSite is a site where an instance that must not run twice was moved from worker w, which is held, to x, which has not started it.
func movedSite(t *testing.T) (c *Core, p *placement, now time.Time) {
	t.Helper()
	now = time.Unix(1_700_000_000, 0)
	c = textSite(t, now, "")
	a, _ := c.onlyAssignment(t)
	a.ID, a.Fence, a.Service.Service = "one-1", skerry.Fence{RootEpoch: 1}, "one"
	a.Spec.OnDisconnect = spec.StopAfter(20 * time.Second)
	var fx wire.Effects
	c.intake.accept(now, a, "root", &fx)
	c.settle(now, &fx, nil)
	p = c.places[a.ID]
	c.runs(now, p, &fx)
	c.join(now, "x")
	c.Step(now, CordonWorker{Name: "w", Reason: "it goes"})
	if fx := c.Step(now, apps.DeleteInstance{ID: a.ID, Scale: true}); skerry.AsError(fx.Err).Code != skerry.CodeWrongTier || p.Worker != "w" {
		t.Fatalf("the site has the root's service want one less: it is on %q: %v", p.Worker, fx.Err)
	}
	if fx := c.Step(now, apps.DeleteInstance{ID: a.ID}); fx.Err != nil || p.Worker != "x" {
		t.Fatalf("it is on %q: %v", p.Worker, fx.Err)
	}
	return c, p, now.Add(time.Minute) // else the site has just started
}

// runs has an instance's worker report that it runs; join has a worker like w come.
func (c *Core) runs(now time.Time, p *placement, fx *wire.Effects) {
	c.reports.observe(now, p.Worker, wire.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true}, fx)
}

func (c *Core) join(now time.Time, name string) {
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: name}})
	r := wire.WorkerReport{Seq: 1, Facts: c.workers["w"].Facts}
	c.Step(now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
}
