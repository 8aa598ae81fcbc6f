package device

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
)

// reach is the loss or gain, in percent, at the edge of a plot.
const reach = 100.0

// colours of places, in their order.
var colours = []string{"#777", "#1f6f8b", "#d1495b", "#b8860b", "#4f8f6b", "#6a4c93", "#00798c", "#8d5524"}

const style = `:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:78rem;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #8885;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}small{opacity:.75}
svg{width:100%;min-width:14rem;display:block}svg text{font-size:9px;fill:currentColor}
.key span{display:inline-block;margin-right:1.2rem}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
.warn{border-left:4px solid #d1495b;padding-left:.8rem}
@media print{body{margin:0;max-width:none}tr{break-inside:avoid}}`

// page is HTML being written. The templates of the standard library look methods up by name, which keeps the linker from
// leaving any out: they cost the program a tenth of its size.
type page struct{ b strings.Builder }

func (p *page) raw(text string)                  { p.b.WriteString(text) }
func (p *page) text(text string)                 { p.b.WriteString(html.EscapeString(text)) }
func (p *page) textf(format string, args ...any) { p.text(fmt.Sprintf(format, args...)) }
func (p *page) cell(tag, text string)            { p.raw("<" + tag + ">"); p.text(text); p.raw("</td>") }
func (p *page) facts(title string, m map[string]string) {
	p.raw("<table><caption>")
	p.text(title)
	p.raw("</caption>")
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p.raw("<tr>")
		p.cell("td", k)
		p.cell("td", m[k])
		p.raw("</tr>")
	}
	p.raw("</table>")
}

