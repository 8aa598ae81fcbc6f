package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

// summary counts the tests of one process. A test that has subtests is not counted, because they are.
type summary struct {
	passed, failed, skipped int

	output   map[testID][]string
	parents  map[testID]bool
	results  map[testID]string
	seconds  map[testID]float64 // of top-level tests
	reasons  []string           // why tests were skipped
	failures []failure
}

// failure is a test without failed subtests that failed, with its messages, which are repeated at the end of a long output.
type failure struct {
	testID
	told []string
}

func newSummary() *summary {
	return &summary{output: map[testID][]string{}, parents: map[testID]bool{}, results: map[testID]string{}, seconds: map[testID]float64{}}
}

// reportMark is in the output of a test that passed and has something to report all the same.
const reportMark = "REPORT: "

// maxOutput is how many lines of one test are kept. The end says most, but the race detector of a program that ran in a test
// may have spoken early.
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
		if e.Test == "" {
			return // the status of the process decides
		}
		s.results[id] = e.Action
		if !strings.Contains(e.Test, "/") {
			s.seconds[id] = e.Elapsed
		}
		switch {
		case e.Action == "fail":
			fmt.Fprintf(w, "--- FAIL %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(s.output[id], ""))
			s.tell(id)
		case e.Action == "skip":
			s.reasons = append(s.reasons, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(s.output[id])))
		case slices.ContainsFunc(s.output[id], func(l string) bool { return strings.Contains(l, reportMark) }):
			fmt.Fprintf(w, "--- REPORT %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(s.output[id], ""))
		}
		delete(s.output, id)
	}
}

const (
	maxTold = 8   // messages of one test
	maxLine = 400 // bytes of each
)

// message matches the first line of what t.Error and the like print, also of a test that ran inside another's output.
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
	s.failures = append(s.failures, failure{id, said[max(0, len(said)-maxTold):]})
}

// end counts the results of a process that ended with a status. One that failed without a failed test did not compile, failed
// in TestMain, or was cut off.
func (s *summary) end(pkg string, status int, w io.Writer) {
	for id, result := range s.results {
		switch {
		case s.parents[id] && result != "fail":
		case result == "pass":
			s.passed++
		case result == "skip":
			s.skipped++
		case !s.parents[id] || !s.childFailed(id):
			s.failed++
		}
	}
	if status == 0 || s.failed > 0 {
		return
	}
	s.failed++
	id := testID{pkg, ""}
	fmt.Fprint(w, strings.Join(s.output[id], ""))
	told := s.output[id][max(0, len(s.output[id])-maxTold):]
	for other, lines := range s.output {
		if other.test != "" {
			fmt.Fprintf(w, "--- unfinished %s %s\n%s", other.pkg, other.test, strings.Join(lines, ""))
			told = append(told, "unfinished: "+other.test)
			if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "panic: ") }); i >= 0 {
				told = append(told, lines[i:min(len(lines), i+maxTold)]...)
			}
		}
	}
	for i, l := range told {
		told[i] = "  " + strings.TrimRight(l[:min(len(l), maxLine)], "\n")
	}
	s.failures = append(s.failures, failure{id, told})
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

// read takes the events of one process. Lines that are no events, such as what a crashing program prints, are passed on.
func (s *summary) read(r io.Reader, w io.Writer) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(w, in.Text())
			continue
		}
		s.add(e, w)
	}
	return in.Err()
}
