package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// totals are the results of all processes.
type totals struct {
	mu                      sync.Mutex // fail is called beside the loop
	passed, failed, skipped int
	reasons                 []string
	failures                []failure
	jobs                    map[testID]float64 // seconds of processes
	tests                   map[testID]float64 // seconds of top-level tests
	packages                map[string]timing  // seconds of all processes added up, and of processors
	repeats                 map[testID]*repeats
}

// repeats is how often a test was repeated.
type repeats struct {
	runs, failed int
	seconds      []float64
}

func newTotals() *totals {
	return &totals{jobs: map[testID]float64{}, tests: map[testID]float64{}, packages: map[string]timing{}, repeats: map[testID]*repeats{}}
}

func (t *totals) fail(id testID, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	t.failures = append(t.failures, failure{id, []string{"  " + why}})
}

func (t *totals) add(e *end, w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := e.sum
	t.passed, t.failed, t.skipped = t.passed+s.passed, t.failed+s.failed, t.skipped+s.skipped
	t.reasons, t.failures = append(t.reasons, s.reasons...), append(t.failures, s.failures...)
	id := testID{e.pkg, e.test}
	t.jobs[id] = e.timing.seconds
	p := t.packages[e.pkg]
	t.packages[e.pkg] = timing{p.seconds + e.timing.seconds, p.cores + e.timing.seconds*e.timing.cores}
	maps.Copy(t.tests, s.seconds)
	r := t.repeats[id]
	if r == nil {
		r = &repeats{}
		t.repeats[id] = r
	}
	r.runs++
	if s.failed > 0 {
		r.failed++
	}
	r.seconds = append(r.seconds, e.timing.seconds)
	fmt.Fprint(w, e.out.String())
	word := "ok  "
	if s.failed > 0 {
		word = "FAIL"
	}
	name := e.pkg
	if e.test != "-" {
		name += " " + e.test
	}
	if !e.checks {
		fmt.Fprintf(w, "%s  %-60s %4d passed %3d failed %3d skipped %6.1fs %5.2f cores\n", word, name, s.passed, s.failed, s.skipped, e.timing.seconds, e.timing.cores)
	}
}

func (t *totals) write(file string, known map[testID]float64) error {
	// Top-level tests that share a process are told apart by what the test runner says of them.
	measured := maps.Clone(t.jobs)
	for id, s := range t.tests {
		if _, ok := measured[id]; !ok && apart.MatchString(id.pkg) && s >= leastSeconds {
			measured[id] = s
		}
	}
	return writeTimings(file, known, measured)
}

// slowest is how many tests and packages are listed.
const slowest = 10

// report prints the results, and returns whether something failed.
func (t *totals) report(w io.Writer, o options, wall time.Duration) (failed bool) {
	if o.repeat > 0 {
		return t.reportRepeats(w, o.record)
	}
	if len(t.reasons) > 0 {
		fmt.Fprintln(w, "== skipped")
		slices.Sort(t.reasons)
		for _, l := range t.reasons {
			fmt.Fprintln(w, l)
		}
	}
	fmt.Fprintln(w, "== slowest tests")
	for _, id := range top(t.tests) {
		fmt.Fprintf(w, "%7.1fs  %s %s\n", t.tests[id], id.pkg, id.test)
	}
	fmt.Fprintln(w, "== packages that took most, all their processes together")
	seconds := map[string]float64{}
	burnt := 0.0
	for pkg, p := range t.packages {
		seconds[pkg] = p.seconds
		burnt += p.cores
	}
	for _, pkg := range top(seconds) {
		fmt.Fprintf(w, "%7.1fs  %-30s %7.1fs of processors\n", seconds[pkg], pkg, t.packages[pkg].cores)
	}
	fmt.Fprintf(w, "in all %s; tests and checks took %.0fs of processors\n", wall.Round(time.Second), burnt)
	if len(t.failures) > 0 {
		fmt.Fprintln(w, "== failed")
	}
	for _, f := range t.failures {
		fmt.Fprintln(w, f.pkg, f.test)
		for _, l := range f.told {
			fmt.Fprintln(w, l)
		}
	}
	if t.passed == 0 && t.failed == 0 {
		t.failed++ // no tests at all is no success
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed > 0
}

// top gives the keys of the largest values.
func top[K comparable](m map[K]float64) []K {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return keys[:min(slowest, len(keys))]
}

// reportRepeats prints how often each test passed, and adds that to a document if one is named.
func (t *totals) reportRepeats(w io.Writer, record string) (failed bool) {
	ids := slices.SortedFunc(maps.Keys(t.repeats), func(a, b testID) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	for _, f := range t.failures {
		fmt.Fprintln(w, "FAIL", f.pkg, f.test)
		for _, l := range f.told {
			fmt.Fprintln(w, l)
		}
	}
	fmt.Fprintln(w, "| commit | test | passed | median s | longest s |\n|---|---|---|---|---|")
	rows := ""
	for _, id := range ids {
		r := t.repeats[id]
		slices.Sort(r.seconds)
		rows += fmt.Sprintf("| %s | %s %s | %d of %d | %.1f | %.1f |\n", commit(), id.pkg, id.test, r.runs-r.failed, r.runs, r.seconds[len(r.seconds)/2], r.seconds[len(r.seconds)-1])
		failed = failed || r.failed > 0
	}
	fmt.Fprint(w, rows)
	if record != "" {
		if err := insert(record, rows); err != nil {
			fmt.Fprintln(w, err)
			failed = true
		}
	}
	return failed || t.failed > 0 || len(ids) == 0
}

// rowsMark stands behind the rows of a document that repeated tests add to.
const rowsMark = "<!-- make flaky adds rows above -->"

// insert adds rows to a document.
func insert(file, rows string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(text), rowsMark)
	if !ok {
		return fmt.Errorf("%s has no line %s", file, rowsMark)
	}
	return os.WriteFile(file, []byte(before+rows+rowsMark+after), 0o644)
}

// commit names what is tested.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
