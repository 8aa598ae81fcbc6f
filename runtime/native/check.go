//go:build linux

package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
)

// Check runs a small program with limits and looks whether they were set.
func (d *Driver) Check(ctx context.Context) (r runtime.Report) {
	began := time.Now()
	r.Driver = d.Name()
	defer func() { r.Took = time.Since(began) }()
	if !d.Preflight(&r, "cgroups and users need root") {
		return r
	}
	if err := d.try(ctx); err != nil {
		r.Cause, r.Cure = err.Error(), "read the supervisor's messages in the worker's log"
		return r
	}
	r.Passed, r.Version = true, "linux "+goruntime.GOARCH
	r.Abilities = []runtime.Ability{
		runtime.AbilityCapabilities, runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityExec, runtime.AbilityLogs, runtime.AbilityMemory,
		runtime.AbilityMounts, runtime.AbilityNetNS, runtime.AbilityPause, runtime.AbilityPids, runtime.AbilityPrivileged,
		runtime.AbilityResize, runtime.AbilityStats, runtime.AbilityTTY,
		runtime.AbilityDir, runtime.AbilityHostNetwork, runtime.AbilitySignals, runtime.AbilityUlimits, runtime.AbilityUser,
	}
	r.Abilities = append(r.Abilities, d.IOAbilities()...)
	return r
}

func (d *Driver) try(ctx context.Context) error {
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok {
		return fmt.Errorf("there is no self-test for %s", goruntime.GOARCH)
	}
	file := filepath.Join(d.Options.Dir, "check", "probe")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := files.Program(file, bytes.NewReader(program), 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return d.Try(ctx, "native", runtime.Mount{Type: "bind", Source: file}, []string{"probe"}, d.Start)
}
