//go:build !linux

package interference

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command gives `skerry bench interference`, which needs Linux.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "interference", Short: "Measure how neighbours slow a service down (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "kinds of isolation are Linux's")
		},
	}
}