// WriteHTML writes one file that needs nothing else, has no script, and prints.
func (r *Report) WriteHTML(out io.Writer) error {
	var places []Told
	for _, t := range r.Places {
		if t.Skip == "" {
			places = append(places, t)
		}
	}
	p := &page{}
	p.raw(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>What isolation costs</title><style>` + style + "</style></head><body><h1>What isolation costs</h1><p>")
	p.textf("%s UTC, %d of %d rounds in %.0f s", r.Began.Format("2006-01-02 15:04"), r.Done, r.Rounds, r.Seconds)
	if r.Quick {
		p.text(", with a tenth of the work of each case")
	}
	p.text(". All places took turns in each round. In each row: the mean, the relative standard deviation, and the loss against the bare machine (less than 0; a gain is more), in the plot with its 95 % interval. Small figures may be chance.")
	p.raw("</p>")
	for _, line := range r.remarks() {
		p.raw(`<p class="warn">`)
		p.text(line)
		p.raw("</p>")
	}
	p.facts("Machine", r.Machine)
	p.facts("Programs", r.Tools)
	p.raw(`<p class="key">`)
	for i, t := range places {
		p.raw(`<span><i style="background:` + colours[i%len(colours)] + `"></i><b>`)
		p.text(t.Name)
		p.raw("</b>: ")
		p.text(t.Text)
		p.raw("</span>")
	}
	p.raw("</p>")
	var reasons []string
	group := ""
	for i := range r.Cases {
		m := &r.Cases[i]
		if m.Group != group {
			if group != "" {
				p.raw("</table>")
			}
			group = m.Group
			p.raw("<h2>")
			p.text(group)
			p.raw("</h2>")
			if group == "disk" {
				for _, line := range r.backingLines() {
					p.raw("<p>")
					p.text(line)
					p.raw("</p>")
				}
			}
			p.raw("<table><tr><th>case</th>")
			for _, t := range places {
				p.raw("<th>")
				p.text(t.Name)
				p.raw("</th>")
			}
			p.raw("<th>loss to the left, gain to the right, to 100 %</th></tr>")
		}
		p.row(m, places)
		for _, t := range places {
			if res := m.Results[t.Name]; res != nil && res.Skip != "" {
				reasons = append(reasons, m.ID+" in "+t.Name+": "+res.Skip)
			}
		}
	}
	if group != "" {
		p.raw("</table>")
	}
	if len(r.Starts) > 0 {
		p.raw("<h2>start</h2><table><tr><th>place</th><th>ms to the first line</th><th>n</th></tr>")
		for _, s := range r.Starts {
			if s.Skip != "" {
				reasons = append(reasons, "start in "+s.Place+": "+s.Skip)
				continue
			}
			p.raw("<tr>")
			p.cell("td", s.Place)
			p.cell("td", fmt.Sprintf("%.1f ±%.1f %%", s.Summary.Mean, s.Summary.RSD))
			p.cell("td", fmt.Sprint(s.Summary.N))
			p.raw("</tr>")
		}
		p.raw("</table>")
	}
	if len(r.Footprints) > 0 {
		p.raw("<h2>Memory</h2><p>What idle instances take of the memory that is available, each.</p><table><tr><th>place</th><th>instances</th><th>MiB</th></tr>")
		for _, f := range r.Footprints {
			if f.Summary == nil {
				reasons = append(reasons, fmt.Sprintf("%d idle instances in %s: %s", f.Instances, f.Place, f.Skip))
				continue
			}
			p.raw("<tr>")
			p.cell("td", f.Place)
			p.cell("td", fmt.Sprint(f.Instances))
			p.cell("td", fmt.Sprintf("%.2f (%.2f to %.2f)", f.Summary.Mean, f.Summary.Low, f.Summary.High))
			p.raw("</tr>")
		}
		p.raw("</table>")
	}
	if len(r.Reached) > 0 {
		p.raw("<h2>Reach</h2><p>Which system calls of the host a program that does one of everything reaches, or has its machine make.</p><table><tr><th>place</th><th>calls</th><th></th></tr>")
		for _, f := range r.Reached {
			if f.Skip != "" {
				reasons = append(reasons, fmt.Sprintf("system calls from %s: %s", f.Place, f.Skip))
				continue
			}
			p.raw("<tr>")
			p.cell("td", f.Place)
			p.cell("td", fmt.Sprint(len(f.Calls)))
			p.raw("<td><small>")
			p.text(strings.Join(f.Calls, " "))
			p.raw("</small></td></tr>")
		}
		p.raw("</table>")
	}
	if lines := r.usedLines(); len(lines) > 0 {
		p.raw("<h2>Processors</h2><p>What the whole machine used while a case ran, and the work that it did for that beside the bare machine.</p><ul>")
		for _, line := range lines {
			p.raw("<li>")
			p.text(line)
			p.raw("</li>")
		}
		p.raw("</ul>")
	}
	if r.Energy != "" {
		reasons = append(reasons, "energy: "+r.Energy)
	}
	if len(r.Profile) > 0 {
		p.raw("<h2>Profile</h2><p>How many times as long work takes as on the bare machine (geometric mean).</p><table>")
		for _, c := range r.Profile {
			p.raw("<tr>")
			p.cell("td", c.Place)
			text := ""
			for _, g := range slices.Sorted(maps.Keys(c.Times)) {
				text += fmt.Sprintf("%s %.2f   ", g, c.Times[g])
			}
			p.cell("td", text)
			p.raw("</tr>")
		}
		p.raw("</table>")
	}
	for _, t := range r.Places {
		if t.Skip != "" {
			reasons = append(reasons, t.Name+": "+t.Skip)
		}
	}
	if len(reasons) > 0 {
		p.raw("<h2>Not run</h2><ul>")
		for _, text := range reasons {
			p.raw("<li>")
			p.text(text)
			p.raw("</li>")
		}
		p.raw("</ul>")
	}
	p.raw("</body></html>\n")
	_, err := io.WriteString(out, p.b.String())
	return err
}

// row writes a case: what was found in each place, and a plot of the losses.
func (p *page) row(m *Measured, places []Told) {
	p.raw("<tr><td>")
	p.text(m.Title)
	p.raw("<br><small>")
	p.textf("%s, %s, %s is better", m.ID, m.Unit, m.Better)
	if text := told(m.Published); text != "" {
		p.raw("<br>")
		p.text("published: " + text)
	}
	p.raw("</small></td>")
	const width, height, line = 300.0, 12.0, 9.0
	plot, n := "", 0.0
	for i, t := range places {
		p.raw(`<td class="n">`)
		res := m.Results[t.Name]
		if res == nil || res.Summary == nil {
			p.raw("–</td>")
			continue
		}
		p.textf("%.4g", res.Summary.Mean)
		p.raw("<br><small>")
		p.textf("±%.1f %%", res.Summary.RSD)
		p.raw("</small>")
		if o := res.Overhead; o != nil {
			tag, end := "<br>", ""
			if !o.Significant {
				tag, end = "<br><small>", "</small>"
			}
			p.raw(tag)
			p.textf("%+.1f %%", o.Percent)
			p.raw(end)
			at := func(v float64) float64 { return width/2 + width/2*max(-1, min(1, v/reach)) }
			from, to := min(width/2, at(o.Percent)), max(width/2, at(o.Percent))
			plot += fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s %+.1f %%, %+.1f to %+.1f</title></rect><line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="currentColor"/>`,
				from, n*height, to-from, line, colours[i%len(colours)], html.EscapeString(t.Name), o.Percent, o.Low, o.High, at(o.Low), at(o.High),
				n*height+line/2, n*height+line/2)
			n++
		}
		p.raw("</td>")
	}
	p.raw("<td>")
	if n > 0 {
		p.raw(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="losses of %s">%s<line x1="%.0f" x2="%.0f" y1="0" y2="%.0f" stroke="currentColor" stroke-dasharray="2"/></svg>`,
			width, n*height, html.EscapeString(m.ID), plot, width/2, width/2, n*height))
	}
	p.raw("</td></tr>")
}
