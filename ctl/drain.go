package ctl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

// clusterFlag has a command about workers go to a cluster by way of its root.
func (a *app) clusterFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.cluster, "cluster", "", "at a root: the cluster whose workers are meant, if it grants that")
	cmd.RegisterFlagCompletionFunc("cluster", a.completeKind("cluster"))
}

// workersOnly refuses --cluster for what is no worker.
func (a *app) workersOnly(r *resource) error {
	if a.cluster == "" || r.singular() == "worker" {
		return nil
	}
	return skerry.Errorf(skerry.CodeUnsupported, "--cluster goes with workers, and not with %s", r.plural2()).
		WithHint("a root knows the rest by itself; `skerry get instances` shows the cluster of each")
}

// workerOrCluster reads WORKER, worker WORKER, cluster CLUSTER, and the same with a slash.
func workerOrCluster(args []string) (name string, cluster bool, err error) {
	kind, name := "worker", args[len(args)-1]
	if k, n, ok := strings.Cut(name, "/"); ok && len(args) == 1 {
		kind, name = k, n
	} else if len(args) == 2 {
		kind = args[0]
	}
	r, err := findResource(kind)
	if err != nil || r.singular() != "worker" && r.singular() != "cluster" {
		return "", false, skerry.Errorf(skerry.CodeInvalid, "%s is neither a worker nor a cluster", strings.Join(args, " ")).
			WithHint("write worker NAME or cluster NAME")
	}
	return name, r.singular() == "cluster", nil
}

func (a *app) cordonCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "cordon [worker] WORKER | cordon cluster CLUSTER",
		Short: "Cordon a worker, or at the root a cluster: it gets no new instances, and keeps those it has",
		Args:  cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("worker"),
		Long: `Cordon a worker: it gets no new instances, and keeps those it has. At the root, a cluster is cordoned for what the root places;
the cluster itself is not asked, and places its own applications as before.`,
		Example: "  skerry cordon w1\n  skerry cordon w1 --cluster harbour\n  skerry cordon cluster harbour",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if reason == "" {
				reason = "cordoned by its operator"
			}
			name, cluster, err := workerOrCluster(args)
			switch {
			case err != nil:
			case cluster:
				if err = c.CordonCluster(cmd.Context(), name, reason); err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "cluster/%s is cordoned\n", name)
				}
			default:
				if err = c.CordonWorker(cmd.Context(), name, reason); err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "worker/%s is cordoned\n", name)
				}
			}
			return err
		})}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown to people")
	a.clusterFlag(cmd)
	return cmd
}

func (a *app) uncordonCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "uncordon [worker] WORKER | uncordon cluster CLUSTER",
		Short: "Uncordon a worker, or at the root a cluster, so that it gets new instances again", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeKind("worker"),
		Long: `Let a worker get new instances again. This ends a cordon, a drain and a quarantine. The worker's claims are trusted again,
including a larger capacity. At the root, the same for a cluster.`,
		Example: "  skerry uncordon w1\n  skerry uncordon cluster harbour",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			name, cluster, err := workerOrCluster(args)
			switch {
			case err != nil:
			case cluster:
				if err = c.CordonCluster(cmd.Context(), name, ""); err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "cluster/%s is uncordoned\n", name)
				}
			default:
				if err = c.CordonWorker(cmd.Context(), name, ""); err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "worker/%s is uncordoned\n", name)
				}
			}
			return err
		})}
	a.clusterFlag(cmd)
	return cmd
}

const drainHelp = `Cordon a worker and move its instances away. Each instance stops once its copy elsewhere is ready, so that no request fails.
Instances that stay are listed with the reason: those of services that run once per worker, jobs until they finish, services
whose manifest names the worker, and services that keep data on it (--force moves these too, without the data). If there is
no room for an instance, Skerry keeps trying, under a root at other sites as well.

At the root, drain cluster moves what the root has placed at a cluster to other clusters, each instance once its copy there is
ready. The cluster is not asked; its own applications stay. With --cluster the root asks a cluster to drain one of its workers,
which the cluster has to grant (skerry cluster grant drain, and workers to see the progress).

The worker or cluster stays drained until skerry uncordon.`

// drainFlags are shared by drain and replace.
type drainFlags struct {
	req     view.DrainRequest
	noWait  bool
	timeout time.Duration
}

func (f *drainFlags) add(cmd *cobra.Command) {
	f.timeout = 10 * time.Minute
	cmd.Flags().StringVar(&f.req.Reason, "reason", "", "reason, shown to people")
	cmd.Flags().IntVar(&f.req.Parallel, "parallel", 1, "migrations at once")
	cmd.Flags().BoolVar(&f.req.Force, "force", false, "also move instances that keep data on the worker; the data is lost")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait until it has finished")
	cmd.Flags().Var(spanValue{&f.timeout}, "timeout", "how long to wait")
}

func (a *app) drainCommand() *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{Use: "drain [worker] WORKER | drain cluster CLUSTER",
		Short: "Cordon a worker, or at the root a cluster, and move its instances away, without failed requests",
		Args:  cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("worker"),
		Long: drainHelp, Example: "  skerry drain worker w1 --reason 'new disk'\n  skerry uncordon w1\n  skerry drain cluster harbour",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			name, cluster, err := workerOrCluster(args)
			switch {
			case err != nil:
				return err
			case cluster && (f.req.To != "" || f.req.Force):
				return skerry.Errorf(skerry.CodeUnsupported, "--to and --force go with workers, and not with clusters").
					WithHint("move single instances: skerry migrate INSTANCE --to CLUSTER")
			case cluster:
				return drainCluster(cmd, c, name, &f)
			}
			return a.drain(cmd, c, name, &f)
		})}
	f.add(cmd)
	a.clusterFlag(cmd)
	cmd.Flags().StringVar(&f.req.To, "to", "", "preferred worker for the instances, where suitable")
	return cmd
}

