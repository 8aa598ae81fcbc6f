//go:build linux

package main

import (
	"os/exec"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// The units of root and cluster give away nothing of the machine that these roles do not need: an exposure of 2.0 at most, of 10. The worker's
// work is to make containers; its unit says what that needs, and leaves 7.9.
func TestUnitsAreHardened(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the exposure of units", Why: "there is no systemd-analyze"})
	}
	for unit, most := range map[string]string{"skerry-root": "20", "skerry-cluster": "20", "skerry-worker": "79", "skerry": "79"} {
		out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+most,
			"../../packaging/systemd/"+unit+".service").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
