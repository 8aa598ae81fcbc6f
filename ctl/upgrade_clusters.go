package ctl

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

const upgradeClustersHelp = `Upgrade the agents of all workers of many clusters, in waves, from the root. Each cluster upgrades
its workers itself, one after the other, each with a trial and automatic rollback. The next wave begins once all clusters of the
one before have the new program and worked with it for the steady time. A cluster fails if a worker keeps its program, if one that
was upgraded gets lost, or if it is not finished within --timeout, also because it is out of touch or has no workers: leave out
clusters without workers, or allow for them with --max-failures. If more clusters fail than --max-failures, the upgrade stops,
and names the cluster and the reason. What is upgraded by then stays. "skerry upgrade resume" goes on, and tries again what
failed. The command ends with an error if any cluster failed, also if so many may.

A cluster takes part if its operator has granted that there: skerry cluster grant waves. The others are left out; the command ends
with an error if one of them was named, or if no cluster was upgraded.
The root keeps the upgrade: it goes on when this command ends, and after a restart of the root. The programs of clusters and of
the root itself are replaced by their packages, before those of workers.`

// upgradeClustersFlags are those of an upgrade of clusters.
type upgradeClustersFlags struct {
	plan                            view.UpgradePlan
	selector                        string
	steady, window, timeout, follow time.Duration
	noWait                          bool
}

func (a *app) upgradeClustersCommand() *cobra.Command {
	var given upgradeClustersFlags
	cmd := &cobra.Command{Use: "clusters [CLUSTER...] --image IMAGE", Aliases: []string{"cluster"},
		Short: "Upgrade the workers of many clusters, in waves that stop on failure", Long: upgradeClustersHelp,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeKind("cluster"),
		Example: "  skerry upgrade clusters -l region=west --image ops/agent:v2 --wave 2\n" +
			"  skerry upgrade clusters --all --image ops/agent:v2 --max-failures 1 --steady 10m",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if err := given.fill(args, time.Now()); err != nil {
				return err
			}
			upgrade, err := client.StartUpgrade(cmd.Context(), given.plan)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "upgrade/%s has begun\n", clean(upgrade.Name))
			if given.noWait {
				return nil
			}
			return followUpgrade(cmd.Context(), client, out, &upgrade, given.follow)
		})}
	flags := cmd.Flags()
	flags.StringVar(&given.plan.Image, "image", "", "image that contains the new program as /skerry")
	flags.StringVar(&given.plan.Name, "name", "", "name of the upgrade (default: upgrade- and the time)")
	flags.StringVarP(&given.selector, "selector", "l", "", "the clusters with these labels, such as region=west")
	flags.BoolVar(&given.plan.All, "all", false, "all clusters")
	flags.IntVar(&given.plan.Wave, "wave", 1, "clusters at a time")
	flags.IntVar(&given.plan.MaxFailures, "max-failures", 0, "clusters that may fail before the upgrade stops")
	flags.Var(spanValue{&given.steady}, "steady", "how long a cluster must work with the new program before the next wave (default 1m)")
	flags.Var(spanValue{&given.window}, "window", "time within which the new program of a worker must pass its trial (default 2m)")
	flags.Var(spanValue{&given.timeout}, "timeout", "time after which a cluster that is not finished counts as failed (default 1h)")
	flags.BoolVar(&given.noWait, "no-wait", false, "do not wait until it has ended")
	given.follow = 24 * time.Hour
	flags.Var(spanValue{&given.follow}, "wait-timeout", "how long to wait for the end")
	return cmd
}

