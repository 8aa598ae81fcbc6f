package pods

import (
	"fmt"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestHostPortsAreShared: one organisation leaves others host ports on a node of Kubernetes, as it does on other workers.
func TestHostPortsAreShared(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	first := 31000
	worker.fleet.opt.FirstPort, worker.fleet.opt.LastPort = first, first+99
	asks := func(org string, level spec.SecurityLevel, number int, keep ...wire.PortBinding) error {
		a := &spec.Assignment{ID: skerry.InstanceID(fmt.Sprint(org, "-", number)), Org: org, Level: level}
		for i := range 10 {
			a.Spec.Ports = append(a.Spec.Ports, spec.Port{Port: i + 1, HostPort: -1})
		}
		_, err := worker.bind(a, keep)
		return err
	}
	given := 0
	for number := range 10 {
		if asks("greedy", spec.LevelRestricted, number) == nil {
			given += 10
		}
	}
	if given != 50 {
		t.Errorf("one organisation was given %d host ports of 100, want 50", given)
	}
	var had []wire.PortBinding
	for i := range 10 {
		had = append(had, wire.PortBinding{Name: spec.Port{Port: i + 1}.PortName(), Port: i + 1, HostPort: first + 60 + i, Protocol: "tcp"})
	}
	if err := asks("greedy", spec.LevelRestricted, 20, had...); err != nil {
		t.Errorf("an instance of before there was a share is not started again with the ports that it had: %v", err)
	}
	if err := asks("other", spec.LevelRestricted, 1); err != nil {
		t.Errorf("another organisation gets none: %v", err)
	}
	worker.release(worker.work.Load(), "greedy-0")
	if err := asks("greedy", spec.LevelRestricted, 21); err == nil {
		t.Error("ten more than its share were given: one of sixty has gone")
	}
	if err := asks("greedy", spec.LevelPrivileged, 22); err != nil {
		t.Errorf("at level privileged: %v", err)
	}
}
