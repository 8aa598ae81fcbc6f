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

// FirstPlace, as a report's baseline, is the first place of each group.
const FirstPlace = "the first"

// Report is what one run of a benchmark measured.
type Report struct {
	Schema  string    `json:"schema"`
	Kind    string    `json:"kind"` // the command's name: budget, network, ...
	Title   string    `json:"title"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"` // of measuring, without pauses between a run and the one that continues it
	// Version is the commit of the program that measured, and Options those that change what a figure means.
	Version string            `json:"version"`
	Options string            `json:"options,omitempty"`
	Machine map[string]string `json:"machine"`
	// Unfinished says that more was to be measured.
	Unfinished bool `json:"unfinished,omitempty"`
	// Quiet says how long it waited for a quiet machine; nil, of reports from before: nobody knows. Repeated is how often a
	// round or a part of one was measured again. What stayed disturbed is in Disturbed, and has samples that do not count.
	Quiet     *quiet.Record `json:"quiet,omitempty"`
	Repeated  int           `json:"repeated,omitempty"`
	Disturbed []Mark        `json:"disturbed,omitempty"`
	// Failed are parts of rounds in which nothing could be measured.
	Failed []Mark `json:"failed,omitempty"`
	// Rounds is how many are complete. They are counted through the whole run, whatever was measured in them.
	Rounds int `json:"rounds"`
	// Baseline is the place that others are compared with, or FirstPlace; empty: none.
	Baseline string    `json:"baseline,omitempty"`
	Places   []Place   `json:"places,omitempty"`
	Figures  []*Figure `json:"figures"`
	// Notes are what a reader has to know beside the figures.
	Notes []string `json:"notes,omitempty"`

	started time.Time // this run; Seconds before it are in before
	before  float64
}

// Mark is a round, or with a group the part of it in one place, and who or what spoiled it.
type Mark struct {
	Round int    `json:"round"` // from 1
	Group string `json:"group,omitempty"`
	Place string `json:"place,omitempty"`
	By    string `json:"by"`
}

