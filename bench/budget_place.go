package bench

import (
	"fmt"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// placementBudgets measures place.ldp and place.rate: one decision of LDP over 10,000 machines of any fullness, and how
// many placements of the two policies of the paper one core decides and writes into the index in a second; the slower of
// the two counts.
func placementBudgets(r *report.Report, opt ScheduleOptions) {
	workers, rounds := pickInt(opt, 200, 10_000, 10_000), pickInt(opt, 20, 1000, 10_000)
	fleet := newFleet(1)
	fleet.filled, fleet.keep = true, true
	site := fleet.site(workers)
	placed := 0
	ldp, late, rate := r.Find("", "place.ldp", ""), r.Find("", "place.ldp.p99", ""), r.Find("", "place.rate", "")
	for i := range rounds {
		request := resourceRequest()
		fleet.nearUser(request, fleet.user(fleet.truths[fleet.rng.IntN(workers)]))
		var d wire.Decision
		took := clock(func() { d = site.Place(bornAt, sched.LDP(), request, uint64(i)) }) / 1e3
		r.Add(ldp, took)
		r.Add(late, took)
		if d.Chosen != "" {
			placed++
		}
	}
	ldp.About = fmt.Sprintf("%d workers, a user within 20 ms and 120 km; placed %.0f %%; network, store and trilateration not in it", workers,
		100*share(placed, rounds))
	slowest := Rate{}
	for _, x := range ratesOf(opt, []string{spec.PolicyROM, spec.PolicyLDP}) {
		rate.About += fmt.Sprintf("%s %.0f; ", x.Policy, x.PerSecond)
		if slowest.PerSecond == 0 || x.PerSecond < slowest.PerSecond {
			slowest = x
		}
	}
	for _, v := range slowest.values {
		r.Add(rate, v)
	}
	rate.About += "the slower counts; one core, decided and written into the index, not into the store"
}
