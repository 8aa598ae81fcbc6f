package bench

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
)

// networkCommand gives `skerry bench network`.
func networkCommand() *cobra.Command {
	var o NetworkOptions
	var saved report.Saved
	cmd := &cobra.Command{
		Use: "network", Short: "Compare the overlay with other paths between two hosts", Args: cobra.NoArgs,
		Long: `Measure the overlay and its alternatives, in one run and in turns: the bare wire, bridges and routes, nftables, the kernel's VXLAN,
wireguard-go, and Skerry with the kernel's WireGuard, sealed, plain, through a relay, and without BPF. Each runs on a wire that
passes large segments (gso) and on one with 1500-byte packets (mtu). Measured are streams, datagrams, round trips, connections and
processor time; then packet loss, a growing number of replicas (the paper's figure 8), tables of 10,000 routes, and with --full
downloads over long paths (figure 12) and a million flows.

Each case has two hosts, with an instance on each, in network namespaces of its own; nothing is left behind. It needs root, iperf3,
nft and ethtool. --quick takes less than three minutes, the default about eight, --full about an hour and a half.`,
		Example: "  skerry bench network --quick\n  skerry bench network --case direct,sealed -o json --svg plots > network.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Full && o.Quick {
				return skerry.Errorf(skerry.CodeInvalid, "--quick and --full exclude each other")
			}
			err := saved.Check() // before minutes are spent
			if err != nil {
				return err
			}
			for _, c := range o.Cases {
				if !slices.Contains(caseNames(), c) {
					return skerry.Errorf(skerry.CodeInvalid, "there is no case %q; there are %v", c, caseNames())
				}
			}
			if os.Geteuid() != 0 {
				return skerry.Errorf(skerry.CodeForbidden, "bench network makes namespaces and devices and needs root")
			}
			if o.Program, err = os.Executable(); err != nil {
				return err
			}
			return saved.Run(cmd, func(ctx context.Context, m report.Measuring) (*report.Report, error) {
				if err := m.Quiet.Begin(ctx); err != nil {
					return nil, err
				}
				o.Measuring = m
				return MeasureNetwork(ctx, o)
			})
		},
	}
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "less than three minutes")
	cmd.Flags().BoolVar(&o.Full, "full", false, "more rounds, downloads over long paths, a million flows")
	cmd.Flags().StringSliceVar(&o.Cases, "case", nil, "only these cases; ratios need direct")
	saved.Add(cmd.Flags(), "round")
	return cmd
}
