package core

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// TestUpgradeOrders asks for upgrades: what cannot be is refused, each order is another one, and the outcome is told once.
func TestUpgradeOrders(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	ask := func(name string, r view.UpgradeRequest, refused string) {
		t.Helper()
		fx := s.c.Step(s.now, UpgradeWorker{Name: name, UpgradeRequest: r})
		if (fx.Err == nil) != (refused == "") || fx.Err != nil && !strings.Contains(fx.Err.Error(), refused) {
			t.Errorf("%s, %+v: %v; expected %q", name, r, fx.Err, refused)
		}
	}
	v2 := view.UpgradeRequest{Image: "site/agent:v2"}
	ask("nobody", v2, "there is no worker")
	ask(a, view.UpgradeRequest{}, "an image with the new program is missing")
	ask(a, view.UpgradeRequest{Image: "x", Window: spec.Duration(2 * time.Hour)}, "out of range")
	ask(a, view.UpgradeRequest{Image: "x", Window: spec.Duration(-1)}, "out of range")
	ask(a, view.UpgradeRequest{Image: "x", Window: spec.Duration(time.Second), Steady: spec.Duration(time.Minute)}, "within")
	if item[wire.AgentOrder](s, a, wire.AgentKey) != nil {
		t.Error("what was refused was ordered")
	}
	ask(a, v2, "")
	ask(a, v2, "")
	if o := item[wire.AgentOrder](s, a, wire.AgentKey); o == nil || o.Seq != 2 || o.Image != v2.Image {
		t.Errorf("the order is %+v", o)
	}
	facts := *s.c.workers[a].Facts
	facts.Agent = &wire.AgentFacts{Order: 7, Stage: wire.AgentFailed, Why: "it hangs"}
	events := 0
	for range 2 {
		fx := s.c.Step(s.now, ChildFrame{Name: a, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: &facts})}})
		for _, e := range fx.Events {
			if e.Reason == "UpgradeFailed" && strings.Contains(e.Text, "it hangs") {
				events++
			}
		}
	}
	if events != 1 {
		t.Errorf("told %d times", events)
	}
	ask(a, v2, "") // a store that was restored does not give a number again
	if o := item[wire.AgentOrder](s, a, wire.AgentKey); o.Seq != 8 {
		t.Errorf("the order is %+v", o)
	}
}

// TestForgetWorkerWithoutASet forgets a worker of whose set a torn commit left nothing.
func TestForgetWorkerWithoutASet(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	if err := c.Load(prefixWorker+"w", []byte(`{"name":"w"}`)); err != nil {
		t.Fatal(err)
	}
	c.Start(now)
	if fx := c.Step(now, RemoveWorker{Name: "w"}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	if list := c.Workers(); len(list) != 0 {
		t.Errorf("%+v is left", list)
	}
}
