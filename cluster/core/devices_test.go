package core

import (
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A site that was started again gives a worker's devices to nobody until the worker has told again which of their names are those of one.
func TestDevicesAfterARestart(t *testing.T) {
	const byID, byPath, other = "/dev/serial/by-id/a", "/dev/serial/by-path/1", "/dev/serial/by-path/2"
	facts := &wire.WorkerFacts{Arch: "amd64", Attachable: []string{byID, byPath, other}, DeviceDetails: []wire.Device{
		{Name: byID, At: "/dev/ttyUSB0"}, {Name: byPath, At: "/dev/ttyUSB0"}, {Name: other, At: "/dev/ttyUSB1"}}}
	up := ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}}
	report := wire.New().Marshal(&wire.WorkerReport{Seq: 1, Facts: facts})
	tells := ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: report}}
	picks := func(site *keptSite, path string) bool {
		return len(site.site.PickDevices("w", &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Path: path}}})) > 0
	}
	site := newKeptSite(t, "a1", nil)
	site.do(up)
	site.do(tells)
	for _, again := range []bool{false, true} {
		if again {
			site = newKeptSite(t, "a1", site.store)
			site.do(up)
		}
		w := site.workers["w"]
		site.takePorts(w, []string{deviceKey(byID)}, 1)
		if again && (picks(site, byPath) || picks(site, other)) {
			t.Error("a device is given before it is known of whose name it is")
		}
		if again {
			site.do(tells)
		}
		if picks(site, byPath) || !picks(site, other) {
			t.Errorf("started again: %v: given by its other name: %v, and the other one: %v; want the other one alone", again, picks(site, byPath),
				picks(site, other))
		}
		site.takePorts(w, []string{deviceKey(byID)}, -1)
	}
}

// What an instance has is nobody else's while it ends, whatever the worker calls it by then.
func TestDevicesThatAreRenamed(t *testing.T) {
	site := newKeptSite(t, "a1", nil)
	site.do(ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	seq := uint64(0)
	tells := func(name, node string) {
		t.Helper()
		seq++
		facts := &wire.WorkerFacts{Arch: "amd64", Attachable: []string{name}, DeviceDetails: []wire.Device{{Name: name, At: node}}}
		report := wire.New().Marshal(&wire.WorkerReport{Seq: seq, Facts: facts})
		site.do(ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: report}})
	}
	free := func() bool {
		return len(site.site.PickDevices("w", &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Class: "serial"}}})) > 0
	}
	tells("serial=a", "/dev/ttyUSB0")
	w := site.workers["w"]
	site.takePorts(w, []string{deviceKey("serial=a")}, 1)
	for i, c := range []struct {
		name, node string
		free       bool
	}{{"serial=a", "/dev/ttyUSB0", false}, {"serial=a-at-1", "/dev/ttyUSB0", false}, {"serial=b", "/dev/ttyUSB1", true},
		{"serial=c", "/dev/ttyUSB0", false}} {
		if tells(c.name, c.node); free() != c.free {
			t.Errorf("%d: %s at %s is free: %v, want %v", i, c.name, c.node, !c.free, c.free)
		}
	}
	site.takePorts(w, []string{deviceKey("serial=a")}, -1)
	if !free() {
		t.Error("it is not free once nobody has it")
	}
}
