// Package bench measures what Skerry costs and what it gives, beside what a user would run instead. It drives the real
// binary in network namespaces of its own. The command and tests import it.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is one measured budget. Value is the median of N samples; Spread is half the distance between the quartiles.
// Value is nil when it was not measured, and Context says why.
type Result struct {
	Name    string   `json:"name"`
	Value   *float64 `json:"value"`
	Unit    string   `json:"unit"`
	Better  string   `json:"better"` // lower or higher
	Goal    float64  `json:"goal"`
	Met     *bool    `json:"met"`
	N       int      `json:"n"`
	Spread  float64  `json:"spread"`
	Context string   `json:"context,omitempty"`
}

// budget is a goal for one figure; docs/BENCHMARKS.md has them all ("Budgets").
type budget struct {
	name, unit, better string
	goal               float64
	later              string // why this version does not measure it; empty: it does
}

// budgets lists the goals in the order of the design.
func budgets() []budget {
	return []budget{
		{"agent.mem", "MiB", "lower", 25, ""},
		{"agent.cpu", "% of a core", "lower", 0.05, ""},
		{"agent.disk", "MB/day", "lower", 50, ""},
		{"control.mem", "MiB", "lower", 50, ""},
		{"control.cpu", "% of a core", "lower", 0.3, ""},
		{"container.mem", "MiB", "lower", 2, ""},
		{"deploy.ratio", "x", "lower", 2, ""},
		{"deploy.visible", "ms", "lower", 40, ""},
		{"deploy.hundred", "s", "lower", 2, ""},
		{"deploy.hundred.ratio", "x", "lower", 1.8, ""},
		{"delete.hundred", "s", "lower", 4, ""},
		{"binary.size", "MB", "lower", 40, ""},
		{"failover.p99", "s", "lower", 5, ""},
		{"control.wire.fast", "kbit/s", "lower", 1.5, ""},
		{"control.wire.metered", "kbit/s", "lower", 0.25, ""},
		{"overlay.tcp.gso", "x", "higher", 0.95, ""},
		{"overlay.tcp.mtu", "x", "higher", 0.75, ""},
		{"overlay.tcp.default", "x", "higher", 0.5, ""},
		{"overlay.rtt", "x", "lower", 1.3, ""},
		{"place.ldp", "ms", "lower", 1, ""},
		{"place.rate", "1/s", "higher", 10000, ""},
		{"sim.fleet", "workers", "higher", 100000, ""},
	}
}

// sample is what was measured for a budget; err says why it could not be.
type sample struct {
	values  []float64
	context string
	unmet   bool // the goal has a second half, told in the context, that was missed
	err     error
}

// fold makes the list of results from samples by name.
func fold(samples map[string]sample, skipped string) []Result {
	var out []Result
	for _, b := range budgets() {
		r := Result{Name: b.name, Unit: b.unit, Better: b.better, Goal: b.goal}
		s, ok := samples[b.name]
		switch {
		case b.later != "":
			r.Context = "not measured: " + b.later
		case !ok:
			r.Context = "not measured: " + skipped
		case s.err != nil:
			r.Context = "not measured: " + s.err.Error()
		default:
			v := Median(s.values)
			met := v <= b.goal
			if b.better == "higher" {
				met = v >= b.goal
			}
			met = met && !s.unmet
			r.Value, r.Met, r.N, r.Spread, r.Context = &v, &met, len(s.values), (Quantile(s.values, 0.75)-Quantile(s.values, 0.25))/2, s.context
		}
		out = append(out, r)
	}
	return out
}

// Median of values; NaN for none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile interpolates linearly between the two nearest values; q is 0 to 1. It gives NaN for no values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// WriteTable writes results for people.
func WriteTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVALUE\tSPREAD\tN\tGOAL\tMET\tCONTEXT")
	for _, r := range results {
		value, spread, met := "-", "", "-"
		if r.Value != nil {
			value, spread = fmt.Sprintf("%.4g %s", *r.Value, r.Unit), fmt.Sprintf("±%.2g", r.Spread)
			met = map[bool]string{true: "yes", false: "no"}[*r.Met]
		}
		sign := map[string]string{"lower": "<=", "higher": ">="}[r.Better]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s %g\t%s\t%s\n", r.Name, value, spread, r.N, sign, r.Goal, met, r.Context)
	}
	return t.Flush()
}

// WriteMarkdown writes results as a table for docs/BENCHMARKS.md.
func WriteMarkdown(w io.Writer, results []Result) error {
	var b strings.Builder
	b.WriteString("| name | value | spread | n | goal | met | context |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		value, spread, met := "-", "", "-"
		if r.Value != nil {
			value, spread = fmt.Sprintf("%.4g %s", *r.Value, r.Unit), fmt.Sprintf("±%.2g", r.Spread)
			met = map[bool]string{true: "yes", false: "no"}[*r.Met]
		}
		sign := map[string]string{"lower": "≤", "higher": "≥"}[r.Better]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %s %g | %s | %s |\n", r.Name, value, spread, r.N, sign, r.Goal, met, r.Context)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes results for programs.
func WriteJSON(w io.Writer, results any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}
