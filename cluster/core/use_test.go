package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestUseHasWhatBoundsIt: beside what a worker says that it uses stands what it has, by which others bound that.
func TestUseHasWhatBoundsIt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	told := wire.WorkerReport{Facts: &wire.WorkerFacts{Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}},
		Used: spec.Resources{CPU: 1 << 45}}
	for name, r := range map[string]wire.WorkerReport{"silent": {Used: told.Used}, "w": told} {
		c.Step(now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		c.Step(now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
	}
	got := c.Use()
	if len(got) != 2 || got[0].Name != "silent" || got[0].Capacity.CPU != 0 || got[1].Capacity.CPU != 4000 || got[1].Used.CPU != 1<<45 {
		t.Errorf("got the use %+v, want that of two workers, with the capacity of one", got)
	}
}
