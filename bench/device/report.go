package device

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// Schema is the version of Report; it changes when a reader of the one before would go wrong.
const Schema = "skerry.bench.runtime/1"

// Bare is the place that others are compared with.
const Bare = "bare"

// Report is what was measured. It is written after each round, so that one that was interrupted is complete but for the rounds that lack.
type Report struct {
	Schema  string            `json:"schema"`
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	Machine map[string]string `json:"machine"`
	Quick   bool              `json:"quick,omitempty"` // the work of each case was shortened
	Rounds  int               `json:"rounds"`          // asked for
	Done    int               `json:"done"`            // of them, complete
	Noise   []string          `json:"noise,omitempty"` // why the machine is called noisy
	// Quiet says how long it waited for a quiet machine, and Disturbed are the rounds in which others came. Reports of before have neither.
	Quiet     *quiet.Record `json:"quiet,omitempty"`
	Disturbed []quiet.Mark  `json:"disturbed,omitempty"`
	Places    []Told        `json:"places"`
	Cases     []Measured    `json:"cases"`
	Starts    []Start       `json:"starts,omitempty"`
	// Footprints are what instances take that do nothing.
	Footprints []Footprint `json:"footprints,omitempty"`
	Profile    []Cost      `json:"profile,omitempty"`
	// Reached are the system calls of the host that one workload reaches.
	Reached []Reach `json:"reached,omitempty"`
	// Energy says why it was not measured; empty: it was.
	Energy string `json:"energy,omitempty"`
	// Tools are the programs and their versions.
	Tools map[string]string `json:"tools"`
}

// Told is a place where cases ran, or why they did not.
type Told struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Skip string `json:"skip,omitempty"`
	// Files are what holds its files in the cases of group disk, as it was seen while a program ran there: file systems
	// with their options, and the cache modes of a machine's disks. Reports of before have none.
	Files []string `json:"files,omitempty"`
}

// Measured is a case with what was found in each place.
type Measured struct {
	Case
	Results map[string]*Result `json:"results"`
	// Published are overheads of the documents for the same thing.
	Published []Beside `json:"published,omitempty"`
}

// Result is a case in one place.
type Result struct {
	Samples  []float64        `json:"samples,omitempty"`
	Summary  *report.Summary  `json:"summary,omitempty"`
	Overhead *report.Overhead `json:"overhead,omitempty"`
	Skip     string           `json:"skip,omitempty"` // why there are no samples
	// Used is what the machine used in each run, Mean the mean of that. Reports of before have neither.
	Used       []Used      `json:"used,omitempty"`
	Mean       *Used       `json:"meanUsed,omitempty"`
	Efficiency *Efficiency `json:"efficiency,omitempty"`
}

// Start is how long a place takes to start a program, in ms from the call to the program's first line.
type Start struct {
	Place   string         `json:"place"`
	Samples []float64      `json:"samples"`
	Summary report.Summary `json:"summary"`
	Skip    string         `json:"skip,omitempty"` // why there are no samples
}

// Footprint is the memory that so many idle instances take in a place, in MiB for each: what is available before and while they are there.
type Footprint struct {
	Place     string          `json:"place"`
	Instances int             `json:"instances"`
	Samples   []float64       `json:"samples,omitempty"`
	Summary   *report.Summary `json:"summary,omitempty"`
	Skip      string          `json:"skip,omitempty"`
}

// Reach is which system calls reach the host from a place while a program does one of everything: the fewer, the less
// of the host's kernel is open to it. What a runtime does to start it is not counted.
type Reach struct {
	Place string   `json:"place"`
	Calls []string `json:"calls,omitempty"` // names, sorted
	Skip  string   `json:"skip,omitempty"`
}

// Cost is what work costs in a place: how many times as long it takes as on the bare machine, by group of cases.
type Cost struct {
	Place  string             `json:"place"`
	Times  map[string]float64 `json:"times"`
	Start  float64            `json:"start,omitempty"` // ms, mean
	Cases  int                `json:"cases"`
	Rounds int                `json:"rounds"`
}

// noisyRSD is the deviation of the bare machine's own samples beyond which the median case says that others used it, in percent.
const noisyRSD = 10

// fold computes what follows from the samples of the rounds that were not disturbed.
func (r *Report) fold() {
	var deviations []float64
	counts := func(samples []float64) []float64 { return quiet.Undisturbed(r.Disturbed, samples) }
	for i := range r.Cases {
		c := &r.Cases[i]
		bare := c.Results[Bare]
		for place, res := range c.Results {
			res.Summary, res.Mean, res.Overhead = summed(counts(res.Samples)), averageUsed(quiet.Undisturbed(r.Disturbed, res.Used)), nil
			if res.Summary == nil {
				continue
			}
			if place == Bare {
				deviations = append(deviations, res.Summary.RSD)
			} else if bare != nil && !c.killed {
				res.Overhead = report.Compare(c.Better, counts(bare.Samples), counts(res.Samples))
			}
		}
		for place, res := range c.Results {
			if place != Bare && bare != nil && !c.killed {
				res.Efficiency = efficiency(c.timed(), bare, res)
			}
		}
	}
	for i := range r.Starts {
		r.Starts[i].Summary = report.Summary{}
		if s := summed(counts(r.Starts[i].Samples)); s != nil {
			r.Starts[i].Summary = *s
		}
	}
	for i := range r.Footprints {
		r.Footprints[i].Summary = summed(counts(r.Footprints[i].Samples))
	}
	r.Noise = slices.DeleteFunc(r.Noise, func(s string) bool { return len(s) > 4 && s[:4] == "bare" })
	if n := len(deviations); n > 0 {
		slices.Sort(deviations)
		if d := deviations[n/2]; d > noisyRSD {
			r.Noise = append(r.Noise, fmt.Sprintf("bare samples deviate by %.0f %% in the median case (up to %d %% is quiet)", d, noisyRSD))
		}
	}
	r.Profile = r.profile()
}

