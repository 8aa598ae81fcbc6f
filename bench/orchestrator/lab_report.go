package orchestrator

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// LabSchema is the version of LabReport; it changes when a reader of the one before would go wrong.
const LabSchema = "skerry.bench.orchestrator.lab/1"

// LabReport is what was measured of Skerry in labs. It is written after each cell, and one that was interrupted lacks
// only those that follow.
type LabReport struct {
	Schema  string            `json:"schema"`
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	Machine map[string]string `json:"machine"`
	// Quiet says how long it waited for a quiet machine, Noise, in reports from before, what disturbed it.
	Quiet   *quiet.Record `json:"quiet,omitempty"`
	Noise   []string      `json:"noise,omitempty"`
	Quick   bool          `json:"quick,omitempty"`
	Rounds  int           `json:"rounds"` // asked for
	Window  float64       `json:"windowSeconds"`
	Timeout float64       `json:"timeoutSeconds"` // of a deployment
	Load    float64       `json:"loadSeconds"`
	// Expect is the share of what an instance bears that is expected of it.
	Expect float64 `json:"expect"`
	// Rate is what is expected of each instance in crowded and uncrowded, in requests per second, and sent; Profiles
	// are those of their workers.
	Rate     float64      `json:"rate,omitempty"`
	Profiles []LabProfile `json:"profiles,omitempty"`
	Cells    []LabCell    `json:"cells"`
	// NotRun are settings that this machine cannot hold, each once.
	NotRun []LabNotRun `json:"notRun,omitempty"`
	// Unfinished says that cells are missing.
	Unfinished bool `json:"unfinished,omitempty"`
	// Rows follow from the cells.
	Rows []LabRow `json:"rows"`
}

// LabCell is one thing done once.
type LabCell struct {
	Part    string `json:"part"`
	Setting string `json:"setting"`
	Round   int    `json:"round"` // from 1
	// Values are by metric; Failed says why there are none.
	Values map[string]float64 `json:"values,omitempty"`
	Failed string             `json:"failed,omitempty"`
	// Disturbed says who came meanwhile; its values do not count then.
	Disturbed string `json:"disturbed,omitempty"`
}

// LabNotRun is a setting that was asked for and not measured, with the reason.
type LabNotRun struct {
	Part    string      `json:"part"`
	Setting string      `json:"setting"`
	Code    skerry.Code `json:"code"`
	Reason  string      `json:"reason"`
}

// LabProfile is how fast containers of a worker were measured to be, as in wire.RuntimeProfile.
type LabProfile struct {
	Crowded bool    `json:"crowded"`
	Host    string  `json:"host"` // the first has neighbours, if any has
	Rate    float64 `json:"rate"`
	Share   float64 `json:"share"`
	Spread  float64 `json:"spread"`
}

// LabRow is one metric of a part in one setting.
type LabRow struct {
	Part    string         `json:"part"`
	Setting string         `json:"setting"`
	Metric  string         `json:"metric"`
	Unit    string         `json:"unit"`
	Rounds  []int          `json:"rounds"`
	Samples []float64      `json:"samples"`
	Median  float64        `json:"median"`
	Summary report.Summary `json:"summary"`
	// Ratio is to the part's first setting, over the rounds that both have; nil for that itself.
	Ratio *Ratio `json:"ratio,omitempty"`
	// Failed is in how many rounds there was no value; Why is the first reason.
	Failed int    `json:"failed,omitempty"`
	Why    string `json:"why,omitempty"`
	// Published are claims of 002 about the same thing.
	Published []Beside `json:"published,omitempty"`
}

