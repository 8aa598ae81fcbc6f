//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test, benchmark and fuzz target that docs/SEEDS.md names as package.TestName must exist.
func TestSeedsNamesRealTests(t *testing.T) {
	doc, err := os.ReadFile("../docs/SEEDS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Benchmark|Fuzz)\\w+)`").FindAllStringSubmatch(string(doc), -1) {
		dir := filepath.Join("..", m[1])
		if m[1] == "skerry" {
			dir = ".."
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no tests in %s", m[0], dir)
			continue
		}
		have := false
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			have = have || strings.Contains(string(data), "func "+m[2]+"(")
		}
		if !have {
			t.Errorf("docs/SEEDS.md names %s, which does not exist", m[0])
		}
		found++
	}
	if found < 20 {
		t.Errorf("only %d tests are named; has the form of the document changed?", found)
	}
	// A row that names neither a place nor a reason tells nothing.
	for n, line := range strings.Split(string(doc), "\n") {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "|") && len(cells) > 3 && strings.TrimSpace(cells[2]) == "" {
			t.Errorf("docs/SEEDS.md:%d has no place: %s", n+1, line)
		}
	}
}
