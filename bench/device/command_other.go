//go:build !linux

package device

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Command refuses: measuring needs Linux.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "runtime", Short: "Measure the cost of each kind of isolation on this device (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "kinds of isolation are Linux's")
		},
	}
}
