//go:build !linux

package main

import (
	"context"
	"runtime"

	"skerry.dev/skerry/ctl"
)

// machineChecks says what this machine can be.
func machineChecks(context.Context, string) []ctl.Check {
	return []ctl.Check{{Name: "worker", State: ctl.CheckSkipped, Text: "a worker cannot run on " + runtime.GOOS,
		Cure: "run the worker on a Linux machine; root, cluster and client commands work here"}}
}
