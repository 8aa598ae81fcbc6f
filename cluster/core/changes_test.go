package core

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestReportsOfChanges: what a report of changes does not name stays as it was told, of instances that the worker has; what it names, and
// what is gone, is as it says. So whoever names instances that it does not have fills nothing.
func TestReportsOfChanges(t *testing.T) {
	c, now := large(t, 1)
	n := 3
	s := spec.ServiceSpec{Name: "web", Replicas: &n, Resources: spec.Resources{CPU: 10, Memory: 4 * skerry.MiB}}
	s.Image = "web:1"
	fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "app"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
	if fx.Err != nil {
		t.Fatal(fx.Err)
	}
	worker, ids := "", sortedIDs(c.places)
	for _, id := range ids {
		worker = c.places[id].Worker
	}
	if worker == "" || len(ids) != n {
		t.Fatalf("%d instances at %q, want %d with a worker", len(ids), worker, n)
	}
	seq := uint64(100)
	tell := func(r wire.WorkerReport) {
		seq++
		now = now.Add(time.Second)
		r.Seq = seq
		c.Step(now, ChildFrame{Name: worker, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
	}
	uses := func() string {
		out := ""
		for _, id := range ids {
			if q, ok := c.workers[worker].report.Instances[id]; ok {
				out += fmt.Sprint(q.CPU.String(), "/", c.places[id].qos.CPU.String(), " ")
			} else {
				out += "- "
			}
		}
		return out + fmt.Sprint(len(c.workers[worker].report.Instances))
	}
	cpu := func(v skerry.MilliCPU) wire.QoS { return wire.QoS{CPU: v} }
	tell(wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{ids[0]: cpu(1), ids[1]: cpu(2), ids[2]: cpu(3), "another": cpu(9)}})
	for _, step := range []struct {
		name   string
		report wire.WorkerReport
		want   string
	}{
		{"one changes", wire.WorkerReport{Changes: true, Instances: map[skerry.InstanceID]wire.QoS{ids[1]: cpu(20)}},
			"0.001/0.001 0.02/0.02 0.003/0.003 3"},
		{"nothing", wire.WorkerReport{Changes: true}, "0.001/0.001 0.02/0.02 0.003/0.003 3"},
		{"one is gone", wire.WorkerReport{Changes: true, Gone: []skerry.InstanceID{ids[0]}}, "- 0.02/0.02 0.003/0.003 2"},
		{"strangers come", wire.WorkerReport{Changes: true, Instances: map[skerry.InstanceID]wire.QoS{"x": cpu(1), "y": cpu(1)}},
			"- 0.02/0.02 0.003/0.003 4"},
		{"others", wire.WorkerReport{Changes: true, Instances: map[skerry.InstanceID]wire.QoS{"z": cpu(1)}}, "- 0.02/0.02 0.003/0.003 3"},
		{"all", wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{ids[0]: cpu(5)}}, "0.005/0.005 - - 1"},
	} {
		tell(step.report)
		if got := uses(); got != step.want {
			t.Errorf("%s: uses are %s, want %s", step.name, got, step.want)
		}
	}
}

// TestUseOfACopy: the use of a copy that is to take over, told while the instance is at another worker, counts once it has taken over,
// though it does not change any more. So does that of an instance that the site finds at a worker only after it was told.
func TestUseOfACopy(t *testing.T) {
	site := newOverlayNetSite(t)
	first := site.join(1)
	site.apply("acme", "shop", 1)
	site.tell(first)
	id := sortedIDs(site.c.places)[0]
	second := site.join(2)
	site.do(DrainWorker{Name: first})
	if p := site.c.places[id]; p.Next == nil || p.Next.Worker != second {
		t.Fatalf("got successor %+v, want one at %s", p.Next, second)
	}
	found := wire.Observation{ID: "found", State: skerry.Running}
	site.obs[second] = map[skerry.InstanceID]wire.Observation{found.ID: found}
	site.send(second, map[string][]byte{wire.AssignmentKey(found.ID): wire.New().Marshal(&found)})
	site.report(second, wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{id: {CPU: 7}, found.ID: {CPU: 8}, "made-up": {CPU: 9}}})
	site.report(second, wire.WorkerReport{Changes: true})
	site.tell(second)
	site.report(second, wire.WorkerReport{Changes: true})
	p := site.c.places[id]
	if p.Worker != second || p.qos == nil || p.qos.CPU != 7 {
		t.Errorf("the copy at %s: got use %+v, want 7 thousandths at %s", p.Worker, p.qos, second)
	}
	if got := site.c.workers[second].report.Instances; len(got) != 2 || got["found"].CPU != 8 {
		t.Errorf("got uses %v, want those of the copy and of what the worker has", got)
	}
}
