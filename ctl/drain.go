package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

func (a *app) cordonCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "cordon WORKER", Short: "Cordon a worker: it gets no new instances, and keeps those it has",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("worker"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if reason == "" {
				reason = "cordoned by its operator"
			}
			name := trimKind(args[0], "worker")
			if err := c.CordonWorker(cmd.Context(), name, reason); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "worker/%s is cordoned\n", name)
			return nil
		})}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown to people")
	return cmd
}

func (a *app) uncordonCommand() *cobra.Command {
	return &cobra.Command{Use: "uncordon WORKER|cluster/CLUSTER",
		Short: "Uncordon a worker, or at the root a cluster, so that it gets new instances again", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("worker"),
		Long: `Let a worker get new instances again. This ends a cordon, a drain and a quarantine. The worker's claims are trusted again,
including a larger capacity. At the root, cluster/NAME ends the quarantine of a cluster.`,
		Example: "  skerry uncordon w1\n  skerry uncordon cluster/harbour",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if name := trimKind(args[0], "cluster"); name != args[0] {
				if err := c.TrustCluster(cmd.Context(), name); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "cluster/%s is uncordoned\n", name)
				return nil
			}
			name := trimKind(args[0], "worker")
			if err := c.CordonWorker(cmd.Context(), name, ""); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "worker/%s is uncordoned\n", name)
			return nil
		})}
}

const drainHelp = `Cordon a worker and move its instances away. Each instance stops once its copy elsewhere is ready, so that no request fails.
Instances that stay are listed with the reason: those of services that run once per worker, jobs until they finish, services
whose manifest names the worker, and services that keep data on it (--force moves these too, without the data). If there is
no room for an instance, Skerry keeps trying, under a root at other sites as well.

The worker stays drained until skerry uncordon.`

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
	cmd := &cobra.Command{Use: "drain [worker] WORKER", Short: "Cordon a worker and move its instances away, without failed requests",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("worker"),
		Long: drainHelp, Example: "  skerry drain worker w1 --reason 'new disk'\n  skerry uncordon w1",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if len(args) == 2 && args[0] != "worker" && args[0] != "workers" {
				return skerry.Errorf(skerry.CodeInvalid, "%s cannot be drained", args[0]).WithHint("write skerry drain worker NAME")
			}
			return a.drain(cmd, c, trimKind(args[len(args)-1], "worker"), &f)
		})}
	f.add(cmd)
	cmd.Flags().StringVar(&f.req.To, "to", "", "preferred worker for the instances, where suitable")
	return cmd
}

// drain asks for it and waits until nothing is left that can leave.
func (a *app) drain(cmd *cobra.Command, client *api.Client, name string, f *drainFlags) error {
	if err := client.DrainWorker(cmd.Context(), name, f.req); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.noWait {
		fmt.Fprintf(out, "worker/%s is being drained\n", name)
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	last := ""
	for {
		view, err := client.Worker(ctx, name)
		if err == nil && view.Drain == nil {
			return skerry.Errorf(skerry.CodeConflict, "the drain of worker %s was cancelled", name)
		}
		if err == nil {
			if text := drainText(view.Drain); text != last {
				last = text
				fmt.Fprintf(out, "worker/%s: %s\n", name, text)
			}
			if view.Drain.Done {
				stays(out, view.Drain)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if interrupted(cmd.Context()) {
				return cmd.Context().Err()
			}
			if err == nil {
				stays(out, view.Drain)
			}
			return skerry.Errorf(skerry.CodeUnavailable, "worker %s is not drained after %s", name, span(f.timeout)).
				WithHint("the drain continues; `skerry describe worker %s` shows what blocks it", name)
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
		fmt.Fprintf(out, "  %s stays: %s\n", s.Instance, s.Reason)
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