// has reports whether a sample of a figure is of what is marked.
func (m *Mark) has(f *Figure, round int) bool {
	return m.Round == round && (m.Group == "" || m.Group == f.Group && m.Place == f.Place)
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
	// Published is what documents say of the same, in words.
	Published string `json:"published,omitempty"`
	// Detail keeps a figure out of tables; files and pages have it.
	Detail bool `json:"detail,omitempty"`
	// Curve joins figures of a group to a line over At in plots, one for each place; empty: it is in none.
	Curve string  `json:"curve,omitempty"`
	At    float64 `json:"at,omitempty"`
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
	now := time.Now()
	return &Report{Schema: Schema, Kind: kind, Title: title, Began: now.UTC().Truncate(time.Second), Version: version(),
		Options: options, Machine: MachineFacts(), Unfinished: true, started: now}
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

// Note adds a note once.
func (r *Report) Note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// Fail says why nothing was measured of a group in a place in the present round.
func (r *Report) Fail(group, place, why string) {
	r.Failed = append(r.Failed, Mark{Round: r.Rounds + 1, Group: group, Place: place, By: why})
}

// attempts are how often a round or a part of one is measured at most, until others leave it alone.
const attempts = 3

// Round measures a round, again where others came, and keeps the report. What an error interrupts is left out.
func (r *Report) Round(ctx context.Context, m Measuring, measure func() error) error {
	err := r.attempt(ctx, m, Mark{Round: r.Rounds + 1}, func() (string, error) { return "", measure() })
	if err != nil {
		return err
	}
	r.Rounds++
	return r.Keep(m)
}

// Part measures what the present round has of a group in a place, as Round does. What measure gives says why it does not count,
// or is empty.
func (r *Report) Part(ctx context.Context, m Measuring, group, place string, measure func() (invalid string, err error)) error {
	if err := r.attempt(ctx, m, Mark{Round: r.Rounds + 1, Group: group, Place: place}, measure); err != nil {
		return err
	}
	return r.Keep(m)
}

// WarmUp measures once what does not count.
func (r *Report) WarmUp(ctx context.Context, m Measuring, measure func() error) error {
	err := measure()
	r.drop(Mark{Round: r.Rounds + 1})
	if err == nil {
		_, err = m.Quiet.Round(ctx)
	}
	return err
}

func (r *Report) attempt(ctx context.Context, m Measuring, of Mark, measure func() (string, error)) error {
	for n := 1; ; n++ {
		by, err := measure()
		if err == nil {
			var came string
			came, err = m.Quiet.Round(ctx)
			by = cmp.Or(by, came)
		}
		switch {
		case err != nil:
			r.drop(of)
			return err
		case by == "":
			return nil
		case n == attempts:
			of.By = by
			r.Disturbed = append(r.Disturbed, of)
			return nil
		}
		m.Say("measuring it again: %s", by)
		r.drop(of)
		r.Repeated++
	}
}

// drop leaves out what is marked.
func (r *Report) drop(of Mark) {
	for _, f := range r.Figures {
		f.keep(func(round int) bool { return !of.has(f, round) })
	}
	r.Failed = slices.DeleteFunc(r.Failed, func(m Mark) bool {
		return of.has(&Figure{Group: m.Group, Place: m.Place}, m.Round)
	})
}

// keep leaves the samples of some rounds.
func (f *Figure) keep(ok func(round int) bool) {
	var rounds []int
	var samples []float64
	for i, round := range f.Rounds {
		if ok(round) {
			rounds, samples = append(rounds, round), append(samples, f.Samples[i])
		}
	}
	f.Rounds, f.Samples = rounds, samples
}

// Keep gives what there is so far to whoever keeps it.
func (r *Report) Keep(m Measuring) error {
	r.took(m)
	if m.Keep == nil {
		return nil
	}
	r.Fold()
	return m.Keep(r)
}

// took says how long it measured and waited so far.
func (r *Report) took(m Measuring) {
	r.Quiet, r.Seconds = m.Quiet.Record(), r.before+time.Since(r.started).Seconds()
}

// Finish ends a report; where ctx has ended more was to be measured.
func (r *Report) Finish(ctx context.Context, m Measuring) {
	r.Unfinished = ctx.Err() != nil
	r.took(m)
	r.Fold()
}

// Continue takes over what an earlier run has measured. Parts that stayed disturbed are left out, to be measured again.
// CodeConflict: its figures are not those of this run.
func (r *Report) Continue(m Measuring) error {
	was := m.Resume
	if was == nil {
		return nil
	}
	for _, x := range [][3]string{{"kind", was.Kind, r.Kind}, {"program", was.Version, r.Version}, {"options", was.Options, r.Options},
		{"processor", was.Machine["cpu"], r.Machine["cpu"]}, {"kernel", was.Machine["kernel"], r.Machine["kernel"]}} {
		if x[1] != x[2] {
			return skerry.Errorf(skerry.CodeConflict, "the report to continue has another %s: %q, and this run %q", x[0], x[1], x[2]).
				WithHint("measure anew, without --resume")
		}
	}
	r.Began, r.before, r.Rounds, r.Repeated = was.Began, was.Seconds, was.Rounds, was.Repeated
	r.Figures, r.Disturbed, r.Failed, r.Notes = was.Figures, was.Disturbed, was.Failed, was.Notes
	for _, p := range was.Places {
		if !slices.ContainsFunc(r.Places, func(q Place) bool { return q.Name == p.Name }) {
			r.Places = append(r.Places, p)
		}
	}
	r.Disturbed = slices.DeleteFunc(slices.Clone(was.Disturbed), func(d Mark) bool {
		if d.Group != "" {
			r.drop(d)
		}
		return d.Group != ""
	})
	m.Quiet.Resume(was.Quiet)
	return nil
}

// measured reports whether there is any sample.
func (r *Report) measured() bool {
	return slices.ContainsFunc(r.Figures, func(f *Figure) bool { return len(f.Samples) > 0 })
}

// Fold computes what follows from the samples.
func (r *Report) Fold() {
	for _, f := range r.Figures {
		if len(f.Samples) == 0 {
			f.Value, f.Against = nil, nil
			continue
		}
		f.Value, f.Against = valueOf(r.Counted(f).Samples, cmp.Or(f.Quantile, 0.5)), nil
		if base := r.base(f.Group); base != "" && f.Place != base {
			if b := r.Find(f.Group, f.Name, base); b != nil {
				f.Against = ratioOf(r.Counted(b), r.Counted(f))
			}
		}
	}
}

// base is the place that others of a group are compared with; empty: none.
func (r *Report) base(group string) string {
	if r.Baseline == FirstPlace {
		return r.placesOf(group)[0]
	}
	return r.Baseline
}

// Counted is a figure with the samples that count.
func (r *Report) Counted(f *Figure) *Figure {
	out := *f
	out.keep(func(round int) bool { return !r.disturbed(f, round) })
	return &out
}

func (r *Report) disturbed(f *Figure, round int) bool {
	return slices.ContainsFunc(r.Disturbed, func(m Mark) bool { return m.has(f, round) })
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
	out := r.Quiet.Remarks()
	if r.Unfinished {
		out = append(out, "It was interrupted: more was to be measured.")
	}
	if r.Repeated > 0 {
		out = append(out, fmt.Sprintf("What was disturbed was measured again, %d times.", r.Repeated))
	}
	var list reasons
	for _, m := range r.Disturbed {
		list.add(m.By, m.title())
	}
	out = append(out, list.lines("Disturbed, and does not count")...)
	list = reasons{}
	for _, m := range r.Failed {
		list.add(m.By, m.title())
	}
	out = append(append(out, list.lines("Failed")...), r.Notes...)
	for _, p := range r.Places {
		if p.Skip != "" {
			out = append(out, "Not run: "+p.Name+": "+p.Skip)
		}
	}
	list = reasons{}
	for _, f := range r.Figures {
		why := f.Skip
		told := slices.ContainsFunc(r.Disturbed, func(m Mark) bool { return m.Group != "" && m.has(f, m.Round) })
		if why == "" && f.Value == nil && len(f.Samples) > 0 && !told {
			why = "all their rounds were disturbed"
		}
		if why != "" {
			list.add(why, f.title())
		}
	}
	return append(out, list.lines("Not measured")...)
}

// reasons are what each of several reasons is of, in their order.
type reasons struct {
	order []string
	of    map[string][]string
}

func (l *reasons) add(why, of string) {
	if l.of[why] == nil {
		l.order = append(l.order, why)
	}
	if l.of == nil {
		l.of = map[string][]string{}
	}
	l.of[why] = append(l.of[why], of)
}

func (l *reasons) lines(what string) (out []string) {
	for _, why := range l.order {
		out = append(out, what+": "+strings.Join(l.of[why], ", ")+": "+why)
	}
	return out
}

// title names what is marked in a line.
func (m *Mark) title() string {
	text := fmt.Sprint("round ", m.Round)
	if m.Group != "" {
		text += " of " + m.Group
	}
	if m.Place != "" {
		text += " in " + m.Place
	}
	return text
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
	switch {
	case strings.HasPrefix(r.Schema, "skerry.bench."):
		return nil, skerry.Errorf(skerry.CodeUnsupported, "this report is of the form %.80q, from before all benchmarks had one", r.Schema).
			WithHint("measure again; the dashboard still shows it, and its figures are not to be compared with those of now")
	case r.Schema != Schema:
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is %.80q and not %s", r.Schema, Schema)
	case r.Rounds < 0:
		return nil, skerry.Errorf(skerry.CodeInvalid, "this report has %d rounds", r.Rounds)
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
				fmt.Sprint(r.disturbed(f, f.Rounds[i]))})
		}
	}
	return writeCSV(w, lines)
}
