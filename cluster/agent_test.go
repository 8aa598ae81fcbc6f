package cluster

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wire"
)

// TestUpgradeOrders asks for upgrades: what cannot be is refused, each order is another one, and the outcome is told once.
func TestUpgradeOrders(t *testing.T) {
	s := newFabricSite(t)
	a := s.join(1)
	ask := func(name string, r skerry.UpgradeRequest, refused string) {
		t.Helper()
		fx := s.c.Step(s.now, UpgradeWorker{Name: name, UpgradeRequest: r})
		if (fx.Err == nil) != (refused == "") || fx.Err != nil && !strings.Contains(fx.Err.Error(), refused) {
			t.Errorf("%s, %+v: %v; expected %q", name, r, fx.Err, refused)
		}
	}
	v2 := skerry.UpgradeRequest{Image: "site/agent:v2"}
	ask("nobody", v2, "there is no worker")
	ask(a, skerry.UpgradeRequest{}, "an image with the new program is missing")
	ask(a, skerry.UpgradeRequest{Image: "x", Window: skerry.Duration(2 * time.Hour)}, "out of range")
	ask(a, skerry.UpgradeRequest{Image: "x", Window: skerry.Duration(-1)}, "out of range")
	ask(a, skerry.UpgradeRequest{Image: "x", Window: skerry.Duration(time.Second), Steady: skerry.Duration(time.Minute)}, "within")
	if item[skerry.AgentOrder](s, a, skerry.AgentKey) != nil {
		t.Error("what was refused was ordered")
	}
	ask(a, v2, "")
	ask(a, v2, "")
	if o := item[skerry.AgentOrder](s, a, skerry.AgentKey); o == nil || o.Seq != 2 || o.Image != v2.Image {
		t.Errorf("the order is %+v", o)
	}
	facts := *s.c.workers[a].Facts
	facts.Agent = &skerry.AgentFacts{Order: 7, Stage: skerry.AgentFailed, Why: "it hangs"}
	events := 0
	for range 2 {
		fx := s.c.Step(s.now, ChildFrame{Name: a, Msg: &skerry.Report{Kind: skerry.ReportWorker, Payload: wire.New().Marshal(&skerry.WorkerReport{Facts: &facts})}})
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
	if o := item[skerry.AgentOrder](s, a, skerry.AgentKey); o.Seq != 8 {
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
