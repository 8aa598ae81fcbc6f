package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// restarted is the root after a restart, with what it had stored.
func (r *hostileRoot) restarted() *Core {
	r.t.Helper()
	c := New(Options{Incarnation: "a"})
	for key, value := range r.kv {
		if value == nil {
			continue
		}
		if err := c.Load(key, value); err != nil {
			r.t.Fatal(err)
		}
	}
	return c
}

// A site that goes back and forth between upgraded and not has the root write nothing.
func TestFlappingSiteWritesNothing(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	order, writes := r.upgrade().Sites[0].Seq, 0
	for n := range 100 {
		fx := r.step(ChildFrame{Name: "a", Msg: &wire.Report{Kind: wire.ReportCluster,
			Payload: granting(&wire.SiteUpgrade{Seq: order, Workers: 2, Upgraded: 1 + n%2})}})
		for _, w := range fx.Writes {
			if strings.HasPrefix(w.Key, prefixUpgrade) {
				writes++
			}
		}
	}
	if writes > 2 {
		t.Errorf("100 reports of one site had the upgrade written %d times", writes)
	}
}

// Whatever sites report, and however many there are, the record of an upgrade can be stored.
func TestUpgradeRecordFitsStore(t *testing.T) {
	sites := make([]string, 120)
	for n := range sites {
		sites[n] = fmt.Sprintf("s%03d", n)
	}
	r := newHostileRoot(t, sites...)
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true, Wave: len(sites), MaxFailures: len(sites)}, Digest: agentImage})
	most := 0
	for n, site := range r.upgrade().Sites {
		told := &wire.SiteUpgrade{Seq: site.Seq, Workers: 1, Failed: strings.Repeat("<", 512), Versions: map[string]int{}}
		for v := range 16 {
			told.Versions[strings.Repeat("<", 250)+fmt.Sprint(v)] = 1
		}
		for _, w := range r.step(ChildFrame{Name: sites[n], Msg: &wire.Report{Kind: wire.ReportCluster, Payload: granting(told)}}).Writes {
			most = max(most, len(w.Value))
		}
	}
	if most > store.MaxValue {
		t.Errorf("hostile sites have a record of %d bytes written, and at most %d can be", most, store.MaxValue)
	}
	if upgrade := r.upgrade(); upgrade.Sites[0].Stage != view.StageFailed || upgrade.Sites[0].Why == "" {
		t.Errorf("got %+v, want it failed with its reason", upgrade.Sites[0])
	}
}

// An upgrade of more clusters than a record can hold is refused, and not begun.
func TestUpgradeOfTooManySites(t *testing.T) {
	r := newHostileRoot(t)
	for n := range 6000 {
		name := fmt.Sprintf("s%04d%s", n, strings.Repeat("x", 58))
		_ = r.c.Children.Put(name, "x", nil)
	}
	fx := r.c.Step(r.now, StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	if err := skerry.AsError(fx.Err); fx.Err == nil || err.Code != skerry.CodeTooLarge {
		t.Errorf("6000 clusters: got %v, want it refused as too large", fx.Err)
	}
	if len(r.c.Views().Upgrades()) != 0 {
		t.Error("it was begun")
	}
}

// The largest upgrade that is begun can be stored to its end.
func TestLargestUpgradeFitsStore(t *testing.T) {
	site := view.UpgradeCluster{Cluster: skerry.ClusterName(strings.Repeat("x", 63)), Wave: 10000, Stage: view.StageUpgrading,
		Since: time.Now(), Begun: time.Now(), Why: strings.Repeat("<", 512), Seq: 1 << 63, Workers: 1 << 30, Upgraded: 1 << 30,
		Versions: map[string]int{"v1": 1}}
	upgrade := &view.Upgrade{UpgradePlan: view.UpgradePlan{Name: strings.Repeat("x", 63)}, Why: strings.Repeat("<", 1024)}
	for range maxUpgradeSites {
		upgrade.Sites = append(upgrade.Sites, site)
		upgrade.Clusters = append(upgrade.Clusters, string(site.Cluster))
	}
	var fx wire.Effects
	newHostileRoot(t).c.upgrades.save(upgrade, &fx)
	if n := len(fx.Writes[0].Value); n > store.MaxValue {
		t.Errorf("its record has %d bytes, and at most %d can be stored", n, store.MaxValue)
	}
	if upgrade.Sites[0].Why == "" || upgrade.Sites[0].Versions == nil {
		t.Error("what is shown was cut with what is stored")
	}
}

// A root that was down for longer than a site's time gives the site a moment to come back before it counts as failed.
func TestRootBackAfterTimeoutOfSite(t *testing.T) {
	r := newHostileRoot(t, "a")
	r.tells("a", granting(nil))
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true, Timeout: spec.Duration(time.Hour)}, Digest: agentImage})
	c, now := r.restarted(), r.now.Add(3*time.Hour)
	c.Start(now)
	upgrade, err := c.Views().Upgrade("v2")
	if err != nil {
		t.Fatal(err)
	}
	if upgrade.State != view.UpgradeRunning || upgrade.Sites[0].Stage != view.StageUpgrading {
		t.Errorf("at its start, before any site could be in touch, it is %s with %+v", upgrade.State, upgrade.Sites)
	}
	c.Tick(now.Add(time.Hour))
	if upgrade, _ = c.Views().Upgrade("v2"); upgrade.State != view.UpgradeStopped {
		t.Errorf("an hour later it is %s, want it stopped", upgrade.State)
	}
}

