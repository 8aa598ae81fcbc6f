package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// Placement by profiles that were taken there, and requests to what was placed: where one worker is known to bear what is expected and the other is not,
// all instances are on it.
func TestLabProfile(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "labbench")
	if err == nil {
		err = testenv.Note(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := LabOptions{Rounds: 1, Quick: true, Only: []string{"crowded"}, Workers: []int{1}, StressWorkers: 1, Window: time.Second, Timeout: time.Minute, Load: time.Second, Expect: 0.5, ProfileRounds: 1,
		Program: testenv.Program(t), Measuring: report.Measuring{Progress: func(s string) { t.Log(s) }}, Lab: lab.Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d")}}
	r, err := RunLab(t.Context(), o)
	if err != nil || len(r.Failed) > 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	value := func(group, name, place string) float64 {
		f := r.Find(group, name, place)
		if f == nil || len(f.Samples) != 1 {
			t.Fatalf("%s, %s in %s is %+v", group, name, place, f)
		}
		return f.Samples[0]
	}
	rate := value(sentGroup, sentName, "")
	clear := map[string]bool{} // by host
	for _, host := range []string{workerHost(0, 0), workerHost(0, 1)} {
		const group = "profiles of the workers, crowded"
		p := wire.RuntimeProfile{CPU: 1, Rate: value(group, "rate", host), Share: value(group, "share", host)}
		if p.Rate <= 0 || p.Share <= 0 || value(group, "spread", host) != 0 {
			t.Errorf("the profile of %s is %+v", host, p)
		}
		s := spec.ServiceSpec{ExpectedRate: rate, Resources: spec.Resources{CPU: 1000 * imagingCPU}}
		clear[host] = rate <= 1.1*s.ClearShare()*saturation(p) // costs count in steps
	}
	t.Log(clear, rate)
	for _, setting := range []string{"without profiles", "by profile"} {
		if value("crowded", "p99", setting) <= 0 || value("crowded", "unanswered", setting) >= 100 {
			t.Errorf("%s: %g ms, %g %% unanswered", setting, value("crowded", "p99", setting), value("crowded", "unanswered", setting))
		}
		on := value("crowded", "on.slow", setting)
		if setting == "by profile" && clear[workerHost(0, 1)] && !clear[workerHost(0, 0)] && on != 0 || setting != "by profile" && on != 50 {
			t.Errorf("%s: %g %% of the instances are on the crowded worker", setting, on)
		}
	}
	if names, err := lab.List(o.Lab); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// What stress deploys is as many instances as asked for, in services of which every worker is told every instance.
func TestLabManifests(t *testing.T) {
	for _, c := range []struct{ n, workers, services int }{{1, 1, 1}, {32, 1, 1}, {33, 1, 2}, {60, 3, 2}, {1000, 10, 34}, {100, 50, 4}} {
		var app spec.Application
		if problems := spec.DecodeStrict(manifests("x", c.n, c.workers), &app); len(problems) > 0 {
			t.Fatal(problems)
		}
		sum := 0
		for i, s := range app.Spec.Services {
			sum += *s.Replicas
			if *s.Replicas > wire.MaxBackends || i < len(app.Spec.Services)-1 && c.workers <= wire.MaxBackends && *s.Replicas%c.workers != 0 {
				t.Errorf("%+v: %d of %s", c, *s.Replicas, s.Name)
			}
		}
		if sum != c.n || len(app.Spec.Services) != c.services {
			t.Errorf("%+v: %d instances in %d services", c, sum, len(app.Spec.Services))
		}
	}
}

// What a machine has no room for is refused before anything of it begins, with what lacks.
func TestLabRoom(t *testing.T) {
	r := room{memory: 100 * instanceMemory, threads: 50 * instanceThreads, neighbours: 1000}
	if err := r.holds(50); err != nil {
		t.Error(err)
	}
	for n, want := range map[int]string{51: "threads", 101: "memory"} {
		if err := r.holds(n); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeFull || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", n, err)
		}
	}
	r = room{cpus: 2, totalMemory: 3 << 30, memory: 1 << 30, threads: 1000, neighbours: 100}
	for name, limits := range labSizes() {
		err := r.fits(name, limits)
		if small := name == "S" || name == "M"; small != (err == nil) || !small && skerry.AsError(err).Code != skerry.CodeUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.holds(1); err == nil || !strings.Contains(err.Error(), "neighbours") {
		t.Error(err)
	}
	if err := thisMachine().holds(1); err != nil {
		t.Error(err)
	}
	m := &labRun{r: report.New("orchestrator lab", "", "")}
	fits, full := step{part: "stress", setting: "1"}, step{part: "stress", setting: "2", holds: func() error { return r.holds(101) }}
	if left, err := m.held([]step{fits, full}); err != nil || len(left) != 1 || left[0].setting != "1" || !strings.Contains(m.r.Find("stress", "ready", "2").Skip, "neighbours") {
		t.Errorf("%v, %v, %+v", left, err, m.r.Figures[0])
	}
	if _, err := m.held([]step{full}); skerry.AsError(err).Code != skerry.CodeFull {
		t.Errorf("nothing is held: %v", err)
	}
}

// The real program in a lab: a round is interrupted, and another run goes on from what it left.
func TestLabRun(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "labbench")
	if err == nil {
		err = testenv.Note(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := testenv.Program(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := LabOptions{Rounds: 1, Quick: true, Only: []string{"deploy", "delay", "stress", "sizes"}, Workers: []int{2}, Delays: []time.Duration{20 * time.Millisecond}, Stress: []int{3}, Sizes: []string{"S"}, Sized: 1, StressWorkers: 2, Window: time.Second, Settle: time.Second, Timeout: time.Minute, Load: time.Second, Expect: 0.5, ProfileRounds: 1,
		Program: program, Measuring: report.Measuring{Progress: func(s string) { t.Log(s) }}, Lab: lab.Options{Dir: filepath.Join(dir, "r"), Data: filepath.Join(dir, "d")}}
	o.Keep = func(*report.Report) error { cancel(); return nil } // after the first cell
	r, err := RunLab(ctx, o)
	if err != nil || !r.Unfinished || len(r.Failed) > 0 || len(r.Figures) != 1 || len(r.Figures[0].Samples) != 1 || r.Figures[0].Samples[0] <= 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	first := r.Figures[0].Samples[0]
	if names, err := lab.List(o.Lab); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	o.Keep, o.Resume = nil, r
	again, err := RunLab(t.Context(), o)
	if err != nil || again.Unfinished || len(again.Failed) > 0 || again.Rounds != 1 || again.Figures[0].Samples[0] != first {
		t.Fatalf("%v, %+v", err, again)
	}
	cells := map[string]map[string]float64{}
	for _, f := range again.Figures {
		at := f.Group + ": " + f.Place
		if cells[at] == nil {
			cells[at] = map[string]float64{}
		}
		if len(f.Samples) != 1 {
			t.Errorf("%s, %s has %v", at, f.Name, f.Samples)
			continue
		}
		cells[at][f.Name] = f.Samples[0]
	}
	if len(cells) != 5 {
		t.Errorf("%d cells: %v", len(cells), cells)
	}
	for at, values := range cells {
		stress := strings.HasPrefix(at, "stress")
		if !stress && values["ready"] <= 0 {
			t.Errorf("%s: %v", at, values)
		}
		for _, metric := range []string{"all.ready", "ask", "worker.messages", "cluster.messages", "deploy.worker.cpu", "root.memory", "cluster.memory", "worker.memory"} {
			if stress && values[metric] <= 0 {
				t.Errorf("%s is %g", metric, values[metric])
			}
		}
	}
	o.Window *= 2
	if _, err := RunLab(t.Context(), o); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("a report with another window was continued: %v", err)
	}
}