// labMetrics are all metrics in the order of reports, with their units. Lower is better in all.
func labMetrics() [][2]string {
	return [][2]string{
		{"ready", "s"}, {"all.ready", "s"}, {"each.ready", "ms/instance"}, {"ask", "ms"}, {"replaced", "s"}, {"p50", "ms"}, {"p99", "ms"},
		{"unanswered", "%"}, {"late", "% of requests"}, {"on.slow", "% of instances"},
		{"worker.messages", "1/min"}, {"cluster.messages", "1/min"}, {"root.messages", "1/min"}, {"peer.messages", "1/min"},
		{"worker.bytes", "B/min"}, {"cluster.bytes", "B/min"}, {"root.bytes", "B/min"},
		{"deploy.root.cpu", "ms/instance"}, {"deploy.cluster.cpu", "ms/instance"}, {"deploy.worker.cpu", "ms/instance"},
		{"control.cpu", "% of a core"}, {"root.cpu", "% of a core"}, {"cluster.cpu", "% of a core"}, {"worker.cpu", "% of a core"},
		{"control.memory", "MiB"}, {"root.memory", "MiB"}, {"cluster.memory", "MiB"}, {"worker.memory", "MiB"},
		{"instance.memory", "MiB/instance"},
	}
}

// fold computes the rows. A setting of which every round failed has a row of its part's first metric, without samples.
func (r *LabReport) fold(set *published.Set) {
	r.Rows = nil
	type where struct{ part, setting string }
	var order []where
	parts := LabParts()
	for _, c := range r.Cells {
		if at := (where{c.Part, c.Setting}); !slices.Contains(order, at) {
			order = append(order, at)
		}
	}
	// Cells are in the order of rounds, of which each begins elsewhere: the order of settings is that of the plan.
	rank := labOrder(r.Cells)
	slices.SortStableFunc(order, func(a, b where) int {
		if a.part != b.part {
			return slices.Index(parts, a.part) - slices.Index(parts, b.part)
		}
		return rank[a.part+"|"+a.setting] - rank[b.part+"|"+b.setting]
	})
	firsts := map[string]*LabRow{} // by part and metric
	for _, at := range order {
		failed, why := 0, ""
		for _, c := range r.Cells {
			if c.Part == at.part && c.Setting == at.setting && c.Failed+c.Disturbed != "" {
				failed++
				why = cmp.Or(why, c.Failed, "disturbed: "+c.Disturbed)
			}
		}
		had := false
		for _, m := range labMetrics() {
			row := LabRow{Part: at.part, Setting: at.setting, Metric: m[0], Unit: m[1], Failed: failed, Why: why}
			for _, c := range r.Cells {
				if v, ok := c.Values[m[0]]; ok && c.Part == at.part && c.Setting == at.setting && c.Disturbed == "" {
					row.Rounds, row.Samples = append(row.Rounds, c.Round), append(row.Samples, v)
				}
			}
			if len(row.Samples) == 0 {
				continue
			}
			had = true
			row.Median, row.Summary = report.Median(row.Samples), report.Summarise(row.Samples)
			row.Published = labBeside(set, at.part, at.setting, m[0])
			k := at.part + "|" + m[0]
			if f := firsts[k]; f != nil {
				row.Ratio = ratio(&Result{Rounds: f.Rounds, Samples: f.Samples}, &Result{Rounds: row.Rounds, Samples: row.Samples})
			} else {
				firsts[k] = &row
			}
			r.Rows = append(r.Rows, row)
		}
		if !had {
			r.Rows = append(r.Rows, LabRow{Part: at.part, Setting: at.setting, Metric: "ready", Unit: "s", Failed: failed, Why: why,
				Published: labBeside(set, at.part, at.setting, "ready")})
		}
	}
}

// labOrder ranks settings as round 1 has them.
func labOrder(cells []LabCell) map[string]int {
	rank := map[string]int{}
	for _, first := range []bool{true, false} {
		for _, c := range cells {
			if k := c.Part + "|" + c.Setting; (c.Round == 1) == first {
				if _, ok := rank[k]; !ok {
					rank[k] = len(rank)
				}
			}
		}
	}
	return rank
}

// ReadLabReport reads what WriteJSON wrote.
func ReadLabReport(in io.Reader) (*LabReport, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return nil, err
	}
	r := &LabReport{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is no report: %w", err)
	}
	if r.Schema != LabSchema {
		return nil, skerry.Errorf(skerry.CodeInvalid, "this is %.80q and not %s", r.Schema, LabSchema)
	}
	return r, nil
}

