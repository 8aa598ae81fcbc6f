//go:build linux

package vm

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

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
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return refuse("%s --version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version, major, ok := cloudHypervisorVersion(line)
	if !ok {
		return refuse("%s says it is %q, which is no version", path, clean(line))
	}
	if major < oldestCloudHypervisor {
		return refuse("%s is of version %s, which is too old", path, version)
	}
	return &cloudHypervisorProgram{path, version}
}

// cloudHypervisorVersion reads "cloud-hypervisor v53.0", "v53.0.0" or "v53.0-12-g0123abc".
func cloudHypervisorVersion(line string) (version string, major int, ok bool) {
	_, version, found := strings.Cut(strings.TrimSpace(line), " v")
	first, _, dotted := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	return clean(version), major, found && dotted && err == nil && major >= 0
}
