package interference

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// Schema is the version of Report; it changes when a reader of the one before would go wrong.
const Schema = "skerry.bench.interference/2"

// schemaOne is that of reports which know the image service alone.
const schemaOne = "skerry.bench.interference/1"

// Report is what was measured.
type Report struct {
	Schema  string            `json:"schema"`
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	Machine map[string]string `json:"machine"`
	// Quick says that the times are shorter than those of the thesis.
	Quick bool `json:"quick,omitempty"`
	// Warm, Load and Settle are in seconds, of each row.
	Warm   float64  `json:"warm"`
	Load   float64  `json:"load"`
	Settle float64  `json:"settle"`
	Noise  []string `json:"noise,omitempty"` // of reports from before Quiet: why the machine is called noisy
	// Quiet says how long it waited for a quiet machine; a row in which others came is invalid.
	Quiet  *quiet.Record `json:"quiet,omitempty"`
	Places []Told        `json:"places"`
	Rows   []*Row        `json:"rows"`
	// Found has the saturation points that were searched.
	Found []*Found `json:"saturation,omitempty"`
	// Changes compares rows that differ in one thing.
	Changes []Change `json:"changes,omitempty"`
	// Missing says what this machine does not tell.
	Missing []string `json:"missing,omitempty"`
	// Unfinished says that it was interrupted.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Told is a place where rows ran, or why they did not.
type Told struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Skip string `json:"skip,omitempty"`
}

// Row is a load on a service in a place.
type Row struct {
	Place string `json:"place"`
	Setting
	Rate float64 `json:"rate"` // requests per second
	// Skip says why it was not run.
	Skip      string     `json:"skip,omitempty"`
	Outcome   *Outcome   `json:"outcome,omitempty"`
	System    *System    `json:"system,omitempty"`
	Series    []Point    `json:"series,omitempty"`
	Published *Published `json:"published,omitempty"`
}

// System is what the machine tells of a load.
type System struct {
	CPU *float64 `json:"cpu,omitempty"` // of the service, in percent of its limit
	// Throttled is how long the quota held the service back, and Waiting how long it was ready and had no processor, in ms; Periods has the
	// share of the quota's periods that were throttled, in percent.
	Throttled *float64 `json:"throttled,omitempty"`
	Periods   *float64 `json:"throttledPeriods,omitempty"`
	Waiting   *float64 `json:"waiting,omitempty"`
	// Neighbour is the neighbour's processor time in percent of its limit: how much interference there really was.
	Neighbour *float64 `json:"neighbour,omitempty"`
	// Pressure is how long something waited on the whole machine, in ms, by resource.
	Pressure map[string]float64 `json:"pressure,omitempty"`
	// Counters are those of perf, on the whole machine.
	Counters map[string]float64 `json:"counters,omitempty"`
}

// Point is a part of a load: what was due in it, and the processor time used.
type Point struct {
	At      float64  `json:"at"`            // seconds since the load began, of its end
	Success float64  `json:"success"`       // percent of what was due
	CPU     *float64 `json:"cpu,omitempty"` // percent of the limit
}

// Found is the saturation point of a place.
type Found struct {
	Place string `json:"place"`
	Setting
	Skip string `json:"skip,omitempty"`
	Saturation
}

// ReadReport reads what WriteJSON wrote.
func ReadReport(in io.Reader) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is no report: %w", err)
	}
	if r.Schema != Schema && r.Schema != schemaOne {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is %.80q and not %s", r.Schema, Schema)
	}
	if slices.Contains(r.Rows, nil) || slices.Contains(r.Found, nil) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "a row of this report is empty")
	}
	if r.Schema == schemaOne {
		for _, row := range r.Rows {
			row.Service = Image
		}
		for _, f := range r.Found {
			f.Service = Image
		}
		r.Changes = changes(r.Rows)
		r.Schema = Schema
	}
	for _, row := range r.Rows {
		if o := row.Outcome; o != nil && o.Latency != nil && o.Application == nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "a row of this report has latencies, and not what the service tells")
		}
	}
	return r, nil
}

