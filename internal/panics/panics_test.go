package panics

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestCaught(t *testing.T) {
	var out bytes.Buffer
	func() {
		defer Catch(slog.New(slog.NewTextHandler(&out, nil)), "a test")
		panic("ouch")
	}()
	if !strings.Contains(out.String(), "ouch") || !strings.Contains(out.String(), "panics_test.go") {
		t.Error(out.String())
	}
	err := func() (err error) {
		defer Error(&err)
		panic("ouch")
	}()
	if err == nil || !strings.Contains(err.Error(), "ouch") || !strings.Contains(err.Error(), "panics_test.go") {
		t.Error(err)
	}
	if err := func() (err error) { defer Error(&err); return nil }(); err != nil {
		t.Error(err)
	}
}

func TestAgain(t *testing.T) {
	var out bytes.Buffer
	n := 0
	Again(slog.New(slog.NewTextHandler(&out, nil)), "a loop", func() {
		if n++; n < 20 {
			panic("ouch")
		}
	})
	if n != 20 || strings.Count(out.String(), "a loop") != 1 || !strings.Contains(out.String(), "panics_test.go") {
		t.Errorf("%d turns: %s", n, out.String())
	}
}
