//go:build !linux

package bench

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command gives `skerry bench`, which needs Linux.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Measure what Skerry costs on this machine (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "the benchmarks start workers, which need Linux")
		},
	}
}
