//go:build linux

package vm

import (
	"cmp"
	"context"
	"fmt"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// oldestCloudHypervisor is the first without a fault by which a guest may take it over (CVE-2026-45782).
const oldestCloudHypervisor = 52

// cloudHypervisorProgram is an installed Cloud Hypervisor.
type cloudHypervisorProgram struct {
	Path    string
	Version string // for people
}

// findCloudHypervisor gives the installed Cloud Hypervisor, or says in the report what is missing.
func findCloudHypervisor(ctx context.Context, r *runtime.Report, named string) *cloudHypervisorProgram {
	refuse := func(format string, args ...any) *cloudHypervisorProgram {
		r.Cause = fmt.Sprintf(format, args...)
		r.Cure = fmt.Sprintf("install a release of Cloud Hypervisor, %d or newer, and name it with --cloud-hypervisor", oldestCloudHypervisor)
		return nil
	}
	name := cmp.Or(named, "cloud-hypervisor")
	path := monitor.LookPath(name)
	if path == "" {
		return refuse("%s is not installed", name)
	}
	version, err := monitorVersion(ctx, path)
	if err != nil {
		return refuse("%v", err)
	}
	if have, _ := parseVersion(version); have[0] < oldestCloudHypervisor {
		return refuse("%s is of version %s, which is too old", path, version)
	}
	return &cloudHypervisorProgram{path, version}
}