// summed is the summary of samples, nil of none.
func summed(samples []float64) *report.Summary {
	if len(samples) == 0 {
		return nil
	}
	s := report.Summarise(samples)
	return &s
}

// remarks are what a reader has to know of the machine.
func (r *Report) remarks() []string {
	out := r.Quiet.Remarks(r.Disturbed)
	for _, n := range r.Noise {
		out = append(out, "The machine was noisy: "+n)
	}
	return out
}

func (r *Report) profile() (out []Cost) {
	for _, p := range r.Places {
		if p.Skip != "" || p.Name == Bare {
			continue
		}
		c := Cost{Place: p.Name, Times: map[string]float64{}, Rounds: r.Done}
		groups := map[string][]*report.Overhead{}
		for _, m := range r.Cases {
			if res := m.Results[p.Name]; res != nil && res.Overhead != nil {
				c.Cases++
				for _, g := range []string{m.Group, m.Class} {
					groups[g] = append(groups[g], res.Overhead)
				}
			}
		}
		for g, list := range groups {
			if v := report.Relative(list); v > 0 {
				c.Times[g] = v
			}
		}
		for _, s := range r.Starts {
			if s.Place == p.Name {
				c.Start = s.Summary.Mean
			}
		}
		if c.Cases > 0 || c.Start > 0 {
			out = append(out, c)
		}
	}
	return out
}

