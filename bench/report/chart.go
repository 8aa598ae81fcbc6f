package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Chart is a drawing that needs nothing but itself: SVG with text, on white.
type Chart struct {
	Title, Note    string
	XLabel, YLabel string
	LogX, LogY     bool
	Ticks          []string // names of x = 0, 1, ...; nil: numbers
	Series         []Series
	Goal           float64 // a dashed line at this y; 0: none
	GoalText       string
}

// Series is one line, or with Bars one colour of bars.
type Series struct {
	Name   string
	Points [][2]float64
	Bars   bool
	Dots   bool // points alone
	// Low and High, of bars, are the ends of the interval of each; nil: none.
	Low, High []float64
}

// bounded has no value that is beyond all scales: a file may have any.
func (s Series) bounded() Series {
	bound := func(v float64) float64 { return max(-1e100, min(1e100, v)) }
	s.Points, s.Low, s.High = slices.Clone(s.Points), slices.Clone(s.Low), slices.Clone(s.High)
	for i, p := range s.Points {
		s.Points[i] = [2]float64{bound(p[0]), bound(p[1])}
	}
	for _, list := range [][]float64{s.Low, s.High} {
		for i, v := range list {
			list[i] = bound(v)
		}
	}
	return s
}

const (
	chartWidth, chartHeight          = 820.0, 400.0
	leftMargin, rightMargin          = 78.0, 172.0
	topMargin, bottomMargin          = 46.0, 74.0
	plotWidth                        = chartWidth - leftMargin - rightMargin
	plotHeight                       = chartHeight - topMargin - bottomMargin
	colourAxis, colourGrid, colourOf = "#333", "#ddd", "#1f6f8b #d1495b #edae49 #66a182 #6a4c93 #2e4057 #8d96a3 #b5651d #00798c"
)

// axis maps values to positions.
type axis struct {
	low, high float64
	log       bool
	from, to  float64
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log10(math.Max(v, 1e-12)), math.Log10(low), math.Log10(high)
	}
	if high == low {
		return a.from
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// maxMarks bounds the labels of an axis: a file's figures may be such that a step changes nothing.
const maxMarks = 700

// marks gives where an axis is labelled: at powers of ten, or at about five round numbers.
func (a axis) marks() (out []float64) {
	if a.log {
		for e := math.Round(math.Log10(a.low)); e <= math.Round(math.Log10(a.high)) && len(out) < maxMarks; e++ {
			out = append(out, math.Pow(10, e))
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((a.high-a.low)/5)))
	for _, m := range []float64{5, 2} {
		if (a.high-a.low)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a.low/step) * step; v <= a.high+step/1e6 && len(out) < maxMarks; v += step {
		out = append(out, v)
	}
	return out
}

// axisOf covers values, and whole powers of ten when it is logarithmic.
func axisOf(values []float64, log bool, from, to float64) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1), log: log, from: from, to: to}
	for _, v := range values {
		if v > 0 || !log {
			a.low, a.high = math.Min(a.low, v), math.Max(a.high, v)
		}
	}
	switch {
	case math.IsInf(a.low, 0):
		a.low, a.high = 1, 10
	case log:
		a.low, a.high = math.Pow(10, math.Floor(math.Log10(a.low))), math.Pow(10, math.Ceil(math.Log10(a.high)-1e-9))
		if a.low == a.high {
			a.high *= 10
		}
	default:
		a.low = math.Min(a.low, 0)
		if a.high = a.high * 1.08; a.high <= a.low {
			a.high = a.low + 1
		}
	}
	return a
}