// row gives a row of a report that ran and is valid, or nil; as what has no report.
func (r *Report) row(like *Row) *Row {
	if r == nil {
		return nil
	}
	n := slices.IndexFunc(r.Rows, func(x *Row) bool {
		return x.Place == like.Place && x.Setting == like.Setting && x.Rate == like.Rate && x.Outcome != nil && x.Outcome.Invalid == ""
	})
	if n < 0 {
		return nil
	}
	return r.Rows[n]
}

// found gives a saturation point of a report, or nil.
func (r *Report) found(place string, s Setting, p99 float64) *Found {
	if r == nil {
		return nil
	}
	n := slices.IndexFunc(r.Found, func(x *Found) bool { return x.Place == place && x.Setting == s && x.Skip == "" && x.P99 == p99 })
	if n < 0 {
		return nil
	}
	return r.Found[n]
}

// maxReport is the largest report that is read, in bytes.
const maxReport = 64 << 20

// WriteJSON writes a report for programs.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r) }

// WriteCSV writes a line for each row that ran.
func (r *Report) WriteCSV(out io.Writer) error {
	c := csv.NewWriter(out)
	_ = c.Write([]string{"place", "service", "cpu", "memory", "pin", "interference", "neighbour", "rate", "invalid", "success", "throughput",
		"mean", "p50", "p90", "p99", "max",
		"load", "processing", "total", "overhead", "late", "cpu_percent", "throttled_ms", "waiting_ms", "neighbour_percent", "published_mean",
		"published_overhead"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	opt := func(v *float64) string {
		if v == nil {
			return ""
		}
		return num(*v)
	}
	for _, row := range r.Rows {
		o := row.Outcome
		if o == nil {
			continue
		}
		line := []string{row.Place, row.Service, num(row.CPU), strconv.FormatInt(row.Memory, 10), row.Pin, num(row.Interference), row.Neighbour,
			num(row.Rate), o.Invalid, num(o.Success), num(o.Throughput)}
		if l, a := o.Latency, o.Application; l != nil {
			line = append(line, num(l.Mean), num(l.P50), num(l.P90), num(l.P99), num(l.Max), num(a.Load), num(a.Processing), num(a.Total),
				num(o.Overhead))
		} else {
			line = append(line, slices.Repeat([]string{""}, 9)...)
		}
		s, p := row.System, row.Published
		if s == nil {
			s = &System{}
		}
		if p == nil {
			p = &Published{}
		}
		_ = c.Write(append(line, num(o.Late), opt(s.CPU), opt(s.Throttled), opt(s.Waiting), opt(s.Neighbour), opt(p.Mean), opt(p.Overhead)))
	}
	c.Flush()
	return c.Error()
}

// words gives an optional figure.
func words(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func (s Setting) interference() string {
	if s.Interference == 0 {
		return "-"
	}
	return fmt.Sprintf("%s %g", s.Neighbour, s.Interference)
}

// WriteTable writes a report for people.
func (r *Report) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PLACE\tSERVICE\tCPU\tPIN\tBESIDE\tRATE\tOK %\tMEAN ms\tP50\tP90\tP99\tAPP ms\tOVERHEAD\tCPU %\tTHROTTLED ms\tWAITING ms\tPAPER MEAN\tPAPER OVERHEAD")
	var invalid, skipped []string
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s in %s, %g CPU, pin %s, beside %s, %g/s", row.Service, row.Place, row.CPU, row.Pin, row.interference(), row.Rate)
		if row.Outcome == nil {
			skipped = append(skipped, name+": "+row.Skip)
			continue
		}
		o, s, p := row.Outcome, row.System, row.Published
		if p == nil {
			p = &Published{}
		}
		if s == nil {
			s = &System{}
		}
		beside := row.interference()
		if s.Neighbour != nil {
			beside += fmt.Sprintf(" (%.0f %%)", *s.Neighbour)
		}
		fmt.Fprintf(table, "%s\t%s\t%g\t%s\t%s\t%g\t", row.Place, row.Service, row.CPU, row.Pin, beside, row.Rate)
		if o.Invalid != "" {
			invalid = append(invalid, name+": "+o.Invalid)
			fmt.Fprintln(table, "invalid"+strings.Repeat("\t-", 11))
			continue
		}
		fmt.Fprintf(table, "%.1f", o.Success)
		if l := o.Latency; l != nil {
			fmt.Fprintf(table, "\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f", l.Mean, l.P50, l.P90, l.P99, o.Application.Total, o.Overhead)
		} else {
			fmt.Fprint(table, strings.Repeat("\t-", 6))
		}
		fmt.Fprintf(table, "\t%s\t%s\t%s\t%s\t%s\n", words(s.CPU, "%.0f"), words(s.Throttled, "%.0f"), words(s.Waiting, "%.0f"),
			words(p.Mean, "%.1f"), words(p.Overhead, "%.1f"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nEach row: a fresh instance, %g s of warm-up, %g s of load, %g s to settle.", r.Warm, r.Load, r.Settle)
	if r.Quick {
		fmt.Fprint(out, " That is quick: the thesis took 30, 300 and 120 s.")
	}
	fmt.Fprintln(out, " Latency counts from when a request was due; overhead is the mean less what the service itself tells.")
	for _, c := range r.Changes {
		fmt.Fprintf(out, "change: %s in %s, %g CPU, %g/s: %s against %s: mean %+.0f %%, p99 %+.0f %%, application %+.0f %%, overhead %+.1f ms\n", c.Service, c.Place, c.CPU, c.Rate, c.Of, c.Against, c.Mean, c.P99, c.Application, c.Overhead)
	}
	for _, f := range r.Found {
		fmt.Fprintf(out, "saturation: %s in %s, %g CPU, pin %s, beside %s: %s\n", f.Service, f.Place, f.CPU, f.Pin, f.interference(), f.told())
	}
	for _, line := range r.machine() {
		fmt.Fprintln(out, line)
	}
	for _, m := range r.Missing {
		fmt.Fprintln(out, "missing:", m)
	}
	for _, line := range invalid {
		fmt.Fprintln(out, "invalid:", line)
	}
	for _, p := range r.Places {
		if p.Skip != "" {
			fmt.Fprintf(out, "not run: %s: %s\n", p.Name, p.Skip)
		}
	}
	for _, line := range skipped {
		fmt.Fprintln(out, "not run:", line)
	}
	if r.Unfinished {
		fmt.Fprintln(out, "It was interrupted: --resume goes on from what there is.")
	}
	return nil
}

// machine is what a reader has to know of the machine.
func (r *Report) machine() []string {
	out := r.Quiet.Remarks(nil)
	for _, n := range r.Noise {
		out = append(out, "The machine was noisy: "+n)
	}
	return out
}

func (f *Found) told() string {
	text := ""
	switch {
	case f.Skip != "":
		return "not run: " + f.Skip
	case f.Low > 0 && f.High > 0:
		text = fmt.Sprintf("%g requests per second are done, %g are not", f.Low, f.High)
	case f.Low > 0:
		text = fmt.Sprintf("%g requests per second are done", f.Low)
	case f.High > 0:
		text = fmt.Sprintf("%g requests per second are not done", f.High)
	default:
		text = "not found"
	}
	if f.High > 0 {
		for _, t := range slices.Backward(f.Tries) {
			if t.Rate == f.High && t.Full != "" {
				text += " (" + t.Full + ")"
				break
			}
		}
	}
	if f.Stopped != "" {
		text += "; " + f.Stopped
	}
	return text
}
