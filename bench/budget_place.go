package bench

import (
	"fmt"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// placementBudgets measures place.ldp and place.rate: one decision of LDP over 10,000 machines of any fullness, and how
// many placements of the two policies of the paper one core decides and writes into the index in a second; the slower of
// the two counts.
func placementBudgets(opt ScheduleOptions) (ldp, rate sample) {
	workers, rounds := pickInt(opt, 200, 10_000, 10_000), pickInt(opt, 20, 1000, 10_000)
	fleet := newFleet(1)
	fleet.filled, fleet.keep = true, true
	site := fleet.site(workers)
	placed := 0
	for i := range rounds {
		r := resourceRequest()
		fleet.nearUser(r, fleet.user(fleet.truths[fleet.rng.IntN(workers)]))
		var d wire.Decision
		ldp.values = append(ldp.values, clock(func() { d = site.Place(bornAt, sched.LDP(), r, uint64(i)) })/1e3)
		if d.Chosen != "" {
			placed++
		}
	}
	ldp.context = fmt.Sprintf("%d workers, a user within 20 ms and 120 km; p99 %.3f ms; placed %.0f %%; network, store and trilateration not in it", workers, Quantile(ldp.values, 0.99), 100*share(placed, rounds))
	slowest := Rate{}
	for _, x := range ratesOf(opt, []string{spec.PolicyROM, spec.PolicyLDP}) {
		rate.context += fmt.Sprintf("%s %.0f; ", x.Policy, x.PerSecond)
		if slowest.PerSecond == 0 || x.PerSecond < slowest.PerSecond {
			slowest, rate.values = x, x.values
		}
	}
	rate.context += "the slower counts; one core, decided and written into the index, not into the store"
	return ldp, rate
}
