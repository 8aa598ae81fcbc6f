package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestSingleVolumeIsInUseAgain: a worker that was away while a volume was renamed, deleted and named so again learns all of it at once. What
// the new instance has in it is not removed when that one ends; what an instance has that is to end is.
func TestSingleVolumeIsInUseAgain(t *testing.T) {
	for what, again := range map[string]bool{"an instance has it again": true, "an instance that ends has it": false} {
		t.Run(what, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			a.Spec.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}
			one := spec.VolumeClaim{Service: a.Service, Volume: "data"}
			if _, err := d.src.Put(one.Key(), wire.New().Marshal(&one)); err != nil {
				t.Fatal(err)
			}
			if !again {
				d.runs(a)
				d.src.Delete(wire.AssignmentKey(a.ID))
			}
			other := assignment(a.Fence)
			other.ID, other.Service.Service = "other", "other"
			d.wants(other)
			if d.c.volumes.claims[one] == nil {
				t.Fatal("the volume is not kept")
			}
			d.src.Delete(one.Key())
			next := other
			if again {
				next = a
			}
			next.Gen++
			if acts := d.wants(next); has[RemoveVolumes](acts) {
				t.Fatal("it is removed while an instance has it")
			}
			if waits := d.c.volumes.claims[one] != nil; waits == again {
				t.Errorf("its removal waits: %v", waits)
			}
			d.start()
			if waits := d.c.volumes.claims[one] != nil; waits == again {
				t.Errorf("after a start its removal waits: %v", waits)
			}
		})
	}
}