// drain asks for it and waits until nothing is left that can leave.
func (a *app) drain(cmd *cobra.Command, client *api.Client, name string, f *drainFlags) error {
	if err := client.DrainWorker(cmd.Context(), name, f.req); err != nil {
		return err
	}
	return awaitDrain(cmd, f, "worker", name, func(ctx context.Context) (*view.DrainView, error) {
		v, err := client.Worker(ctx, name)
		return v.Drain, err
	})
}

// drainCluster does the same with a cluster.
func drainCluster(cmd *cobra.Command, client *api.Client, name string, f *drainFlags) error {
	err := client.DrainCluster(cmd.Context(), name, view.ClusterDrainRequest{Reason: f.req.Reason, Parallel: f.req.Parallel})
	if err != nil {
		return err
	}
	return awaitDrain(cmd, f, "cluster", name, func(ctx context.Context) (*view.DrainView, error) {
		v, err := client.Cluster(ctx, name)
		return clusterDrain(&v), err
	})
}

// clusterDrain shows the drain of a cluster as that of a worker.
func clusterDrain(v *view.ClusterView) *view.DrainView {
	d := v.Drain
	if d == nil {
		return nil
	}
	return &view.DrainView{Since: d.Since, Parallel: d.Parallel, Left: d.Left, Moving: d.Moving, Ending: d.Ending, Done: d.Done,
		Stays: d.Stays}
}

// awaitDrain shows how far a drain is until it has ended.
func awaitDrain(cmd *cobra.Command, flags *drainFlags, kind, name string, look func(ctx context.Context) (*view.DrainView, error)) error {
	out := cmd.OutOrStdout()
	if flags.noWait {
		fmt.Fprintf(out, "%s/%s is being drained\n", kind, name)
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), flags.timeout)
	defer cancel()
	last := ""
	for {
		drain, err := look(ctx)
		if err == nil && drain == nil {
			return skerry.Errorf(skerry.CodeConflict, "the drain of %s %s was cancelled", kind, name)
		}
		if err == nil {
			if text := drainText(drain); text != last {
				last = text
				fmt.Fprintf(out, "%s/%s: %s\n", kind, name, text)
			}
			if drain.Done {
				stays(out, drain)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if interrupted(cmd.Context()) {
				return cmd.Context().Err()
			}
			// What keeps it may have been found out since the last look.
			last, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			if drain, err = look(last); err == nil && drain != nil {
				stays(out, drain)
			}
			return skerry.Errorf(skerry.CodeUnavailable, "%s %s is not drained after %s", kind, name, span(flags.timeout)).
				WithHint("the drain continues; `skerry describe %s %s` shows what blocks it", kind, name)
		case <-time.After(time.Second):
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func drainText(d *view.DrainView) string {
	switch {
	case d == nil:
		return ""
	case d.Done && len(d.Stays) > 0:
		return fmt.Sprintf("drained; %d stay", len(d.Stays))
	case d.Done:
		return "drained"
	}
	return fmt.Sprintf("%d to move, %d moving, %d stopping", d.Left-d.Moving, d.Moving, d.Ending)
}

func stays(out io.Writer, d *view.DrainView) {
	for _, s := range d.Stays {
		fmt.Fprintf(out, "  %s stays: %s\n", clean(string(s.Instance)), clean(s.Reason))
	}
}

// workerCommands are the commands about workers that ask their cluster.
func (a *app) workerCommands() []*cobra.Command {
	forget := &cobra.Command{Use: "forget WORKER", Short: "Remove a disconnected worker and revoke its key", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("worker"),
		Long:              "Remove a disconnected worker and revoke its key. Its instances are placed elsewhere, and another device may take its name.",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			name := trimKind(args[0], "worker")
			if err := client.DeleteWorker(cmd.Context(), name); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "worker/%s is removed\n", name)
			return nil
		})}
	var flags drainFlags
	replace := &cobra.Command{Use: "replace OLD NEW", Short: "Replace a worker with another one", Args: cobra.ExactArgs(2),
		ValidArgsFunction: a.completeKind("worker"),
		Long: `Replace a worker with another one of the same site. Instances on OLD move to NEW if it is suitable, otherwise elsewhere, as
with skerry drain. If OLD is disconnected, it is removed at once. A reinstalled device that keeps its name needs only a
token: skerry token create --role worker --name NAME --replace. If it has more than twice the processors or memory of
before, the old capacity counts until skerry uncordon NAME.`,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			old, name := trimKind(args[0], "worker"), trimKind(args[1], "worker")
			view, err := client.Worker(cmd.Context(), old)
			if err != nil {
				return err
			}
			next, err := client.Worker(cmd.Context(), name)
			if err != nil {
				return err
			}
			if !next.Connected {
				return skerry.Errorf(skerry.CodeConflict, "worker %s is not connected", name).WithHint("start its agent first")
			}
			out := cmd.OutOrStdout()
			if !view.Connected {
				if err := client.DeleteWorker(cmd.Context(), old); err != nil {
					return err
				}
				fmt.Fprintf(out, "worker/%s is removed; its instances are placed elsewhere\n", old)
				return nil
			}
			if flags.req.To = name; flags.req.Reason == "" {
				flags.req.Reason = "replaced by " + name
			}
			if err := a.drain(cmd, client, old, &flags); err != nil {
				return err
			}
			fmt.Fprintf(out, "stop the agent of %s, then: skerry worker forget %s\n", old, old)
			return nil
		})}
	flags.add(replace)
	return []*cobra.Command{forget, replace}
}
