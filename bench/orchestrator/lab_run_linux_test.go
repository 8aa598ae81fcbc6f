package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/lab"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// Placement by profiles that were taken there, and requests to what was placed: where one worker is known to bear what is expected and the other is not,
// all instances are on it.
func TestLabProfile(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "labbench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := LabOptions{Rounds: 1, Quick: true, Only: []string{"crowded"}, Workers: []int{1}, StressWorkers: 1, Window: time.Second, Timeout: time.Minute, Load: time.Second, Expect: 0.5, ProfileRounds: 1,
		Program: testenv.Program(t), Progress: func(s string) { t.Log(s) }, Lab: lab.Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d")}}
	r, err := RunLab(t.Context(), o)
	if err != nil || len(r.Cells) != 2 || len(r.Profiles) != 2 || r.Rate <= 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	clear := map[string]bool{} // by host
	for _, p := range r.Profiles {
		if p.Rate <= 0 || p.Share <= 0 || p.Spread != 0 || !p.Crowded {
			t.Errorf("%+v", p)
		}
		s := skerry.ServiceSpec{ExpectedRate: r.Rate, Resources: skerry.Resources{CPU: 1000 * imagingCPU}}
		clear[p.Host] = r.Rate <= 1.1*s.ClearShare()*saturation(skerry.RuntimeProfile{CPU: 1, Rate: p.Rate, Share: p.Share}) // costs count in steps
	}
	t.Log(clear, r.Profiles, r.Rate)
	for _, c := range r.Cells {
		if c.Failed != "" || c.Values["p99"] <= 0 || c.Values["unanswered"] >= 100 {
			t.Errorf("%+v", c)
		}
		if on := c.Values["on.slow"]; c.Setting == "by profile" && clear[workerHost(0, 1)] && !clear[workerHost(0, 0)] && on != 0 || c.Setting != "by profile" && on != 50 {
			t.Errorf("%s: %g %% of the instances are on the crowded worker", c.Setting, on)
		}
	}
	if names, err := lab.List(o.Lab); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

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
	o := LabOptions{Rounds: 1, Quick: true, Only: []string{"deploy", "delay"}, Workers: []int{1}, Delays: []time.Duration{20 * time.Millisecond}, StressWorkers: 1, Window: time.Second, Timeout: time.Minute, Load: time.Second, Expect: 0.5, ProfileRounds: 1,
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
