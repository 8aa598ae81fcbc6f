package published

import (
	"slices"
	"strings"
	"testing"
)

// Rows that nothing names, that are named twice, that are not there, and cases that nobody measures are told.
func TestUncovered(t *testing.T) {
	d := &Document{ID: "000", Tables: []*Table{{ID: "1", Rows: []*Row{{Name: "a"}, {Name: "b"}}}, {ID: "2", Rows: []*Row{{Name: "c"}}}}}
	measured := func(by string) bool { return by == "case" }
	whole := []Cover{{Table: "1", Rows: []string{"a"}, By: []string{"case"}}, {Table: "1", Rows: []string{"b"}, Why: "no meter"},
		{Table: "2", By: []string{"case"}}}
	if problems := d.Uncovered(whole, measured); len(problems) > 0 {
		t.Errorf("of what is covered it tells %q", problems)
	}
	for want, list := range map[string][]Cover{
		"table 2 of 000, c: named 0 times": whole[:2],
		"table 2 of 000, c: named 2 times": append(slices.Clone(whole), Cover{Table: "2", Rows: []string{"c"}, Why: "so"}),
		"table 2 of 000 has no row d":      append(slices.Clone(whole), Cover{Table: "2", Rows: []string{"d"}, Why: "so"}),
		"000 has no table 3":               append(slices.Clone(whole), Cover{Table: "3", Why: "so"}),
		"nothing measures tea":             append(slices.Clone(whole[:2]), Cover{Table: "2", By: []string{"tea"}}),
		"a case or a reason, and not both": append(slices.Clone(whole[:2]), Cover{Table: "2"}),
	} {
		if text := strings.Join(d.Uncovered(list, measured), "\n"); !strings.Contains(text, want) {
			t.Errorf("%q is not told: %q", want, text)
		}
	}
}
