package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What a worker is told follows the margin to the nearest limit: up at once, down after a while and clear of the step, and nothing twice.
func TestUrge(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	var told []wire.Urgency
	seq := uint64(0)
	report := func(after time.Duration, memory skerry.Bytes, facts *wire.WorkerFacts) {
		t.Helper()
		now = now.Add(after)
		seq++
		r := wire.WorkerReport{Seq: seq, Facts: facts, Used: spec.Resources{Memory: memory}, Pace: &wire.ReportPace{Every: 4000, Why: wire.PaceLimit}}
		fx := c.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
		for _, s := range fx.Sends {
			if m, ok := s.Msg.(*wire.Report); ok && s.To == "w" {
				var u wire.Urgency
				if err := wire.New().Unmarshal(m.Payload, &u); err != nil || m.Kind != wire.ReportUrgency {
					t.Fatal(m.Kind, err)
				}
				told = append(told, u)
			}
		}
	}
	expect := func(what string, gains ...uint32) {
		t.Helper()
		if len(told) != len(gains) {
			t.Fatalf("%s: told %v, expected %v", what, told, gains)
		}
		for i, g := range gains {
			if near := c.Workers()[0].Updates.Near; told[i].Gain != g || i == len(gains)-1 && (near == "") != (g == 1) {
				t.Errorf("%s: told %v, expected %v", what, told, gains)
			}
		}
		told = nil
	}
	report(0, 300, &wire.WorkerFacts{Arch: "amd64", Capacity: spec.Resources{CPU: 4000, Memory: 1000}})
	expect("far from it")
	report(time.Second, 610, nil)
	expect("within 40 %", 2)
	report(time.Second, 950, nil)
	expect("at the limit", 8)
	for range 20 { // around a step
		report(time.Second, 895, nil)
		report(time.Second, 905, nil)
	}
	expect("wavering")
	report(time.Second, 100, nil)
	expect("far again, for a moment")
	report(30*time.Second, 100, nil)
	expect("far again, for a while", 1)
	if v := c.Workers()[0].Updates; v == nil || v.EveryMs != 4000 || v.Why != wire.PaceLimit || v.Gain != 1 {
		t.Errorf("shown as %+v", v)
	}
	report(time.Second, 990, nil)
	expect("at the limit", 8)
	c.Step(now, ChildDown{Name: "w"})
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	seq = 0
	report(time.Second, 990, nil)
	expect("on a new connection it is told again", 8)
}

// A worker that reports every five minutes is as well known after three as one that reports each minute is after one. Longer silence counts
// against it.
func TestRareReportsAreNoOldOnes(t *testing.T) {
	for _, x := range []struct {
		silent time.Duration
		every  uint32 // ms
		want   string
	}{
		{200 * time.Second, 300_000, "w1"},
		{200 * time.Second, 60_000, "w2"},
		{800 * time.Second, 300_000, "w2"},
		{800 * time.Second, 1 << 31, "w2"},
	} {
		s := newOverlayNetSite(t)
		s.join(1)
		s.join(2)
		small := *s.c.workers["w1"].Facts // packed first
		small.Capacity = spec.Resources{CPU: 3000, Memory: 3 * skerry.GiB}
		s.report("w1", wire.WorkerReport{Facts: &small, Pace: &wire.ReportPace{Every: x.every}})
		s.now = s.now.Add(x.silent)
		s.report("w2", wire.WorkerReport{})
		s.apply("acme", "shop", 1)
		got := []string{}
		for _, p := range s.c.places {
			got = append(got, p.Worker)
		}
		if len(got) != 1 || got[0] != x.want {
			t.Errorf("silent for %s, reporting every %d ms: placed on %v, want %s", x.silent, x.every, got, x.want)
		}
	}
}
