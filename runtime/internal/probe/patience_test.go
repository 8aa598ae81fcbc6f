package probe

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPatience: a program that takes long to say its version makes the machine a slow one, within bounds.
func TestPatience(t *testing.T) {
	program := func(script string) string {
		p := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const usual = 15 * time.Second
	if p := Patience(t.Context(), program("[ \"$1\" = --version ] && exec sleep 0.03"), usual); p < 30*time.Second || p > slowest*usual {
		t.Errorf("a program that says its version in 30 ms gets %s, want from 30 s to %s", p, slowest*usual)
	}
	if p := Patience(t.Context(), program("exec sleep 0.3"), usual); p != slowest*usual {
		t.Errorf("one that takes 0.3 s gets %s, want %s", p, slowest*usual)
	}
	if p := scaled(usual, startsIn*5*time.Millisecond); p != usual { // however long a start takes beside other tests
		t.Errorf("one that says its version in 5 ms gets %s, want %s", p, usual)
	}
	if p := Patience(t.Context(), "/does/not/exist", usual); p < usual {
		t.Errorf("one that is not there gets %s, want at least %s", p, usual)
	}
	if p := Patience(t.Context(), program("exec sleep 60"), 10*time.Millisecond); p != slowest*10*time.Millisecond {
		t.Errorf("one that hangs gets %s, want 80ms", p)
	}
	// What waits uses no processor, and what counts does.
	const work = time.Second
	if _, most := Effort(t.Context(), program("exec sleep 0.3"), usual, work); most != work {
		t.Errorf("one that waits may use %s of a processor, want %s", most, work)
	}
	counts := program("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if _, most := Effort(t.Context(), counts, usual, work); most <= work || most > slowest*work {
		t.Errorf("one that counts to 300,000 may use %s of a processor, want from %s to %s", most, work, slowest*work)
	}
}
