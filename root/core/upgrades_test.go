package core

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const agentImage = "ops/agent@sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// tells has a site report, with the grant of waves, how far it is with its order.
func (r *hostileRoot) tells(site string, payload []byte) {
	r.t.Helper()
	r.step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: payload}})
}

func granting(upgrade *wire.SiteUpgrade) []byte {
	return wire.New().Marshal(&wire.ClusterReport{Grants: []wire.Grant{wire.GrantWaves}, Upgrade: upgrade})
}

func (r *hostileRoot) upgrade() view.Upgrade {
	r.t.Helper()
	upgrade, err := r.c.Views().Upgrade("v2")
	if err != nil {
		r.t.Fatal(err)
	}
	return upgrade
}

// Plans that make no sense are refused, with the reason.
func TestUpgradePlans(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	hours := func(n int) spec.Duration { return spec.Duration(n) * spec.Duration(time.Hour) }
	for what, wrong := range map[string]struct {
		plan view.UpgradePlan
		code skerry.Code
	}{
		"no name":         {view.UpgradePlan{All: true}, skerry.CodeInvalid},
		"no clusters":     {view.UpgradePlan{Name: "v2"}, skerry.CodeInvalid},
		"two selections":  {view.UpgradePlan{Name: "v2", All: true, Clusters: []string{"a"}}, skerry.CodeInvalid},
		"unknown cluster": {view.UpgradePlan{Name: "v2", Clusters: []string{"a", "x"}}, skerry.CodeNotFound},
		"empty group":     {view.UpgradePlan{Name: "v2", Labels: map[string]string{"region": "west"}}, skerry.CodeNotFound},
		"steady for days": {view.UpgradePlan{Name: "v2", All: true, Steady: hours(25)}, skerry.CodeInvalid},
		"no time":         {view.UpgradePlan{Name: "v2", All: true, Steady: hours(2), Timeout: hours(1)}, skerry.CodeInvalid},
		"late":            {view.UpgradePlan{Name: "v2", All: true, Timeout: hours(1000)}, skerry.CodeInvalid},
		"fewer than none": {view.UpgradePlan{Name: "v2", All: true, Wave: -1}, skerry.CodeInvalid},
		"endless trial":   {view.UpgradePlan{Name: "v2", All: true, Window: hours(2)}, skerry.CodeInvalid},
	} {
		fx := r.c.Step(r.now, StartUpgrade{Plan: wrong.plan, Digest: agentImage})
		if err := skerry.AsError(fx.Err); fx.Err == nil || err.Code != wrong.code || len(fx.Writes) > 0 {
			t.Errorf("%s: got %v and %d writes, want %s and none", what, fx.Err, len(fx.Writes), wrong.code)
		}
	}
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", Clusters: []string{"a"}}, Digest: agentImage})
	for what, plan := range map[string]view.UpgradePlan{"same name": {Name: "v2", Clusters: []string{"b"}},
		"same cluster": {Name: "v3", All: true}} {
		fx := r.c.Step(r.now, StartUpgrade{Plan: plan, Digest: agentImage})
		if err := skerry.AsError(fx.Err); fx.Err == nil || err.Code != skerry.CodeConflict {
			t.Errorf("%s: got %v, want a conflict", what, fx.Err)
		}
	}
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v3", Clusters: []string{"b"}}, Digest: agentImage})
	for _, msg := range []any{RemoveUpgrade{Name: "v2"}, ChangeUpgrade{Name: "v2", To: view.UpgradeRunning}} {
		if fx := r.c.Step(r.now, msg); fx.Err == nil || skerry.AsError(fx.Err).Code != skerry.CodeConflict {
			t.Errorf("%+v of an upgrade that runs: got %v, want a conflict", msg, fx.Err)
		}
	}
}

