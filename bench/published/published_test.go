package published

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func load(t *testing.T) *Set {
	t.Helper()
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTables: all of the documents are there, no name is given twice, and whatever has a direction has one that is known.
func TestTables(t *testing.T) {
	s := load(t)
	counts := map[string]int{}
	for _, d := range s.Documents {
		tables := map[string]bool{}
		for _, table := range d.Tables {
			if tables[table.ID] {
				t.Errorf("%s table %s is there twice", d.ID, table.ID)
			}
			tables[table.ID] = true
			rows, columns := map[string]bool{}, map[string]bool{}
			for _, c := range table.Columns {
				if columns[c.Name] || c.Name == "" {
					t.Errorf("%s table %s: column %q", d.ID, table.ID, c.Name)
				}
				columns[c.Name] = true
				if c.Of != nil && (c.Unit != "%" || c.Of.Sign != "" && c.Of.Sign != "change" || (c.Of.Native == "") == (c.Of.Row == "")) {
					t.Errorf("%s table %s, %s is of %+v", d.ID, table.ID, c.Name, c.Of)
				}
				if (c.Raw == "") != (c.Because == "") {
					t.Errorf("%s table %s, %s reads %q because %q", d.ID, table.ID, c.Name, c.Raw, c.Because)
				}
			}
			for _, r := range table.Rows {
				if rows[r.Name] || r.Name == "" {
					t.Errorf("%s table %s: row %q", d.ID, table.ID, r.Name)
				}
				rows[r.Name] = true
				for _, f := range r.Cells {
					if f.Better != Higher && f.Better != Lower && f.Better != "" {
						t.Errorf("%s table %s, %s: %q is better", d.ID, table.ID, r.Name, f.Better)
					}
					if f.Place == "" && !r.mean {
						t.Errorf("%s table %s, %s: where is it?", d.ID, table.ID, r.Name)
					}
					if f.Low != nil && *f.Low >= *f.High {
						t.Errorf("%s table %s, %s: %s", d.ID, table.ID, r.Name, f.Words())
					}
				}
			}
			counts[d.ID]++
		}
	}
	for n := 1; n <= 7; n++ {
		if s.Document("000").Table(strconv.Itoa(n)) == nil {
			t.Errorf("000 has no table %d", n)
		}
	}
	for n := 1; n <= 30; n++ {
		if numbered(s.Document("004"), n) == nil {
			t.Errorf("004 has no table 5.%d", n)
		}
	}
	if want := map[string]int{"000": 8, "001": 4, "002": 12, "003": 6, "004": 33}; fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("%v tables, want %v", counts, want)
	}
}

// TestFind: figures as they stand in the documents.
func TestFind(t *testing.T) {
	s := load(t)
	for _, c := range []struct {
		q      Query
		value  float64
		unit   string
		better Direction
	}{
		{Query{"000", "3", "Stress-ng Cntx switch", "RISC-V KubeEdge"}, 66082, "ops/s", Higher},
		{Query{"000", "1", "Stream Copy", "ARM64 overhead"}, -10, "%", Higher},
		{Query{"000", "4", "system call time", "KubeEdge"}, 206.48, "ns", Lower},
		{Query{"001", "III", "KVM", "triad"}, 523.7, "MB/s", Higher},
		{Query{"002", "figure 7", "less at 50 % loss", ""}, 60, "%", Higher},
		{Query{"003", "random", "FC, of RC, write of 2 KB", ""}, 3.3, "times", Higher},
		{Query{"002", "figure 2", "clusters where it is shortest", ""}, 9, "clusters", ""},
		{Query{"004", "section 2.3", "start of Kata", ""}, 600, "ms", Lower},
		{Query{"004", "5.17", "30 Kata", "latency"}, 1510, "ms", Lower},
		{Query{"004", "5.3", "2 Kata", "total processing"}, 44.4, "ms", Lower},
	} {
		list := s.Find(c.q)
		if len(list) != 1 || *list[0].Value != c.value || list[0].Unit != c.unit || list[0].Better != c.better {
			t.Errorf("%+v: %d, %+v", c.q, len(list), list)
		}
	}
	if list := s.Find(Query{Document: "004", Table: "5.1"}); len(list) != 24 {
		t.Errorf("table 5.1 has %d figures", len(list))
	}
	if list := s.Find(Query{Table: "no such"}); list != nil {
		t.Error(list)
	}
}

func TestWords(t *testing.T) {
	s := load(t)
	var words []string
	for _, q := range []Query{{"000", "2", "POV-Ray Trace", "RISC-V overhead"}, {"000", "4", "OOM kill", "native"}, {"002", "figure 9", "", ""}, {"002", "figure 7", "less at high delay", ""}, {"001", "footprint", "deployed on a server", ""}} {
		for _, f := range s.Find(q) {
			low, high := f.Bounds()
			words = append(words, fmt.Sprintf("%s [%g %g]", f.Words(), low, high))
		}
	}
	if got, want := strings.Join(words, ", "), "-0.0 [-0.05 0.05], No [-Inf +Inf], about 300-400 [299.5 400.5], up to about 10 [-Inf 10], about 20 [19.5 20.5], 10-100 [9.5 100.5], 100-1000 [99.5 1000.5]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil || !bytes.Equal(want, []byte(got)) {
		t.Errorf("testdata/%s (-update rewrites it) differs: %v\n%s", name, err, got)
	}
}

