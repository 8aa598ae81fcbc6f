package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// An operator of the root upgrades sites in waves. Each site is given an order in its desired set, upgrades its workers itself, one after
// the other, and reports counts. A site that does not grant that is left out.
//
//	Running ──all sites of a wave Done──► next wave ──► Done
//	   │ ▲                 each site: Waiting ─► Upgrading ─► Watched ─steady─► Done
//	   │ └─resume─ Paused, Stopped                  └───────────┴─► Failed
//	   └─ more sites Failed than allowed ─► Stopped

const (
	prefixUpgrade = "upgrade/"

	defaultUpgradeSteady  = time.Minute
	defaultUpgradeTimeout = time.Hour
	maxUpgradeSteady      = 24 * time.Hour
	maxUpgradeTimeout     = 30 * 24 * time.Hour
	maxUpgradeWindow      = time.Hour
	// upgradeReturn is what a site has left of its time, at least, after a start of the root: it was not heard meanwhile.
	upgradeReturn = 5 * time.Minute
	// maxUpgrades bounds the records of upgrades. The oldest that has ended gives way to a new one.
	maxUpgrades = 100
	// maxUpgradeSites bounds the clusters of an upgrade, so that the store takes a record of them all without what they say.
	maxUpgradeSites = 2500
	// maxUpgradeRecord is less than the store takes as one value.
	maxUpgradeRecord = 1000 << 10
)

type (
	// StartUpgrade begins an upgrade. The result is a view.Upgrade.
	StartUpgrade struct {
		Plan   view.UpgradePlan
		Digest string // the image, pinned
		By     string
	}
	// ChangeUpgrade pauses, resumes or aborts one.
	ChangeUpgrade struct {
		Name, By string
		To       view.UpgradeState // Paused, Running or Aborted
	}
	// RemoveUpgrade forgets one that has ended.
	RemoveUpgrade struct{ Name string }
)

// upgrades owns the upgrades of sites, by name.
type upgrades struct {
	all      map[string]*view.Upgrade
	children *members.Children
	labels   *labels
	codec    *wire.Codec
	// report gives what a site reported last, and since when the connection is up over which it did; nil: nothing, in this life.
	report    func(site string) (*wire.ClusterReport, time.Time)
	given     map[string]givenOrder // by site, in this life: orders are not written anew for each message
	lastOrder uint64
	due       time.Time // when something is late or has been steady; zero: nothing will be
}

// givenOrder is what of a site's order may change.
type givenOrder struct {
	seq   uint64
	pause bool
}

func newUpgrades(children *members.Children, groups *labels, report func(string) (*wire.ClusterReport, time.Time)) *upgrades {
	return &upgrades{all: map[string]*view.Upgrade{}, children: children, labels: groups, report: report, codec: wire.New(),
		given: map[string]givenOrder{}}
}

func (us *upgrades) load(name string, value []byte) error {
	upgrade := new(view.Upgrade)
	if err := json.Unmarshal(value, upgrade); err != nil {
		return err
	}
	us.all[name] = upgrade
	for n := range upgrade.Sites {
		us.lastOrder = max(us.lastOrder, upgrade.Sites[n].Seq)
	}
	return nil
}

// start ends loading. How long sites have been steady is measured anew, as nobody watched them meanwhile. A crash in the middle of a commit
// may have left an order that nobody wants.
func (us *upgrades) start(now time.Time) {
	ordered := map[string]bool{}
	for _, upgrade := range us.all {
		for n := range upgrade.Sites {
			site := &upgrade.Sites[n]
			if upgrade.State.Ended() || site.Stage != view.StageWatched && site.Stage != view.StageUpgrading {
				continue
			}
			site.Stage, site.Since = view.StageUpgrading, now
			timeout := time.Duration(upgrade.Timeout)
			if late := now.Add(min(upgradeReturn, timeout) - timeout); site.Begun.Before(late) {
				site.Begun = late
			}
			ordered[string(site.Cluster)] = true
		}
	}
	for _, name := range us.children.Names() {
		if us.children.Get(name).Desired.Has(wire.SiteUpgradeKey) && !ordered[name] {
			us.children.Delete(name, wire.SiteUpgradeKey)
		}
	}
}

