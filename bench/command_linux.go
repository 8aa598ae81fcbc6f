package bench

import (
	"context"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
)

// Command gives `skerry bench`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure what Skerry costs on this machine"}
	cmd.AddCommand(budgetCommand(), scheduleCommand(), networkCommand(), federationCommand(), publishedCommand(), controlCommand(),
		sitesCommand(), wireguardCommand())
	return cmd
}

func budgetCommand() *cobra.Command {
	var full, quick bool
	var only []string
	var saved report.Saved
	cmd := &cobra.Command{
		Use: "budget", Short: "Measure the goals of the design", Args: cobra.NoArgs,
		Long: `Measure the goals of the design: memory, processor time, traffic, start-up and fail-over, compared with a bare run of the same OCI
runtime. Root, cluster and two workers run as installed, in network namespaces of their own; nothing is left behind.

--quick takes about five minutes and skips longer measurements; --full takes about an hour. It compiles its workload from this
source tree, so run it in a checkout, as root.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if full && quick {
				return skerry.Errorf(skerry.CodeInvalid, "--quick and --full exclude each other")
			}
			if err := saved.Check(); err != nil {
				return err
			}
			for _, x := range only {
				if !slices.Contains(BudgetParts(), x) {
					return skerry.Errorf(skerry.CodeInvalid, "--only: there is no part %q", x).WithHint("%s", spec.Suggest(x, BudgetParts()))
				}
			}
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench budget makes namespaces and cgroups and needs root")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				return Budget(ctx, BudgetOptions{Program: self, Full: full, Only: only, Measuring: m})
			})
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "about five minutes (the default)")
	cmd.Flags().BoolVar(&full, "full", false, "as long as each goal needs")
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these parts: "+strings.Join(BudgetParts(), ", "))
	saved.Add(cmd.Flags(), "round")
	return cmd
}

// controlCommand is the child process of a benchmark that holds root and cluster.
func controlCommand() *cobra.Command {
	var data, profile string
	var workers int
	cmd := &cobra.Command{
		Use: "control", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(40) // as the role commands do
			p, err := clustercore.ProfileOf(profile)
			if err != nil {
				return err
			}
			return control(cmd.Context(), data, workers, p, os.Stdout)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory")
	cmd.Flags().IntVar(&workers, "workers", 1, "number of join tokens to make")
	cmd.Flags().StringVar(&profile, "profile", "", "profile of the site")
	return cmd
}
