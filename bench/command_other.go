//go:build !linux

package bench

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command gives `skerry bench`, of which most needs Linux.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure what Skerry costs on this machine"}
	cmd.AddCommand(scheduleCommand(), publishedCommand(), &cobra.Command{
		Use: "budget", Short: "Measure the goals of the design (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "the benchmark starts workers, which need Linux")
		},
	}, &cobra.Command{
		Use: "network", Short: "Compare the overlay with other paths between two hosts (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "the overlay needs Linux")
		},
	})
	return cmd
}