func (us *upgrades) save(upgrade *view.Upgrade, fx *wire.Effects) {
	data, err := json.Marshal(upgrade)
	if err != nil {
		panic("upgrades always marshal: " + err.Error())
	}
	if len(data) > maxUpgradeRecord { // sites say much: what they say is left out
		bare := cloneUpgrade(upgrade)
		for n := range bare.Sites {
			bare.Sites[n].Why, bare.Sites[n].Versions = "", nil
		}
		if data, err = json.Marshal(&bare); err != nil {
			panic("upgrades always marshal: " + err.Error())
		}
	}
	fx.Put(prefixUpgrade+upgrade.Name, data)
}

// message takes what operators want of upgrades, and reports whether it is that.
func (us *upgrades) message(now time.Time, msg any, fx *wire.Effects) bool {
	switch m := msg.(type) {
	case StartUpgrade:
		fx.Err = us.begin(now, &m, fx)
	case ChangeUpgrade:
		fx.Err = us.change(now, &m, fx)
	case RemoveUpgrade:
		fx.Err = us.remove(m.Name, fx)
	default:
		return false
	}
	return true
}

// begin checks a plan and makes an upgrade of it.
func (us *upgrades) begin(now time.Time, asked *StartUpgrade, fx *wire.Effects) error {
	plan := asked.Plan
	if err := checkPlan(&plan); err != nil {
		return err
	}
	if us.all[plan.Name] != nil {
		return skerry.Errorf(skerry.CodeConflict, "there is an upgrade %s", plan.Name).
			WithHint("choose another name, or `skerry delete upgrade %s` once it has ended", plan.Name)
	}
	upgrade := &view.Upgrade{UpgradePlan: plan, Digest: asked.Digest, By: asked.By, Since: now, State: view.UpgradeRunning, At: now}
	names, err := us.selected(&plan)
	if err != nil {
		return err
	}
	takes := 0
	for _, name := range names {
		site := view.UpgradeCluster{Cluster: skerry.ClusterName(name), Stage: view.StageWaiting, Since: now}
		if report, _ := us.report(name); report != nil && !slices.Contains(report.Grants, wire.GrantWaves) {
			site.Stage, site.Why = view.StageSkipped, "it does not grant \""+string(wire.GrantWaves)+"\" to its root"
		} else {
			site.Wave = takes/plan.Wave + 1
			takes++
		}
		upgrade.Sites = append(upgrade.Sites, site)
	}
	if takes == 0 {
		return skerry.Errorf(skerry.CodeNotGranted, "none of the %d clusters grants %q to its root", len(names), wire.GrantWaves).
			WithHint("their operators grant that at each cluster: skerry cluster grant %s", wire.GrantWaves)
	}
	if err := us.makeRoom(fx); err != nil {
		return err
	}
	slices.SortStableFunc(upgrade.Sites, func(a, b view.UpgradeCluster) int { return cmp.Compare(order(&a), order(&b)) })
	us.all[upgrade.Name] = upgrade
	us.save(upgrade, fx)
	fx.Result = cloneUpgrade(upgrade)
	us.tell(now, "", wire.EventNormal, "ClusterUpgrade",
		fmt.Sprintf("upgrade %s of %d clusters to %s begins", upgrade.Name, takes, upgrade.Image), fx)
	return nil
}

// order puts what is skipped last.
func order(site *view.UpgradeCluster) int {
	if site.Wave == 0 {
		return 1 << 30
	}
	return site.Wave
}

