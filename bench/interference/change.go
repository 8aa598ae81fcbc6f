package interference

import "fmt"

// Change is what became of a load when one thing was changed: with a neighbour against alone, with a larger one against a smaller one, or
// with services that are pinned against others (as in tables 5.21 and 5.30 of the thesis). Percentages are measured / other - 1.
type Change struct {
	Place       string  `json:"place"`
	Service     string  `json:"service"`
	CPU         float64 `json:"cpu"`
	Rate        float64 `json:"rate"`
	Of          string  `json:"of"`
	Against     string  `json:"against"`
	Mean        float64 `json:"mean"`        // %
	P99         float64 `json:"p99"`         // %
	Application float64 `json:"application"` // %
	Overhead    float64 `json:"overhead"`    // ms more
}

// changes compares what can be compared: valid rows of the same place, service, limits and rate. The rows come in the
// order of the matrix, so that a row is compared with those before it.
func changes(rows []*Row) (out []Change) {
	valid := func(r *Row) bool { return r.Outcome != nil && r.Outcome.Invalid == "" && r.Outcome.Latency != nil }
	name := func(r *Row) string {
		if r.Interference == 0 {
			return "alone, pin " + r.Pin
		}
		return fmt.Sprintf("beside %s, pin %s", r.interference(), r.Pin)
	}
	for i, r := range rows {
		for _, old := range rows[:i] {
			if !valid(r) || !valid(old) || r.Place != old.Place || r.Service != old.Service || r.CPU != old.CPU || r.Rate != old.Rate {
				continue
			}
			louder := r.Pin == old.Pin && r.Interference > old.Interference && (old.Interference == 0 || old.Neighbour == r.Neighbour)
			pinned := r.Pin != old.Pin && r.Interference == old.Interference && r.Neighbour == old.Neighbour
			if !louder && !pinned {
				continue
			}
			percent := func(is, was float64) float64 { return 100 * (is/was - 1) }
			a, b := r.Outcome, old.Outcome
			out = append(out, Change{Place: r.Place, Service: r.Service, CPU: r.CPU, Rate: r.Rate, Of: name(r), Against: name(old),
				Mean: percent(a.Latency.Mean, b.Latency.Mean), P99: percent(a.Latency.P99, b.Latency.P99),
				Application: percent(a.Application.Total, b.Application.Total), Overhead: a.Overhead - b.Overhead})
		}
	}
	return out
}
