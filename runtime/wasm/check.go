//go:build linux

package wasm

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"time"

	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
)

// Check runs a small module with limits and looks whether they were set.
func (d *Driver) Check(ctx context.Context) (r runtime.Report) {
	began := time.Now()
	r.Driver = d.Name()
	defer func() { r.Took = time.Since(began) }()
	if !d.Preflight(&r, "cgroups and mounts need root") {
		return r
	}
	if err := d.try(ctx); err != nil {
		r.Cause, r.Cure = err.Error(), "read the supervisor's messages in the worker's log; modules need overlayfs and a mount namespace"
		return r
	}
	r.Passed, r.Version = true, "wasip1 on linux "+goruntime.GOARCH
	r.Abilities = []runtime.Ability{
		runtime.AbilityCPU, runtime.AbilityCPUSet, runtime.AbilityHandler, runtime.AbilityImages, runtime.AbilityLogs, runtime.AbilityMemory,
		runtime.AbilityMounts, runtime.AbilityNetNS,
		runtime.AbilityPause, runtime.AbilityPids, runtime.AbilityReadOnlyRoot, runtime.AbilityResize, runtime.AbilityStats, runtime.AbilityDir,
		runtime.AbilityHostNetwork,
	}
	r.Abilities = append(r.Abilities, d.IOAbilities()...)
	slices.Sort(r.Abilities)
	return r
}

func (d *Driver) try(ctx context.Context) error {
	root := filepath.Join(d.Options.Dir, "check")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	module := wasmcode.Module{Text: probe.Line + "\n", Body: append(slices.Clone(wasmcode.Print), wasmcode.Exit(probe.Code)...)}.Encode()
	file := filepath.Join(root, "probe.wasm")
	if old, err := os.ReadFile(file); err != nil || !slices.Equal(old, module) {
		if err := os.WriteFile(file, module, 0o644); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return d.Try(ctx, d.Name(), runtime.Mount{Type: "bind", Source: root}, []string{"/probe.wasm"}, d.Start)
}