// checkPlan fills in defaults, and reports what of a plan is out of range.
func checkPlan(plan *view.UpgradePlan) error {
	if err := skerry.CheckName(plan.Name); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "the upgrade's name: %w", err)
	}
	plan.Wave = cmp.Or(plan.Wave, 1)
	plan.Steady = cmp.Or(plan.Steady, spec.Duration(defaultUpgradeSteady))
	plan.Timeout = cmp.Or(plan.Timeout, spec.Duration(defaultUpgradeTimeout))
	switch steady, window, timeout := time.Duration(plan.Steady), time.Duration(plan.Window), time.Duration(plan.Timeout); {
	case plan.Wave < 0 || plan.MaxFailures < 0:
		return skerry.Errorf(skerry.CodeInvalid, "a wave has at least one cluster, and no fewer than 0 may fail")
	case steady < 0 || steady > maxUpgradeSteady:
		return skerry.Errorf(skerry.CodeInvalid, "a steady time of %s is out of range; up to %s are allowed", steady, maxUpgradeSteady)
	case window < 0 || window > maxUpgradeWindow:
		return skerry.Errorf(skerry.CodeInvalid, "a trial of %s is out of range; up to %s are allowed", window, maxUpgradeWindow)
	case timeout < 0 || timeout > maxUpgradeTimeout || timeout <= steady:
		return skerry.Errorf(skerry.CodeInvalid, "a timeout of %s is out of range; it is longer than the steady time, and at most %s",
			timeout, maxUpgradeTimeout)
	}
	return nil
}

// selected gives the sites that a plan is for, in the order of their names.
func (us *upgrades) selected(plan *view.UpgradePlan) ([]string, error) {
	ways := 0
	for _, used := range []bool{len(plan.Clusters) > 0, len(plan.Labels) > 0, plan.All} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "clusters are given by their names, by labels or as all of them: one of these")
	}
	named := map[string]bool{}
	for _, name := range plan.Clusters {
		if us.children.Get(name) == nil {
			return nil, noCluster(name)
		}
		named[name] = true
	}
	var names []string
	for _, name := range us.children.Names() {
		if plan.All || named[name] || len(plan.Labels) > 0 && spec.HasLabels(us.labels.of[name], plan.Labels) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "no cluster matches").WithHint("`skerry get clusters --show-labels` lists them")
	}
	if len(names) > maxUpgradeSites {
		return nil, skerry.Errorf(skerry.CodeTooLarge, "an upgrade of %d clusters is too large; up to %d are allowed", len(names),
			maxUpgradeSites).WithHint("upgrade them in parts, by names or labels")
	}
	for _, upgrade := range us.all {
		for n := range upgrade.Sites {
			site := &upgrade.Sites[n]
			if !upgrade.State.Ended() && site.Wave > 0 && chosen(names, site) {
				return nil, skerry.Errorf(skerry.CodeConflict, "upgrade %s of cluster %s has not ended", upgrade.Name, site.Cluster).
					WithHint("`skerry upgrade abort %s` ends it", upgrade.Name)
			}
		}
	}
	return names, nil
}

// chosen looks for a site among names, which are in order.
func chosen(names []string, site *view.UpgradeCluster) bool {
	_, found := slices.BinarySearch(names, string(site.Cluster))
	return found
}

// makeRoom forgets the upgrade that ended first, if there are too many.
func (us *upgrades) makeRoom(fx *wire.Effects) error {
	if len(us.all) < maxUpgrades {
		return nil
	}
	var oldest *view.Upgrade
	for _, name := range slices.Sorted(maps.Keys(us.all)) {
		if upgrade := us.all[name]; upgrade.State.Ended() && (oldest == nil || upgrade.At.Before(oldest.At)) {
			oldest = upgrade
		}
	}
	if oldest == nil {
		return skerry.Errorf(skerry.CodeConflict, "%d upgrades have not ended", len(us.all))
	}
	return us.remove(oldest.Name, fx)
}

