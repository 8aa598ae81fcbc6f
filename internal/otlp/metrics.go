package otlp

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metricBody makes a request of Prometheus text as our roles write it: counters and gauges.
func (e *Exporter) metricBody(text io.Reader, now time.Time) (any, error) {
	list, err := parse(text, e.began, now)
	if err != nil {
		return nil, err
	}
	return e.metricsOf(list), nil
}

func parse(text io.Reader, began, now time.Time) (list []*metric, err error) {
	byName, help, kind := map[string]*metric{}, map[string]string{}, map[string]string{}
	in := bufio.NewScanner(text)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, words, _ := strings.Cut(rest, " ")
			help[name] = words
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, word, _ := strings.Cut(rest, " ")
			kind[name] = word
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		name, labels, number, err := sampleOf(line)
		if err != nil {
			return nil, fmt.Errorf("the line %q is no metric: %w", line, err)
		}
		if math.IsNaN(number) || math.IsInf(number, 0) {
			continue // JSON has no such number
		}
		part, base := "", name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if whole, ok := strings.CutSuffix(name, suffix); ok && kind[whole] == "histogram" {
				part, base = suffix, whole
			}
		}
		family := byName[base]
		if family == nil {
			family = newMetric(base, help[base], kind[base])
			byName[base] = family
			list = append(list, family)
		}
		family.add(part, labels, number, began, now)
	}
	return list, in.Err()
}

func newMetric(name, help, kind string) *metric {
	m := &metric{Name: name, Description: help}
	switch kind {
	case "counter":
		m.Sum = &sum{Temporality: cumulative, Monotonic: true}
	case "histogram":
		m.Histogram = &histogram{Temporality: cumulative}
	default:
		m.Gauge = &gauge{}
	}
	return m
}

// add takes one line; part is which of a histogram's it is.
func (m *metric) add(part string, labels []attribute, number float64, began, now time.Time) {
	switch {
	case m.Gauge != nil:
		m.Gauge.Points = append(m.Gauge.Points, point{Time: at(now), Value: number, Attributes: labels})
	case m.Sum != nil:
		m.Sum.Points = append(m.Sum.Points, point{Start: at(began), Time: at(now), Value: number, Attributes: labels})
	default:
		hist := m.Histogram
		bound := slices.IndexFunc(labels, func(a attribute) bool { return a.Key == "le" })
		le := ""
		if bound >= 0 {
			le = labels[bound].Value.String
			labels = slices.Delete(slices.Clone(labels), bound, bound+1)
		}
		// The lines of one come one after the other.
		if n := len(hist.Points); n == 0 || !slices.Equal(hist.Points[n-1].Attributes, labels) {
			hist.Points = append(hist.Points, histogramPoint{Start: at(began), Time: at(now), Attributes: labels})
		}
		p := &hist.Points[len(hist.Points)-1]
		switch part {
		case "_sum":
			p.Sum = number
		case "_count":
			p.Count = wholeNumber(number)
		case "_bucket": // cumulative here, apart there
			if top, err := strconv.ParseFloat(le, 64); err == nil && !math.IsInf(top, 0) {
				p.Bounds = append(p.Bounds, top)
			}
			p.Counts = append(p.Counts, wholeNumber(number)-p.below)
			p.below = wholeNumber(number)
		}
	}
}

// sampleOf reads NAME{LABEL="VALUE",...} NUMBER.
func sampleOf(line string) (name string, labels []attribute, number float64, err error) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 {
		return "", nil, 0, fmt.Errorf("no name")
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		rest = rest[1:]
		for !strings.HasPrefix(rest, "}") {
			key, after, ok := strings.Cut(rest, "=")
			if !ok || key == "" {
				return "", nil, 0, fmt.Errorf("a label without a value")
			}
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil || quoted[0] != '"' {
				return "", nil, 0, fmt.Errorf("label %s: no text in quotes", key)
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return "", nil, 0, fmt.Errorf("label %s: %w", key, err)
			}
			labels = append(labels, attribute{key, value{text}})
			rest = strings.TrimPrefix(after[len(quoted):], ",")
		}
		rest = rest[1:]
	}
	number, err = strconv.ParseFloat(strings.TrimSpace(rest), 64)
	return name, labels, number, err
}
