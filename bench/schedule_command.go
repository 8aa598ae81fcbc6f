package bench

import (
	"context"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// scheduleCommand gives `skerry bench schedule`.
func scheduleCommand() *cobra.Command {
	var full, quick bool
	var saved report.Saved
	cmd := &cobra.Command{
		Use: "schedule", Short: "Measure placement: time, quality and memory", Args: cobra.NoArgs,
		Long: `Measure placement with the scheduler that root and clusters use, on simulated machines: the paper's figure 2 (the same workers split
into more and more clusters) and figure 10 (ROM and LDP over more and more workers, up to a million), placements per second on one core,
the quality of every policy compared with the optimum found by exhaustive search, and the memory that the index takes per worker. It needs
neither root nor network, and leaves nothing behind.

--quick takes less than a minute; --full repeats more, for some minutes. --svg DIR and --png DIR write plots.`,
		Example: "  skerry bench schedule\n  skerry bench schedule --full -o json --svg plots > schedule.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if full && quick {
				return skerry.Errorf(skerry.CodeInvalid, "--quick and --full exclude each other")
			}
			if err := saved.Check(); err != nil { // before a minute is spent
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				if err := m.Quiet.Begin(ctx); err != nil {
					return nil, err
				}
				return MeasureSchedule(ctx, ScheduleOptions{Full: full, Measuring: m})
			})
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "less than a minute (the default)")
	cmd.Flags().BoolVar(&full, "full", false, "more repetitions, some minutes")
	saved.Add(cmd.Flags(), "round")
	return cmd
}
