// Package report is what benchmarks measured, for all of them alike: figures with their samples by round, the machine,
// the program, and whether others disturbed it. It makes tables, pages, plots and comparisons of reports, and the tables
// of docs/BENCHMARKS.md of the reports in docs/results. It measures nothing.
package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/quiet"
)

// Schema is the version of Report; it changes when a reader of the one before would go wrong.
const Schema = "skerry.bench/1"

// Which figures are better.
const (
	Lower  = "lower"
	Higher = "higher"
)

// Report is what one run of a benchmark measured. It is complete after each round, but for the rounds that lack.
type Report struct {
	Schema  string    `json:"schema"`
	Kind    string    `json:"kind"` // the command's name: budget, network, ...
	Title   string    `json:"title"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Version is the commit of the program that measured, and Options what it was asked for.
	Version string            `json:"version"`
	Options string            `json:"options,omitempty"`
	Machine map[string]string `json:"machine"`
	// Quiet says how long it waited for a quiet machine; nil, of reports from before: nobody knows. Disturbed are the
	// rounds in which others came.
	Quiet     *quiet.Record `json:"quiet,omitempty"`
	Disturbed []quiet.Mark  `json:"disturbed,omitempty"`
	// Rounds is how many are complete. They are counted through the whole run, whatever was measured in them.
	Rounds int `json:"rounds"`
	// Baseline is the place that others are compared with; empty: none.
	Baseline string    `json:"baseline,omitempty"`
	Places   []Place   `json:"places,omitempty"`
	Figures  []*Figure `json:"figures"`
	// Notes are what a reader has to know beside the figures.
	Notes []string `json:"notes,omitempty"`
}

// Place is where, or by which of several ways, figures were measured, or why they were not.
type Place struct {
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
	Skip string `json:"skip,omitempty"`
}

// Figure is one thing that was measured in one place.
type Figure struct {
	Group  string `json:"group,omitempty"`
	Name   string `json:"name"`
	Place  string `json:"place,omitempty"` // empty: there is one alone
	Unit   string `json:"unit"`
	Better string `json:"better"`
	// Quantile is that of the samples which is the figure's value; 0: the median.
	Quantile float64 `json:"quantile,omitempty"`
	// Goal is what it should reach; nil: nothing.
	Goal *float64 `json:"goal,omitempty"`
	// Rounds has the round of each sample, from 1; a round may have several.
	Rounds  []int     `json:"samplesOfRounds,omitempty"`
	Samples []float64 `json:"samples,omitempty"`
	Skip    string    `json:"skip,omitempty"`  // why there are no samples
	About   string    `json:"about,omitempty"` // how it was measured
	// What follows is made of the samples of rounds that were not disturbed. Nil: there are none, or nothing to compare with.
	Value   *Value `json:"value,omitempty"`
	Against *Ratio `json:"against,omitempty"`
}

// Value is the value of a figure with its 95 % bootstrap interval.
type Value struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	N     int     `json:"n"`
}

// Ratio is the median over rounds of how many times the baseline's figure of the same round a figure is, with its 95 %
// bootstrap interval.
type Ratio struct {
	Times       float64 `json:"times"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Significant bool    `json:"significant"` // the interval does not hold 1, and is of more than two rounds
}

// New begins a report.
func New(kind, title, options string) *Report {
	return &Report{Schema: Schema, Kind: kind, Title: title, Began: time.Now().UTC().Truncate(time.Second), Version: version(),
		Options: options, Machine: MachineFacts()}
}

// version is the commit of this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value + commit
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += ", changed"
		}
	}
	return cmp.Or(commit, info.Main.Version, "unknown")
}

// Figure gives one of the report, which is added if it is not there.
func (r *Report) Figure(group, name, place string) *Figure {
	if f := r.Find(group, name, place); f != nil {
		return f
	}
	f := &Figure{Group: group, Name: name, Place: place, Better: Lower}
	r.Figures = append(r.Figures, f)
	return f
}

// Find gives a figure, or nil.
func (r *Report) Find(group, name, place string) *Figure {
	n := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Group == group && f.Name == name && f.Place == place })
	if n < 0 {
		return nil
	}
	return r.Figures[n]
}

// Add adds a sample of the present round. What is no number is none.
func (r *Report) Add(f *Figure, sample float64) {
	if !math.IsNaN(sample) && !math.IsInf(sample, 0) {
		f.Rounds, f.Samples = append(f.Rounds, r.Rounds+1), append(f.Samples, sample)
	}
}

// End ends the present round, looks whether others came, and keeps the report; keep may be nil.
func (r *Report) End(ctx context.Context, watch *quiet.Watch, keep func(*Report) error) error {
	by, err := watch.Round(ctx)
	if err != nil {
		return err
	}
	r.Rounds++
	if by != "" {
		r.Disturbed = append(r.Disturbed, quiet.Mark{Round: r.Rounds, By: by})
	}
	r.Quiet, r.Seconds = watch.Record(), time.Since(r.Began).Seconds()
	if keep == nil {
		return nil
	}
	r.Fold()
	return keep(r)
}

