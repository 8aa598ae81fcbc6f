package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench/report"
)

// quickWatch is how long --quick watches processes at rest, and quickReplicas the most that it deploys unless told otherwise.
const (
	quickWatch    = 3 * time.Second
	quickReplicas = 10
)

// Command gives `skerry bench orchestrator`.
func Command() *cobra.Command {
	var opt Options
	var saved report.Saved
	cmd := &cobra.Command{
		Use: "orchestrator --adapter FILE", Short: "Measure orchestrators side by side", Args: cobra.NoArgs,
		Long: `Measure orchestrators side by side: the time until a deployment is ready and until it is gone, and the processor time and
memory of their processes during that time, at rest and while replicas run. An adapter is a program that controls one
orchestrator, which must already be running. examples/adapters has some, and docs/BENCH-ADAPTERS.md describes the contract.
All take turns in each round, after one deployment that is not counted. The first one is the baseline of the comparison.
Steps that an adapter does not support are listed with the reason. The report also shows the figures of the Oakestra paper
(002) for the same measurements. --out saves the report after each round: Ctrl-C deletes the deployment and loses no complete
round. Reading the memory of other users' processes needs root.`,
		Example: "  skerry bench orchestrator --adapter examples/adapters/skerry.sh --quick --rounds 3\n  skerry bench orchestrator --adapter examples/adapters/skerry.sh --adapter examples/adapters/nomad.sh --out both.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := saved.Check()
			if err != nil {
				return err
			}
			if opt.Quick {
				if !cmd.Flags().Changed("rest") {
					opt.Watch = quickWatch
				}
				if !cmd.Flags().Changed("replicas") {
					opt.Sizes = slices.DeleteFunc(opt.Sizes, func(n int) bool { return n > quickReplicas })
				}
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				opt.Measuring = m
				return Run(ctx, opt)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&opt.Adapters, "adapter", nil, "program that stands for an orchestrator; may be repeated")
	fs.StringVar(&opt.Image, "image", "docker.io/library/nginx:stable-alpine",
		"image of the replicas, under a name that every orchestrator can pull")
	fs.IntVar(&opt.Rounds, "rounds", 10, "deployments by each adapter for each number of replicas")
	fs.IntSliceVar(&opt.Sizes, "replicas", []int{1, 10, 100}, "numbers of replicas of a deployment")
	fs.DurationVar(&opt.Watch, "rest", 30*time.Second, "how long processes are observed at rest")
	fs.DurationVar(&opt.Timeout, "timeout", 5*time.Minute, "how long each step of an adapter may take")
	fs.BoolVar(&opt.Quick, "quick", false, "rests of 3 s and at most 10 replicas, unless set")
	saved.Add(fs, "round")
	cmd.AddCommand(labCommand())
	return cmd
}
