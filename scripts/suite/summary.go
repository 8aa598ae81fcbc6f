// Testsum reads the output of `go test -json` and prints one line per package, the output of what failed or has something to report, and a summary
// as its last line: "N passed, N failed, N skipped". It exits with 1 when something failed.
//
// With -again, up to five failed tests of the packages that it matches are run once more, alone, by the command in the arguments. Those are tests of
// whole systems on real clocks, of which one in some thousands fails because others had the machine. A part of a test is run with the
// whole of it, because parts build on each other. What fails twice has failed;
// what passes is told at the end, with what it said the first time. A data race is never run again.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output, in place of Package
	Test       string
	Output     string
	Elapsed    float64
}

type testID struct{ pkg, test string }

// summary counts tests that have no subtests, and packages that fail without a failing test.
type summary struct {
	passed, failed, skipped int

	output   map[testID][]string
	parents  map[testID]bool
	results  map[testID]string
	reasons  []string
	failures []failure
}

// failure is a test without failed subtests that failed, with what it said, to be found at the end of a long output.
type failure struct {
	testID
	race bool // told by the race detector
	told []string
}

func newSummary() *summary {
	return &summary{output: map[testID][]string{}, parents: map[testID]bool{}, results: map[testID]string{}}
}

// reportMark is in the output of a test that passed and has something to say all the same.
const reportMark = "REPORT: "

// maxOutput is how many lines of one test are kept: the end tells most, but the race detector of a program that ran in a test may have spoken early.
const maxOutput = 2000

func (s *summary) add(e event, w io.Writer) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "output":
		lines := append(s.output[id], e.Output)
		if len(lines) > maxOutput {
			lines = lines[len(lines)-maxOutput:]
		}
		s.output[id] = lines
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			s.parents[testID{e.Package, e.Test[:i]}] = true
		}
	case "pass", "fail", "skip":
		if e.Test != "" {
			s.results[id] = e.Action
			if e.Action == "fail" {
				fmt.Fprintf(w, "--- FAIL %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(s.output[id], ""))
				s.tell(id)
			}
			if e.Action == "skip" {
				s.reasons = append(s.reasons, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(s.output[id])))
			}
			if e.Action == "pass" && slices.ContainsFunc(s.output[id], func(l string) bool { return strings.Contains(l, reportMark) }) {
				fmt.Fprintf(w, "--- REPORT %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(s.output[id], ""))
			}
			delete(s.output, id)
			return
		}
		s.endPackage(e, w)
	}
}

const (
	maxTold = 8   // messages of one test
	maxLine = 400 // bytes of each
)

// message matches the first line of what a test says by t.Error and the like, also that of a test that ran inside another's output.
var message = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// tell keeps the last messages of a failed test, each with the line after it.
func (s *summary) tell(id testID) {
	if s.parents[id] && s.childFailed(id) {
		return
	}
	var said []string
	lines := s.output[id]
	for i, l := range lines {
		if !message.MatchString(l) {
			continue
		}
		text := strings.TrimSpace(l)
		if i+1 < len(lines) && !message.MatchString(lines[i+1]) && !strings.HasPrefix(strings.TrimSpace(lines[i+1]), "---") {
			text += " | " + strings.TrimSpace(lines[i+1])
		}
		said = append(said, "  "+text[:min(len(text), maxLine)])
	}
	race := slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "DATA RACE") || strings.Contains(l, "race detected") })
	s.failures = append(s.failures, failure{id, race, said[max(0, len(said)-maxTold):]})
}