// A site moves its own part of an upgrade alone, by the order that it was given, and cannot put what a terminal acts on into it.
func TestUpgradeOfLyingSite(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	for _, site := range []string{"a", "b"} {
		r.tells(site, granting(nil))
	}
	r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true, Wave: 1, MaxFailures: 1}, Digest: agentImage})
	first := r.upgrade().Sites[0]
	if first.Stage != view.StageUpgrading || !r.has("a", wire.SiteUpgradeKey) || r.has("b", wire.SiteUpgradeKey) {
		t.Fatalf("got %+v, want the order at a alone", r.upgrade().Sites)
	}
	r.tells("b", granting(&wire.SiteUpgrade{Seq: first.Seq, Workers: 1, Failed: "no"}))
	r.tells("a", granting(&wire.SiteUpgrade{Seq: first.Seq + 1, Workers: 1, Failed: "of another order"}))
	for _, site := range r.upgrade().Sites {
		if site.Stage == view.StageFailed {
			t.Errorf("%s failed by what is not about its order: %s", site.Cluster, site.Why)
		}
	}
	r.tells("a", granting(&wire.SiteUpgrade{Seq: first.Seq, Workers: 3, Upgraded: 1, Versions: map[string]int{"\x1b[2Jv2": 1, "v1": 2},
		Failed: "it ended \x1b[31m" + strings.Repeat("x", 1<<20)}))
	first = r.upgrade().Sites[0]
	if first.Stage != view.StageFailed || len(first.Why) > 1<<10 || strings.ContainsRune(first.Why, '\x1b') || len(first.Versions) != 1 {
		t.Errorf("got stage %s, a reason of %d bytes and versions %v, want it failed, short and printable",
			first.Stage, len(first.Why), first.Versions)
	}
	if r.has("a", wire.SiteUpgradeKey) || !r.has("b", wire.SiteUpgradeKey) {
		t.Error("the order was not taken back from a, or not given to b")
	}
	r.step(ChildDown{Name: "b"})
	r.step(RemoveCluster{Name: "b"})
	if upgrade := r.upgrade(); upgrade.State != view.UpgradeDone || upgrade.Sites[1].Stage != view.StageSkipped {
		t.Errorf("with b removed: got %s, %+v", upgrade.State, upgrade.Sites)
	}
}

// A site tells the root numbers of its certificates; those that cannot be are cut.
func TestCertificatesOfSite(t *testing.T) {
	r := newHostileRoot(t, "a")
	r.tells("a", wire.New().Marshal(&wire.ClusterReport{Certificates: &wire.SiteCertificates{Hosts: 3, Valid: 2, Failing: 1, Expiring: -5}}))
	want := wire.SiteCertificates{Hosts: 3, Valid: 2, Failing: 1}
	if got := r.c.Views().Sites()[0].Report.Certificates; got == nil || *got != want {
		t.Errorf("the root shows %+v, want %+v", got, want)
	}
}

// FuzzSiteUpgrade has a site report anything. It ends no upgrade but by its own failure, and what is kept of it is small and printable.
func FuzzSiteUpgrade(f *testing.F) {
	f.Add([]byte{0xa0})
	f.Add(granting(&wire.SiteUpgrade{Seq: 1e12, Workers: 2, Upgraded: 2, Versions: map[string]int{"v2": 2}}))
	f.Add(granting(&wire.SiteUpgrade{Seq: 1e12, Workers: -1, Lost: math.MaxInt, Refused: "\x00", Versions: map[string]int{"": -1}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newHostileRoot(t, "a", "b")
		r.step(StartUpgrade{Plan: view.UpgradePlan{Name: "v2", All: true}, Digest: agentImage})
		r.tells("a", data)
		upgrade := r.upgrade()
		a, b := upgrade.Sites[0], upgrade.Sites[1]
		if upgrade.State == view.UpgradeDone || b.Stage != view.StageWaiting || a.Stage == view.StageDone {
			t.Errorf("got %s with %+v, want b to wait and a not done at once", upgrade.State, upgrade.Sites)
		}
		odd := func(c rune) bool { return !unicode.IsPrint(c) }
		if a.Workers < 0 || a.Upgraded < 0 || len(a.Why) > 2<<10 || strings.ContainsFunc(a.Why, odd) || len(a.Versions) > 16 {
			t.Errorf("it is kept as %+v", a)
		}
	})
}