// fill makes the plan of what was written.
func (flags *upgradeClustersFlags) fill(args []string, now time.Time) error {
	plan := &flags.plan
	if plan.Image == "" {
		return skerry.Errorf(skerry.CodeInvalid, "--image is missing").
			WithHint("build one: skerry image build ./skerry -t ops/agent:v2 --push")
	}
	for _, name := range args {
		plan.Clusters = append(plan.Clusters, trimKind(name, "cluster"))
	}
	var err error
	if plan.Labels, err = labelsOf(flags.selector); err != nil {
		return err
	}
	if plan.Name == "" {
		plan.Name = "upgrade-" + now.UTC().Format("20060102-150405")
	}
	plan.Steady, plan.Window, plan.Timeout = spec.Duration(flags.steady), spec.Duration(flags.window), spec.Duration(flags.timeout)
	return nil
}

// followUpgrade prints what becomes of the clusters until an upgrade ends or stops.
func followUpgrade(ctx context.Context, client *api.Client, out io.Writer, upgrade *view.Upgrade, limit time.Duration) error {
	inTime, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	name := upgrade.Name
	last := map[skerry.ClusterName]string{}
	for {
		var err error
		for _, site := range upgrade.Sites {
			if text := upgradeClusterText(&site); text != last[site.Cluster] && site.Stage != view.StageWaiting {
				last[site.Cluster] = text
				fmt.Fprintf(out, "cluster/%s: %s\n", clean(string(site.Cluster)), clean(text))
			}
		}
		switch upgrade.State {
		case view.UpgradeDone:
			if slices.ContainsFunc(upgrade.Sites, func(site view.UpgradeCluster) bool { return site.Stage == view.StageFailed }) {
				return skerry.Errorf(skerry.CodeConflict, "upgrade %s is done, but not of all clusters: %s", name, upgrade.Why).
					WithHint("`skerry describe upgrade %s` says why each of them failed", name)
			}
			if left := leftOut(upgrade); len(left) > 0 {
				return skerry.Errorf(skerry.CodeConflict, "upgrade %s is done, but not of all clusters: %s skipped: %s", name,
					counted(len(left), "cluster was", "clusters were"), strings.Join(left, ", ")).
					WithHint("`skerry describe upgrade %s` says why", name)
			}
			fmt.Fprintf(out, "upgrade/%s is done: %s\n", clean(name), clean(upgrade.Why))
			return nil
		case view.UpgradeStopped:
			return skerry.Errorf(skerry.CodeConflict, "upgrade %s has stopped: %s", name, upgrade.Why).
				WithHint("`skerry upgrade resume %[1]s` tries again, `skerry upgrade abort %[1]s` ends it", name)
		case view.UpgradeAborted, view.UpgradePaused:
			return skerry.Errorf(skerry.CodeConflict, "upgrade %s is %s %s", name, strings.ToLower(string(upgrade.State)), upgrade.Why)
		}
		select {
		case <-inTime.Done():
			if interrupted(ctx) {
				return ctx.Err()
			}
			return skerry.Errorf(skerry.CodeUnavailable, "upgrade %s has not ended after %s", name, span(limit)).
				WithHint("it continues; `skerry describe upgrade %s` shows the progress", name)
		case <-time.After(time.Second):
		}
		var next view.Upgrade
		if next, err = client.Upgrade(inTime, name); err != nil && inTime.Err() == nil {
			return err
		} else if err == nil {
			upgrade = &next
		}
	}
}

// leftOut lists the clusters that were to be upgraded and were skipped: those asked for by name, and all where none was upgraded.
func leftOut(upgrade *view.Upgrade) (skipped []string) {
	some := slices.ContainsFunc(upgrade.Sites, func(site view.UpgradeCluster) bool { return site.Stage == view.StageDone })
	for _, site := range upgrade.Sites {
		if site.Stage == view.StageSkipped && (!some || slices.Contains(upgrade.Clusters, string(site.Cluster))) {
			skipped = append(skipped, string(site.Cluster))
		}
	}
	return skipped
}

