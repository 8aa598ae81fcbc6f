package device

import (
	"fmt"
	"strings"

	"skerry.dev/skerry/bench/report"
)

// plotted is how many cases one plot shows, so that their names stand beside each other.
const plotted = 5

// Drawings gives plots of a report as SVG, by name: for each group of cases what a place does beside the bare machine
// (1: as much; less: a loss), a few cases to a plot, and how long each place takes to start a program.
func (r *Report) Drawings() map[string]string {
	out := map[string]string{}
	note := fmt.Sprintf("%s UTC, %d rounds", r.Began.Format("2006-01-02 15:04"), r.Done)
	if len(r.Noise) > 0 || r.Quiet != nil && r.Quiet.NotQuiet != "" {
		note += "; the machine was noisy"
	}
	for _, g := range groups {
		var cases []*Measured
		for i := range r.Cases {
			if r.Cases[i].Group == g && !r.Cases[i].killed {
				cases = append(cases, &r.Cases[i])
			}
		}
		for n := 0; n*plotted < len(cases); n++ {
			part := cases[n*plotted : min(len(cases), (n+1)*plotted)]
			var names []string
			for _, m := range part {
				names = append(names, strings.TrimPrefix(m.ID, g+"."))
			}
			var list []report.Bars
			for _, p := range r.Places {
				b, any := report.Bars{Name: p.Name, Values: make([]float64, len(part))}, false
				for i, m := range part {
					if res := m.Results[p.Name]; res != nil && res.Overhead != nil {
						b.Values[i], any = 1+res.Overhead.Percent/100, true
					}
				}
				if any {
					list = append(list, b)
				}
			}
			if len(list) == 0 {
				continue
			}
			out[fmt.Sprintf("%s-%d", g, n+1)] = report.BarPlot("What isolation leaves: "+g, note, "speed beside the bare machine", names, list, 1,
				"bare")
		}
	}
	if len(r.Starts) == 0 {
		return out
	}
	b := report.Bars{Name: "start"}
	var names []string
	for _, s := range r.Starts {
		if s.Summary.N == 0 {
			continue
		}
		names, b.Values = append(names, s.Place), append(b.Values, s.Summary.Mean)
	}
	out["start"] = report.BarPlot("Time to the first line", note, "ms", names, []report.Bars{b}, 0, "")
	return out
}
