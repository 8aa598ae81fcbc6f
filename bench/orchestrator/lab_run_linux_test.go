package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/lab"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// The real program in a lab: a round is interrupted, and another run goes on from what it left.
func TestLabRun(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "labbench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := testenv.Program(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := LabOptions{Rounds: 1, Quick: true, Only: []string{"deploy", "delay"}, Workers: []int{1}, Delays: []time.Duration{20 * time.Millisecond}, StressWorkers: 1, Window: time.Second, Timeout: time.Minute,
		Program: program, Progress: func(s string) { t.Log(s) }, Lab: lab.Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d")}}
	o.Keep = func(*LabReport) error { cancel(); return nil } // after the first cell
	r, err := RunLab(ctx, o)
	if err != nil || !r.Unfinished || len(r.Cells) != 1 || r.Cells[0].Failed != "" || r.Cells[0].Values["ready"] <= 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if names, err := lab.List(o.Lab); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	o.Keep, o.Resume = nil, r
	again, err := RunLab(t.Context(), o)
	if err != nil || again.Unfinished || len(again.Cells) != 3 || again.Cells[0].Values["ready"] != r.Cells[0].Values["ready"] {
		t.Fatalf("%v, %+v", err, again)
	}
	for _, c := range again.Cells {
		if c.Failed != "" || c.Values["ready"] <= 0 {
			t.Errorf("%+v", c)
		}
	}
	o.Window *= 2
	if _, err := RunLab(t.Context(), o); err == nil {
		t.Error("a report with another window was gone on from")
	}
}
