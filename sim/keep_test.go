package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestFailuresAreKept: what fails among many seeds is in a file before it is made small, and named again in the last lines, so that
// neither a kill nor a terminal that forgets loses a number.
func TestFailuresAreKept(t *testing.T) {
	dir := t.TempDir()
	plant := plants()[BrokenAddress]
	for _, at := range []string{dir, filepath.Join(dir, "no", "such")} {
		var out, diag bytes.Buffer
		var mu sync.Mutex
		p := &printer{out: &out, err: &diag}
		first := map[uint64]string{} // of each seed, what was kept before it was made small
		opt := SweepOptions{First: 1, Seeds: 2, Parallel: 2, Minimise: 6, run: RunOptions{plant: plant}}
		opt.Found = func(f Failure) string {
			mu.Lock() // the buffer is no file
			defer mu.Unlock()
			file := p.keep(at, f)
			if kept, err := os.ReadFile(file); first[f.Seed] == "" && file != "" {
				if err != nil {
					t.Error(err)
				}
				first[f.Seed] = string(kept)
			}
			return file
		}
		r := Sweep(t.Context(), opt)
		if err := p.sweep(r); err == nil || len(r.Failures) == 0 {
			t.Fatalf("%d failures, %v", len(r.Failures), err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, f := range r.Failures {
			last := lines[len(lines)-len(r.Failures)+i]
			if at != dir {
				if f.File != "" || last != fmt.Sprintf("failed: seed %d, %s, which is kept nowhere", f.Seed, f.Broken.Invariant) || !strings.Contains(diag.String(), fmt.Sprintf("seed %d breaks %s, and is not kept", f.Seed, f.Broken.Invariant)) {
					t.Errorf("%+v, last %q, told:\n%s", f, last, &diag)
				}
				continue
			}
			if want := fmt.Sprintf("failed: seed %d, %s, kept in %s", f.Seed, f.Broken.Invariant, f.File); last != want {
				t.Errorf("%q, want %q", last, want)
			}
			whole, err := ParseScenario(strings.NewReader(first[f.Seed]))
			if err != nil {
				t.Fatal(err)
			}
			if generated := Generate(f.Seed); len(whole.Actions) != len(generated.Actions) {
				t.Errorf("seed %d: %d of %d actions were kept at once", f.Seed, len(whole.Actions), len(generated.Actions))
			}
			small, err := readScenario(f.File)
			if err != nil {
				t.Fatal(err)
			}
			if len(small.Notes) != 1 || !strings.HasPrefix(small.Notes[0], fmt.Sprintf("seed %d: %s does not hold", f.Seed, f.Broken.Invariant)) {
				t.Errorf("its notes are %q", small.Notes)
			}
			if b := Run(small, opt.run).Broken; b == nil || b.Invariant != f.Broken.Invariant || len(small.Actions) >= len(whole.Actions) {
				t.Errorf("what is kept of seed %d at last does not break it: %v, %d actions of %d", f.Seed, b, len(small.Actions), len(whole.Actions))
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
		t.Errorf("%v were left", left)
	}
}
