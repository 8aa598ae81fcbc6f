package main

import (
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
			failed, err := run(strings.NewReader(c.in), &out, c.also)
			if err != nil || failed != c.failed {
				t.Errorf("failed %v, %v", failed, err)
			}
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); lines[len(lines)-1] != c.last || !strings.Contains(out.String(), c.has) {
				t.Errorf("%s", out.String())
			}
		})
	}
}
