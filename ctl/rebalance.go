package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/api"
)

func (a *app) rebalanceCommand() *cobra.Command {
	var dryRun bool
	var output string
	cmd := &cobra.Command{Use: "rebalance", Short: "Move what runs at a site to clearly better places", Args: cobra.NoArgs,
		Long: `Move what runs at a site to clearly better places, such as a worker that came back or joined: where the service's policy or its
preferences rate another worker much higher, and from workers whose processors are busy to such that are not. One instance moves after
the other, each once its copy there is ready, so that no request fails. What is in the memory of an instance is lost with the old copy.

Never moved are services with onDisconnect: stopAfter or rigidness 0, what keeps data on its worker, copies that belong to their worker,
jobs, and what is on a cordoned or held worker. With skerry cluster --rebalance the site does this by itself: at most one instance a
minute, and the same one at most once an hour.`,
		Example: "  skerry rebalance --dry-run     # what would move, and why\n  skerry rebalance",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			plan, err := c.Rebalance(cmd.Context(), dryRun)
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
				fmt.Fprintln(out, "nothing has a clearly better place")
			case dryRun:
				fmt.Fprintf(out, "%s would move\n", countOf(n))
			default:
				fmt.Fprintf(out, "%s move, one after the other; `skerry get events` follows it\n", countOf(n))
			}
			return nil
		})}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what would move")
	outputFlag(cmd, &output)
	return cmd
}

func countOf(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
