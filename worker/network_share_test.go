//go:build linux

package worker

import (
	"fmt"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// One organisation does not take all of the host ports that a worker chooses.
func TestHostPortsAreShared(t *testing.T) {
	n := newAttachments(nil)
	asks := func(org string, level spec.SecurityLevel, number, ports int) error {
		a := &spec.Assignment{ID: skerry.InstanceID(fmt.Sprint(org, "-", number)), Org: org, Level: level}
		for i := range ports {
			a.Spec.Ports = append(a.Spec.Ports, spec.Port{Port: i + 1, HostPort: -1})
		}
		_, err := n.bindLocked(a, nil)
		return err
	}
	given := 0
	for number := range 20 {
		if asks("greedy", spec.LevelRestricted, number, 200) == nil {
			given += 200
		}
	}
	if given == 0 || given > mostAutoPorts {
		t.Errorf("one organisation was given %d host ports, want some and at most %d", given, mostAutoPorts)
	}
	if err := asks("other", spec.LevelRestricted, 1, 200); err != nil {
		t.Errorf("another organisation gets none: %v", err)
	}
}