// maxReport is the largest report that is read, in bytes.
const maxReport = 64 << 20

// WriteJSON writes a report for programs.
func (r *LabReport) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r) }

// WriteCSV writes one line for each value, and for each cell without any.
func (r *LabReport) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"part", "setting", "round", "metric", "unit", "value", "failed"}}
	for _, cell := range r.Cells {
		round := strconv.Itoa(cell.Round)
		for _, m := range labMetrics() {
			if v, ok := cell.Values[m[0]]; ok {
				lines = append(lines, []string{cell.Part, cell.Setting, round, m[0], m[1], strconv.FormatFloat(v, 'g', -1, 64), ""})
			}
		}
		if cell.Failed != "" {
			lines = append(lines, []string{cell.Part, cell.Setting, round, "", "", "", cell.Failed})
		}
	}
	return c.WriteAll(lines)
}

// WriteTable writes a report for people.
func (r *LabReport) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tSETTING\tMEASURED\tMEDIAN\tMEAN\tN\tAGAINST FIRST\tPUBLISHED")
	for _, row := range r.Rows {
		median, mean := "-", "-"
		if len(row.Samples) > 0 {
			median, mean = fmt.Sprintf("%.4g %s", row.Median, row.Unit), fmt.Sprintf("%.4g ±%.1f%%", row.Summary.Mean, row.Summary.RSD)
		}
		n := fmt.Sprint(len(row.Samples))
		if row.Failed > 0 {
			n += fmt.Sprintf(", %d failed", row.Failed)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Part, row.Setting, row.Metric, median, mean, n, row.Ratio.told(),
			told(row.Published))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d cells in %.0f s. Settings take turns within each round; the mean has its relative standard deviation, the ratio to the part's first setting ~ where it may be chance.\n", len(r.Cells), r.Seconds)
	for _, line := range r.remarks() {
		fmt.Fprintln(out, line)
	}
	return nil
}

// told is a ratio in a few words; nil has none.
func (x *Ratio) told() string {
	if x == nil {
		return "-"
	}
	mark := "~"
	if x.Significant {
		mark = ""
	}
	return fmt.Sprintf("%s%.2fx", mark, x.Times)
}

// remarks are what a reader has to know beside the figures.
func (r *LabReport) remarks() (out []string) {
	out = append(out, "All hosts share this machine, so what processors limit is slower here than on as many machines.",
		"What is published is of other systems on other machines, by comparisons alone: document 002 prints no absolute times.")
	for _, p := range r.Profiles {
		why := "uncrowded"
		if p.Crowded {
			why = "crowded"
		}
		out = append(out, fmt.Sprintf("%s: the profile of %s has %.4g requests a second, given %.0f %% of a processor, rounds %.0f %% apart; %.3g requests a second are sent to each instance.", why, p.Host, p.Rate, 100*p.Share, 100*p.Spread, r.Rate))
	}
	if r.Quick {
		out = append(out, "Quick: fewer settings and shorter windows than a report to be quoted has.")
	}
	out = append(out, r.Quiet.Remarks(nil)...)
	for _, n := range r.Noise {
		out = append(out, "The machine was noisy: "+n)
	}
	for _, c := range r.Cells {
		if c.Disturbed != "" {
			out = append(out, fmt.Sprintf("disturbed, and does not count: %s, %s, round %d: %s", c.Part, c.Setting, c.Round, c.Disturbed))
		}
	}
	if r.Unfinished {
		out = append(out, "It was interrupted: --resume goes on from what there is.")
	}
	for _, n := range r.NotRun {
		out = append(out, fmt.Sprintf("not run: %s, %s: %s", n.Part, n.Setting, n.Reason))
	}
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if row.Failed > 0 && !seen[row.Part+row.Setting] {
			seen[row.Part+row.Setting] = true
			out = append(out, fmt.Sprintf("failed: %s, %s, in %d rounds: %s", row.Part, row.Setting, row.Failed, row.Why))
		}
	}
	return out
}
