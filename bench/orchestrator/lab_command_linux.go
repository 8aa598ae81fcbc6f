package orchestrator

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench"
)

// labOutputs is a table of the ways to write a report.
var labOutputs = map[string]func(*LabReport, io.Writer) error{"table": (*LabReport).WriteTable, "json": (*LabReport).WriteJSON, "csv": (*LabReport).WriteCSV, "html": (*LabReport).WriteHTML}

// labCommand gives `skerry bench orchestrator lab`.
func labCommand() *cobra.Command {
	var o LabOptions
	var show string
	saved := bench.Saved[LabReport]{Read: ReadLabReport, Ways: labOutputs, Drawings: (*LabReport).Drawings, SVG: "svg"}
	cmd := &cobra.Command{
		Use: "lab", Short: "Measure Skerry's own orchestration in labs on this machine", Args: cobra.NoArgs,
		Long: `Measure Skerry's own orchestration, as section 5 of the Oakestra paper (002) does: root, clusters and workers are the real processes, each in a
host of a lab (network namespaces, see skerry lab), and instances are containers. Parts:

  deploy    until one instance is ready, by number of workers, with the scheduler and with the worker named
  delay     the same with a longer round trip between workers and the rest
  loss      the same with packets lost on the workers' cables, each way
  stress    up to 100 HTTP servers on each worker: until all are ready, and have answered at their service addresses; what Skerry itself uses for that
            and then, and its messages a minute. What this machine has no room for is listed as not run
  sizes     the same processes where each host has no more than 002's virtual machines: S 1 processor and 1 GiB, M 2 and 2, L 4 and 4, XL 8 and 8; at rest,
            one instance, and several. Sizes that need more than this machine has are listed as not run
  messages  control messages a minute, counted on the wire at a worker, at the cluster and at the root
  failover  until what a worker ran that ended is ready elsewhere
  clusters  deployment and control for several clusters below one root
  crowded   requests to a service with an expected rate, where one of two workers has neighbours and does not know it, without profiles and by those
            that skerry worker profile takes there
  uncrowded the same without neighbours

All settings take turns in each round. The report sets medians, means with their spread, and ratios to the first setting beside what 002 published. --out keeps it
after each cell: Ctrl-C takes the labs down and loses only the cell under way, and --resume goes on from there. It compiles its HTTP server from this source
tree, so run it in a checkout, or give it by --service; it needs root, an OCI runtime and, for delay and loss, NFQUEUE.`,
		Example: "  skerry bench orchestrator lab --quick --rounds 3 --out lab.json\n  skerry bench orchestrator lab --only deploy,messages --workers 2,6,10\n  skerry bench orchestrator lab --resume lab.json --quick --rounds 5 --out lab.json\n  skerry bench orchestrator lab --show lab.json -o html > lab.html",
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := saved.Check()
			if err != nil {
				return err
			}
			if show != "" {
				r, err := saved.Load(show)
				if err != nil {
					return err
				}
				return saved.Write(cmd.Context(), r, cmd.OutOrStdout())
			}
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench orchestrator lab makes namespaces and cgroups and needs root")
			}
			if o.Quick {
				o.shorten(cmd.Flags().Changed)
			}
			if o.Program, err = os.Executable(); err != nil {
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m bench.Measuring[LabReport]) (*LabReport, error) {
				o.Resume, o.Keep, o.Progress = m.Resume, m.Keep, m.Progress
				return RunLab(ctx, o)
			}, nil)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Rounds, "rounds", 10, "how often each setting is measured")
	fs.BoolVar(&o.Quick, "quick", false, "fewer delays, losses and sizes, two workers under stress, windows and loads of 20 s, unless told otherwise")
	fs.StringSliceVar(&o.Only, "only", nil, "only these parts: "+strings.Join(LabParts(), ", "))
	fs.IntSliceVar(&o.Workers, "workers", []int{2, 6, 10}, "numbers of workers")
	fs.DurationSliceVar(&o.Delays, "delays", []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond}, "what round trips are longer by")
	fs.Float64SliceVar(&o.Losses, "losses", []float64{0, 5, 10, 20, 50}, "packets that are lost, in % of each way")
	fs.IntSliceVar(&o.Stress, "stress", []int{10, 50, 100}, "instances on each worker under stress")
	fs.IntVar(&o.StressWorkers, "stress-workers", 10, "workers under stress")
	fs.StringSliceVar(&o.Sizes, "sizes", []string{"S", "M", "L", "XL"}, "sizes of hosts")
	fs.IntVar(&o.Sized, "sized", 50, "instances in a federation whose hosts have a size")
	fs.IntSliceVar(&o.Clusters, "clusters", []int{1, 2, 4}, "numbers of clusters")
	fs.DurationVar(&o.Window, "window", time.Minute, "time in which messages and processor time are counted")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long a deployment may take")
	fs.DurationVar(&o.Load, "load", time.Minute, "for how long requests are sent in crowded and uncrowded")
	fs.Float64Var(&o.Expect, "expect", 0.75, "share of what an instance bears on the worker without neighbours, by its profile, that is expected and sent there")
	fs.IntVar(&o.ProfileRounds, "profile-rounds", 3, "how often a profile does its work")
	fs.StringVar(&o.Service, "service", "", "program of the instances, static (default: compiled from bench/answer)")
	saved.Add(fs, "cell")
	fs.StringVar(&show, "show", "", "measure nothing, and show this report again")
	return cmd
}

// shorten is what --quick does to flags that were not given.
func (o *LabOptions) shorten(given func(string) bool) {
	if !given("delays") {
		o.Delays = []time.Duration{0, 50 * time.Millisecond, 250 * time.Millisecond}
	}
	if !given("losses") {
		o.Losses = []float64{0, 20, 50}
	}
	if !given("stress") {
		o.Stress = []int{10, 100}
	}
	if !given("stress-workers") {
		o.StressWorkers = 2
	}
	if !given("sized") {
		o.Sized = 10
	}
	if !given("clusters") {
		o.Clusters = []int{1, 2}
	}
	if !given("window") {
		o.Window = 20 * time.Second
	}
	if !given("load") {
		o.Load = 20 * time.Second
	}
	if !given("timeout") {
		o.Timeout = 90 * time.Second
	}
}
