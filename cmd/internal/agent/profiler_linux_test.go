package agent

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// A profile is taken once in a month, and not while half of the processors are busy.
func TestProfileDue(t *testing.T) {
	now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		taken    time.Time
		load     string
		cpus     int
		due, had bool
	}{
		{time.Time{}, "0.00 0.01 0.05 1/100 1\n", 1, true, false},
		{time.Time{}, "0.99 3 3 1/100 1\n", 2, true, false},
		{time.Time{}, "1.00 0 0 1/100 1\n", 2, false, false},
		{time.Time{}, "1.99 0 0 1/100 1\n", 4, true, false},
		{time.Time{}, "", 4, false, false},
		{now.Add(-29 * 24 * time.Hour), "0 0 0 1/1 1", 4, false, true},
		{now.Add(-31 * 24 * time.Hour), "0 0 0 1/1 1", 4, true, false},
		{now.Add(time.Hour), "0 0 0 1/1 1", 4, true, false}, // the clock was wrong
	} {
		err := profileDue(now, c.taken, c.load, c.cpus)
		if (err == nil) != c.due || errors.Is(err, errProfiled) != c.had {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestProfileTaken(t *testing.T) {
	dir := t.TempDir()
	if at, err := profileTaken(dir); err != nil || !at.IsZero() {
		t.Error(at, err)
	}
	at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	if err := worker.WriteProfile(dir, map[string]wire.RuntimeProfile{"oci": {CPU: 1, At: at.Add(-time.Hour)}, "native": {CPU: 1, At: at}}); err != nil {
		t.Fatal(err)
	}
	if got, err := profileTaken(dir); err != nil || !got.Equal(at) {
		t.Error(got, err)
	}
	w := Flags{}
	if w.profiler(dir, slog.Default()) != nil {
		t.Error("0 is never")
	}
}

// What is logged of a measurement that failed is its error, with the hint, and not what came before.
func TestSaidLast(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"self-test of runtime oci\nkilled\n": "killed",
		"self-test of runtime oci\nerror: needs root\nhint: use sudo\n": "needs root; hint: use sudo",
	} {
		if got := saidLast(text); got != want {
			t.Errorf("%q gives %q", text, got)
		}
	}
}
