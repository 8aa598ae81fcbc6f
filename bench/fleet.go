package bench

import (
	"context"
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/sim"
)

// fleetOf runs a simulated fleet of the real cores for an hour of its time and tells how large it was, if everything asked of it
// ran at the end.
func fleetOf(ctx context.Context, to *report.Report, o sim.FleetOptions) {
	figure := to.Find("", "sim.fleet", "")
	r, err := sim.Fleet(ctx, o)
	if err != nil {
		figure.Skip = err.Error()
		return
	}
	per := func(t *sim.Traffic) string {
		return fmt.Sprintf("%d messages, %.1f MB", t.Messages, float64(t.Bytes)/1e6)
	}
	to.Add(figure, float64(r.Workers))
	figure.About = fmt.Sprintf(
		"%d clusters, %d instances; %s simulated in %s, %s before that to start; %.1f GiB from the system, %.1f live; sent by workers %s, by clusters %s, by the root %s; %d machines lost power meanwhile; disks, TLS and beats not in it",
		r.Clusters, r.Instances, r.Simulated.Round(time.Second), r.Wall.Round(100*time.Millisecond), r.Start.Round(100*time.Millisecond),
		gib(r.Sys), gib(r.Heap), per(r.Traffic["worker"]), per(r.Traffic["cluster"]), per(r.Traffic["root"]), r.Failures)
}

func gib(n uint64) float64 { return float64(n) / float64(skerry.GiB) }
