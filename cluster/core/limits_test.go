package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestLargestLimitCounts: until a worker has confirmed other limits, the largest of each resource that an instance may have counts as
// promised: what it had, what was asked for last, and what was asked for before that.
func TestLargestLimitCounts(t *testing.T) {
	of := func(cpu skerry.MilliCPU, memory skerry.Bytes) spec.ServiceSpec {
		return spec.ServiceSpec{Resources: spec.Resources{CPU: cpu, Memory: memory}}
	}
	had := of(300, 5*skerry.MiB)
	p := &placement{A: spec.Assignment{Spec: had}}
	if n := p.need(); n.CPU != 300 || n.Memory != 5*skerry.MiB {
		t.Errorf("without a change: %+v", n)
	}
	asked, before := of(500, skerry.MiB), of(100, 9*skerry.MiB)
	p.Resize = &resize{Spec: asked}
	if n := p.need(); n.CPU != 500 || n.Memory != 5*skerry.MiB {
		t.Errorf("with what was asked for: %+v", n)
	}
	p.Resize.Peak = before.Need()
	if n := p.need(); n.CPU != 500 || n.Memory != 9*skerry.MiB {
		t.Errorf("with what was asked for before: %+v", n)
	}
}
