package testenv

import (
	"os"
	"testing"
)

// systemsVar has tests run what needs long real clocks: make test-systems sets it.
const systemsVar = "SKERRY_SYSTEMS"

// Systems reports whether tests are to run what needs long real clocks.
func Systems() bool { return os.Getenv(systemsVar) != "" }

// Deferred is the reason of a test that make test leaves out because it takes minutes of a real clock. Relative is the shorter
// test that make test runs in its place.
type Deferred struct{ Relative string }

func (e *Deferred) Error() string {
	return "left to make test-systems (" + systemsVar + "=1); shorter: " + e.Relative
}

// Long skips a test that takes minutes unless those are wanted. relative names what make test runs in its place.
func Long(t testing.TB, relative string) {
	t.Helper()
	if !Systems() {
		t.Skip(&Deferred{relative})
	}
}

// Times gives how often a test does something: few times, or many where long tests are wanted.
func Times(few, many int) int {
	if Systems() {
		return many
	}
	return few
}
