package sim

import (
	"os"
	"path/filepath"
	"testing"
)

// TestScenarios runs every scenario that ever showed a mistake; the first line of each says which.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			s := load(t, file)
			if len(s.Notes) == 0 {
				t.Error("it does not say what it shows")
			}
			r := Run(s, RunOptions{})
			if r.Broken != nil {
				t.Error(r.Broken)
			}
			compareDigest(t, "scenario/"+filepath.Base(file), r.Steps, r.Trail)
		})
	}
}

func load(t *testing.T, file string) *Scenario {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := ParseScenario(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
