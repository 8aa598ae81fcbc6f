package published

import (
	"fmt"
	"strconv"
	"strings"
)

// groups are the first tables of the seven configurations of the thesis. Each has four: answers, times in the application, latency beyond
// it, counters of the machine.
func groups() []int { return []int{1, 5, 9, 13, 17, 22, 26} }

func numbered(d *Document, n int) *Table { return d.Table(fmt.Sprintf("5.%d", n)) }

// thesis checks what the tables of 004 have in common.
func (k *checker) thesis(d *Document) {
	for _, g := range groups() {
		for _, r := range numbered(d, g).Rows {
			answers, times, beyond, counters := r, numbered(d, g+1).Row(r.Name), numbered(d, g+2).Row(r.Name), numbered(d, g+3).Row(r.Name)
			rate, _ := strconv.ParseFloat(strings.Fields(r.Name)[0], 64)
			k.want(answers.Cell("throughput"), interval{rate, rate}, "the rate, all of which succeeded")
			load, processing, total := times.Cell("load").bounds(), times.Cell("processing").bounds(), times.Cell("total")
			if sum := load.plus(processing); total.bounds().high < sum.low {
				k.want(total, sum, "loading and processing, at least")
			}
			k.want(beyond.Cell("latency"), answers.Cell("latency").bounds(), fmt.Sprintf("table 5.%d", g))
			k.want(beyond.Cell("total processing"), total.bounds().times(1000), fmt.Sprintf("table 5.%d", g+1))
			k.want(beyond.Cell("overhead"), beyond.Cell("latency").bounds().minus(beyond.Cell("total processing").bounds()),
				"latency and processing")
			k.want(counters.Cell("IPC"), counters.Cell("instructions").bounds().over(counters.Cell("cycles").bounds()), "instructions and cycles")
		}
	}
	k.summary(d, "5.21", map[string]int{"Regular 1 CPU": 13, "Kata 1 CPU": 13, "Regular 1.5 CPU": 17, "Kata 1.5 CPU": 17})
	k.summary(d, "5.30", map[string]int{"Regular, both": 13, "Kata, both": 13, "Regular, Kata alone": 22, "Kata, Kata alone": 22})
}

// summary checks a table that repeats cells of others: of which group of four tables each column is.
func (k *checker) summary(d *Document, id string, from map[string]int) {
	source := map[string]struct {
		table  int // of the four
		column string
		times  float64
	}{
		"latency": {0, "latency", 1}, "overhead": {2, "overhead", 1}, "processing": {1, "processing", 1000},
		"IPC": {3, "IPC", 1}, "cache misses": {3, "cache misses", 1}, "migrations": {3, "migrations", 1},
	}
	for _, r := range d.Table(id).Rows {
		what, rate, ok := strings.Cut(r.Name, " at ")
		if !ok {
			continue // of figures
		}
		for _, f := range r.Cells {
			if group, repeated := from[f.Column]; repeated {
				at := source[what]
				row := strings.Fields(rate)[0] + " " + strings.TrimSuffix(strings.Fields(f.Column)[0], ",")
				t := numbered(d, group+at.table)
				k.want(f, t.Row(row).Cell(at.column).bounds().times(at.times), "table "+t.ID)
			}
		}
	}
}