func number(v float64) string {
	switch {
	case v >= 1e6 && math.Mod(v, 1e5) == 0:
		return fmt.Sprintf("%g M", v/1e6)
	case v >= 1e4 && math.Mod(v, 1e2) == 0:
		return fmt.Sprintf("%g k", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// SVG draws the chart.
func (c *Chart) SVG() string {
	var xs, ys []float64
	bars := 0
	for i := range c.Series {
		s := c.Series[i].bounded()
		c.Series[i] = s
		for _, p := range s.Points {
			xs, ys = append(xs, p[0]), append(ys, p[1])
		}
		ys = append(ys, s.High...)
		if s.Bars {
			bars++
		}
	}
	if c.Goal > 0 {
		ys = append(ys, c.Goal)
	}
	x, y := axisOf(xs, c.LogX, leftMargin, leftMargin+plotWidth), axisOf(ys, c.LogY, topMargin+plotHeight, topMargin)
	if c.Ticks != nil {
		x.low, x.high = -0.5, float64(len(c.Ticks))-0.5
	}
	colours := strings.Fields(colourOf)
	var b strings.Builder
	text := func(x, y float64, anchor, extra, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, extra, html.EscapeString(s))
	}
	line := func(x1, y1, x2, y2 float64, colour, extra string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>`+"\n", x1, y1, x2, y2, colour, extra)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" `+
		`font-family="sans-serif" font-size="12" fill="#222">`+"\n<title>%s</title>\n", chartWidth, chartHeight, chartWidth, chartHeight, html.EscapeString(c.Title))
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	text(leftMargin, 24, "start", ` font-size="15" font-weight="bold"`, c.Title)
	for _, v := range y.marks() {
		line(leftMargin, y.at(v), leftMargin+plotWidth, y.at(v), colourGrid, "")
		text(leftMargin-8, y.at(v)+4, "end", "", number(v))
	}
	if c.Ticks != nil {
		for i, name := range c.Ticks {
			text(x.at(float64(i)), topMargin+plotHeight+18, "middle", "", name)
		}
	} else {
		for _, v := range x.marks() {
			line(x.at(v), topMargin+plotHeight, x.at(v), topMargin+plotHeight+5, colourAxis, "")
			text(x.at(v), topMargin+plotHeight+18, "middle", "", number(v))
		}
	}
	n := 0
	for i, s := range c.Series {
		colour := colours[i%len(colours)]
		if s.Bars {
			width := 0.8 * (x.at(1) - x.at(0)) / float64(bars)
			for k, p := range s.Points {
				left := x.at(p[0]) + (float64(n)-float64(bars)/2)*width
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s: %s</title></rect>`+"\n", left, y.at(p[1]), width*0.94, topMargin+plotHeight-y.at(p[1]), colour, html.EscapeString(s.Name), number(p[1]))
				if k < len(s.Low) && k < len(s.High) {
					line(left+width*0.47, y.at(s.Low[k]), left+width*0.47, y.at(s.High[k]), colourAxis, ` stroke-width="2"`)
				}
			}
			n++
		} else {
			var path strings.Builder
			for j, p := range s.Points {
				fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x.at(p[0]), y.at(p[1]))
			}
			if !s.Dots {
				fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
			}
			for _, p := range s.Points {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"><title>%s: %s</title></circle>`+"\n", x.at(p[0]), y.at(p[1]), map[bool]float64{true: 5, false: 3}[s.Dots], colour, html.EscapeString(s.Name), number(p[1]))
			}
		}
		if len(c.Series) == 1 {
			break // the axis says what it is
		}
		at := topMargin + 10 + 20*float64(i)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="12" height="12" fill="%s"/>`+"\n", leftMargin+plotWidth+14, at-10, colour)
		text(leftMargin+plotWidth+32, at, "start", "", s.Name)
	}
	if c.Goal > 0 {
		line(leftMargin, y.at(c.Goal), leftMargin+plotWidth, y.at(c.Goal), colourAxis, ` stroke-dasharray="6 4"`)
		text(leftMargin+plotWidth+6, y.at(c.Goal)+4, "start", ` font-style="italic"`, c.GoalText)
	}
	line(leftMargin, topMargin+plotHeight, leftMargin+plotWidth, topMargin+plotHeight, colourAxis, "")
	line(leftMargin, topMargin, leftMargin, topMargin+plotHeight, colourAxis, "")
	text(leftMargin+plotWidth/2, topMargin+plotHeight+40, "middle", "", c.XLabel)
	text(0, 0, "middle", fmt.Sprintf(` transform="translate(18 %.1f) rotate(-90)"`, topMargin+plotHeight/2), c.YLabel)
	text(leftMargin, chartHeight-10, "start", ` font-size="11" fill="#666"`, c.Note)
	b.WriteString("</svg>\n")
	return b.String()
}