// TestProblems: what does not follow in the documents themselves is known, figure by figure.
func TestProblems(t *testing.T) {
	var b strings.Builder
	for _, p := range load(t).Check() {
		fmt.Fprintln(&b, p)
	}
	golden(t, "problems.txt", b.String())
}

// TestDamaged: what the text at hand has damaged is known, cell by cell, and what it reads is impossible: a rule that holds for the
// corrected value does not hold for it.
func TestDamaged(t *testing.T) {
	s := load(t)
	before := len(s.Check())
	var b strings.Builder
	for _, d := range s.Documents {
		for _, table := range d.Tables {
			for _, c := range table.Columns {
				if c.Raw != "" {
					fmt.Fprintf(&b, "%s table %s, %s: the head reads %s and is %s, as %s\n", d.ID, table.ID, c.Name, c.Raw, c.Unit, c.Because)
				}
			}
		}
	}
	for _, f := range s.Find(Query{}) {
		if !f.Damaged {
			continue
		}
		fmt.Fprintf(&b, "%s table %s, %s, %s: %s reads %s, as %s\n", f.Document, f.Table, f.Row, f.Column, f.Words(), f.Raw, f.Because)
		was := *f
		if low, high, ok := strings.Cut(f.Raw, "-"); ok && low != "" {
			f.Low, f.High = number(json.Number(low)), number(json.Number(high))
		} else if v, err := strconv.ParseFloat(strings.TrimSuffix(f.Raw, "%"), 64); err == nil {
			f.Value = &v
		} else if !slices.Contains([]string{Missing, "D7.233", "11 011 ± 0.01%7"}, f.Raw) {
			t.Errorf("%s is no number", f.Raw)
			continue
		} else {
			continue // nothing to calculate with
		}
		if after := len(s.Check()); after <= before {
			t.Errorf("%s table %s, %s, %s: nothing is wrong with %s", f.Document, f.Table, f.Row, f.Column, f.Raw)
		}
		*f = was
	}
	golden(t, "damaged.txt", b.String())
}

// TestEachFigureIsChecked: no overhead, average or repeated figure escapes the rules.
func TestEachFigureIsChecked(t *testing.T) {
	s := load(t)
	before, n := len(s.Check()), 0
	wrong := func(f *Figure) {
		known := slices.ContainsFunc(s.Check(), func(p Problem) bool { return p.Figure == f })
		was := *f
		if f.Value != nil {
			v := *f.Value + 1000
			f.Value = &v
		} else if f.Low != nil {
			v := *f.High + 1000
			f.High = &v
		} else { // a limit
			v := *f.High - 1000
			f.High = &v
		}
		if after := len(s.Check()); after <= before && !known {
			t.Errorf("%s table %s, %s, %s: a difference of 1000 goes unnoticed", f.Document, f.Table, f.Row, f.Column)
		}
		*f = was
		n++
	}
	for _, d := range s.Documents {
		for _, table := range d.Tables {
			for _, r := range table.Rows {
				for i, c := range table.Columns {
					if f := r.Cells[i]; !f.Empty() && (c.Of != nil || r.mean || r.same != "" || r.spans != nil) {
						wrong(f)
					}
				}
			}
		}
	}
	for _, g := range groups() {
		for i, columns := range []string{"latency throughput", "", "latency,total processing,overhead", "IPC"} {
			for _, r := range numbered(s.Document("004"), g+i).Rows {
				for _, f := range r.Cells {
					if strings.Contains(columns, f.Column) && f.Column != "processing" {
						wrong(f)
					}
				}
			}
		}
	}
	if n < 490 {
		t.Errorf("%d figures were looked at", n)
	}
}

func TestParse(t *testing.T) {
	const head = `{"document": "x", "title": "t", "tables": [{"table": "1", "columns": [{"column": "a"}], "rows": [`
	for text, want := range map[string]string{
		`{"row": "r", "cells": [1, 2]}`:                              "2 cells for 1 columns",
		`{"row": "r", "cells": [[1]]}`:                               "a pair",
		`{"row": "r", "cells": [true]}`:                              "cannot unmarshal",
		`{"row": "r", "cells": [{"low": 1}]}`:                        "no upper end",
		`{"row": "r", "cells": [{"value": 1, "raw": "7"}]}`:          "no reason",
		`{"row": "r", "cells": [{"value": 1, "colour": "red"}]}`:     "unknown field",
		`{"row": "r", "cells": [1], "colour": "red"}`:                "unknown field",
		`{"row": "r", "cells": [{"approx": true, "because": "no"}]}`: "no value",
	} {
		if _, err := parse([]byte(head + text + `]}]}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	d, err := parse([]byte(head + `{"row": "r", "unit": "ms", "better": "lower", "cells": [[2.50, 3]]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	f := d.Tables[0].Rows[0].Cells[0]
	if low, high := f.Bounds(); f.Words() != "2.50" || math.Abs(low-2.495) > 1e-9 || math.Abs(high-2.505) > 1e-9 || *f.Deviation != 3 || f.Unit != "ms" || f.Better != Lower {
		t.Errorf("%+v", f)
	}
}
