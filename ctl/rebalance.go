package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/api"
)

func (a *app) rebalanceCommand() *cobra.Command {
	var dryRun bool
	var output string
	cmd := &cobra.Command{Use: "rebalance", Short: "Move instances of a site to clearly better workers", Args: cobra.NoArgs,
		Long: `Move instances of a site to clearly better workers, for example after a worker has joined or returned. An instance moves if
its service's policy or preferences rate another worker much higher, or if its worker's processors are busy and another's
are not. Instances move one at a time, each once its copy is ready, so that no request fails. Data in memory is lost.

Rebalancing never moves services with onDisconnect: stopAfter or rigidness 0, instances that keep data on their worker or
run once per worker, jobs, or instances on a cordoned or frozen worker. With skerry cluster --rebalance, the site rebalances
by itself: at most one instance a minute, and the same one at most once an hour.`,
		Example: "  skerry rebalance --dry-run     # what would move, and why\n  skerry rebalance",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			plan, err := client.Rebalance(cmd.Context(), dryRun)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := printValue(out, output, plan); done {
				return err
			}
			if len(plan.Moves) > 0 {
				t := table{head: []string{"INSTANCE", "FROM", "TO", "GAIN", "WHY"}}
				for _, m := range plan.Moves {
					t.add("", []string{string(m.Instance), string(m.From), string(m.To), fmt.Sprintf("%.2f", m.Gain), m.Why})
				}
				t.print(out, false, true)
			}
			for _, s := range plan.Stays {
				fmt.Fprintf(out, "instance/%s stays: %s\n", s.Instance, clean(s.Reason))
			}
			switch n := len(plan.Moves); {
			case n == 0:
				fmt.Fprintln(out, "no instance has a clearly better place")
			case dryRun:
				fmt.Fprintf(out, "%s would move\n", countOf(n))
			default:
				fmt.Fprintf(out, "%s move, one at a time, if nothing comes between; `skerry get events` shows which have\n", countOf(n))
			}
			return nil
		})}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would move")
	outputFlag(cmd, &output)
	return cmd
}

func countOf(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
