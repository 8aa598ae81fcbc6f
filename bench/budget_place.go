package bench

import (
	"context"
	"fmt"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// placementBudgets measures place.ldp and place.rate: one decision of LDP over 10,000 machines of any fullness, and how
// many placements of the two policies of the paper one core decides and writes into the index in a second; the slower of
// the two counts.
func placementBudgets(ctx context.Context, r *report.Report, opt ScheduleOptions) error {
	workers, each := placingWorkers(opt), pickInt(opt, 20, 200, 1000)
	fleet := newFleet(1)
	fleet.filled, fleet.keep = true, true
	site := fleet.site(workers)
	rom, near := placing(opt, spec.PolicyROM), placing(opt, spec.PolicyLDP)
	ldp, late, rate := r.Find("", "place.ldp", ""), r.Find("", "place.ldp.p99", ""), r.Find("", "place.rate", "")
	asked, placed := 0, 0
	for range pickInt(opt, 2, 7, 15) {
		err := r.Round(ctx, opt.Measuring, func() error {
			var times []float64
			for range each {
				request := resourceRequest()
				fleet.nearUser(request, fleet.user(fleet.truths[fleet.rng.IntN(workers)]))
				var d wire.Decision
				times = append(times, clock(func() { d = site.Place(bornAt, sched.LDP(), request, uint64(asked)) })/1e3)
				if asked++; d.Chosen != "" {
					placed++
				}
			}
			r.Add(ldp, report.Median(times))
			r.Add(late, report.Quantile(times, 0.99))
			r.Add(rate, min(rom(), near()))
			return nil
		})
		if err != nil {
			return err
		}
	}
	ldp.About = fmt.Sprintf("median of %d decisions in each round; %d workers, a user within 20 ms and 120 km; placed %.0f %%; "+
		"network, store and trilateration not in it",
		each, workers, 100*share(placed, asked))
	late.About = "p99 of the same decisions in each round"
	rate.About = "rom or ldp, whichever is slower in a round; one core, decided and written into the index; " +
		"with store and links it is placements of bench federation"
	return nil
}