// WriteJSON writes a report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ReadReport reads what WriteJSON wrote.
func ReadReport(in io.Reader) (*Report, error) {
	var r Report
	if err := json.NewDecoder(io.LimitReader(in, 64<<20)).Decode(&r); err != nil {
		return nil, fmt.Errorf("not a report: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("a report of schema %q cannot be read, only %s", r.Schema, Schema)
	}
	if r.Done < 0 || r.Rounds < 0 {
		return nil, fmt.Errorf("a report of %d of %d rounds cannot be", r.Done, r.Rounds)
	}
	for i := range r.Cases {
		maps.DeleteFunc(r.Cases[i].Results, func(_ string, res *Result) bool { return res == nil })
	}
	return &r, nil
}

// WriteCSV writes a line for each sample.
func (r *Report) WriteCSV(out io.Writer) error {
	c := csv.NewWriter(out)
	_ = c.Write([]string{"case", "group", "class", "place", "unit", "better", "round", "value", "user", "system", "softirq", "guest",
		"joules"})
	for _, m := range r.Cases {
		for _, p := range r.Places {
			if res := m.Results[p.Name]; res != nil {
				for i, v := range res.Samples {
					line := []string{m.ID, m.Group, m.Class, p.Name, m.Unit, m.Better, strconv.Itoa(i + 1), strconv.FormatFloat(v, 'g', -1, 64)}
					line = append(line, usedCells(res.Used, i)...)
					_ = c.Write(line)
				}
			}
		}
	}
	for _, s := range r.Starts {
		for i, v := range s.Samples {
			_ = c.Write([]string{"start", "start", System, s.Place, "ms", Lower, strconv.Itoa(i + 1), strconv.FormatFloat(v, 'g', -1, 64), "", "",
				"", "", ""})
		}
	}
	for _, f := range r.Reached {
		if f.Skip == "" {
			_ = c.Write([]string{"reach", "reach", System, f.Place, "system calls", Lower, "1", strconv.Itoa(len(f.Calls)), "", "", "", "", ""})
		}
	}
	c.Flush()
	return c.Error()
}

// usedCells are what a run used, empty where that is not known.
func usedCells(list []Used, i int) []string {
	out := make([]string, 5)
	if i >= len(list) {
		return out
	}
	u := list[i]
	for k, v := range []float64{u.User, u.System, u.SoftIRQ, u.Guest} {
		out[k] = strconv.FormatFloat(v, 'f', 2, 64)
	}
	if u.Joules != nil {
		out[4] = strconv.FormatFloat(*u.Joules, 'g', -1, 64)
	}
	return out
}

// WriteTable writes a report for people.
func (r *Report) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var places []string
	fmt.Fprint(table, "CASE\tUNIT\tBETTER")
	for _, p := range r.Places {
		if p.Skip == "" {
			places = append(places, p.Name)
			fmt.Fprintf(table, "\t%s", p.Name)
		}
	}
	fmt.Fprintln(table, "\tPUBLISHED")
	skipped, cases := []string{}, map[string][]string{} // a reason that holds for many cases is told once
	for _, m := range r.Cases {
		fmt.Fprintf(table, "%s\t%s\t%s", m.ID, m.Unit, m.Better)
		for _, p := range places {
			res := m.Results[p]
			switch {
			case res == nil || res.Summary == nil:
				fmt.Fprint(table, "\t-")
				if res != nil && res.Skip != "" {
					why := p + ": " + res.Skip
					if cases[why] == nil {
						skipped = append(skipped, why)
					}
					cases[why] = append(cases[why], m.ID)
				}
			case res.Overhead == nil:
				fmt.Fprintf(table, "\t%.4g ±%.1f%%", res.Summary.Mean, res.Summary.RSD)
			default:
				mark := ""
				if !res.Overhead.Significant {
					mark = "~" // may be chance
				}
				fmt.Fprintf(table, "\t%.4g ±%.1f%% (%s%+.1f%%)", res.Summary.Mean, res.Summary.RSD, mark, res.Overhead.Percent)
			}
		}
		fmt.Fprintf(table, "\t%s\n", told(m.Published))
	}
	for i, s := range r.Starts {
		if i == 0 {
			fmt.Fprint(table, "start\tms\tlower")
			for _, p := range places {
				at := slices.IndexFunc(r.Starts, func(s Start) bool { return s.Place == p })
				if at < 0 || r.Starts[at].Summary.N == 0 {
					fmt.Fprint(table, "\t-")
					continue
				}
				fmt.Fprintf(table, "\t%.4g ±%.1f%%", r.Starts[at].Summary.Mean, r.Starts[at].Summary.RSD)
			}
			fmt.Fprintln(table)
		}
		_ = s
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d rounds in %.0f s. In brackets: the loss against %s, with ~ where it may be chance.\n", r.Done, r.Rounds,
		r.Seconds, Bare)
	for _, line := range r.remarks() {
		fmt.Fprintln(out, line)
	}
	for _, p := range r.Places {
		if p.Skip != "" {
			fmt.Fprintf(out, "not run: %s: %s\n", p.Name, p.Skip)
		}
	}
	for _, why := range skipped {
		fmt.Fprintf(out, "not run: %s in %s\n", strings.Join(cases[why], ", "), why)
	}
	for _, s := range r.Starts {
		if s.Skip != "" {
			fmt.Fprintf(out, "not run: start in %s: %s\n", s.Place, s.Skip)
		}
	}
	for _, f := range r.Footprints {
		if f.Summary == nil {
			fmt.Fprintf(out, "not run: %d idle instances in %s: %s\n", f.Instances, f.Place, f.Skip)
			continue
		}
		fmt.Fprintf(out, "memory: %d idle instances in %s take %.2f MiB each (%.2f to %.2f)\n", f.Instances, f.Place, f.Summary.Mean,
			f.Summary.Low, f.Summary.High)
	}
	for _, f := range r.Reached {
		if f.Skip != "" {
			fmt.Fprintf(out, "not run: system calls from %s: %s\n", f.Place, f.Skip)
			continue
		}
		fmt.Fprintf(out, "reach: %d system calls of the host from %s: %s\n", len(f.Calls), f.Place, strings.Join(f.Calls, " "))
	}
	for _, line := range r.backingLines() {
		fmt.Fprintln(out, line)
	}
	for _, line := range r.usedLines() {
		fmt.Fprintln(out, "processor:", line)
	}
	if r.Energy != "" {
		fmt.Fprintln(out, "not run: energy:", r.Energy)
	}
	for _, c := range r.Profile {
		fmt.Fprintf(out, "profile: %s takes", c.Place)
		for _, g := range append(slices.Clone(groups), Application, System) {
			if v := c.Times[g]; v > 0 {
				fmt.Fprintf(out, " %s %.2fx", g, v)
			}
		}
		if c.Start > 0 {
			fmt.Fprintf(out, " start %.1f ms", c.Start)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// trim leaves the rounds that are complete.
func (r *Report) trim() {
	for _, c := range r.Cases {
		for _, res := range c.Results {
			res.Samples = res.Samples[:min(len(res.Samples), r.Done)]
			res.Used = res.Used[:min(len(res.Used), r.Done)]
		}
	}
	for i := range r.Starts {
		s := &r.Starts[i]
		s.Samples = s.Samples[:min(len(s.Samples), r.Done)]
	}
	r.Starts = slices.DeleteFunc(r.Starts, func(s Start) bool { return len(s.Samples) == 0 && s.Skip == "" })
	r.Disturbed = slices.DeleteFunc(r.Disturbed, func(m quiet.Mark) bool { return m.Round > r.Done })
	for i := range r.Footprints {
		f := &r.Footprints[i]
		f.Samples = f.Samples[:min(len(f.Samples), r.Done)]
	}
	r.Footprints = slices.DeleteFunc(r.Footprints, func(f Footprint) bool { return len(f.Samples) == 0 && f.Skip == "" })
}
