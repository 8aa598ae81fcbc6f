package orchestrator

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// Schema is the version of Report; it changes when a reader of the one before would go wrong.
const Schema = "skerry.bench.orchestrator/1"

// Report is what was measured. It is written after each round, so that one that was interrupted is complete but for the rounds that lack.
type Report struct {
	Schema  string            `json:"schema"`
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	Machine map[string]string `json:"machine"`
	Quick   bool              `json:"quick,omitempty"`
	Image   string            `json:"image"`
	Sizes   []int             `json:"sizes"`  // replicas of a deployment
	Rounds  int               `json:"rounds"` // asked for
	Done    int               `json:"done"`   // of them, complete
	// Watch is how long processes are watched at rest, in seconds.
	Watch float64 `json:"watchSeconds"`
	// Quiet says how long it waited for a quiet machine, and Disturbed are the rounds in which others came. Reports of before have neither.
	Quiet     *quiet.Record `json:"quiet,omitempty"`
	Disturbed []quiet.Mark  `json:"disturbed,omitempty"`
	Adapters  []Adapter     `json:"adapters"`
	Turns     []Turn        `json:"turns"`
	// Rows follow from the turns.
	Rows []Row `json:"rows"`
}

// Adapter is one that was asked for. The first is what others are compared with.
type Adapter struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Skip is why it did not run, or not to the end.
	Skip string `json:"skip,omitempty"`
	// Unwatched is why its processes were not measured.
	Unwatched string `json:"unwatched,omitempty"`
}

// Turn is one deployment of one size, or, with no replicas, a rest with nothing deployed.
type Turn struct {
	Adapter  string `json:"adapter"`
	Round    int    `json:"round"` // from 1
	Replicas int    `json:"replicas"`
	// Ready and Gone are from the call of deploy until all replicas were ready, and from that of delete until none was
	// left, in seconds; 0 at rest.
	Ready float64 `json:"ready,omitempty"`
	Gone  float64 `json:"gone,omitempty"`
	// Deploying has the seconds of processor time from deploy to ready, by kind; nil where processes were not measured.
	Deploying map[Kind]float64 `json:"deploying,omitempty"`
	// Resting is what was used while nothing was to be done: the replicas ran, or there were none.
	Resting map[Kind]Use `json:"resting,omitempty"`
	// Cannot is why the adapter cannot do this here; Failed is what went wrong. Either leaves the rest empty.
	Cannot string `json:"cannot,omitempty"`
	Failed string `json:"failed,omitempty"`
}

// Use is what processes of one kind use.
type Use struct {
	CPU       float64 `json:"cpu"` // seconds of processor time in each second
	PSS       float64 `json:"pss"` // bytes, at the end
	Processes int     `json:"processes"`
}

// Row is one thing that was measured, for one size.
type Row struct {
	Metric   string             `json:"metric"`
	Replicas int                `json:"replicas"`
	Unit     string             `json:"unit"` // lower is better in all of them
	Results  map[string]*Result `json:"results"`
	// Published are the claims of 002 about the same thing.
	Published []Beside `json:"published,omitempty"`
}

// Result is a row for one adapter, with a sample for each of the rounds.
type Result struct {
	Rounds  []int          `json:"rounds"`
	Samples []float64      `json:"samples"`
	Summary report.Summary `json:"summary"`
	// Ratio is how many times as much it is as for the first adapter, over the rounds that both have; nil for the first, or where that has 0.
	Ratio *Ratio `json:"ratio,omitempty"`
}

