package bench

import (
	"context"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// federationCommand gives `skerry bench federation`.
func federationCommand() *cobra.Command {
	var full, quick bool
	opt := FederationOptions{}
	var saved report.Saved
	cmd := &cobra.Command{
		Use: "federation", Short: "Measure a root with many clusters", Args: cobra.NoArgs,
		Long: `Measure a root with the links of many clusters: its API, memory, start, placements and changes per second, by the number of
clusters. The root runs as installed. Another process holds the clusters' ends of the links, with the code that clusters have
for them, but runs no sites. It needs neither root privileges nor network, and leaves nothing behind.

--quick takes some minutes; --full measures each size for longer. --svg DIR and --png DIR write plots.`,
		Example: "  skerry bench federation --clusters 1,10\n  skerry bench federation --full -o json --svg plots > federation.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if full && quick {
				return skerry.Errorf(skerry.CodeInvalid, "--quick and --full exclude each other")
			}
			if err := opt.check(); err != nil {
				return err
			}
			if err := saved.Check(); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				opt.Program, opt.Full, opt.Measuring = self, full, m
				return Federation(ctx, opt)
			})
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "some minutes (the default)")
	cmd.Flags().BoolVar(&full, "full", false, "longer for each size")
	cmd.Flags().IntSliceVar(&opt.Clusters, "clusters", []int{1, 10, 100, 1000}, "numbers of clusters, each larger than the one before")
	cmd.Flags().IntVar(&opt.Instances, "instances", 100, "instances for each cluster, a multiple of 10")
	cmd.Flags().IntVar(&opt.Rate, "rate", 200, "changes per second to ask for")
	saved.Add(cmd.Flags(), "size")
	return cmd
}

// check refuses what cannot be measured.
func (o *FederationOptions) check() error {
	switch {
	case len(o.Clusters) == 0 || o.Clusters[0] < 1 || o.Clusters[len(o.Clusters)-1] > 5000:
		return skerry.Errorf(skerry.CodeInvalid, "--clusters: numbers from 1 to 5000 are needed")
	case !slices.IsSorted(o.Clusters) || len(slices.Compact(slices.Clone(o.Clusters))) != len(o.Clusters):
		return skerry.Errorf(skerry.CodeInvalid, "--clusters: each number must be larger than the one before: one root grows")
	case o.Instances < 1 || o.Instances > 5000 || o.Instances%(benchServices*benchReplicas) != 0:
		return skerry.Errorf(skerry.CodeInvalid, "--instances %d is no multiple of %d from %[2]d to 5000", o.Instances,
			benchServices*benchReplicas)
	case o.Rate < 1 || o.Rate > apiUsers*90:
		return skerry.Errorf(skerry.CodeInvalid, "--rate %d is not from 1 to %d, which is what the API lets %d users do", o.Rate, apiUsers*90,
			apiUsers)
	}
	return nil
}

// sitesCommand is the child process of bench federation that holds the clusters' ends of the links.
func sitesCommand() *cobra.Command {
	var data, root string
	cmd := &cobra.Command{
		Use: "sites", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(400) // it has room, and leaves the processor to the root
			return runSites(cmd.Context(), data, root, os.Stdin, os.Stdout)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory")
	cmd.Flags().StringVar(&root, "root", "", "address of the root's links")
	return cmd
}
