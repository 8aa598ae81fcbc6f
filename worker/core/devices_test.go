package core

import (
	"fmt"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An instance whose device is gone, or has come back elsewhere, ends and says why; one whose device is where it was goes on.
func TestDevicesThatGo(t *testing.T) {
	const plc = "serial=0403-6001-A5"
	at := func(places ...string) Facts {
		return Facts{Facts: wire.WorkerFacts{Attachable: []string{"camera=gate", plc}}, Devices: map[string][]string{plc: places}}
	}
	const first, second = "/dev/ttyUSB0 188:0", "/dev/ttyUSB1 188:1"
	more := at(first)
	more.Facts.Labels = map[string]string{"hall": "4"}
	for name, c := range map[string]struct {
		had, now Facts
		want     string
	}{
		"it is there":           {at(first), more, ""},
		"it is gone":            {at(first), Facts{Facts: wire.WorkerFacts{Attachable: []string{"camera=gate"}}}, plc + " is gone"},
		"it is elsewhere":       {at(first), at(second), plc + " was plugged in again elsewhere"},
		"of another number":     {at(first), at("/dev/ttyUSB0 188:7"), plc + " was plugged in again elsewhere"},
		"nothing is told of it": {at(first), Facts{Facts: at().Facts}, plc + " was plugged in again elsewhere"},
		"it has one node more":  {at(first), at(second, first), ""},
		"it has one node less":  {at(first, second), at(second), plc + " was plugged in again elsewhere"},
		"it never had a node":   {at(), at(), ""},
	} {
		for _, restarted := range []bool{false, true} {
			agent := newDevice(t)
			agent.step(c.had)
			task := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			task.Devices = []string{plc}
			inst := agent.runs(task)
			if restarted { // it happens while no agent runs
				agent.start()
				agent.step(Reattach{Tasks: []Task{{ID: task.ID, Name: spec.MainContainer, Attempt: 1, Handle: []byte(`"h"`), Running: true}}})
				inst = agent.c.ledger.insts[task.ID]
			}
			name := fmt.Sprintf("%s, the agent was restarted: %v", name, restarted)
			fx := agent.step(c.now)
			if got := inst.State == skerry.Failed; got != (c.want != "") {
				t.Errorf("%s: it has failed: %v, in state %s; want %v", name, got, inst.State, c.want != "")
			}
			if c.want != "" && inst.Reason != "its device "+c.want {
				t.Errorf("%s: the reason is %q, want that its device %s", name, inst.Reason, c.want)
			}
			told := slices.ContainsFunc(fx.Events, func(e wire.Event) bool { return e.Reason == "DeviceGone" && e.Text == c.want })
			if told != (c.want != "") {
				t.Errorf("%s: an event says so: %v, want %v", name, told, c.want != "")
			}
		}
	}
}

// What an older agent started has the devices where they are at the first look; from then on it is as any other.
func TestDevicesOfAnOlderAgent(t *testing.T) {
	agent := newDevice(t)
	at := func(place string) Facts {
		return Facts{Facts: wire.WorkerFacts{Attachable: []string{"plc=a"}}, Devices: map[string][]string{"plc=a": {place}}}
	}
	task := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	task.Devices = []string{"plc=a"}
	if i := agent.runs(task); i.Given != nil {
		t.Fatalf("before it is known what there is it has been given %v, want that this is not known", i.Given)
	}
	for _, c := range []struct {
		place string
		state skerry.State
	}{{"/dev/ttyS1 4:65", skerry.Running}, {"/dev/ttyS1 4:65", skerry.Running}, {"/dev/ttyS1 4:66", skerry.Failed}} {
		agent.start()
		agent.step(Reattach{Tasks: []Task{{ID: task.ID, Name: spec.MainContainer, Attempt: 1, Handle: []byte(`"h"`), Running: true}}})
		agent.step(at(c.place))
		if i := agent.c.ledger.insts[task.ID]; i.State != c.state {
			t.Errorf("with its device at %s it is %s (%s), want %s", c.place, i.State, i.Reason, c.state)
		}
	}
}

// What starts again between two looks has its device where it is by then, and does not end for that.
func TestDeviceThatMovesBeforeAStart(t *testing.T) {
	agent := newDevice(t)
	at := func(place string) Facts {
		return Facts{Facts: wire.WorkerFacts{Attachable: []string{"plc=a"}}, Devices: map[string][]string{"plc=a": {place}}}
	}
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	a.Devices = []string{"plc=a"}
	agent.step(at("/dev/ttyUSB0 188:0"))
	agent.wants(a)
	agent.step(at("/dev/ttyUSB1 188:1")) // while its image is fetched
	agent.step(Prepared{ID: a.ID, Fence: a.Fence})
	agent.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 1, At: agent.now, Handle: []byte(`"h"`)})
	agent.step(at("/dev/ttyUSB1 188:1"))
	if i := agent.c.ledger.insts[a.ID]; i.State != skerry.Running {
		t.Errorf("it is %s (%s), want that it runs", i.State, i.Reason)
	}
}

// A device that went while no agent ran ends its instance, too, if the machine was told of before it was known what runs on it.
func TestDeviceThatWentMeanwhile(t *testing.T) {
	d := newDevice(t)
	d.step(Facts{Facts: wire.WorkerFacts{Attachable: []string{"plc=a"}}})
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	a.Devices = []string{"plc=a"}
	d.runs(a)
	d.start()
	d.step(Facts{})
	d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Handle: []byte(`"h"`), Running: true}}})
	if i := d.c.ledger.insts[a.ID]; i.Phase != skerry.PhaseRunning {
		t.Fatalf("it does not run: %+v", i)
	}
	d.step(Facts{})
	if i := d.c.ledger.insts[a.ID]; i.State != skerry.Failed || i.Reason != "its device plc=a is gone" {
		t.Errorf("it is in state %s (%s), want that it has failed", i.State, i.Reason)
	}
}
