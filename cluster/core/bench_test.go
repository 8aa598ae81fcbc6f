package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// large is a site of connected workers that have told what they have.
func large(b testing.TB, workers int) (*Core, time.Time) {
	b.Helper()
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Admission: Admission{Trusted: []string{"default"}}})
	c.Start(now)
	codec := wire.New()
	for i := range workers {
		name := fmt.Sprintf("w%d", i)
		// It holds the empty set already, as one that has acknowledged all.
		c.Step(now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		r := wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Area: fmt.Sprintf("area%d", i%20),
			Location: &spec.Location{Lat: float64(i%120) - 60, Lon: float64(i%300) - 150}, Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB}}}
		c.Step(now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: codec.Marshal(&r)}})
	}
	c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
	c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	return c, now
}

// BenchmarkReport10000 takes a heartbeat in a site of 10,000 workers.
func BenchmarkReport10000(b *testing.B) {
	c, now := large(b, 10_000)
	payload := wire.New().Marshal(&wire.WorkerReport{Used: spec.Resources{CPU: 100}})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Millisecond)
		c.Step(now, ChildFrame{Name: fmt.Sprintf("w%d", i%10_000), Msg: &wire.Report{Kind: wire.ReportWorker, Payload: payload}})
		c.NextWake()
	}
}

// BenchmarkDeploy10000 takes an application of one instance from apply to the worker's desired set in a site of 10,000
// workers, with everything that the core does on the way: records, decision, events.
func BenchmarkDeploy10000(b *testing.B) {
	c, now := large(b, 10_000)
	one := 1
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Millisecond)
		s := spec.ServiceSpec{Name: "web", Replicas: &one, Resources: spec.Resources{CPU: 10, Memory: 4 * skerry.MiB}}
		s.Image = "web:1"
		fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: fmt.Sprintf("app%d", i)}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
		if fx.Err != nil || !slices.ContainsFunc(fx.Events, func(e wire.Event) bool { return e.Reason == "WorkerScheduled" }) {
			b.Fatalf("%v, %v", fx.Err, fx.Events)
		}
		c.NextWake()
	}
}