// change takes a pause, a resumption or an end.
func (us *upgrades) change(now time.Time, asked *ChangeUpgrade, fx *wire.Effects) error {
	upgrade, err := us.find(asked.Name)
	if err != nil {
		return err
	}
	from := []view.UpgradeState{view.UpgradeRunning, view.UpgradePaused, view.UpgradeStopped}
	switch asked.To {
	case view.UpgradePaused:
		from = from[:1]
	case view.UpgradeRunning:
		from = from[1:]
	case view.UpgradeAborted:
	default:
		return skerry.Errorf(skerry.CodeInvalid, "an upgrade cannot be set to %.20q", asked.To)
	}
	if !slices.Contains(from, upgrade.State) {
		return skerry.Errorf(skerry.CodeConflict, "upgrade %s is %s", upgrade.Name, upgrade.State)
	}
	reason := map[view.UpgradeState]string{view.UpgradePaused: "ClusterUpgradePaused", view.UpgradeRunning: "ClusterUpgradeResumed",
		view.UpgradeAborted: "ClusterUpgradeAborted"}[asked.To]
	us.turn(now, upgrade, asked.To, "by "+cmp.Or(asked.By, "an operator"), wire.EventNormal, reason, fx)
	for n := range upgrade.Sites {
		switch site := &upgrade.Sites[n]; {
		case asked.To == view.UpgradeAborted && open(site):
			if site.Stage != view.StageWaiting {
				us.withdraw(site)
			}
			stage(now, site, view.StageSkipped, "the upgrade was aborted")
		case asked.To == view.UpgradeRunning && site.Stage == view.StageFailed:
			*site = view.UpgradeCluster{Cluster: site.Cluster, Wave: site.Wave, Stage: view.StageWaiting, Since: now}
		case asked.To == view.UpgradeRunning && (site.Stage == view.StageUpgrading || site.Stage == view.StageWatched):
			site.Begun = now // the time in which nothing was to happen does not count
		}
	}
	us.save(upgrade, fx)
	return nil
}

func (us *upgrades) find(name string) (*view.Upgrade, error) {
	if upgrade := us.all[name]; upgrade != nil {
		return upgrade, nil
	}
	return nil, skerry.Errorf(skerry.CodeNotFound, "there is no upgrade %q", name).WithHint("`skerry get upgrades` lists them")
}

func (us *upgrades) remove(name string, fx *wire.Effects) error {
	upgrade, err := us.find(name)
	if err == nil && !upgrade.State.Ended() {
		err = skerry.Errorf(skerry.CodeConflict, "upgrade %s is %s", name, upgrade.State).
			WithHint("`skerry upgrade abort %s` ends it", name)
	}
	if err != nil {
		return err
	}
	delete(us.all, name)
	fx.Delete(prefixUpgrade + name)
	return nil
}

// forget ends what a site that was removed has to do with upgrades.
func (us *upgrades) forget(now time.Time, name string, fx *wire.Effects) {
	delete(us.given, name)
	for _, upgrade := range us.all {
		for n := range upgrade.Sites {
			site := &upgrade.Sites[n] // one that failed would be tried again
			if string(site.Cluster) == name && !upgrade.State.Ended() && (open(site) || site.Stage == view.StageFailed) {
				stage(now, site, view.StageSkipped, "the cluster was removed")
				us.save(upgrade, fx)
			}
		}
	}
}

// turn gives an upgrade another state.
func (us *upgrades) turn(now time.Time, upgrade *view.Upgrade, to view.UpgradeState, why string, kind wire.EventType, reason string,
	fx *wire.Effects) {
	upgrade.State, upgrade.Why, upgrade.At = to, why, now
	us.tell(now, "", kind, reason, fmt.Sprintf("upgrade %s is %s: %s", upgrade.Name, to, why), fx)
}

// tell tells of something; cluster is empty where it is about no single one.
func (us *upgrades) tell(now time.Time, cluster skerry.ClusterName, t wire.EventType, reason, text string, fx *wire.Effects) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Cluster: cluster})
}

// cloneUpgrade is a copy that the core does not change any more.
func cloneUpgrade(upgrade *view.Upgrade) view.Upgrade {
	out := *upgrade
	out.Sites = slices.Clone(upgrade.Sites)
	return out
}

// open reports whether a site has yet to get to an end.
func open(site *view.UpgradeCluster) bool {
	return site.Stage == view.StageWaiting || site.Stage == view.StageUpgrading || site.Stage == view.StageWatched
}

func stage(now time.Time, site *view.UpgradeCluster, to view.UpgradeStage, why string) {
	site.Stage, site.Since, site.Why = to, now, why
}

// withdraw takes an order back. A worker that is on trial ends that; no further one begins.
func (us *upgrades) withdraw(site *view.UpgradeCluster) {
	if child := us.children.Get(string(site.Cluster)); child != nil {
		us.children.Delete(child.Name, wire.SiteUpgradeKey)
	}
}
