package device

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry/bench/report"
)

// reach is the loss or gain, in percent, at the edge of a plot.
const reach = 100.0

// colours of places, in their order.
var colours = []string{"#777", "#1f6f8b", "#d1495b", "#b8860b", "#4f8f6b", "#6a4c93", "#00798c", "#8d5524"}

// WriteHTML writes one file that needs nothing else, has no script, and prints.
func (r *Report) WriteHTML(out io.Writer) error {
	var places []Told
	for _, t := range r.Places {
		if t.Skip == "" {
			places = append(places, t)
		}
	}
	p := report.NewPage("What isolation costs")
	p.Raw("<p>")
	p.Text(fmt.Sprintf("%s UTC, %d of %d rounds in %.0f s", r.Began.Format("2006-01-02 15:04"), r.Done, r.Rounds, r.Seconds))
	if r.Quick {
		p.Text(", with a tenth of the work of each case")
	}
	p.Text(". All places took turns in each round. In each row: the mean, the relative standard deviation, and the loss against " +
		"the bare machine (less than 0; a gain is more), in the plot with its 95 % interval. Small figures may be chance.")
	p.Raw("</p>")
	for _, line := range r.remarks() {
		p.Element(`p class="warn"`, line)
	}
	p.Facts("Machine", r.Machine)
	p.Facts("Programs", r.Tools)
	p.Raw(`<p class="key">`)
	for i, t := range places {
		p.Raw(`<span><i style="background:` + colours[i%len(colours)] + `"></i><b>`)
		p.Text(t.Name)
		p.Raw("</b>: ")
		p.Text(t.Text)
		p.Raw("</span>")
	}
	p.Raw("</p>")
	var reasons []string
	group := ""
	for i := range r.Cases {
		m := &r.Cases[i]
		if m.Group != group {
			if group != "" {
				p.Raw("</table>")
			}
			group = m.Group
			p.Element("h2", group)
			if group == "disk" {
				for _, line := range r.backingLines() {
					p.Element("p", line)
				}
			}
			p.Raw("<table><tr><th>case</th>")
			for _, t := range places {
				p.Element("th", t.Name)
			}
			p.Raw("<th>loss to the left, gain to the right, to 100 %</th></tr>")
		}
		m.row(p, places)
		for _, t := range places {
			if res := m.Results[t.Name]; res != nil && res.Skip != "" {
				reasons = append(reasons, m.ID+" in "+t.Name+": "+res.Skip)
			}
		}
	}
	if group != "" {
		p.Raw("</table>")
	}
	if len(r.Starts) > 0 {
		p.Raw("<h2>start</h2><table><tr><th>place</th><th>ms to the first line</th><th>n</th></tr>")
		for _, s := range r.Starts {
			if s.Skip != "" {
				reasons = append(reasons, "start in "+s.Place+": "+s.Skip)
				continue
			}
			p.Raw("<tr>")
			p.Element("td", s.Place)
			p.Element("td", fmt.Sprintf("%.1f ±%.1f %%", s.Summary.Mean, s.Summary.RSD))
			p.Element("td", fmt.Sprint(s.Summary.N))
			p.Raw("</tr>")
		}
		p.Raw("</table>")
	}
	if len(r.Footprints) > 0 {
		p.Raw("<h2>Memory</h2><p>What idle instances take of the memory that is available, each.</p>" +
			"<table><tr><th>place</th><th>instances</th><th>MiB</th></tr>")
		for _, f := range r.Footprints {
			if f.Summary == nil {
				reasons = append(reasons, fmt.Sprintf("%d idle instances in %s: %s", f.Instances, f.Place, f.Skip))
				continue
			}
			p.Raw("<tr>")
			p.Element("td", f.Place)
			p.Element("td", fmt.Sprint(f.Instances))
			p.Element("td", fmt.Sprintf("%.2f (%.2f to %.2f)", f.Summary.Mean, f.Summary.Low, f.Summary.High))
			p.Raw("</tr>")
		}
		p.Raw("</table>")
	}
	if len(r.Reached) > 0 {
		p.Raw("<h2>Reach</h2><p>Which system calls of the host a program that does one of everything reaches, or has its machine make.</p>" +
			"<table><tr><th>place</th><th>calls</th><th></th></tr>")
		for _, f := range r.Reached {
			if f.Skip != "" {
				reasons = append(reasons, fmt.Sprintf("system calls from %s: %s", f.Place, f.Skip))
				continue
			}
			p.Raw("<tr>")
			p.Element("td", f.Place)
			p.Element("td", fmt.Sprint(len(f.Calls)))
			p.Raw("<td><small>")
			p.Text(strings.Join(f.Calls, " "))
			p.Raw("</small></td></tr>")
		}
		p.Raw("</table>")
	}
	if lines := r.usedLines(); len(lines) > 0 {
		p.Raw("<h2>Processors</h2><p>What the whole machine used while a case ran, " +
			"and the work that it did for that beside the bare machine.</p><ul>")
		for _, line := range lines {
			p.Element("li", line)
		}
		p.Raw("</ul>")
	}
	if r.Energy != "" {
		reasons = append(reasons, "energy: "+r.Energy)
	}
	if len(r.Profile) > 0 {
		p.Raw("<h2>Profile</h2><p>How many times as long work takes as on the bare machine (geometric mean).</p><table>")
		for _, c := range r.Profile {
			p.Raw("<tr>")
			p.Element("td", c.Place)
			text := ""
			for _, g := range slices.Sorted(maps.Keys(c.Times)) {
				text += fmt.Sprintf("%s %.2f   ", g, c.Times[g])
			}
			p.Element("td", text)
			p.Raw("</tr>")
		}
		p.Raw("</table>")
	}
	for _, t := range r.Places {
		if t.Skip != "" {
			reasons = append(reasons, t.Name+": "+t.Skip)
		}
	}
	if len(reasons) > 0 {
		p.Raw("<h2>Not run</h2><ul>")
		for _, text := range reasons {
			p.Element("li", text)
		}
		p.Raw("</ul>")
	}
	_, err := io.WriteString(out, p.String())
	return err
}

