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
			var list []report.Series
			for _, p := range r.Places {
				bars := report.Series{Name: p.Name, Bars: true}
				for i, m := range part {
					if res := m.Results[p.Name]; res != nil && res.Overhead != nil && res.Overhead.Percent > -100 {
						bars.Points = append(bars.Points, [2]float64{float64(i), 1 + res.Overhead.Percent/100})
					}
				}
				if len(bars.Points) > 0 {
					list = append(list, bars)
				}
			}
			if len(list) == 0 {
				continue
			}
			c := report.Chart{Title: "What isolation leaves: " + g, Note: note, YLabel: "speed beside the bare machine", Ticks: names,
				Series: list, Goal: 1, GoalText: "bare"}
			out[fmt.Sprintf("%s-%d", g, n+1)] = c.SVG()
		}
	}
	if len(r.Starts) == 0 {
		return out
	}
	c := report.Chart{Title: "Time to the first line", Note: note, YLabel: "ms"}
	bars := report.Series{Name: "start", Bars: true}
	for _, s := range r.Starts {
		if s.Summary.N > 0 {
			bars.Points = append(bars.Points, [2]float64{float64(len(c.Ticks)), s.Summary.Mean})
			c.Ticks = append(c.Ticks, s.Place)
		}
	}
	c.Series = []report.Series{bars}
	out["start"] = c.SVG()
	return out
}
