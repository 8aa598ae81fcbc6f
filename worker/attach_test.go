//go:build linux

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// bench is a worker's directories of devices.
type bench struct {
	t   *testing.T
	dir string
	*attachables
}

func newBench(t *testing.T, rules ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	opt := AttachOptions{CDI: []string{filepath.Join(dir, "cdi")}, Dev: filepath.Join(dir, "dev"), Sys: filepath.Join(dir, "sys"),
		File: filepath.Join(dir, "devices.yaml")}
	for _, text := range rules {
		r, err := devices.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		opt.Rules = append(opt.Rules, r)
	}
	b := &bench{t, dir, newAttachables(opt)}
	b.write("devices.yaml", "devices: []")
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DEV", filepath.Join(b.dir, "dev"))), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) link(from, name string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(from, path); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) node(name string, minor uint32) {
	b.t.Helper()
	path := filepath.Join(b.dir, "dev", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o660, int(unix.Mkdev(1, minor))); err != nil {
		b.t.Fatal(err)
	}
}

// adapter plugs a serial adapter in.
func (b *bench) adapter(serial, tty string, minor uint32) {
	b.t.Helper()
	at := "sys/devices/" + serial
	b.write(at+"/idVendor", "0403")
	b.write(at+"/idProduct", "6001")
	b.write(at+"/serial", serial)
	b.write(at+"/port/tty/"+tty+"/dev", fmt.Sprintf("1:%d", minor))
	b.link("../../../port", at+"/port/tty/"+tty+"/device")
	b.link("../../devices/"+serial+"/port/tty/"+tty, "sys/class/tty/"+tty)
	b.node(tty, minor)
	b.link("../../"+tty, "dev/serial/by-id/usb-"+serial)
}

func (b *bench) offers(want string) {
	b.t.Helper()
	b.scan()
	names, _, _ := b.list()
	if got := strings.Join(names, " "); got != want {
		b.t.Errorf("the worker offers %q, want %q", got, want)
	}
}

// Without a rule nothing is offered that was not before. With one, a device is offered by its class and not by its path as well, and not at
// all where its vendor's description, or the operator's file, has its node.
func TestNodesAreOfferedOnce(t *testing.T) {
	b := newBench(t)
	b.adapter("A", "ttyUSB0", 5)
	b.offers("/dev/serial/by-id/usb-A")
	b = newBench(t, "plc=serial,serial=A", "serial")
	b.adapter("A", "ttyUSB0", 5)
	b.adapter("B", "ttyUSB1", 7)
	b.offers("plc=0403-6001-A serial=0403-6001-B")
	b.write("devices.yaml", `devices: [{class: press, name: p4, nodes: [DEV/ttyUSB1]}, {class: press, name: p5, nodes: [DEV/nonesuch]}]`)
	b.offers("plc=0403-6001-A press=p4")
	b.write("cdi/acme.json", `{"cdiVersion": "0.6.0", "kind": "acme.example/port",
		"devices": [{"name": "a", 
		"containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "DEV/ttyUSB0"}]}}]}`)
	b.offers("acme.example/port=a press=p4")
}

// A file that has become wrong takes nothing from anybody; the operator is told once.
func TestSlipInTheFile(t *testing.T) {
	b := newBench(t)
	b.write("devices.yaml", `devices: [{class: camera, name: gate, address: "rtsp://10.0.0.7/x", shares: 3}]`)
	b.offers("camera=gate")
	b.write("devices.yaml", `devices: [{class: camera, name: gate`)
	changed, problems := b.scan()
	if changed || len(problems) != 1 {
		t.Errorf("changed: %v, problems %q; want no change and one problem", changed, problems)
	}
	if _, problems = b.scan(); len(problems) > 0 {
		t.Errorf("told again: %q, want nothing", problems)
	}
	b.offers("camera=gate")
	b.write("devices.yaml", "devices: []")
	b.offers("")
}

