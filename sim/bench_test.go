package sim

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkThousandApplications takes a thousand applications from apply to ready, through the cores of a root, ten
// clusters and a hundred workers with simulated machines. It reports the processor time for each application.
func BenchmarkThousandApplications(b *testing.B) {
	const n = 1000
	for b.Loop() {
		w := New(1)
		for c := range 10 {
			site := fmt.Sprintf("c%d", c)
			w.AddCluster(site)
			for i := range 10 {
				w.AddWorker(site, fmt.Sprintf("w%d", i), facts(64000))
			}
		}
		w.Run(time.Second)
		begin := time.Now()
		for i := range n {
			if err, bad := w.Do(w.Root, app(fmt.Sprintf("app%d", i), 1)).(error); bad {
				b.Fatal(err)
			}
			w.Run(time.Millisecond)
		}
		w.Run(time.Minute)
		took := time.Since(begin)
		ready := 0
		for i := range n {
			ready += w.ready(fmt.Sprintf("app%d", i))
		}
		if ready != n {
			b.Fatalf("%d of %d are ready", ready, n)
		}
		b.ReportMetric(float64(took.Microseconds())/n, "µs/app")
	}
}
