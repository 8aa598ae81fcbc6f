package device

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// Each case has a name, a direction and a place in the report of its own.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	s := size{seconds: 1, scale: 10, cores: 2, dir: "/data"}
	for _, c := range Catalogue() {
		if seen[c.ID] || c.Title == "" || c.Unit == "" || c.Better != report.Lower && c.Better != report.Higher ||
			c.Class != Application && c.Class != System || c.parse == nil || len(c.args(s)) == 0 {
			t.Errorf("%+v", c)
		}
		if _, ok := known[c.Tool]; !ok && c.Tool != toolKernels {
			t.Errorf("%s: nobody knows where %s is", c.ID, c.Tool)
		}
		seen[c.ID] = true
	}
	if _, err := choose(Catalogue(), []string{"disc"}); err == nil || !strings.Contains(err.Error(), "disc") {
		t.Error(err)
	}
	if list, err := choose(Catalogue(), []string{"os.fork", "os", "start"}); err != nil || len(list) < 10 {
		t.Error(len(list), err)
	}
	// A sweep is run only if it is named.
	if list, err := choose(Catalogue(), nil); err != nil || slices.ContainsFunc(list, func(c Case) bool { return c.Group == sweepGroup }) {
		t.Errorf("all are %d cases, %v", len(list), err)
	}
	if list, err := choose(Catalogue(), []string{"sweep.read"}); err != nil || len(list) != 13 || list[0].at != 256 || list[12].at != 1<<20 {
		t.Errorf("a sweep of reads has %d cases, %v", len(list), err)
	}
}

// What is said to have been published is in the documents, for both of their machines.
func TestBeside(t *testing.T) {
	set, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range Catalogue() {
		text := beside(set, &c)
		if table, row := published000(c.ID); table == "" {
			if table, _ := published001(c.ID); (table == "") != (text == "") {
				t.Errorf("%s: %s", c.ID, text)
			}
			continue
		} else if !strings.HasPrefix(text, "RISC-V ") || !strings.Contains(text, "x, ARM64 ") {
			t.Errorf("%s: table %s, row %s: %q", c.ID, table, row, text)
		}
		n++
	}
	if n < 25 {
		t.Errorf("%d cases have something beside them", n)
	}
	// Losses of 21.4 % and 0.3 % where higher is better, and of 50.2 % where lower is.
	if text := beside(set, &Case{ID: "os.stress-ng.context", Better: report.Higher}); text != "RISC-V 0.79x, ARM64 1.00x (000 table 3)" {
		t.Error(text)
	}
	if text := beside(set, &Case{ID: "cpu.sysbench.large.latency", Better: report.Lower}); text != "Docker 1.35x, KVM 10.92x (001 table II)" {
		t.Errorf("001 is told as %q", text)
	}
}
