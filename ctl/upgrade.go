package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const upgradeHelp = `Upgrade the agents of workers, one worker at a time, with automatic rollback. Each worker pulls the image, which contains the
program as /skerry, and runs it on trial, supervised by the old program: it must reach the cluster, and every runtime and
instance that worked before must work. If it fails, the old program takes over again and the remaining workers are not
upgraded. Instances and their connections are not affected. Workers of skerry-worker, the agent alone, take /skerry-worker.

At the root, "skerry upgrade clusters" upgrades the workers of many clusters in waves.

To build an image of a program: skerry image build ./skerry -t site/agent:v2 --push`

func (a *app) upgradeCommand() *cobra.Command {
	var req view.UpgradeRequest
	var all, noWait bool
	var window, steady, timeout time.Duration
	cmd := &cobra.Command{Use: "upgrade [worker] WORKER... | upgrade workers --all | upgrade clusters",
		Short: "Upgrade the agents of workers, with automatic rollback", Long: upgradeHelp,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeKind("worker"),
		Example: "  skerry upgrade worker w1 --image site/agent:v2\n  skerry upgrade workers --all --image site/agent:v2",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if len(args) > 0 && (args[0] == "worker" || args[0] == "workers") {
				args = args[1:]
			}
			if all == (len(args) > 0) {
				return skerry.Errorf(skerry.CodeInvalid, "the workers to upgrade are missing").WithHint("name them or give --all; `skerry get workers` lists them")
			}
			if req.Image == "" {
				return skerry.Errorf(skerry.CodeInvalid, "--image is missing").
					WithHint("build one: skerry image build ./skerry -t site/agent:v2 --push")
			}
			req.Window, req.Steady = spec.Duration(window), spec.Duration(steady)
			names, err := upgradable(cmd.Context(), client, args)
			if err != nil {
				return err
			}
			for n, name := range names {
				if err := upgradeWorker(cmd.Context(), client, cmd.OutOrStdout(), name, req, noWait, timeout); err != nil {
					if left := len(names) - n - 1; left > 0 {
						return fmt.Errorf("%w; %d more are not upgraded", err, left)
					}
					return err
				}
			}
			return nil
		})}
	cmd.Flags().StringVar(&req.Image, "image", "", "image that contains the new program as /skerry")
	a.clusterFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all connected workers of the site")
	cmd.Flags().Var(spanValue{&window}, "window", "time within which the new program must pass (default 2m)")
	cmd.Flags().Var(spanValue{&steady}, "steady", "how long it must work without interruption (default 15s)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "start all upgrades at once and do not wait")
	timeout = 15 * time.Minute
	cmd.Flags().Var(spanValue{&timeout}, "timeout", "how long to wait for each")
	cmd.AddCommand(append(a.upgradeStateCommands(), a.upgradeClustersCommand())...)
	return cmd
}

// upgradable gives the workers that are named, or all that are connected.
func upgradable(ctx context.Context, c *api.Client, args []string) ([]string, error) {
	if len(args) > 0 {
		names := make([]string, len(args))
		for i, n := range args {
			names[i] = trimKind(n, "worker")
		}
		return names, nil
	}
	list, err := c.Workers(ctx)
	var names []string
	for _, w := range list {
		if w.Connected {
			names = append(names, string(w.Name))
		}
	}
	slices.Sort(names)
	if err == nil && len(names) == 0 {
		err = skerry.Errorf(skerry.CodeNotFound, "no worker is connected")
	}
	return names, err
}

// upgradeWorker tells one worker, and waits for the outcome.
func upgradeWorker(ctx context.Context, client *api.Client, out io.Writer, name string, req view.UpgradeRequest, noWait bool,
	timeout time.Duration) error {
	if err := client.UpgradeWorker(ctx, name, req); err != nil {
		return err
	}
	if noWait {
		fmt.Fprintf(out, "worker/%s is upgrading to %s\n", clean(name), req.Image)
		return nil
	}
	inTime, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var order uint64
	last := ""
	for {
		shown, err := client.Worker(inTime, name)
		if err == nil && shown.Upgrade != nil {
			if order == 0 {
				order = shown.Upgrade.Seq
			}
			if shown.Upgrade.Seq != order {
				return skerry.Errorf(skerry.CodeConflict, "meanwhile, somebody started an upgrade of worker %s to %s", name, shown.Upgrade.Image)
			}
			if text := agentText(&shown); text != last {
				last = text
				fmt.Fprintf(out, "worker/%s: %s\n", clean(name), clean(text))
			}
			if f := shown.Facts; f != nil && f.Agent != nil && f.Agent.Order >= order {
				switch f.Agent.Stage {
				case wire.AgentPassed:
					return nil
				case wire.AgentFailed:
					return skerry.Errorf(skerry.CodeConflict, "worker %s keeps its program: %s", name, f.Agent.Why)
				}
			}
		}
		select {
		case <-inTime.Done():
			if interrupted(ctx) {
				return ctx.Err()
			}
			return skerry.Errorf(skerry.CodeUnavailable, "worker %s has reported no outcome after %s", name, span(timeout)).
				WithHint("the upgrade continues; `skerry describe worker %s` shows the progress", name)
		case <-time.After(500 * time.Millisecond):
		}
		if err != nil && inTime.Err() == nil {
			return err
		}
	}
}

// agentText tells how far a worker is with the program that it was told to go over to, or nothing.
func agentText(shown *view.WorkerView) string {
	if shown.Upgrade == nil {
		return ""
	}
	var f *wire.AgentFacts
	if shown.Facts != nil {
		f = shown.Facts.Agent
	}
	switch {
	case f == nil || f.Order < shown.Upgrade.Seq:
		if shown.Frozen != "" {
			return shown.Upgrade.Image + " waits until the device ends its freeze"
		}
		return shown.Upgrade.Image + " waits"
	case f.Stage == wire.AgentFetching:
		return shown.Upgrade.Image + " is being pulled"
	case f.Stage == wire.AgentTrial:
		return f.To + " is on trial, " + f.From + " looks"
	case f.Stage == wire.AgentFailed:
		return shown.Upgrade.Image + " failed its trial: " + f.Why
	}
	return "upgraded from " + f.From + " to " + f.To
}
