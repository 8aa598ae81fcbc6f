package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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

// TestFailoverOfRefusedLimits: that an instance ends when the site is out of touch holds whatever else the site refuses of an
// assignment. The root takes it as confirmed, and starts it elsewhere.
func TestFailoverOfRefusedLimits(t *testing.T) {
	for _, row := range []struct {
		what  string
		limit spec.Resources // that an instance may have
	}{{"no room while it starts", spec.Resources{}}, {"not admitted", spec.Resources{CPU: 200}}} {
		now := time.Unix(1_700_000_000, 0)
		site := New(Options{Name: "a", Incarnation: "a1", Term: 1, Admission: Admission{MaxPerInstance: row.limit}})
		site.Start(now)
		site.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		site.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{
			Facts: &wire.WorkerFacts{Levels: true, Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
				Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}})}})
		asked := spec.Assignment{ID: "web-r1", Org: "guest", Gen: 1, Service: key("guest", "shop"), Spec: spec.ServiceSpec{Name: "web",
			OnDisconnect: spec.StopAfter(time.Minute), Resources: spec.Resources{CPU: 100}}}
		asked.Spec.Image = "web:1"
		asked.Revision = asked.Spec.Revision()
		var fx wire.Effects
		site.intake.accept(now, asked, "root", &fx)
		site.Tick(now)
		if p := site.places[asked.ID]; p == nil || p.Worker == "" {
			t.Fatalf("%s: got %+v, want it at the worker", row.what, p)
		}
		asked.Gen, asked.Spec.Resources.CPU = 2, 300
		asked.Revision = asked.Spec.Revision()
		for _, want := range []bool{true, false, true} {
			asked.Failover = want
			site.intake.accept(now, asked, "root", &fx)
			p := site.places[asked.ID]
			if _, got := p.stopsAfter(); got != want || p.A.Spec.Resources.CPU != 100 {
				t.Errorf("%s: it ends with the uplink: got %v with %v, want %v with its old limits", row.what, got, p.A.Spec.Resources.CPU, want)
			}
		}
	}
}
