package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const seedsPage = "docs/SEEDS.md"

var seedState = regexp.MustCompile(`^(built|part: \S.*|not built: \S.*)$`)

// seedFault gives what is wrong with a row of the page: | what | state | where | shown by |.
func seedFault(row string) string {
	cells := strings.Split(row, "|")
	if len(cells) != 6 {
		return "it has not four cells"
	}
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	state, where, shown := cells[2], cells[3], cells[4]
	switch {
	case cells[1] == "":
		return "it is about nothing"
	case !seedState.MatchString(state):
		return "its state is neither built, nor part or not built with a reason"
	case !strings.HasPrefix(state, "not built"):
		if where == "" {
			return "it names no place"
		}
		if !aTest.MatchString(shown) && !strings.Contains(shown, "`skerry bench ") {
			return "no test and no measurement shows it"
		}
		return ""
	case where != "" || shown != "" || aTest.MatchString(row):
		return "it is not built, and names where it is or what shows it"
	}
	for _, m := range codeSpan.FindAllStringSubmatch(row, -1) {
		if _, err := os.Stat(filepath.Join(top, filepath.FromSlash(m[1]))); err == nil {
			return "it is not built, and names " + m[1] + ", which exists"
		}
	}
	return ""
}

// Each row of the page says what has become of something. Whether what it names exists, TestDocumentsNameTests and its siblings look.
func TestSeeds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, seedsPage))
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(string(text), "\n## Published figures\n")
	found := 0
	for n, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || line == "| what | state | where | shown by |" {
			continue
		}
		found++
		if fault := seedFault(line); fault != "" {
			t.Errorf("%s:%d: %s: %s", seedsPage, n+1, fault, line)
		}
	}
	if found < 150 {
		t.Errorf("only %d rows were found", found)
	}
}

func TestSeedFaults(t *testing.T) {
	for row, want := range map[string]string{
		"| a | built | `lab` | `lab.TestRoaming` |":               "",
		"| a | part: b is missing | `lab` | `skerry bench lab` |": "",
		"| a | not built: why | | |":                              "",
		"| a | built | `lab` |":                                   "four cells",
		"| a | done | `lab` | `lab.TestRoaming` |":                "state",
		"| a | part | `lab` | `lab.TestRoaming` |":                "state",
		"| a | not built: | | |":                                  "state",
		"| a | built | | `lab.TestRoaming` |":                     "no place",
		"| a | built | `lab` | by hand |":                         "no test",
		"| a | not built: why | `lab` | |":                        "where it is",
		"| a | not built: `lab` does it | | |":                    "names lab, which exists",
		"| a | not built: see lab.TestRoaming | | |":              "what shows it",
	} {
		if got := seedFault(row); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
}
