package published

import (
	"fmt"
	"slices"
)

// Cover says by what rows of a table are measured here, or why they are not.
type Cover struct {
	Table string
	Rows  []string // nil: all
	By    []string // cases of benchmarks
	Why   string   // where there is none
}

// Uncovered tells which rows of a document no cover names, or two do, and which covers name what it does not have, or no case
// that is measured.
func (d *Document) Uncovered(list []Cover, measured func(by string) bool) (problems []string) {
	seen := map[[2]string]int{}
	for _, c := range list {
		t := d.Table(c.Table)
		if t == nil {
			problems = append(problems, fmt.Sprintf("%s has no table %s", d.ID, c.Table))
			continue
		}
		rows := c.Rows
		if rows == nil {
			for _, r := range t.Rows {
				rows = append(rows, r.Name)
			}
		}
		for _, row := range rows {
			if t.Row(row) == nil {
				problems = append(problems, fmt.Sprintf("table %s of %s has no row %s", c.Table, d.ID, row))
			}
			seen[[2]string{c.Table, row}]++
		}
		if (len(c.By) == 0) == (c.Why == "") {
			problems = append(problems, fmt.Sprintf("table %s of %s, %v: a case or a reason, and not both", c.Table, d.ID, rows))
		}
		if n := slices.IndexFunc(c.By, func(by string) bool { return !measured(by) }); n >= 0 {
			problems = append(problems, fmt.Sprintf("table %s of %s, %v: nothing measures %s", c.Table, d.ID, rows, c.By[n]))
		}
	}
	for _, t := range d.Tables {
		for _, r := range t.Rows {
			if n := seen[[2]string{t.ID, r.Name}]; n != 1 {
				problems = append(problems, fmt.Sprintf("table %s of %s, %s: named %d times", t.ID, d.ID, r.Name, n))
			}
		}
	}
	return problems
}
