package cluster

import (
	"math"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/internal/wire"
)

// A root does not make another service of an instance that was admitted, by its name alone.
func TestChangedSpecIsAdmitted(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	c.Step(now, ChildUp{Hello: &skerry.Hello{Name: "w", Sets: []skerry.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	c.Step(now, ChildFrame{Name: "w", Msg: &skerry.Report{Kind: skerry.ReportWorker, Payload: wire.New().Marshal(&skerry.WorkerReport{Facts: &skerry.WorkerFacts{Arch: "amd64",
		Runtimes: []skerry.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: skerry.Resources{CPU: 4000, Memory: skerry.GiB}}})}})
	a := skerry.Assignment{ID: "web-r1", Org: "guest", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "guest", Name: "shop"}, Service: "web"}, Gen: 1, Spec: skerry.ServiceSpec{Name: "web"}}
	a.Spec.Image = "web:1"
	a.Revision = a.Spec.Revision()
	var fx skerry.Effects
	c.accept(now, a, "root", &fx)
	c.Tick(now)
	if p := c.places[a.ID]; p == nil || p.Refused {
		t.Fatalf("%+v", p)
	}
	for _, gen := range []skerry.Generation{2, 1} {
		evil := a
		evil.Gen, evil.Restart = gen, 1 // under the revision that was admitted
		evil.Spec.Security.Privileged = true
		c.accept(now, evil, "root", &fx)
		if p := c.places[a.ID]; p.A.Spec.Security.Privileged || len(fx.Events) == 0 || fx.Events[len(fx.Events)-1].Reason != "NotAdmitted" {
			t.Errorf("generation %d: it became privileged; %+v", gen, fx.Events)
		}
	}
	a.Restart = 2
	if c.accept(now, a, "root", &fx); c.places[a.ID].A.Restart != 2 {
		t.Error("a restart of what was admitted is refused")
	}
}

// A worker that reports what is no number ends neither the site's process nor what others say.
func TestReportOfNoNumbers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Admission: Admission{Trusted: []string{"default"}}})
		c.Start(now)
		c.Step(now, ChildUp{Hello: &skerry.Hello{Name: "w", Sets: []skerry.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		report := func(r skerry.WorkerReport) {
			c.Step(now, ChildFrame{Name: "w", Msg: &skerry.Report{Kind: skerry.ReportWorker, Payload: wire.New().Marshal(&r)}})
		}
		facts := &skerry.WorkerFacts{Arch: "amd64", Runtimes: []skerry.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: skerry.Resources{CPU: 4000, Memory: skerry.GiB}}
		report(skerry.WorkerReport{Facts: facts})
		c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
		c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		one := 1
		s := skerry.ServiceSpec{Name: "web", Replicas: &one}
		s.Image = "web:1"
		c.Step(now, apps.Apply{App: skerry.Application{APIVersion: skerry.APIVersion, Kind: skerry.KindApplication,
			Metadata: skerry.Metadata{Name: "shop"}, Spec: skerry.ApplicationSpec{Services: []skerry.ServiceSpec{s}}}})
		var id skerry.InstanceID
		for id = range c.places {
		}
		if id == "" || c.places[id].Worker != "w" {
			t.Fatalf("%q is not placed", id)
		}
		spoilt := *facts
		spoilt.Power = &skerry.Power{Idle: v}
		report(skerry.WorkerReport{Facts: &spoilt})
		report(skerry.WorkerReport{Instances: map[skerry.InstanceID]skerry.QoS{id: {Waiting: v, ProbeMs: v}}})
		c.Step(now, apps.Delete{Key: c.places[id].A.Service.App})
	}
}