// Shares are those of the rule for a class of CDI, and of the file.
func TestSharesAreTold(t *testing.T) {
	b := newBench(t, "acme.example/gpu,shares=4", "serial,shares=2")
	b.write("cdi/acme.json", `{"cdiVersion": "0.6.0", "kind": "acme.example/gpu",
		"devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}]}`)
	b.adapter("A", "ttyUSB0", 5)
	b.offers("acme.example/gpu=0 serial=0403-6001-A")
	_, details, _ := b.list()
	for i, want := range []int{4, 2} {
		if len(details) != 2 || details[i].Shares != want {
			t.Errorf("details %d of %+v: want %d shares", i, details, want)
		}
	}
	if len(details) == 2 && (details[1].Labels["serial"] != "A" || details[1].At != filepath.Join(b.dir, "dev", "ttyUSB0")) {
		t.Errorf("of the adapter is told %+v, want its labels and node", details[1])
	}
}

// A device whose node has another number is elsewhere, whatever path or name it has.
func TestWhereDevicesAre(t *testing.T) {
	rig := newBench(t)
	rig.adapter("A", "ttyUSB0", 5)
	rig.node("acme0", 7)
	rig.write("cdi/acme.json", `{"cdiVersion": "0.6.0", "kind": "acme.example/port",
		"devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/acme0", "hostPath": "DEV/acme0"}]}}]}`)
	rig.write("devices.yaml", `devices: [{class: camera, name: gate, address: "rtsp://u:p@10.0.0.7/x"}]`)
	dev := filepath.Join(rig.dir, "dev")
	want := map[string][]string{"/dev/serial/by-id/usb-A": {dev + "/ttyUSB0 1:5"}, "acme.example/port=a": {dev + "/acme0 1:7"},
		"camera=gate": {"10.0.0.7"}}
	rig.scan()
	if _, _, where := rig.list(); !reflect.DeepEqual(where, want) {
		t.Errorf("devices are at %v, want %v", where, want)
	}
	if err := os.Remove(filepath.Join(dev, "acme0")); err != nil {
		t.Fatal(err)
	}
	rig.node("acme0", 3)
	want["acme.example/port=a"] = []string{dev + "/acme0 1:3"}
	changed, _ := rig.scan()
	if _, _, where := rig.list(); !changed || !reflect.DeepEqual(where, want) {
		t.Errorf("after a node has got another number, devices are at %v, changed: %v; want %v", where, changed, want)
	}
}

// What a vendor says of its devices are labels of them, and so is what the operator adds to that. A file that gives many devices many long
// ones makes no report that is too large, and the operator is told.
func TestVendorsDevicesHaveLabels(t *testing.T) {
	rig := newBench(t, "acme.example/gpu,shares=4")
	rig.write("cdi/acme.json", `{"cdiVersion": "0.6.0", "kind": "acme.example/gpu", "annotations": {"acme.example/model": "T4", "hall": "1"},
		"devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}, "annotations": {"memory": "16Gi"}}, {"name": "1"}]}`)
	rig.write("devices.yaml", `devices: [{cdi: acme.example/gpu=1, labels: {hall: "2"}}]`)
	rig.offers("acme.example/gpu=0 acme.example/gpu=1")
	_, details, _ := rig.list()
	for i, want := range []string{"map[acme.example/model:T4 hall:1 memory:16Gi]", "map[acme.example/model:T4 hall:2]"} {
		if len(details) != 2 || fmt.Sprint(details[i].Labels) != want || details[i].Shares != 4 || details[i].At != "" {
			t.Errorf("details %d of %+v: want the labels %s, 4 shares and no node", i, details, want)
		}
	}
	var list []string
	for i := range spec.MaxDevices {
		var labels []string
		for n := range spec.MaxDeviceLabels {
			labels = append(labels, fmt.Sprintf(`"k%d": %q`, n, strings.Repeat("x", 120)))
		}
		list = append(list, fmt.Sprintf(`{"name": "%03d", "annotations": {%s}}`, i, strings.Join(labels, ",")))
	}
	rig.write("cdi/acme.json", `{"cdiVersion": "0.6.0", "kind": "acme.example/gpu", "devices": [`+strings.Join(list, ",")+`]}`)
	if _, problems := rig.scan(); len(problems) != 1 || !strings.Contains(problems["labels"], "bytes of labels") {
		t.Errorf("the operator is told %q, want that there are too many labels", problems)
	}
	_, details, _ = rig.list()
	if size := len(fmt.Sprint(details)); size > 2*maxLabels || len(details) != spec.MaxDevices || len(details[0].Labels) == 0 {
		t.Errorf("%d devices with labels have %d bytes, want %d with less than %d", len(details), size, spec.MaxDevices, 2*maxLabels)
	}
}

