package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// BenchmarkReportOfSpread10000 takes heartbeats of workers that run replicas of one large service, packed or spread.
func BenchmarkReportOfSpread10000(b *testing.B) {
	for _, policy := range []string{spec.PolicyROM, spec.PolicySpread} {
		b.Run(policy, func(b *testing.B) {
			c, now := large(b, 10_000)
			n := 5000
			s := spec.ServiceSpec{Name: "web", Replicas: &n, Resources: spec.Resources{CPU: 10, Memory: 4 * skerry.MiB}}
			s.Image, s.Placement.Policy = "web:1", policy
			fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
				Metadata: spec.Metadata{Name: "app"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
			if fx.Err != nil {
				b.Fatal(fx.Err)
			}
			var payloads [][]byte
			var names []string
			for _, p := range c.places {
				if p.Worker == "" {
					continue
				}
				p.Obs.State, p.Obs.Ready = skerry.Running, true
				r := wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{p.A.ID: {CPU: 5}}}
				payloads, names = append(payloads, wire.New().Marshal(&r)), append(names, p.Worker)
			}
			if len(names) != n {
				b.Fatalf("%d run", len(names))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				now = now.Add(time.Millisecond)
				var fx wire.Effects // nobody acknowledges here, which would drown the rest
				c.reports.workerReport(now, names[i%len(names)], &wire.Report{Kind: wire.ReportWorker, Payload: payloads[i%len(names)]}, &fx)
			}
		})
	}
}
