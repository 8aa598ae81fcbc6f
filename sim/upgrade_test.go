package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// fleet is a root with sites of two workers each, which grant their root to upgrade them.
type fleet struct {
	*World
	t   *testing.T
	bad map[string]string // why the new program fails at a worker
}

const newAgent = "ops/agent@sha256:" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func newFleet(t *testing.T, sites ...string) *fleet {
	f := &fleet{World: newWorld(t, 5), t: t, bad: map[string]string{}}
	f.Audit = true
	f.Machine.Upgrade = func(worker, _ string) (string, bool) { return f.bad[worker], true }
	for _, site := range sites {
		f.AddCluster(site)
		for n := range 2 {
			f.AddWorker(site, fmt.Sprintf("w-%s%d", site, n), facts(4000))
		}
		f.must(t, f.Clusters[site], cluster.SetGrant{Grant: wire.GrantWaves, Given: true, By: "ada"})
	}
	f.Run(15 * time.Second)
	return f
}

func (f *fleet) begin(plan view.UpgradePlan) {
	f.t.Helper()
	plan.Name, plan.Image = "v2", "ops/agent:v2"
	f.must(f.t, f.Root, root.StartUpgrade{Plan: plan, Digest: newAgent, By: "ben"})
}

func (f *fleet) shown() view.Upgrade {
	f.t.Helper()
	u, err := f.RootCore().Views().Upgrade("v2")
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// stages are those of the clusters, as in "a:Done b:Waiting".
func (f *fleet) stages() string {
	var out []string
	for _, site := range f.shown().Sites {
		out = append(out, fmt.Sprintf("%s:%s", site.Cluster, site.Stage))
	}
	return strings.Join(out, " ")
}

func (f *fleet) await(what string, limit time.Duration, done func() bool) {
	f.t.Helper()
	for range int(limit / time.Second) {
		if done() {
			return
		}
		f.Run(time.Second)
	}
	f.t.Fatalf("%s: not within %s; the upgrade is %+v", what, limit, f.shown())
}

// upgraded counts the workers of a site that have the new program.
func (f *fleet) upgraded(site string) (n int) {
	for name, w := range f.Workers {
		if strings.HasPrefix(name, site+"/") && w.version == newAgent {
			n++
		}
	}
	return n
}

// Sites are upgraded two at a time, each worker by worker, and the next two only after the first two were steady.
func TestUpgradeWaves(t *testing.T) {
	f := newFleet(t, "a", "b", "c")
	f.begin(view.UpgradePlan{All: true, Wave: 2, Steady: spec.Duration(time.Minute)})
	f.await("the first wave is watched", 2*time.Minute, func() bool {
		for _, site := range []string{"a", "b", "c"} {
			under := 0
			for name, w := range f.Workers {
				if c := f.ClusterCore(site); strings.HasPrefix(name, site+"/") && w.version != newAgent && slices.ContainsFunc(c.Workers(),
					func(v view.WorkerView) bool { return site+"/"+string(v.Name) == name && v.Upgrade != nil }) {
					under++
				}
			}
			if under > 1 {
				t.Fatalf("at site %s %d workers are upgraded at a time", site, under)
			}
		}
		return f.stages() == "a:Watched b:Watched c:Waiting"
	})
	f.Run(55 * time.Second)
	if got := f.stages(); got != "a:Watched b:Watched c:Waiting" || f.upgraded("c") != 0 {
		t.Fatalf("before the steady time is over: %s, %d workers of c are upgraded", got, f.upgraded("c"))
	}
	f.await("all are done", 5*time.Minute, func() bool { return f.shown().State == view.UpgradeDone })
	for _, site := range f.shown().Sites {
		if site.Stage != view.StageDone || site.Upgraded != 2 || site.Versions[newAgent] != 2 {
			t.Errorf("got %+v, want it done with two workers of the new version", site)
		}
	}
	f.Run(15 * time.Second)
	for _, site := range []string{"a", "b", "c"} {
		if v := f.siteView(t, site); v.Report.Upgrade != nil {
			t.Errorf("site %s still tells of %+v", site, v.Report.Upgrade)
		}
	}
	if f.told("ClusterUpgraded") != 3 || f.told("ClusterUpgradeDone") != 1 {
		t.Errorf("got %d events of clusters and %d of the end, want 3 and 1", f.told("ClusterUpgraded"), f.told("ClusterUpgradeDone"))
	}
}

// A program that fails its trial stops the upgrade. What was upgraded stays, the next waves are left alone, no worker is named, and a
// resumption tries the site again.
func TestUpgradeStopsOnFailure(t *testing.T) {
	f := newFleet(t, "a", "b", "c")
	f.bad["b/w-b0"] = "w-b0 at w-b0.test: it ended: exit status 7"
	f.begin(view.UpgradePlan{All: true, Steady: spec.Duration(10 * time.Second)})
	f.await("it stops", 5*time.Minute, func() bool { return f.shown().State == view.UpgradeStopped })
	u := f.shown()
	if got := f.stages(); got != "a:Done b:Failed c:Waiting" {
		t.Errorf("got %s, want a done and c alone", got)
	}
	if !strings.Contains(u.Why, "cluster b: a worker keeps its program") || !strings.Contains(u.Why, "exit status 7") {
		t.Errorf("got the reason %q, want it to name b and the worker's", u.Why)
	}
	if strings.Contains(u.Why, "w-b0") {
		t.Errorf("the reason names a worker: %q", u.Why)
	}
	f.Run(5 * time.Minute)
	if f.upgraded("b") != 0 || f.upgraded("c") != 0 {
		t.Errorf("after the stop, %d and %d workers of b and c are upgraded, want 0", f.upgraded("b"), f.upgraded("c"))
	}
	delete(f.bad, "b/w-b0")
	f.must(t, f.Root, root.ChangeUpgrade{Name: "v2", To: view.UpgradeRunning, By: "ben"})
	f.await("it is done", 5*time.Minute, func() bool { return f.shown().State == view.UpgradeDone })
	if got := f.stages(); got != "a:Done b:Done c:Done" {
		t.Errorf("resumed: %s", got)
	}
}

// As many sites as allowed may fail.
func TestUpgradeToleratesFailures(t *testing.T) {
	f := newFleet(t, "a", "b", "c")
	f.bad["a/w-a1"], f.bad["b/w-b1"] = "it hangs", "it hangs"
	f.begin(view.UpgradePlan{Labels: map[string]string{}, All: true, MaxFailures: 2, Steady: spec.Duration(10 * time.Second)})
	f.await("it is done", 5*time.Minute, func() bool { return f.shown().State == view.UpgradeDone })
	if got := f.stages(); got != "a:Failed b:Failed c:Done" {
		t.Errorf("got %s, want c alone done", got)
	}
}

// A site out of touch is waited for, and counts as failed in the end. The root may restart meanwhile.
func TestUpgradeOfAbsentSite(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.Cut(f.Clusters["a"])
	f.begin(view.UpgradePlan{All: true, Steady: spec.Duration(10 * time.Second), Timeout: spec.Duration(30 * time.Minute)})
	f.Run(5 * time.Minute)
	f.Kill(f.Root)
	f.Run(time.Minute)
	f.Restart(f.Root, nil)
	f.Run(time.Minute)
	if got := f.stages(); got != "a:Upgrading b:Waiting" || !strings.Contains(f.shown().Sites[0].Why, "not in touch") {
		t.Fatalf("with a out of touch: %s, %+v", got, f.shown().Sites)
	}
	f.Heal(f.Clusters["a"])
	f.await("a is done", 5*time.Minute, func() bool { return f.shown().Sites[0].Stage == view.StageDone })
	f.Cut(f.Clusters["b"])
	f.await("it stops", 40*time.Minute, func() bool { return f.shown().State == view.UpgradeStopped })
	if why := f.shown().Why; !strings.Contains(why, "cluster b: it is not finished after 30m0s: it is not in touch") {
		t.Errorf("got the reason %q", why)
	}
	// It hears of the end when it is back, and does nothing.
	before := f.upgraded("b")
	f.Heal(f.Clusters["b"])
	f.Run(2 * time.Minute)
	if got := f.upgraded("b"); got > before+1 {
		t.Errorf("back in touch, %d workers of b are upgraded, want no further one to begin than the one under way (%d were)", got, before)
	}
}

// A worker that is lost while its site is watched stops the upgrade, too.
func TestUpgradeWatchesSites(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.begin(view.UpgradePlan{All: true, Steady: spec.Duration(5 * time.Minute)})
	f.await("a is watched", 5*time.Minute, func() bool { return f.shown().Sites[0].Stage == view.StageWatched })
	f.Run(time.Minute)
	f.PowerOff(f.Workers["a/w-a1"])
	f.await("it stops", 2*time.Minute, func() bool { return f.shown().State == view.UpgradeStopped })
	if why := f.shown().Why; !strings.Contains(why, "cluster a: 1 worker got lost after the upgrade") {
		t.Errorf("got the reason %q", why)
	}
}

// A site that takes its grant back is upgraded no further; one that gave none is left out, and one of them alone is refused.
func TestUpgradeNeedsGrant(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.must(t, f.Clusters["b"], cluster.SetGrant{Grant: wire.GrantWaves})
	f.Run(time.Second)
	plan := view.UpgradePlan{Name: "v2", Image: "x", Clusters: []string{"b"}}
	err, _ := f.Do(f.Root, root.StartUpgrade{Plan: plan, Digest: newAgent}).(error)
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeNotGranted {
		t.Fatalf("a site that grants nothing: got %v, want not-granted", err)
	}
	f.begin(view.UpgradePlan{Clusters: []string{"a", "b"}})
	f.await("a worker is upgraded", 5*time.Minute, func() bool { return f.upgraded("a") == 1 })
	f.must(t, f.Clusters["a"], cluster.SetGrant{Grant: wire.GrantWaves})
	f.await("it stops", time.Minute, func() bool { return f.shown().State == view.UpgradeStopped })
	if got := f.stages(); got != "a:Failed b:Skipped" || !strings.Contains(f.shown().Why, `does not grant "waves"`) {
		t.Errorf("got %s because %q", got, f.shown().Why)
	}
}

// Paused, no further worker begins; aborted, the sites forget the order.
func TestUpgradePausedAndAborted(t *testing.T) {
	f := newFleet(t, "a", "b")
	f.begin(view.UpgradePlan{All: true})
	change := func(to view.UpgradeState) error {
		err, _ := f.Do(f.Root, root.ChangeUpgrade{Name: "v2", To: to, By: "ben"}).(error)
		return err
	}
	f.Run(time.Second)
	if err := change(view.UpgradePaused); err != nil {
		t.Fatal(err)
	}
	f.Run(2 * time.Hour)
	if got := f.upgraded("a"); got != 1 || f.shown().State != view.UpgradePaused {
		t.Errorf("paused: %d workers are upgraded, want the one that had begun; it is %s", got, f.shown().State)
	}
	if err := change(view.UpgradePaused); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("paused again: got %v, want a conflict", err)
	}
	if err := change(view.UpgradeRunning); err != nil {
		t.Fatal(err)
	}
	f.await("a is done", 5*time.Minute, func() bool { return f.shown().Sites[0].Stage == view.StageDone })
	if err := change(view.UpgradeAborted); err != nil {
		t.Fatal(err)
	}
	f.Run(5 * time.Minute)
	if got := f.stages(); got != "a:Done b:Skipped" || f.upgraded("b") > 1 {
		t.Errorf("aborted: %s, %d workers of b", got, f.upgraded("b"))
	}
	f.must(t, f.Root, root.RemoveUpgrade{Name: "v2"})
	if list := f.RootCore().Views().Upgrades(); len(list) != 0 {
		t.Errorf("removed, there are %+v", list)
	}
}