// A cluster that failed and was removed is not waited for once more, nor is another that joined under its name upgraded for it.
func TestResumeAfterFailedSiteWasRemoved(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	r.tells("a", granting(&wire.SiteUpgrade{Seq: r.upgrade().Sites[0].Seq, Workers: 1, Failed: "it ended"}))
	r.step(ChildDown{Name: "a"})
	r.step(RemoveCluster{Name: "a"})
	r.step(ChildUp{Hello: &wire.Hello{Name: "a"}})
	if upgrade := r.upgrade(); upgrade.State != view.UpgradeStopped {
		t.Fatalf("it is %s, want it stopped", upgrade.State)
	}
	r.step(ChangeUpgrade{Name: "v2", To: view.UpgradeRunning})
	if got := r.upgrade(); r.has("a", wire.SiteUpgradeKey) || !r.has("b", wire.SiteUpgradeKey) {
		t.Errorf("resumed, the order is not b's alone: %+v", got.Sites)
	}
}

// An upgrade that left clusters out does not say that all are upgraded.
func TestDoneTellsWhatWasSkipped(t *testing.T) {
	r := newHostileRoot(t, "a")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	r.step(ChildDown{Name: "a"})
	r.step(RemoveCluster{Name: "a"})
	if upgrade := r.upgrade(); strings.Contains(upgrade.Why, "all clusters are upgraded") {
		t.Errorf("no cluster was upgraded, and it is %s: %s", upgrade.State, upgrade.Why)
	}
}

// A report of one site has the orders of the others that are under way not made anew: a site that reports much would stop the root.
func TestReportDuringLargeWave(t *testing.T) {
	sites := make([]string, 500)
	for n := range sites {
		sites[n] = fmt.Sprintf("s%03d", n)
	}
	r := newHostileRoot(t, sites...)
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true, Wave: len(sites)}, Digest: agentImage})
	report := ChildFrame{Name: sites[0], Msg: &wire.Report{Kind: wire.ReportCluster, Payload: granting(nil)}}
	if n := testing.AllocsPerRun(20, func() { r.c.Step(r.now, report) }); n > float64(len(sites))/2 {
		t.Errorf("a report has the root allocate %.0f times with %d sites under way", n, len(sites))
	}
	// The orders follow the upgrade all the same, and are given again to a site that has none.
	paused := func(site string) bool {
		value, _ := r.c.Children.Get(site).Desired.Get(wire.SiteUpgradeKey)
		var order wire.SiteOrder
		return wire.New().Unmarshal(value, &order) == nil && order.Pause
	}
	for _, to := range []view.UpgradeState{view.UpgradePaused, view.UpgradeRunning} {
		r.step(ChangeUpgrade{Name: "v2", To: to})
		if paused(sites[1]) != (to == view.UpgradePaused) {
			t.Errorf("with the upgrade %s, the order of a site says otherwise", to)
		}
	}
	r.c.Children.Delete(sites[1], wire.SiteUpgradeKey)
	if r.step(report); !r.has(sites[1], wire.SiteUpgradeKey) {
		t.Error("a site that had lost its order has none")
	}
}

// TestSiteWithoutWorkers is none that is upgraded, whatever it does not know: it is late in the end, and says why.
func TestSiteWithoutWorkers(t *testing.T) {
	r := newHostileRoot(t, "a")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
	r.tells("a", granting(&wire.SiteUpgrade{Seq: r.upgrade().Sites[0].Seq}))
	for range 2 {
		r.now = r.now.Add(defaultUpgradeSteady)
		r.keep(r.c.Tick(r.now))
	}
	if site := r.upgrade().Sites[0]; site.Stage != view.StageUpgrading {
		t.Errorf("without workers: got %s, want %s", site.Stage, view.StageUpgrading)
	}
	r.now = r.now.Add(defaultUpgradeTimeout)
	r.keep(r.c.Tick(r.now))
	if site := r.upgrade().Sites[0]; site.Stage != view.StageFailed || !strings.Contains(site.Why, "it has no workers") {
		t.Errorf("in the end: got %s, %q, want it failed as it has no workers", site.Stage, site.Why)
	}
}

// TestResumedWatchHasItsTime: one that is watched when an upgrade goes on has its whole time from then.
func TestResumedWatchHasItsTime(t *testing.T) {
	r := newHostileRoot(t, "a")
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true, Steady: spec.Duration(24 * time.Hour),
		Timeout: spec.Duration(25 * time.Hour)}, Digest: agentImage})
	order := r.upgrade().Sites[0].Seq
	r.tells("a", granting(&wire.SiteUpgrade{Seq: order, Workers: 1, Upgraded: 1}))
	r.step(ChangeUpgrade{Name: "v2", To: view.UpgradePaused})
	r.now = r.now.Add(30 * time.Hour)
	r.step(ChangeUpgrade{Name: "v2", To: view.UpgradeRunning})
	r.tells("a", granting(&wire.SiteUpgrade{Seq: order, Workers: 1, Upgraded: 1, Away: 1}))
	if site := r.upgrade().Sites[0]; site.Stage == view.StageFailed {
		t.Errorf("a worker that is away for a moment: got %s, %q, want it watched again", site.Stage, site.Why)
	}
}