// Ratio is one of means, with its 95 % bootstrap interval over rounds.
type Ratio struct {
	Times       float64 `json:"times"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Significant bool    `json:"significant"` // the interval does not hold 1
}

// metric is something to read of a turn. Per replica is per replica of the deployment.
type metric struct {
	name, unit string
	rest       bool // of rests with nothing deployed
	of         func(r, rest *Turn) (float64, bool)
}

const mib = 1 << 20

// total adds up what kinds have; it is there if any is.
func total(kinds []Kind, of func(Kind) (float64, bool)) (sum float64, ok bool) {
	for _, k := range kinds {
		v, has := of(k)
		sum, ok = sum+v, ok || has
	}
	return sum, ok
}

// metrics are the rows of a report, in order. "all" is control and worker together, for orchestrators that have both in one process.
func metrics() []metric {
	list := []metric{
		{"ready", "s", false, func(r, _ *Turn) (float64, bool) { return r.Ready, true }},
		{"gone", "s", false, func(r, _ *Turn) (float64, bool) { return r.Gone, true }},
	}
	for _, g := range []struct {
		name  string
		kinds []Kind
	}{{"control", []Kind{Control}}, {"worker", []Kind{Worker}}, {"all", []Kind{Control, Worker}}} {
		use := func(r *Turn, read func(Use) float64) (float64, bool) {
			return total(g.kinds, func(k Kind) (float64, bool) { u, ok := r.Resting[k]; return read(u), ok })
		}
		cpu, pss := func(u Use) float64 { return 100 * u.CPU }, func(u Use) float64 { return u.PSS / mib }
		list = append(list,
			metric{"idle.cpu." + g.name, "% of a core", true, func(r, _ *Turn) (float64, bool) { return use(r, cpu) }},
			metric{"idle.memory." + g.name, "MiB", true, func(r, _ *Turn) (float64, bool) { return use(r, pss) }},
			metric{"deploy.cpu." + g.name, "ms/replica", false, func(r, _ *Turn) (float64, bool) {
				v, ok := total(g.kinds, func(k Kind) (float64, bool) { v, ok := r.Deploying[k]; return v, ok })
				return 1000 * v / float64(r.Replicas), ok
			}},
			metric{"running.cpu." + g.name, "% of a core", false, func(r, _ *Turn) (float64, bool) { return use(r, cpu) }},
			metric{"running.memory." + g.name, "MiB/replica", false, func(r, rest *Turn) (float64, bool) {
				if rest == nil {
					return 0, false
				}
				before, _ := use(rest, pss) // a kind that had no process used nothing
				now, ok := use(r, pss)
				return (now - before) / float64(r.Replicas), ok
			}})
	}
	return list
}

// ok reports whether there is something measured in a turn.
func (r *Turn) ok() bool { return r.Cannot == "" && r.Failed == "" }

// fold computes what follows from the turns. What is no sample (a turn that failed) has no part in it.
func (r *Report) fold(set *published.Set) {
	r.Rows = nil
	rests := map[string]map[int]*Turn{}
	for i := range r.Turns {
		if turn := &r.Turns[i]; turn.Replicas == 0 && turn.ok() {
			if rests[turn.Adapter] == nil {
				rests[turn.Adapter] = map[int]*Turn{}
			}
			rests[turn.Adapter][turn.Round] = turn
		}
	}
	for _, m := range metrics() {
		sizes := r.Sizes
		if m.rest {
			sizes = []int{0}
		}
		for _, n := range sizes {
			row := Row{Metric: m.name, Replicas: n, Unit: m.unit, Results: map[string]*Result{}, Published: beside(set, m.name, n)}
			for i := range r.Turns {
				turn := &r.Turns[i]
				if turn.Replicas != n || !turn.ok() || quiet.Marked(r.Disturbed, turn.Round) {
					continue
				}
				v, has := m.of(turn, rests[turn.Adapter][turn.Round])
				if !has {
					continue
				}
				if row.Results[turn.Adapter] == nil {
					row.Results[turn.Adapter] = &Result{}
				}
				res := row.Results[turn.Adapter]
				res.Rounds, res.Samples = append(res.Rounds, turn.Round), append(res.Samples, v)
			}
			for name, res := range row.Results {
				res.Summary = report.Summarise(res.Samples)
				if first := row.Results[r.Adapters[0].Name]; first != nil && name != r.Adapters[0].Name {
					res.Ratio = ratio(first, res)
				}
			}
			if len(row.Results) > 0 || len(row.Published) > 0 {
				r.Rows = append(r.Rows, row)
			}
		}
	}
}

// ratio compares over the rounds that both have.
func ratio(first, other *Result) *Ratio {
	var a, b []float64
	for i, round := range other.Rounds {
		if k := slices.Index(first.Rounds, round); k >= 0 {
			a, b = append(a, first.Samples[k]), append(b, other.Samples[i])
		}
	}
	o := report.Compare(report.Higher, a, b) // other/first - 1, in percent
	if o == nil {
		return nil
	}
	return &Ratio{1 + o.Percent/100, 1 + o.Low/100, 1 + o.High/100, o.Significant}
}

// trim leaves the rounds that are complete.
func (r *Report) trim() {
	r.Turns = slices.DeleteFunc(r.Turns, func(turn Turn) bool { return turn.Round > r.Done })
}

// WriteJSON writes a report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// WriteTable writes a report for people.
func (r *Report) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "MEASURED\tREPLICAS\tUNIT")
	for _, a := range r.Adapters {
		fmt.Fprintf(table, "\t%s", a.Name)
	}
	fmt.Fprintln(table, "\tPUBLISHED")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s", row.Metric, number(row.Replicas), row.Unit)
		for _, a := range r.Adapters {
			fmt.Fprintf(table, "\t%s", row.cell(a))
		}
		fmt.Fprintf(table, "\t%s\n", told(row.Published))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d rounds in %.0f s, at rest for %.3g s each. Mean, relative standard deviation; in brackets: times that of %s, with ~ where it may be chance.\n",
		r.Done, r.Rounds, r.Seconds, r.Watch, r.Adapters[0].Name)
	fmt.Fprintln(out, "What is published comes from figures and prose of document 002, and from its machines; it was not measured here.")
	for _, line := range r.Quiet.Remarks(r.Disturbed) {
		fmt.Fprintln(out, line)
	}
	if r.Quick {
		fmt.Fprintln(out, "Quick: shorter rests and smaller deployments than a report to be quoted has.")
	}
	for _, a := range r.Adapters {
		switch {
		case a.Skip != "":
			fmt.Fprintf(out, "not run: %s: %s\n", a.Name, a.Skip)
		case a.Unwatched != "":
			fmt.Fprintf(out, "not measured: processes of %s: %s\n", a.Name, a.Unwatched)
		}
	}
	r.writeFailures(out)
	return nil
}

// writeFailures tells each reason of an adapter and a size once.
func (r *Report) writeFailures(out io.Writer) {
	count := map[string]int{}
	var lines []string
	for _, turn := range r.Turns {
		line := ""
		switch {
		case turn.Cannot != "":
			line = fmt.Sprintf("not run: %s, %d replicas: %s", turn.Adapter, turn.Replicas, turn.Cannot)
		case turn.Failed != "":
			line = fmt.Sprintf("went wrong: %s, %d replicas: %s", turn.Adapter, turn.Replicas, turn.Failed)
		default:
			continue
		}
		if count[line]++; count[line] == 1 {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		if n := count[line]; n > 1 {
			line += fmt.Sprintf(" (%d times)", n)
		}
		fmt.Fprintln(out, line)
	}
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// cell is what a table has of a row for an adapter.
func (r *Row) cell(a Adapter) string {
	res := r.Results[a.Name]
	if res == nil {
		var words []string
		for _, b := range r.Published {
			if strings.EqualFold(b.System, a.Name) {
				words = append(words, b.Claim)
			}
		}
		if len(words) == 0 {
			return "-"
		}
		return "published: " + strings.Join(words, ", ")
	}
	text := fmt.Sprintf("%.4g ±%.1f%%", res.Summary.Mean, res.Summary.RSD)
	if res.Ratio != nil {
		mark := "~"
		if res.Ratio.Significant {
			mark = ""
		}
		text += fmt.Sprintf(" (%s%.2fx)", mark, res.Ratio.Times)
	}
	return text
}
