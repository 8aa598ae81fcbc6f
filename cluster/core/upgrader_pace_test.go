package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// waveSite is a site of some workers that lets its root upgrade them.
type waveSite struct {
	*Core
	now time.Time
	seq uint64
}

func newWaveSite(workers ...string) *waveSite {
	s := &waveSite{now: time.Unix(1_700_000_000, 0)}
	s.Core = New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies()})
	s.Start(s.now)
	s.grants.list = []wire.Granted{{Grant: wire.GrantWaves}}
	for _, name := range workers {
		s.joins(name)
		s.reports(name)
	}
	return s
}

func (s *waveSite) joins(name string) {
	s.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name, Version: "v1", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
}

func (s *waveSite) reports(name string) {
	s.seq++
	report := wire.WorkerReport{Seq: s.seq, Facts: &wire.WorkerFacts{Arch: "amd64",
		Runtimes: []wire.RuntimeReport{{Name: "native", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}}
	s.Step(s.now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&report)}})
}

// passed has a worker have the program that it was told of last.
func (s *waveSite) passed(name string) {
	w := s.workers[name]
	w.Facts.Agent = &wire.AgentFacts{Order: w.Agent.Seq, Stage: wire.AgentPassed}
}

// ordered has the site look at an order of its root, a minute after whatever was before.
func (s *waveSite) ordered(seq uint64) *wire.SiteUpgrade {
	s.now = s.now.Add(time.Minute)
	var fx wire.Effects
	s.upgrader.follow(s.now, wire.New().Marshal(&wire.SiteOrder{Seq: seq, Name: "v2", Image: goodImage}), &fx)
	return s.upgrader.shown()
}

// under lists the workers that are told of an order that they have not come to the end of.
func (s *waveSite) under() (out []string) {
	for _, name := range s.Children.Names() {
		if w := s.workers[name]; w.Agent != nil && (w.Facts.Agent == nil || w.Facts.Agent.Order < w.Agent.Seq) {
			out = append(out, name)
		}
	}
	return out
}

// An order that follows another upgrades no second worker while one is still under way for the first.
func TestOrderWaitsForWorkerOfEarlierOrder(t *testing.T) {
	s := newWaveSite("a", "b", "c")
	s.ordered(1)
	s.passed("a")
	s.ordered(1)
	if got := s.under(); len(got) != 1 || got[0] != "b" {
		t.Fatalf("under way: %v, want b", got)
	}
	for seq := range uint64(3) {
		s.ordered(2 + seq)
		if got := s.under(); len(got) != 1 {
			t.Fatalf("with order %d, %v are under way, want one", 2+seq, got)
		}
	}
	// It is upgraded itself, too, and the others follow.
	for range 3 {
		for _, name := range s.under() {
			s.passed(name)
		}
		s.ordered(4)
	}
	if told := s.upgrader.shown(); told.Upgraded != 3 || told.Failed != "" {
		t.Errorf("got %+v, want all three upgraded", told)
	}
}

// The site does not count as upgraded while a worker has joined and not reported.
func TestOrderCountsWorkersWithoutFacts(t *testing.T) {
	s := newWaveSite()
	s.joins("a")
	if told := s.ordered(1); told.Workers != 1 || told.Upgraded != 0 {
		t.Errorf("before the worker reported, the root is told %+v, want one worker that is not upgraded", told)
	}
	if s.workers["a"].Agent != nil {
		t.Error("a worker is upgraded of which nothing is known")
	}
	s.reports("a")
	if s.ordered(1); s.workers["a"].Agent == nil {
		t.Error("it is not upgraded once it has reported")
	}
}

// An image is shown to people, in events and in the audit: a terminal must not act on it.
func TestOrderOfUnprintableImage(t *testing.T) {
	s := newWaveSite("a")
	var fx wire.Effects
	s.upgrader.follow(s.now, wire.New().Marshal(&wire.SiteOrder{Seq: 1, Name: "v2", Image: "\x1b[2J" + goodImage}), &fx)
	if taken := takenOrders(&fx); len(taken) > 0 || s.workers["a"].Agent != nil {
		t.Errorf("an image with control characters was taken up: %+v", taken)
	}
}

// A root that orders without end does not push everything else out of the site's audit, which holds some ten thousand records.
func TestOrdersOfADay(t *testing.T) {
	s := newWaveSite()
	var all wire.Effects
	order := func(seq uint64) {
		s.upgrader.follow(s.now, wire.New().Marshal(&wire.SiteOrder{Seq: seq, Name: "v2", Image: goodImage}), &all)
	}
	for n := range 24 * 60 * 5 {
		s.now = s.now.Add(12 * time.Second)
		order(uint64(n + 1))
	}
	if n := len(takenOrders(&all)); n < 20 || n > 100 {
		t.Errorf("in a day %d orders were taken up, want a few dozen", n)
	}
	// The one that waits is due, and is taken up then.
	if due := s.upgrader.due; due.After(s.now.Add(time.Hour)) {
		t.Errorf("the next order is due at %v, and it is %v", due, s.now)
	} else if !due.IsZero() {
		all, s.now = wire.Effects{}, due
		if order(1 << 40); len(takenOrders(&all)) != 1 {
			t.Error("an order was not taken up when it was due")
		}
	}
	// A clock that was set back does not stop orders.
	all, s.now = wire.Effects{}, s.now.Add(-1000*time.Hour)
	order(1 << 41)
	all, s.now = wire.Effects{}, s.now.Add(time.Hour)
	if order(1 << 42); len(takenOrders(&all)) != 1 {
		t.Error("after the clock was set back, no order is taken up")
	}
}
