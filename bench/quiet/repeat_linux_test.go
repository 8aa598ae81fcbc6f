package quiet_test

import (
	"testing"

	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// A round in which a real process of another computed is measured again, and what was measured beside it is not kept.
func TestDisturbedRoundIsMeasuredAgain(t *testing.T) {
	pid, tell := quiet.Stranger(t)
	w, _ := quiet.Alone(quiet.Options{}, pid)
	if err := w.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, tries := report.New("budget", "", ""), 0.0
	m := report.Measuring{Quiet: w}
	err := r.Round(t.Context(), m, func() error {
		if tries++; tries == 1 {
			ended := quiet.FIFO(t)
			tell("/bin/sh -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; echo >" + ended)
			quiet.WaitFor(t, ended)
		}
		r.Add(r.Figure("", "x", ""), tries)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(t.Context(), m)
	f := r.Find("", "x", "")
	if tries != 2 || r.Rounds != 1 || r.Repeated != 1 || len(r.Disturbed) != 0 || len(f.Samples) != 1 || f.Value.Value != 2 {
		t.Errorf("after %g tries: %d rounds, %d repeated, disturbed %v, samples %v", tries, r.Rounds, r.Repeated, r.Disturbed, f.Samples)
	}
}
