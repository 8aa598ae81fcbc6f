package orchestrator

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// labCommand gives `skerry bench orchestrator lab`.
func labCommand() *cobra.Command {
	var o LabOptions
	saved := report.Saved{Resumes: true}
	cmd := &cobra.Command{
		Use: "lab", Short: "Measure Skerry's own orchestration in labs on this machine", Args: cobra.NoArgs,
		Long: `Measure Skerry's own orchestration, as in section 5 of the Oakestra paper (002). Root, clusters and workers are real processes,
each in a host of a lab (network namespaces, see skerry lab), and instances are containers. Parts:

  deploy    time until one instance is ready, by number of workers, with the scheduler and with the worker named
  delay     the same with a longer round trip between the workers and the rest
  loss      the same with packet loss on the workers' cables, in each direction
  stress    up to 100 HTTP servers on each worker: time until all are ready and have answered at their service addresses;
            Skerry's own use of resources during and after that, and its messages per minute. Numbers that this machine has
            no room for are listed as not run
  sizes     the same processes on hosts of the size of 002's virtual machines: S 1 processor and 1 GiB, M 2 and 2, L 4 and 4,
            XL 8 and 8; at rest, with one instance, and with several. Sizes beyond this machine are listed as not run
  messages  control messages per minute, counted on the wire at a worker, at the cluster and at the root
  failover  time until the instances of a failed worker are ready elsewhere
  clusters  deployment and control for several clusters below one root
  crowded   requests to a service with an expected rate. One of two workers has neighbours that it does not know of. Measured
            without profiles, and with those that skerry worker profile takes there
  uncrowded the same without neighbours

All settings take turns in each round. The report contains medians with their intervals, and ratios to the first setting, together
with the figures of 002. --out saves it after each cell: Ctrl-C takes the labs down and loses only the present cell, and
--resume continues from the file. It compiles its HTTP server from this source tree, so run it in a checkout, or use --service.
It needs root, an OCI runtime and, for delay and loss, NFQUEUE.`,
		Example: "  skerry bench orchestrator lab --quick --rounds 3 --out lab.json\n  skerry bench orchestrator lab --only deploy,messages --workers 2,6,10\n  skerry bench orchestrator lab --resume lab.json --quick --rounds 5 --out lab.json\n  skerry bench report lab.json -o html > lab.html",
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := saved.Check()
			if err != nil {
				return err
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
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				o.Measuring = m
				return RunLab(ctx, o)
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Rounds, "rounds", 10, "number of measurements of each setting")
	fs.BoolVar(&o.Quick, "quick", false, "fewer delays, losses and sizes, two workers under stress, windows and loads of 20 s, unless set")
	fs.StringSliceVar(&o.Only, "only", nil, "only these parts: "+strings.Join(LabParts(), ", "))
	fs.IntSliceVar(&o.Workers, "workers", []int{2, 6, 10}, "numbers of workers")
	fs.DurationSliceVar(&o.Delays, "delays", []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond}, "additional delays of a round trip")
	fs.Float64SliceVar(&o.Losses, "losses", []float64{0, 5, 10, 20, 50}, "lost packets, in % in each direction")
	fs.IntSliceVar(&o.Stress, "stress", []int{10, 50, 100}, "instances on each worker under stress")
	fs.IntVar(&o.StressWorkers, "stress-workers", 10, "workers under stress")
	fs.StringSliceVar(&o.Sizes, "sizes", []string{"S", "M", "L", "XL"}, "sizes of hosts")
	fs.IntVar(&o.Sized, "sized", 50, "instances in a federation of hosts with a size")
	fs.IntSliceVar(&o.Clusters, "clusters", []int{1, 2, 4}, "numbers of clusters")
	fs.DurationVar(&o.Window, "window", time.Minute, "period in which messages and processor time are counted")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long a deployment may take")
	fs.DurationVar(&o.Load, "load", time.Minute, "duration of the requests in crowded and uncrowded")
	fs.Float64Var(&o.Expect, "expect", 0.75, "share of what an instance bears on the worker without neighbours, by its profile, that is expected and sent there")
	fs.IntVar(&o.ProfileRounds, "profile-rounds", 3, "number of rounds of a profile")
	fs.StringVar(&o.Service, "service", "", "program of the instances, static (default: compiled from bench/answer)")
	saved.Add(fs, "cell")
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
