package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name, in, last, has string
		also                int
		failed              bool
	}{
		{"passes, subtests counted and not their parents", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"run","Package":"a","Test":"T/y"}
{"Action":"pass","Package":"a","Test":"T/x"}
{"Action":"output","Package":"a","Test":"T/y","Output":"    no kvm here\n"}
{"Action":"skip","Package":"a","Test":"T/y"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, "1 passed, 0 failed, 1 skipped", "a T/y: no kvm here", 0, false},
		{"a failed subtest counts once", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"output","Package":"a","Test":"T/x","Output":"    wrong\n"}
{"Action":"fail","Package":"a","Test":"T/x"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"a"}`, "0 passed, 1 failed, 0 skipped", "wrong", 0, true},
		{"what a failed test said is told at the end", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"time=now level=INFO\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    x_test.go:7: wrong:\n"}
{"Action":"output","Package":"a","Test":"T","Output":"        very\n"}
{"Action":"output","Package":"a","Test":"T","Output":"--- FAIL: T (0.00s)\n"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"a"}`, "0 passed, 1 failed, 0 skipped", "== failed\na T\n  x_test.go:7: wrong: | very\n0 passed", 0, true},
		{"a package that does not compile", `{"Action":"build-output","ImportPath":"a","Output":"a.go:1: syntax error\n"}
{"Action":"fail","Package":"a"}`, "0 passed, 1 failed, 0 skipped", "syntax error", 0, true},
		{"a test that was cut off", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"panic: timed out\n"}
{"Action":"fail","Package":"a"}`, "0 passed, 1 failed, 0 skipped", "timed out", 0, true},
		{"a test that passes and reports", `{"Action":"output","Package":"a","Test":"T","Output":"x_test.go:1: REPORT: seed 7\n"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, "1 passed, 0 failed, 0 skipped", "REPORT: seed 7", 0, false},
		{"other checks", `{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, "1 passed, 2 failed, 0 skipped", "", 2, true},
		{"nothing at all", ``, "0 passed, 1 failed, 0 skipped", "", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			failed, err := run(strings.NewReader(c.in), &out, c.also, nil)
			if err != nil || failed != c.failed {
				t.Errorf("failed %v, %v", failed, err)
			}
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); lines[len(lines)-1] != c.last || !strings.Contains(out.String(), c.has) {
				t.Errorf("%s", out.String())
			}
		})
	}
}

// A failure counts when the test fails alone, too, when there are many, and when it is a data race.
func TestAgain(t *testing.T) {
	fails := func(said string, tests ...string) (in string) {
		for _, name := range tests {
			in += `{"Action":"output","Package":"lab","Test":"` + name + `","Output":"    x_test.go:7: ` + said + `\n"}
{"Action":"fail","Package":"lab","Test":"` + name + `"}
`
		}
		return in + `{"Action":"fail","Package":"lab"}`
	}
	for _, c := range []struct {
		name, in, has, last string
		passes              bool
	}{
		{"it passes", fails("late", "A"), "== failed once, and passed alone\nlab A\n  x_test.go:7: late\n1 passed", "1 passed, 0 failed, 0 skipped", true},
		{"it fails", fails("late", "A"), "== failed\nlab A\n", "0 passed, 1 failed, 0 skipped", false},
		{"many", fails("late", "A", "B", "C", "D", "E", "F"), "== failed\nlab A\n", "0 passed, 6 failed, 0 skipped", true},
		{"a data race", fails("race detected during execution of test", "A"), "== failed\nlab A\n", "0 passed, 1 failed, 0 skipped", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			failed, err := run(strings.NewReader(c.in), &out, 0, func(testID) bool { return c.passes })
			if err != nil || failed == strings.Contains(c.last, " 0 failed") || !strings.HasSuffix(strings.TrimSpace(out.String()), c.last) || !strings.Contains(out.String(), c.has) {
				t.Errorf("failed %v, %v\n%s", failed, err, out.String())
			}
		})
	}
}

func TestAlone(t *testing.T) {
	if f, err := alone("", []string{"true"}); f != nil || err != nil {
		t.Error("nothing was to be run again")
	}
	if _, err := alone("(", []string{"true"}); err == nil {
		t.Error("that is no expression")
	}
	// The command gets the whole test, whose parts build on each other, as a pattern of its own, once, and must say that it passed.
	ran := filepath.Join(t.TempDir(), "ran")
	f, err := alone("/(e2e|lab)$", []string{"sh", "-c", `echo "$4" >>` + ran + `; [ "$3" = '^T$' ] && echo "--- PASS: T (0.00s)"`, "sh"})
	if err != nil {
		t.Fatal(err)
	}
	if !f(testID{"skerry.dev/skerry/lab", "T/x.y"}) || !f(testID{"skerry.dev/skerry/lab", "T/z"}) {
		t.Error("it passed")
	}
	if out, _ := os.ReadFile(ran); string(out) != "skerry.dev/skerry/lab\n" {
		t.Errorf("it ran for %q", out)
	}
	if f(testID{"skerry.dev/skerry/lab", "U/x.y"}) || f(testID{"skerry.dev/skerry/sim", "T/x.y"}) {
		t.Error("another test, or a package that is not to be run again")
	}
}
