//go:build linux

package worker

import (
	"fmt"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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
	kept := &spec.Assignment{ID: "greedy-old", Org: "greedy", Level: spec.LevelRestricted}
	kept.Spec.Ports = []spec.Port{{Name: "a", Port: 1, HostPort: -1}}
	for number := range mostAutoPorts { // now it has all that it may have
		_ = asks("greedy", spec.LevelRestricted, 100+number, 1)
	}
	if _, err := n.bindLocked(kept, nil); err == nil {
		t.Error("one more port was given to an organisation that has all it may have")
	}
	if _, err := n.bindLocked(kept, []wire.PortBinding{{Name: "a", Port: 1, HostPort: lastAutoPort}}); err != nil {
		t.Errorf("an instance of before there was a limit is not started again with the port that it had: %v", err)
	}
	if err := asks("other", spec.LevelRestricted, 1, 200); err != nil {
		t.Errorf("another organisation gets none: %v", err)
	}
}
