package core

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// advance moves on the upgrades that have not ended: it judges the sites under way, and gives orders to the next wave.
func (us *upgrades) advance(now time.Time, fx *wire.Effects) {
	us.due = time.Time{}
	if len(us.all) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(us.all)) {
		if upgrade := us.all[name]; !upgrade.State.Ended() && us.advanceOne(now, upgrade, fx) {
			us.save(upgrade, fx)
		}
	}
}

// advanceOne reports whether something has to be kept.
func (us *upgrades) advanceOne(now time.Time, upgrade *view.Upgrade, fx *wire.Effects) (changed bool) {
	wave, failed, skipped, last := 0, 0, 0, ""
	for n := range upgrade.Sites {
		site := &upgrade.Sites[n]
		if us.judge(now, upgrade, site, fx) {
			changed = true
		}
		switch {
		case site.Stage == view.StageFailed:
			failed++
			last = cmp.Or(last, "cluster "+string(site.Cluster)+": "+site.Why)
		case site.Stage == view.StageSkipped:
			skipped++
		case open(site) && (wave == 0 || site.Wave < wave):
			wave = site.Wave
		}
	}
	switch {
	case upgrade.State == view.UpgradeRunning && failed > upgrade.MaxFailures:
		why := last
		if failed > 1 {
			why = fmt.Sprintf("%d clusters failed, the first: %s", failed, last)
		}
		us.turn(now, upgrade, view.UpgradeStopped, why, wire.EventWarning, "ClusterUpgradeStopped", fx)
		changed = true
	case upgrade.State == view.UpgradeRunning && wave == 0:
		why := "all clusters are upgraded"
		if failed+skipped > 0 {
			why = count(len(upgrade.Sites)-failed-skipped, "cluster") + " upgraded"
			if failed > 0 {
				why += fmt.Sprintf(", %d failed of %d that may", failed, upgrade.MaxFailures)
			}
			if skipped > 0 {
				why += fmt.Sprintf(", %d skipped", skipped)
			}
		}
		us.turn(now, upgrade, view.UpgradeDone, why, wire.EventNormal, "ClusterUpgradeDone", fx)
		changed = true
	case upgrade.State == view.UpgradeRunning:
		for n := range upgrade.Sites {
			if site := &upgrade.Sites[n]; site.Wave == wave && site.Stage == view.StageWaiting {
				us.lastOrder = max(us.lastOrder+1, uint64(max(now.UnixMilli(), 0)))
				site.Seq, site.Begun = us.lastOrder, now
				stage(now, site, view.StageUpgrading, "")
				changed = true
			}
		}
	}
	for n := range upgrade.Sites {
		if site := &upgrade.Sites[n]; site.Stage == view.StageUpgrading || site.Stage == view.StageWatched {
			us.give(upgrade, site)
			us.wake(upgrade, site)
		}
	}
	return changed
}

// judge looks at what a site under way reports, and reports whether it came to an end.
func (us *upgrades) judge(now time.Time, upgrade *view.Upgrade, site *view.UpgradeCluster, fx *wire.Effects) bool {
	if site.Stage != view.StageUpgrading && site.Stage != view.StageWatched {
		return false
	}
	to, why := us.verdict(now, upgrade, site)
	if to == site.Stage {
		site.Why = why
		return false
	}
	stage(now, site, to, why)
	switch to {
	case view.StageDone:
		us.withdraw(site)
		us.tell(now, site.Cluster, wire.EventNormal, "ClusterUpgraded",
			fmt.Sprintf("cluster %s is upgraded to %s", site.Cluster, upgrade.Image), fx)
	case view.StageFailed:
		us.withdraw(site)
		us.tell(now, site.Cluster, wire.EventWarning, "ClusterUpgradeFailed",
			fmt.Sprintf("cluster %s is not upgraded to %s: %s", site.Cluster, upgrade.Image, why), fx)
	}
	// A start has sites watched anew, so that is not kept: a site that goes back and forth would have all written each time.
	return !open(site)
}

// verdict gives the stage that a site under way has come to, and why it is there.
func (us *upgrades) verdict(now time.Time, upgrade *view.Upgrade, site *view.UpgradeCluster) (view.UpgradeStage, string) {
	child := us.children.Get(string(site.Cluster))
	report, since := us.report(string(site.Cluster))
	waits := ""
	switch {
	case child == nil || !child.Connected:
		waits = "it is not in touch"
	case report == nil || !since.Equal(child.Since) || report.Upgrade == nil || report.Upgrade.Seq != site.Seq:
		waits = "it has not taken up the order"
	default:
		told := report.Upgrade
		site.Workers, site.Upgraded, site.Versions = told.Workers, told.Upgraded, told.Versions
		switch {
		case told.Refused != "":
			return view.StageFailed, told.Refused
		case told.Failed != "":
			return view.StageFailed, told.Failed
		case told.Lost > 0:
			return view.StageFailed, count(told.Lost, "worker") + " got lost after the upgrade"
		case told.Workers == 0: // or it does not know them again yet
			waits = "it has no workers that it could upgrade"
		case told.Upgraded < told.Workers:
			waits = fmt.Sprintf("%d of %s upgraded", told.Upgraded, count(told.Workers, "worker"))
			if told.Away > 0 {
				waits += fmt.Sprintf(", %d not in touch", told.Away)
			}
		case told.Away > 0:
			waits = count(told.Away, "worker") + " not in touch"
		case site.Stage == view.StageWatched && !now.Before(site.Since.Add(time.Duration(upgrade.Steady))):
			return view.StageDone, ""
		default:
			return view.StageWatched, ""
		}
	}
	if upgrade.State == view.UpgradeRunning && !now.Before(site.Begun.Add(time.Duration(upgrade.Timeout))) {
		return view.StageFailed, fmt.Sprintf("it is not finished after %s: %s", time.Duration(upgrade.Timeout), waits)
	}
	return view.StageUpgrading, waits
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// give has a site know its order.
func (us *upgrades) give(upgrade *view.Upgrade, site *view.UpgradeCluster) {
	child := us.children.Get(string(site.Cluster))
	if child == nil {
		return
	}
	had, ok := child.Desired.Get(wire.SiteUpgradeKey)
	now := givenOrder{seq: site.Seq, pause: upgrade.State != view.UpgradeRunning}
	if ok && us.given[child.Name] == now {
		return
	}
	value := us.codec.Marshal(&wire.SiteOrder{Seq: site.Seq, Name: upgrade.Name, Image: upgrade.Digest,
		Window: upgrade.Window, By: upgrade.By, Pause: now.pause})
	if !ok || !bytes.Equal(had, value) {
		_ = us.children.Put(child.Name, wire.SiteUpgradeKey, value) // it always fits: its texts are bounded
	}
	us.given[child.Name] = now
}

// wake notes when a site has been steady, or is late.
func (us *upgrades) wake(upgrade *view.Upgrade, site *view.UpgradeCluster) {
	at := site.Begun.Add(time.Duration(upgrade.Timeout))
	if site.Stage == view.StageWatched {
		at = site.Since.Add(time.Duration(upgrade.Steady))
	} else if upgrade.State != view.UpgradeRunning {
		return
	}
	if us.due.IsZero() || at.Before(us.due) {
		us.due = at
	}
}
