package cluster

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/internal/wire"
)

// BenchmarkReportOfSpread10000 takes heartbeats of workers that run replicas of one large service, packed or spread.
func BenchmarkReportOfSpread10000(b *testing.B) {
	for _, policy := range []string{skerry.PolicyROM, skerry.PolicySpread} {
		b.Run(policy, func(b *testing.B) {
			c, now := large(b, 10_000)
			n := 5000
			s := skerry.ServiceSpec{Name: "web", Replicas: &n, Resources: skerry.Resources{CPU: 10, Memory: 4 * skerry.MiB}}
			s.Image, s.Placement.Policy = "web:1", policy
			fx := c.Step(now, apps.Apply{App: skerry.Application{APIVersion: skerry.APIVersion, Kind: skerry.KindApplication,
				Metadata: skerry.Metadata{Name: "app"}, Spec: skerry.ApplicationSpec{Services: []skerry.ServiceSpec{s}}}})
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
				r := skerry.WorkerReport{Instances: map[skerry.InstanceID]skerry.QoS{p.A.ID: {CPU: 5}}}
				payloads, names = append(payloads, wire.New().Marshal(&r)), append(names, p.Worker)
			}
			if len(names) != n {
				b.Fatalf("%d run", len(names))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				now = now.Add(time.Millisecond)
				var fx skerry.Effects // nobody acknowledges here, which would drown the rest
				c.workerReport(now, names[i%len(names)], &skerry.Report{Kind: skerry.ReportWorker, Payload: payloads[i%len(names)]}, &fx)
			}
		})
	}
}