// row writes a case: what was found in each place, and a plot of the losses.
func (m *Measured) row(p *report.Page, places []Told) {
	p.Raw("<tr><td>")
	p.Text(m.Title)
	p.Raw("<br><small>")
	p.Text(fmt.Sprintf("%s, %s, %s is better", m.ID, m.Unit, m.Better))
	if text := told(m.Published); text != "" {
		p.Raw("<br>")
		p.Text("published: " + text)
	}
	p.Raw("</small></td>")
	const width, height, line = 300.0, 12.0, 9.0
	plot, n := "", 0.0
	for i, t := range places {
		p.Raw(`<td class="n">`)
		res := m.Results[t.Name]
		if res == nil || res.Summary == nil {
			p.Raw("–</td>")
			continue
		}
		p.Text(fmt.Sprintf("%.4g", res.Summary.Mean))
		p.Raw("<br><small>")
		p.Text(fmt.Sprintf("±%.1f %%", res.Summary.RSD))
		p.Raw("</small>")
		if o := res.Overhead; o != nil {
			tag, end := "<br>", ""
			if !o.Significant {
				tag, end = "<br><small>", "</small>"
			}
			p.Raw(tag)
			p.Text(fmt.Sprintf("%+.1f %%", o.Percent))
			p.Raw(end)
			at := func(v float64) float64 { return width/2 + width/2*max(-1, min(1, v/reach)) }
			from, to := min(width/2, at(o.Percent)), max(width/2, at(o.Percent))
			plot += fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s %+.1f %%, %+.1f to %+.1f</title></rect><line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="currentColor"/>`,
				from, n*height, to-from, line, colours[i%len(colours)], html.EscapeString(t.Name), o.Percent, o.Low, o.High, at(o.Low), at(o.High),
				n*height+line/2, n*height+line/2)
			n++
		}
		p.Raw("</td>")
	}
	p.Raw("<td>")
	if n > 0 {
		p.Raw(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="losses of %s">%s`+
			`<line x1="%.0f" x2="%.0f" y1="0" y2="%.0f" stroke="currentColor" stroke-dasharray="2"/></svg>`,
			width, n*height, html.EscapeString(m.ID), plot, width/2, width/2, n*height))
	}
	p.Raw("</td></tr>")
}
