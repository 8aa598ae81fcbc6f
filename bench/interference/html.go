package interference

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"skerry.dev/skerry/bench/report"
)

// kind is what a line of a plot has in common.
func (row *Row) kind() string {
	text := row.Place
	if row.Pin != PinNone {
		text += ", pinned"
	}
	if row.Interference > 0 {
		text += ", beside " + row.interference()
	}
	return text
}

// told reports whether a row tells of its service.
func (row *Row) told() bool {
	return row.Outcome != nil && row.Outcome.Invalid == "" && row.Outcome.Latency != nil
}

// WriteHTML writes one file that needs nothing else, has no script, and prints.
func (r *Report) WriteHTML(w io.Writer) error {
	_, err := io.WriteString(w, r.page().String())
	return err
}

// Drawings gives the plots of the page, as SVG, by name.
func (r *Report) Drawings() map[string]string { return r.page().Drawings() }

func (r *Report) page() *report.Page {
	p := report.NewPage("What neighbours cost a service")
	p.Element("p", fmt.Sprintf("%s UTC, %d rows in %.0f s. Each row: a fresh instance, %g s of warm-up, %g s of load, %g s to settle. Latency counts from when a request was due; overhead is the mean less what the service itself tells.",
		r.Began.Format("2006-01-02 15:04"), len(r.Rows), r.Seconds, r.Warm, r.Load, r.Settle))
	for _, line := range r.remarks() {
		p.Element(`p class="warn"`, line)
	}
	p.Facts("Machine", r.Machine)
	for _, of := range r.limits() {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row *Row) bool { return row.Service != of.Service || row.CPU != of.CPU })
		head := fmt.Sprintf("%s, %g processors", of.Service, of.CPU)
		p.Element("h2", head)
		plot := func(what, unit string, value func(*Row) float64) {
			title := what + ", " + head
			lines, names, values := curves(rows, value)
			switch {
			case len(values) == 0:
			case slices.ContainsFunc(lines, func(l report.Line) bool { return len(l.Points) > 1 }):
				p.Lines(title, "requests per second", unit, "", lines)
			default:
				p.Bars(title, unit, "", names, values, nil, nil)
			}
		}
		plot("mean latency", "ms", func(row *Row) float64 { return row.Outcome.Latency.Mean })
		plot("p99", "ms", func(row *Row) float64 { return row.Outcome.Latency.P99 })
		plot("overhead", "ms", func(row *Row) float64 { return row.Outcome.Overhead })
		if lines := lost(rows); len(lines) > 0 {
			p.Lines("requests that succeeded, "+head, "seconds since the load began", "%", "", lines)
		}
		p.Raw("<table>")
		p.Row("th", "place", "pin", "beside", "rate", "ok %", "mean ms", "p50", "p90", "p99", "service ms", "overhead ms", "CPU %",
			"throttled ms", "waiting ms", "thesis mean", "thesis overhead")
		for _, row := range rows {
			o, s, pub := row.Outcome, row.System, row.Published
			if s == nil {
				s = &System{}
			}
			if pub == nil {
				pub = &Published{}
			}
			cells := []string{row.Place, row.Pin, row.interference(), fmt.Sprint(row.Rate)}
			switch {
			case o == nil:
				cells = append(cells, "not run: "+row.Skip)
			case o.Invalid != "":
				cells = append(cells, "invalid: "+o.Invalid)
			case o.Latency == nil:
				cells = append(cells, fmt.Sprintf("%.1f", o.Success))
			default:
				cells = append(cells, fmt.Sprintf("%.1f", o.Success))
				for _, v := range []float64{o.Latency.Mean, o.Latency.P50, o.Latency.P90, o.Latency.P99, o.Application.Total, o.Overhead} {
					cells = append(cells, fmt.Sprintf("%.1f", v))
				}
				cells = append(cells, words(s.CPU, "%.0f"), words(s.Throttled, "%.0f"), words(s.Waiting, "%.0f"), words(pub.Mean, "%.1f"),
					words(pub.Overhead, "%.1f"))
			}
			p.Row("td", cells...)
		}
		p.Raw("</table>")
	}
	r.compared(p)
	return p
}

// compared adds what rows that differ in one thing tell, and where places are full.
func (r *Report) compared(p *report.Page) {
	if len(r.Changes) > 0 {
		p.Element("h2", "Changes")
		p.Raw("<table>")
		p.Row("th", "service", "place", "processors", "rate", "of", "against", "mean %", "p99 %", "service %", "overhead ms")
		for _, c := range r.Changes {
			p.Row("td", c.Service, c.Place, fmt.Sprint(c.CPU), fmt.Sprint(c.Rate), c.Of, c.Against, fmt.Sprintf("%+.0f", c.Mean),
				fmt.Sprintf("%+.0f", c.P99), fmt.Sprintf("%+.0f", c.Application), fmt.Sprintf("%+.1f", c.Overhead))
		}
		p.Raw("</table>")
	}
	if len(r.Found) > 0 {
		p.Element("h2", "Saturation")
		p.Raw("<table>")
		p.Row("th", "service", "place", "processors", "pin", "beside", "found")
		for _, f := range r.Found {
			p.Row("td", f.Service, f.Place, fmt.Sprint(f.CPU), f.Pin, f.interference(), f.told())
		}
		p.Raw("</table>")
	}
}

// remarks are what a reader has to know beside the figures.
func (r *Report) remarks() (out []string) {
	if r.Quick {
		out = append(out, "Quick: the thesis took 30 s of warm-up, 300 s of load and 120 s to settle.")
	}
	out = append(out, r.machine()...)
	for _, m := range r.Missing {
		out = append(out, "Missing: "+m)
	}
	for _, p := range r.Places {
		if p.Skip != "" {
			out = append(out, "Not run: "+p.Name+": "+p.Skip)
		}
	}
	if r.Unfinished {
		out = append(out, "It was interrupted: --resume goes on from what there is.")
	}
	return out
}

// limits lists the services and limits of the rows, in their order.
func (r *Report) limits() (out []Setting) {
	for _, row := range r.Rows {
		if of := (Setting{Service: row.Service, CPU: row.CPU}); !slices.Contains(out, of) {
			out = append(out, of)
		}
	}
	return out
}

// curves gives a value by rate, a line for each kind of row, and the same by kind and rate.
func curves(rows []*Row, value func(*Row) float64) (lines []report.Line, names []string, values []float64) {
	for _, row := range rows {
		if !row.told() {
			continue
		}
		n := slices.IndexFunc(lines, func(l report.Line) bool { return l.Name == row.kind() })
		if n < 0 {
			n, lines = len(lines), append(lines, report.Line{Name: row.kind()})
		}
		v := value(row)
		lines[n].Points = append(lines[n].Points, [2]float64{row.Rate, v})
		names, values = append(names, strings.ReplaceAll(row.kind(), ", ", " ")), append(values, v)
	}
	for _, l := range lines {
		slices.SortStableFunc(l.Points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	}
	return lines, names, values
}

// lost gives what succeeded over time, of rows in which not all did.
func lost(rows []*Row) (out []report.Line) {
	for _, row := range rows {
		if !row.told() || row.Outcome.Success >= 100 || len(row.Series) < 2 {
			continue
		}
		l := report.Line{Name: fmt.Sprintf("%s, %g/s", row.kind(), row.Rate)}
		for _, at := range row.Series {
			l.Points = append(l.Points, [2]float64{at.At, at.Success})
		}
		out = append(out, l)
	}
	return out
}