// What a container has of its devices: nodes at their places, and variables that say where.
func TestDevicesAreHandedIn(t *testing.T) {
	b := newBench(t, "serial", "sound")
	b.adapter("A", "ttyUSB0", 5)
	b.adapter("B", "ttyUSB1", 7)
	b.node("one", 3)
	b.node("two", 3)
	b.write("devices.yaml", `devices: [{class: pair, name: p, nodes: [DEV/one, DEV/two]},
 {class: net-cam, name: gate, address: "rtsp://10.0.0.7/x"}]`)
	b.offers("net-cam=gate pair=p serial=0403-6001-A serial=0403-6001-B")
	a, other := "serial=0403-6001-A", "serial=0403-6001-B"
	for _, c := range []struct {
		name  string
		ask   []spec.DeviceRequest
		have  []string
		nodes string
		env   string
		fails string
	}{
		{"two of a class", []spec.DeviceRequest{{Class: "serial", Count: 2}}, []string{a, other}, "/dev/ttyUSB0 /dev/ttyUSB1",
			"SKERRY_DEVICE_SERIAL_0=/dev/ttyUSB0 SKERRY_DEVICE_SERIAL_1=/dev/ttyUSB1", ""},
		{"each at its place", []spec.DeviceRequest{{Class: "serial", At: "/dev/x"}, {Class: "serial=0403-6001-B", At: "/dev/y"}},
			[]string{other, a}, "/dev/y /dev/x", "SKERRY_DEVICE_SERIAL_0=/dev/y SKERRY_DEVICE_SERIAL_1=/dev/x", ""},
		{"in the network", []spec.DeviceRequest{{Class: "net-cam"}}, []string{"net-cam=gate"}, "",
			"SKERRY_DEVICE_NET_CAM_0=rtsp://10.0.0.7/x", ""},
		{"of several nodes", []spec.DeviceRequest{{Class: "pair"}}, []string{"pair=p"}, "/dev/one /dev/two", "SKERRY_DEVICE_PAIR_0=/dev/one", ""},
		{"of several nodes at one place", []spec.DeviceRequest{{Class: "pair", At: "/dev/x"}}, []string{"pair=p"}, "", "", "more than one node"},
		{"at a place of another", []spec.DeviceRequest{{Class: "serial"}, {Class: "pair", At: ""}, {Class: "serial", At: "/dev/ttyUSB0"}},
			[]string{a, "pair=p", other}, "", "", "another device is at /dev/ttyUSB0"},
		{"in the network, at a place", []spec.DeviceRequest{{Class: "net-cam", At: "/dev/x"}}, []string{"net-cam=gate"}, "", "", "no node"},
		{"one that is gone", []spec.DeviceRequest{{Class: "serial"}}, []string{"serial=other"}, "", "", "not on this worker any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var task runtime.Spec
			err := b.apply(&task, &spec.ServiceSpec{Devices: c.ask}, c.have)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("got %v, want an error with %q", err, c.fails)
				}
				return
			}
			var nodes []string
			for _, d := range task.Devices {
				nodes = append(nodes, d.Target)
			}
			if got, env := strings.Join(nodes, " "), strings.Join(task.Env, " "); err != nil || got != c.nodes || env != c.env {
				t.Errorf("nodes %q, environment %q (%v); want %q, %q", got, env, err, c.nodes, c.env)
			}
		})
	}
}

