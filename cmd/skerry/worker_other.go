//go:build !linux

package main

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

func runWorker(context.Context, *workerFlags) error { return noWorker() }

func refusing(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error { return noWorker() }}
}

func workerCheck() *cobra.Command {
	return refusing("check", "Test every runtime on this machine and suggest fixes")
}

func workerProfile() *cobra.Command {
	return refusing("profile", "Measure the overhead of this machine's runtimes, for placement")
}

func workerCleanup() *cobra.Command {
	return refusing("cleanup", "Remove everything that a worker left on this machine")
}

func upCommand() *cobra.Command {
	return refusing("up", "Run root, cluster and worker in one process")
}