// upgradeClusterText tells how far one cluster is.
func upgradeClusterText(site *view.UpgradeCluster) string {
	text := strings.ToLower(string(site.Stage))
	switch site.Stage {
	case view.StageUpgrading:
		text = "is being upgraded"
	case view.StageWatched:
		text = fmt.Sprintf("all %d workers are upgraded, and are watched", site.Workers)
	}
	if site.Why != "" {
		text += ": " + site.Why
	}
	return text
}

// upgradeStateCommands pause, resume and abort an upgrade of clusters.
func (a *app) upgradeStateCommands() []*cobra.Command {
	of := func(action, short, said string) *cobra.Command {
		return &cobra.Command{Use: action + " UPGRADE", Short: short, Args: cobra.ExactArgs(1),
			ValidArgsFunction: a.completeKind("upgrade"),
			RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
				name := trimKind(args[0], "upgrade")
				if err := client.ChangeUpgrade(cmd.Context(), name, action); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "upgrade/%s %s\n", name, said)
				return nil
			})}
	}
	return []*cobra.Command{
		of(api.UpgradePause, "Pause an upgrade of clusters: no further worker begins", "is paused"),
		of(api.UpgradeResume, "Resume an upgrade of clusters that was paused or has stopped; what failed is tried again", "goes on"),
		of(api.UpgradeAbort, "End an upgrade of clusters; what is upgraded stays", "is aborted"),
	}
}

func listUpgrades(ctx context.Context, client *api.Client, query listQuery) ([]item, error) {
	list, err := client.Upgrades(ctx)
	var out []item
	for _, upgrade := range list {
		done, failed, all := 0, 0, 0
		for _, site := range upgrade.Sites {
			switch site.Stage {
			case view.StageDone:
				done++
			case view.StageFailed:
				failed++
			}
			if site.Wave > 0 {
				all++
			}
		}
		out = append(out, item{name: upgrade.Name, value: upgrade,
			cells: []string{upgrade.Name, upgrade.Image, string(upgrade.State), fmt.Sprintf("%d/%d", done, all),
				strconv.Itoa(failed), age(query.now, upgrade.Since), short(upgrade.Why)},
			wide: []string{upgrade.By, upgrade.Digest}})
	}
	return out, err
}

// describeUpgrade shows an upgrade with its clusters.
func describeUpgrade(out io.Writer, upgrade *view.Upgrade, now time.Time) {
	pairs := newPairs(out)
	pairs.add("Upgrade", upgrade.Name)
	pairs.add("Image", upgrade.Image)
	pairs.add("Digest", upgrade.Digest)
	pairs.add("State", string(upgrade.State))
	pairs.add("Reason", upgrade.Why)
	pairs.add("Changed", when(now, upgrade.At))
	pairs.add("Begun", when(now, upgrade.Since))
	pairs.add("By", upgrade.By)
	pairs.add("Labels", pairsText(upgrade.Labels, ", "))
	pairs.add("Wave", fmt.Sprintf("%d at a time, %d may fail", upgrade.Wave, upgrade.MaxFailures))
	pairs.add("Steady", span(time.Duration(upgrade.Steady)))
	pairs.add("Timeout", span(time.Duration(upgrade.Timeout)))
	pairs.flush()
	fmt.Fprintln(out)
	rows := table{head: []string{"CLUSTER", "WAVE", "STAGE", "WORKERS", "VERSIONS", "SINCE", "REASON"}}
	for _, site := range upgrade.Sites {
		wave, workers := strconv.Itoa(site.Wave), fmt.Sprintf("%d/%d", site.Upgraded, site.Workers)
		if site.Wave == 0 {
			wave = "-"
		}
		if site.Workers == 0 {
			workers = ""
		}
		var versions []string
		for _, v := range slices.Sorted(maps.Keys(site.Versions)) {
			versions = append(versions, fmt.Sprintf("%d %s", site.Versions[v], v))
		}
		rows.add("", []string{string(site.Cluster), wave, string(site.Stage), workers, strings.Join(versions, ", "),
			age(now, site.Since), site.Why})
	}
	rows.print(out, false, true)
}
