package core

import (
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An instance whose device is gone, or has come back elsewhere, ends and says why; one whose device is where it was goes on.
func TestDevicesThatGo(t *testing.T) {
	const plc = "serial=0403-6001-A5"
	at := func(node string) wire.WorkerFacts {
		return wire.WorkerFacts{Attachable: []string{"camera=gate", plc}, DeviceDetails: []wire.Device{{Name: plc, At: node}}}
	}
	more := at("/dev/ttyUSB0")
	more.Labels = map[string]string{"hall": "4"}
	for name, c := range map[string]struct {
		now  wire.WorkerFacts
		want string
	}{
		"it is there":                {more, ""},
		"it is gone":                 {wire.WorkerFacts{Attachable: []string{"camera=gate"}}, plc + " is gone"},
		"it is elsewhere":            {at("/dev/ttyUSB1"), plc + " was plugged in again elsewhere"},
		"nothing more is told of it": {wire.WorkerFacts{Attachable: []string{plc}}, plc + " was plugged in again elsewhere"},
		"it is there beside another name": {wire.WorkerFacts{Attachable: []string{plc, plc + "x"},
			DeviceDetails: at("/dev/ttyUSB0").DeviceDetails}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.step(Facts{Facts: at("/dev/ttyUSB0")})
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			a.Devices = []string{plc}
			i := d.runs(a)
			fx := d.step(Facts{Facts: c.now})
			if got := i.State == skerry.Failed; got != (c.want != "") {
				t.Errorf("it has failed: %v, in state %s; want %v", got, i.State, c.want != "")
			}
			if c.want != "" && i.Reason != "its device "+c.want {
				t.Errorf("the reason is %q, want that its device %s", i.Reason, c.want)
			}
			told := slices.ContainsFunc(fx.Events, func(e wire.Event) bool { return e.Reason == "DeviceGone" && e.Text == c.want })
			if told != (c.want != "") {
				t.Errorf("an event says so: %v, want %v", told, c.want != "")
			}
		})
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