// Fold computes what follows from the samples.
func (r *Report) Fold() {
	for _, f := range r.Figures {
		if len(f.Samples) == 0 {
			continue // a report of an older form may have the value alone
		}
		f.Value, f.Against = valueOf(r.undisturbed(f).Samples, cmp.Or(f.Quantile, 0.5)), nil
		if r.Baseline == "" || f.Place == r.Baseline {
			continue
		}
		if base := r.Find(f.Group, f.Name, r.Baseline); base != nil {
			f.Against = ratioOf(r.undisturbed(base), r.undisturbed(f))
		}
	}
}

// undisturbed is a figure with the samples that count.
func (r *Report) undisturbed(f *Figure) *Figure {
	out := &Figure{}
	for i, round := range f.Rounds {
		if round <= r.Rounds && !quiet.Marked(r.Disturbed, round) {
			out.Rounds, out.Samples = append(out.Rounds, round), append(out.Samples, f.Samples[i])
		}
	}
	return out
}

// Met reports whether a figure reaches its goal; false, too, of one without.
func (f *Figure) Met() bool {
	switch {
	case f.Goal == nil || f.Value == nil:
		return false
	case f.Better == Higher:
		return f.Value.Value >= *f.Goal
	}
	return f.Value.Value <= *f.Goal
}

// Remarks are what a reader has to know beside the figures.
func (r *Report) Remarks() []string {
	out := append(r.Quiet.Remarks(r.Disturbed), r.Notes...)
	if r.Quiet == nil {
		out = append([]string{"Nobody knows whether the machine was quiet: the report is from before benchmarks waited for that."}, out...)
	}
	for _, p := range r.Places {
		if p.Skip != "" {
			out = append(out, "Not run: "+p.Name+": "+p.Skip)
		}
	}
	var reasons []string // one that holds for many figures is told once
	of := map[string][]string{}
	for _, f := range r.Figures {
		why := f.Skip
		if why == "" && f.Value == nil && len(f.Samples) > 0 {
			why = "all their rounds were disturbed"
		}
		if why == "" {
			continue
		}
		if of[why] == nil {
			reasons = append(reasons, why)
		}
		of[why] = append(of[why], f.title())
	}
	for _, why := range reasons {
		out = append(out, "Not measured: "+strings.Join(of[why], ", ")+": "+why)
	}
	return out
}

// title names a figure in a line.
func (f *Figure) title() string {
	text := f.Name
	if f.Group != "" {
		text = f.Group + " " + text
	}
	if f.Place != "" {
		text += " in " + f.Place
	}
	return text
}

// maxReport is the largest report that is read, in bytes.
const maxReport = 64 << 20

// Read reads what WriteJSON wrote. What follows from the samples is made of them again.
func Read(in io.Reader) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is no report: %w", err)
	}
	if r.Schema != Schema {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is %.80q and not %s", r.Schema, Schema)
	}
	seen := map[[3]string]bool{}
	for _, f := range r.Figures {
		switch {
		case f == nil:
			return nil, skerry.Errorf(skerry.CodeInvalid, "a figure of this report is empty")
		case len(f.Rounds) != len(f.Samples):
			return nil, skerry.Errorf(skerry.CodeInvalid, "%.80q of this report has %d samples of %d rounds", f.title(), len(f.Samples),
				len(f.Rounds))
		case f.Quantile < 0 || f.Quantile > 1:
			return nil, skerry.Errorf(skerry.CodeInvalid, "%.80q of this report is a quantile of %g", f.title(), f.Quantile)
		case seen[[3]string{f.Group, f.Name, f.Place}]:
			return nil, skerry.Errorf(skerry.CodeInvalid, "%.80q is twice in this report", f.title())
		}
		seen[[3]string{f.Group, f.Name, f.Place}] = true
		f.Value, f.Against = nil, nil
	}
	r.Fold()
	return r, nil
}

// WriteJSON writes a report for programs.
func (r *Report) WriteJSON(w io.Writer) error { return WriteJSON(w, r) }

// WriteJSON writes anything for programs.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteCSV writes a line for each sample.
func (r *Report) WriteCSV(w io.Writer) error {
	lines := [][]string{{"group", "name", "place", "unit", "better", "round", "value", "disturbed"}}
	for _, f := range r.Figures {
		for i, v := range f.Samples {
			lines = append(lines, []string{f.Group, f.Name, f.Place, f.Unit, f.Better, fmt.Sprint(f.Rounds[i]), fmt.Sprint(v),
				fmt.Sprint(quiet.Marked(r.Disturbed, f.Rounds[i]))})
		}
	}
	return writeCSV(w, lines)
}
