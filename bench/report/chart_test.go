package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
)

// wellFormed checks a drawing, or a page.
func wellFormed(t *testing.T, name string, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "href", "<script"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("%s holds %s", name, bad)
		}
	}
}

func TestChartsPutUpWithAnything(t *testing.T) {
	for name, c := range map[string]Chart{
		"extremes":  {Series: []Series{{Points: [][2]float64{{0, 1e308}, {1, -1e308}}}}},
		"infinite":  {LogY: true, Series: []Series{{Points: [][2]float64{{0, 1}, {1, 1.7e308}}}}},
		"nothing":   {Title: "a < b & c"},
		"zero":      {LogY: true, LogX: true, Series: []Series{{Name: "<x>", Points: [][2]float64{{0, 0}, {1, 0}}}}},
		"one point": {Series: []Series{{Points: [][2]float64{{5, 5}}}}},
		"powers":    {LogY: true, Series: []Series{{Points: [][2]float64{{1, 10}, {2, 10}}}}},
		"bars":      {Ticks: []string{"a", "b"}, Series: []Series{{Bars: true, Points: [][2]float64{{0, 0}, {1, 0}}}}},
		"negative":  {Series: []Series{{Points: [][2]float64{{-1, -5}, {1, 5}}}}, Goal: 3, GoalText: "goal"},
	} {
		wellFormed(t, name, []byte(c.SVG()))
	}
}
