//go:build !linux

package agent

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// noWorker says why a worker cannot run on this system.
func noWorker() error {
	return skerry.Errorf(skerry.CodeUnsupported, "a worker cannot run on %s: it needs the namespaces, cgroups and overlay file system of Linux", runtime.GOOS).
		WithHint("run the worker on a Linux machine or in a virtual machine; root, cluster and all client commands work here")
}

func runWorker(context.Context, *Flags, Program) error { return noWorker() }

// Refusing is a command that only Linux has.
func Refusing(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error { return noWorker() }}
}

func checkCommand(string) *cobra.Command {
	return Refusing("check", "Test every runtime on this machine and suggest fixes")
}

func profileCommand(string) *cobra.Command {
	return Refusing("profile", "Measure the overhead of this machine's runtimes, for placement")
}

func cleanupCommand(string) *cobra.Command {
	return Refusing("cleanup", "Remove everything that a worker left on this machine")
}
