package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
)

// WriteHTML writes one file that needs nothing else, has no script, and prints.
func (r *Report) WriteHTML(w io.Writer) error {
	_, err := io.WriteString(w, r.page().String())
	return err
}

// Drawings gives the plots of the page, as SVG, by name.
func (r *Report) Drawings() map[string]string { return r.page().Drawings() }

// plotted is how many names one plot shows, so that they stand beside each other.
const plotted = 5

func (r *Report) page() *Page {
	p := NewPage(r.Title)
	p.Element("p", r.line()+". "+r.legend())
	for _, line := range r.Remarks() {
		p.Element(`p class="warn"`, line)
	}
	p.Facts("Machine", r.Machine)
	texts := map[string]string{}
	for _, place := range r.Places {
		if place.Skip == "" && place.Text != "" {
			texts[place.Name] = place.Text
		}
	}
	if len(texts) > 0 {
		p.Facts("Places", texts)
	}
	for _, t := range r.Tables(true) {
		if t.Title != "" {
			p.Element("h2", t.Title)
		}
		r.plots(p, t.Title)
		p.Raw("<table>")
		p.Row("th", t.Head...)
		for i, row := range t.Rows {
			p.Raw("<tr><td>")
			p.Text(row[0])
			if t.About[i] != "" {
				p.Raw("<br>")
				p.Element("small", t.About[i])
			}
			p.Raw("</td>")
			for _, cell := range row[1:] {
				p.Element("td", cell)
			}
			p.Raw("</tr>\n")
		}
		p.Raw("</table>")
	}
	return p
}

// plots draws a group: its curves where it has some; else, where it has places, beside the report's baseline or each name by itself.
func (r *Report) plots(p *Page, group string) {
	places := r.placesOf(group)
	note := r.Began.UTC().Format("2006-01-02 15:04") + " UTC"
	if r.Quiet == nil || r.Quiet.NotQuiet != "" {
		note += "; not in quiet"
	}
	if r.curves(p, group, places, note) {
		return
	}
	if r.Baseline == "" || !slices.Contains(places, r.Baseline) {
		r.values(p, group, places, note)
		return
	}
	all, n := r.namesOf(group), 0
	for part := range slices.Chunk(all, plotted) {
		c := Chart{Title: group, Note: note, YLabel: "times " + r.Baseline, Ticks: part, Goal: 1, GoalText: r.Baseline}
		if n++; len(all) > plotted {
			c.Title += fmt.Sprint(" ", n)
		}
		for _, place := range places {
			s := Series{Name: place, Bars: true}
			for i, name := range part {
				if f := r.Find(group, name, place); f != nil && f.Against != nil {
					s.Points = append(s.Points, [2]float64{float64(i), f.Against.Times})
					s.Low, s.High = append(s.Low, f.Against.Low), append(s.High, f.Against.High)
				}
			}
			if len(s.Points) > 0 {
				c.Series = append(c.Series, s)
			}
		}
		if len(c.Series) > 0 {
			p.draw(&c)
		}
	}
}

// curves draws the figures of a group that are joined to curves.
func (r *Report) curves(p *Page, group string, places []string, note string) bool {
	var names []string
	for _, f := range r.Figures {
		if f.Group == group && f.Curve != "" && !slices.Contains(names, f.Curve) {
			names = append(names, f.Curve)
		}
	}
	for _, name := range names {
		c, least, most := Chart{Title: name + ", " + group, Note: note}, math.Inf(1), 0.0
		for _, place := range places {
			s := Series{Name: place}
			for _, f := range r.Figures {
				if f.Group == group && f.Curve == name && f.Place == place && f.Value != nil {
					s.Points, c.YLabel = append(s.Points, [2]float64{f.At, f.Value.Value}), f.Unit
					least, most = min(least, f.At), max(most, f.At)
				}
			}
			if len(s.Points) > 0 {
				slices.SortStableFunc(s.Points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
				c.Series = append(c.Series, s)
			}
		}
		if c.LogX = least > 0 && most > 100*least; len(c.Series) > 0 {
			p.draw(&c)
		}
	}
	return len(names) > 0
}

// values draws the figures of a group across its places: those of one unit in a plot, several as lines.
func (r *Report) values(p *Page, group string, places []string, note string) {
	if len(places) < 2 {
		return
	}
	charts, units := map[string]*Chart{}, []string{}
	for _, name := range r.namesOf(group) {
		s, unit := Series{Name: name}, ""
		for i, place := range places {
			if f := r.Find(group, name, place); f != nil && f.Value != nil {
				s.Points = append(s.Points, [2]float64{float64(i), f.Value.Value})
				s.Low, s.High = append(s.Low, f.Value.Low), append(s.High, f.Value.High)
				unit = f.Unit
			}
		}
		if len(s.Points) < 2 {
			continue
		}
		if charts[unit] == nil {
			charts[unit], units = &Chart{Title: group, Note: note, YLabel: unit, Ticks: places}, append(units, unit)
		}
		charts[unit].Series = append(charts[unit].Series, s)
	}
	for _, unit := range units {
		c := charts[unit]
		if len(c.Series) == 1 {
			c.Title, c.Series[0].Bars = group+": "+c.Series[0].Name, true
		}
		least, most := math.Inf(1), 0.0
		for _, s := range c.Series {
			for _, at := range s.Points {
				least, most = min(least, at[1]), max(most, at[1])
			}
		}
		c.LogY = !c.Series[0].Bars && least > 0 && most > 100*least
		p.draw(c)
	}
}
