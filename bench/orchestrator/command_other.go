//go:build !linux

package orchestrator

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command gives `skerry bench orchestrator`, which needs Linux.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "orchestrator", Short: "Measure orchestrators side by side (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "processes are measured by Linux's files of them")
		},
	}
}