// What was heard in a network is offered beside the rest, and is gone once it is not heard any more.
func TestHeardDevicesAreOffered(t *testing.T) {
	b := newBench(t, "camera=onvif,interface=eth9")
	b.hear(0, []devices.Device{{Class: "camera", Name: "dock", Address: "http://user:secret@10.0.0.7/onvif"}})
	b.offers("camera=dock")
	if _, details, _ := b.list(); len(details) != 1 || details[0].At != "10.0.0.7" {
		t.Errorf("of it is told %+v, want its host and nothing more", details)
	}
	b.hear(0, nil)
	b.offers("")
}

// What was heard in a network is there at once when the agent is restarted, for the rule that it was heard for: else whatever has it ends.
func TestHeardDevicesOutliveTheAgent(t *testing.T) {
	const rule = "camera=onvif,interface=eth9,model=P3245"
	b := newBench(t, "serial", rule)
	file := filepath.Join(b.dir, heardFile)
	restarted := func(rules ...string) *bench {
		t.Helper()
		again := newBench(t, rules...)
		if err := again.remember(file); err != nil {
			t.Fatal(err)
		}
		return again
	}
	if err := b.remember(file); err != nil { // there is none yet
		t.Fatal(err)
	}
	b.hear(1, []devices.Device{{Class: "camera", Name: "dock", Address: "http://10.0.0.7/onvif"}})
	b.offers("camera=dock")
	if err := b.keep(); err != nil {
		t.Fatal(err)
	}
	again := restarted("gpu", "serial", rule+",shares=2")
	again.offers("camera=dock")
	if _, details, _ := again.list(); len(details) != 1 || details[0].At != "10.0.0.7" || details[0].Shares != 2 {
		t.Errorf("of it is told %+v, want where it was, and that two may have it", details)
	}
	restarted("camera=onvif,interface=eth8,model=P3245").offers("")
	restarted("serial").offers("")
	b.write(heardFile, "{")
	if err := b.remember(file); err == nil {
		t.Error("a damaged file gives no error")
	}
}

// Whoever says in a network that it has many devices, or the name of another one, takes away neither what the machine has nor what others
// have there.
func TestManyInANetwork(t *testing.T) {
	b := newBench(t, "aaa=mdns,interface=eth8,service=_rtsp._tcp", "aaa=onvif,interface=eth9", "serial")
	b.adapter("A5", "ttyUSB0", 5)
	yard := devices.Device{Class: "aaa", Name: "gate", Address: "http://10.0.0.7/onvif"}
	b.hear(1, []devices.Device{yard})
	b.offers("aaa=gate serial=0403-6001-A5")
	many := []devices.Device{{Class: "aaa", Name: "gate", Address: "rtsp://10.9.0.9:554"}}
	for i := range spec.MaxDevices {
		many = append(many, devices.Device{Class: "aaa", Name: fmt.Sprintf("a%03d", i), Address: "rtsp://10.9.0.9:554"})
	}
	b.hear(0, many)
	b.scan()
	names, details, _ := b.list()
	if len(names) != spec.MaxDevices {
		t.Errorf("%d devices are offered, want %d", len(names), spec.MaxDevices)
	}
	for name, want := range map[string]string{"aaa=gate": "10.0.0.7", "serial=0403-6001-A5": b.host("/dev/ttyUSB0")} {
		at := ""
		for _, d := range details {
			if d.Name == name {
				at = d.At
			}
		}
		if at != want {
			t.Errorf("%s is at %q, want it where it was: %s", name, at, want)
		}
	}
}