func (s *summary) endPackage(e event, w io.Writer) {
	passed, failed, skipped := 0, 0, 0
	for id, result := range s.results {
		if id.pkg != e.Package {
			continue
		}
		switch {
		case s.parents[id] && result != "fail":
		case result == "pass":
			passed++
		case result == "skip":
			skipped++
		case !s.parents[id] || !s.childFailed(id):
			failed++
		}
	}
	for id := range s.results {
		if id.pkg == e.Package {
			delete(s.results, id)
		}
	}
	id := testID{e.Package, ""}
	if e.Action == "fail" && failed == 0 {
		failed++ // it did not compile, TestMain failed, or it timed out
		fmt.Fprint(w, strings.Join(s.output[id], ""))
		for other, lines := range s.output { // tests that were cut off
			if other.pkg == e.Package && other.test != "" {
				fmt.Fprintf(w, "--- unfinished %s %s\n%s", other.pkg, other.test, strings.Join(lines, ""))
			}
		}
	}
	for other := range s.output {
		if other.pkg == e.Package {
			delete(s.output, other)
		}
	}
	s.passed, s.failed, s.skipped = s.passed+passed, s.failed+failed, s.skipped+skipped
	if passed+failed+skipped == 0 {
		return
	}
	word := "ok  "
	if failed > 0 {
		word = "FAIL"
	}
	fmt.Fprintf(w, "%s  %-50s %4d passed %3d failed %3d skipped %7.1fs\n", word, e.Package, passed, failed, skipped, e.Elapsed)
}

// childFailed reports whether a failed test failed through a subtest, which is counted in its place.
func (s *summary) childFailed(id testID) bool {
	for other, result := range s.results {
		if result == "fail" && other.pkg == id.pkg && strings.HasPrefix(other.test, id.test+"/") {
			return true
		}
	}
	return false
}

// reason finds why a test was skipped.
func reason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}
	return "no reason given"
}

// maxAgain is how many failures may be chance; more are none.
const maxAgain = 5

// runAgain runs failed tests once more, and returns those that passed.
func (s *summary) runAgain(again func(testID) bool) (passed []failure) {
	if again == nil || len(s.failures) > maxAgain {
		return nil
	}
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		if f.race || !again(f.testID) {
			return false
		}
		s.failed, s.passed = s.failed-1, s.passed+1
		passed = append(passed, f)
		return true
	})
	return passed
}

func list(w io.Writer, title string, failures []failure) {
	if len(failures) > 0 {
		fmt.Fprintln(w, "== "+title)
	}
	for _, f := range failures {
		fmt.Fprintln(w, f.pkg, f.test)
		for _, l := range f.told {
			fmt.Fprintln(w, l)
		}
	}
}

func run(r io.Reader, w io.Writer, alsoFailed int, again func(testID) bool) (failed bool, err error) {
	s := newSummary()
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(w, in.Text()) // go's own messages
			if strings.HasPrefix(in.Text(), "FAIL") || strings.HasPrefix(in.Text(), "go: ") && strings.Contains(in.Text(), "error") {
				s.failed++
			}
			continue
		}
		s.add(e, w)
	}
	if len(s.reasons) > 0 {
		fmt.Fprintln(w, "== skipped")
		slices.Sort(s.reasons)
		for _, l := range s.reasons {
			fmt.Fprintln(w, l)
		}
	}
	list(w, "failed once, and passed alone", s.runAgain(again))
	list(w, "failed", s.failures)
	s.failed += alsoFailed
	if s.passed == 0 && s.failed == 0 {
		s.failed++ // no tests at all is no success
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed > 0, in.Err()
}

// alone gives what runs a test by itself, by a command such as "go test", if its package matches.
func alone(packages string, command []string) (func(testID) bool, error) {
	match, err := regexp.Compile(packages)
	if err != nil || packages == "" || len(command) == 0 {
		return nil, err
	}
	results := map[testID]bool{}
	return func(id testID) bool {
		if !match.MatchString(id.pkg) {
			return false
		}
		test, _, _ := strings.Cut(id.test, "/")
		whole := testID{id.pkg, test}
		if passed, ran := results[whole]; ran {
			return passed
		}
		fmt.Println("== once more:", id.pkg, test)
		cmd := exec.Command(command[0], append(slices.Clone(command[1:]), "-v", "-run", "^"+regexp.QuoteMeta(test)+"$", id.pkg)...)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if err != nil {
			fmt.Print(out.String())
		}
		results[whole] = err == nil && strings.Contains(out.String(), "--- PASS: "+test)
		return results[whole]
	}, nil
}

func main() {
	also := flag.Int("also-failed", 0, "failures of other checks to count")
	packages := flag.String("again", "", "packages, as a regular expression, whose failed tests are run once more by the command in the arguments")
	flag.Parse()
	again, err := alone(*packages, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum: -again:", err)
		os.Exit(2)
	}
	failed, err := run(os.Stdin, os.Stdout, *also, again)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}
