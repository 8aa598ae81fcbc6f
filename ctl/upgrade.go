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
)

const upgradeHelp = `Have the agents of workers go over to another program, one worker after the other. Each worker fetches the image, which has the
program as /skerry, and tries it under the eyes of its old one: it has to reach the cluster, have every runtime work and every
instance ready that was so before. One that does not do is stopped and the old one goes on; then the workers that are left are
not touched. Instances and their connections are not touched by any of this.

An image is made of a program with: skerry image build ./skerry -t site/agent:v2 --push`

func (a *app) upgradeCommand() *cobra.Command {
	var q skerry.UpgradeRequest
	var all, noWait bool
	var window, steady, timeout time.Duration
	cmd := &cobra.Command{Use: "upgrade [worker] WORKER... | upgrade workers --all", Short: "Have the agents of workers go over to another program, and come back by themselves if it does not do", Long: upgradeHelp,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeKind("worker"), Example: "  skerry upgrade worker w1 --image site/agent:v2\n  skerry upgrade workers --all --image site/agent:v2",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if len(args) > 0 && (args[0] == "worker" || args[0] == "workers") {
				args = args[1:]
			}
			if all == (len(args) > 0) {
				return skerry.Errorf(skerry.CodeInvalid, "name workers, or --all").WithHint("`skerry get workers` lists them")
			}
			if q.Image == "" {
				return skerry.Errorf(skerry.CodeInvalid, "--image is missing").WithHint("make one: skerry image build ./skerry -t site/agent:v2 --push")
			}
			q.Window, q.Steady = skerry.Duration(window), skerry.Duration(steady)
			names, err := upgradable(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			for n, name := range names {
				if err := upgradeWorker(cmd.Context(), c, cmd.OutOrStdout(), name, q, noWait, timeout); err != nil {
					if left := len(names) - n - 1; left > 0 {
						return fmt.Errorf("%w; %d more are not touched", err, left)
					}
					return err
				}
			}
			return nil
		})}
	cmd.Flags().StringVar(&q.Image, "image", "", "image that has the new program as /skerry")
	cmd.Flags().BoolVar(&all, "all", false, "every worker of the site that is connected")
	cmd.Flags().Var(spanValue{&window}, "window", "in which the new program has to do as well as the old one (default 2m)")
	cmd.Flags().Var(spanValue{&steady}, "steady", "for how long without a break (default 15s)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "tell all of them at once, and do not wait")
	timeout = 15 * time.Minute
	cmd.Flags().Var(spanValue{&timeout}, "timeout", "how long to wait for each")
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
func upgradeWorker(ctx context.Context, c *api.Client, out io.Writer, name string, q skerry.UpgradeRequest, noWait bool, timeout time.Duration) error {
	if err := c.UpgradeWorker(ctx, name, q); err != nil {
		return err
	}
	if noWait {
		fmt.Fprintf(out, "worker/%s is told to go over to %s\n", name, q.Image)
		return nil
	}
	inTime, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var order uint64
	last := ""
	for {
		v, err := c.Worker(inTime, name)
		if err == nil && v.Upgrade != nil {
			if order == 0 {
				order = v.Upgrade.Seq
			}
			if v.Upgrade.Seq != order {
				return skerry.Errorf(skerry.CodeConflict, "somebody told worker %s to go over to %s meanwhile", name, v.Upgrade.Image)
			}
			if text := agentText(&v); text != last {
				last = text
				fmt.Fprintf(out, "worker/%s: %s\n", name, text)
			}
			if f := v.Facts; f != nil && f.Agent != nil && f.Agent.Order >= order {
				switch f.Agent.Stage {
				case skerry.AgentPassed:
					return nil
				case skerry.AgentFailed:
					return skerry.Errorf(skerry.CodeConflict, "worker %s stays with its program: %s", name, f.Agent.Why)
				}
			}
		}
		select {
		case <-inTime.Done():
			if interrupted(ctx) {
				return ctx.Err()
			}
			return skerry.Errorf(skerry.CodeUnavailable, "worker %s has not told an outcome after %s", name, span(timeout)).WithHint("it goes on; `skerry describe worker %s` shows how far it is", name)
		case <-time.After(500 * time.Millisecond):
		}
		if err != nil && inTime.Err() == nil {
			return err
		}
	}
}

// agentText tells how far a worker is with the program that it was told to go over to, or nothing.
func agentText(v *skerry.WorkerView) string {
	if v.Upgrade == nil {
		return ""
	}
	var f *skerry.AgentFacts
	if v.Facts != nil {
		f = v.Facts.Agent
	}
	switch {
	case f == nil || f.Order < v.Upgrade.Seq:
		if v.Held != "" {
			return v.Upgrade.Image + " waits until the worker is released on its device"
		}
		return v.Upgrade.Image + " waits"
	case f.Stage == skerry.AgentFetching:
		return v.Upgrade.Image + " is being fetched"
	case f.Stage == skerry.AgentTrial:
		return f.To + " is on trial, " + f.From + " looks"
	case f.Stage == skerry.AgentFailed:
		return v.Upgrade.Image + " did not do: " + f.Why
	}
	return "went from " + f.From + " to " + f.To
}
