package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// scheduleCommand gives `skerry bench schedule`.
func scheduleCommand() *cobra.Command {
	var full, quick bool
	var output string
	var drawn Plots
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
			write, ok := map[string]func(io.Writer, *Schedule) error{"table": writeSchedule, "": writeSchedule,
				"json": func(w io.Writer, s *Schedule) error {
					e := json.NewEncoder(w)
					e.SetIndent("", "  ")
					return e.Encode(s)
				}}[output]
			if !ok {
				return skerry.Errorf(skerry.CodeInvalid, "unknown output %q: table or json", output)
			}
			if err := drawn.Check(); err != nil { // before a minute is spent
				return err
			}
			s, err := MeasureSchedule(cmd.Context(), ScheduleOptions{Full: full, Progress: func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), s) }})
			if err != nil {
				return err
			}
			return errors.Join(write(cmd.OutOrStdout(), s), drawn.Write(cmd.Context(), plots(s)))
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "less than a minute (the default)")
	cmd.Flags().BoolVar(&full, "full", false, "more repetitions, some minutes")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	drawn.Add(cmd.Flags(), "svg")
	return cmd
}

// writeSchedule writes the results for people.
func writeSchedule(out io.Writer, s *Schedule) error {
	var b strings.Builder
	var t *tabwriter.Writer
	table := func(title, head string) {
		if t != nil {
			t.Flush()
			b.WriteString("\n")
		}
		b.WriteString(title + "\n")
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, head)
	}
	var machine []string
	for k, v := range s.Machine {
		machine = append(machine, k+": "+v)
	}
	slices.Sort(machine)
	fmt.Fprintf(&b, "%s\n\n", strings.Join(machine, "; "))
	table("Time of a decision when the same workers are split into clusters (figure 2; microseconds, median and p99 of the sum)",
		"WORKERS\tSPLIT\tROOT\tCLUSTER\tBOTH\tP99\tPLACED OF 100")
	for _, x := range s.Splits {
		fmt.Fprintf(t, "%d\t%d x %s\t%.2f\t%.2f\t%.2f\t%.1f\t%d\n", x.Workers, x.Clusters, perCluster(x), x.Root.Median, x.Cluster.Median,
			x.Both.Median, x.Both.P99, x.Placed)
	}
	table("Time of a decision in one cluster (figure 10; microseconds, median and p99), and what really meets 20 ms and 120 km",
		"WORKERS\tROM\tP99\tLDP\tP99\tSAMPLE\tROM PLACED\tMEETS\tLDP PLACED\tMEETS")
	for _, x := range s.Sizes {
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%s\t%s\t%s\n", x.Workers, x.ROM.Median, x.ROM.P99, x.LDP.Median, x.LDP.P99,
			x.Sample.Median, percent(x.ROMPlaced), percent(x.ROMMeets), percent(x.LDPPlaced), percent(x.LDPMeets))
	}
	table("Placements per second on one core, decided and written into the index", "POLICY\tWORKERS\tPER SECOND\tSPREAD\tRUNS")
	for _, x := range s.Rates {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t±%.0f\t%d\n", x.Policy, x.Workers, x.PerSecond, x.Spread, x.N)
	}
	if len(s.Quality) > 0 {
		q := s.Quality[0]
		table(fmt.Sprintf("Quality: %d machines, %d instances, three of each service, then %d in all; every second one has a user at most 20 ms and 120 km away", s.Fleet, q.Asked, q.AskedFull),
			"POLICY\tPLACED\tWITH A USER\tMEET BOTH LIMITS\tWORKERS USED\tON THE SAME WORKER\tSLOW-DOWN\tWATTS\tPLACED WHEN FULL\tSTRANDED CPU")
	}
	for _, x := range s.Quality {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%d\t%.3f\t%.0f\t%d\t%s\n", x.Policy, x.Placed, x.Limited, percent(x.Meet), x.Used, x.Together,
			x.Slowdown, x.Watts, x.PlacedFull, percent(x.Stranded))
	}
	table(fmt.Sprintf("Distance from the optimum found by exhaustive search (%d batches of 7 services on 4 machines)", s.Batches),
		"POLICY\tSCORE MISSED\tPLACED OF PLACEABLE\tFULL BATCHES\tMORE WORKERS\tMORE SLOW-DOWN\tMORE WATTS")
	for _, x := range s.Optimum {
		fmt.Fprintf(t, "%s\t%g\t%s\t%d\t%s\t%+.3f\t%s\n", x.Policy, x.Score, percent(x.Placed), x.Full, percent(x.Used), x.Slowdown,
			percent(x.Watts))
	}
	t.Flush()
	fmt.Fprintf(&b, "\nThe root ranks %d clusters in %.0f us (p99 %.0f).\n", s.RankOf, s.Rank.Median, s.Rank.P99)
	fmt.Fprintf(&b, "The index of %d workers without labels takes %.0f bytes per worker, the text of their names %.0f more: %.0f; a busy one %.0f more.\n", s.Memory.Workers, s.Memory.Index, s.Memory.Names, s.Memory.All, s.Memory.Busy)
	fmt.Fprintf(&b, "Not in these times: %s.\n", strings.Join(s.NotInIt, "; "))
	_, err := io.WriteString(out, b.String())
	return err
}

func perCluster(x Split) string {
	if x.Workers%x.Clusters == 0 {
		return fmt.Sprint(x.Workers / x.Clusters)
	}
	return fmt.Sprintf("%.1f", float64(x.Workers)/float64(x.Clusters))
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
