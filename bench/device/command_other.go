//go:build !linux

package device

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Commands gives what reads reports; measuring needs Linux.
func Commands() []*cobra.Command {
	return []*cobra.Command{compareCommand(), reportCommand(), {
		Use: "runtime", Short: "Measure the cost of each kind of isolation on this device (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return skerry.Errorf(skerry.CodeUnsupported, "kinds of isolation are Linux's")
		},
	}}
}
