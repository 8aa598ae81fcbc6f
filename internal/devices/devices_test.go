package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// made is a tree of files as sysfs has them: text is a file, a text that begins with -> a link.
func made(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	top := t.TempDir()
	for name, text := range files {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(text, "->"); ok {
			if err := os.MkdirAll(filepath.Join(filepath.Dir(path), to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// In place of nodes, which take root, a file below dev says its number.
	return &Tree{Sys: filepath.Join(top, "sys"), Dev: filepath.Join(top, "dev"),
		Captures: func(node string) bool { return !strings.HasSuffix(node, "video1") },
		Number: func(node string) (string, error) {
			b, err := os.ReadFile(node)
			return strings.TrimSpace(string(b)), err
		}}
}

// usb are the files of a USB device at a place, with an interface.
func usb(place, vendor, product, serial string) map[string]string {
	at := "sys/devices/pci0/usb1/" + place + "/"
	out := map[string]string{at + "idVendor": vendor, at + "idProduct": product, at + "manufacturer": "ACME",
		at + "product":                       "Thing \x01 of \"ours\"",
		at + place + ":1.0/bInterfaceNumber": "00"}
	if serial != "" {
		out[at+"serial"] = serial
	}
	return out
}

// port is a serial port of a USB device.
func port(place, tty, number, minor string) map[string]string {
	at := "sys/devices/pci0/usb1/" + place + "/" + place + ":1.0/" + tty + "/"
	return map[string]string{at + "port_number": number, at + "driver": "->../../../../../../bus/usb-serial/drivers/ftdi_sio",
		at + "tty/" + tty + "/dev": "188:" + minor, at + "tty/" + tty + "/device": "->../../../" + tty,
		"sys/class/tty/" + tty: "->../../devices/pci0/usb1/" + place + "/" + place + ":1.0/" + tty + "/tty/" + tty, "dev/" + tty: "188:" + minor}
}

func all(maps ...map[string]string) map[string]string { return merge(maps...) }

func ids(list []Device) (out []string) {
	for _, d := range list {
		out = append(out, d.ID())
	}
	return out
}

func TestFind(t *testing.T) {
	pci := map[string]string{
		"sys/devices/pci0/0000:00:02.0/vendor": "0x8086", "sys/devices/pci0/0000:00:02.0/device": "0x46a6",
		"sys/devices/pci0/0000:00:02.0/driver":                "->../../../bus/pci/drivers/i915",
		"sys/devices/pci0/0000:00:02.0/subsystem":             "->../../../bus/pci",
		"sys/devices/pci0/0000:00:02.0/drm/renderD128/dev":    "226:128",
		"sys/devices/pci0/0000:00:02.0/drm/renderD128/device": "->../../../0000:00:02.0",
		"sys/class/drm/renderD128":                            "->../../devices/pci0/0000:00:02.0/drm/renderD128",
		"dev/dri/renderD128":                                  "226:128",
		"sys/devices/pci0/0000:00:02.0/i2c-3/name":            "i915 gmbus dpb", "sys/devices/pci0/0000:00:02.0/i2c-3/i2c-dev/i2c-3/dev": "89:3",
		"sys/devices/pci0/0000:00:02.0/i2c-3/i2c-dev/i2c-3/device": "->../../../i2c-3",
		"sys/class/i2c-dev/i2c-3":                                  "->../../devices/pci0/0000:00:02.0/i2c-3/i2c-dev/i2c-3", "dev/i2c-3": "89:3",
	}
	chip := map[string]string{"sys/devices/platform/fe200000.gpio/driver": "->../../../bus/platform/drivers/pinctrl",
		"sys/devices/platform/fe200000.gpio/subsystem":     "->../../../bus/platform",
		"sys/devices/platform/fe200000.gpio/gpiochip0/dev": "254:0",
		"sys/bus/gpio/devices/gpiochip0":                   "->../../../devices/platform/fe200000.gpio/gpiochip0", "dev/gpiochip0": "254:0"}
	video := func(n, index string) map[string]string {
		at := "sys/devices/pci0/usb1/1-4/1-4:1.0/video4linux/video" + n + "/"
		return map[string]string{at + "dev": "81:" + n, at + "name": "Dock camera", at + "index": index, at + "device": "->../../../1-4:1.0",
			"sys/class/video4linux/video" + n: "->../../devices/pci0/usb1/1-4/1-4:1.0/video4linux/video" + n, "dev/video" + n: "81:" + n}
	}
	card := "sys/devices/pci0/usb1/1-4/1-4:1.0/sound/card2/"
	sound := map[string]string{card + "id": "Dock", card + "device": "->../../../1-4:1.0", card + "controlC2/dev": "116:2",
		card + "pcmC2D0c/dev": "116:3", card + "pcmC20D0c/dev": "116:9",
		"sys/class/sound/card2": "->../../devices/pci0/usb1/1-4/1-4:1.0/sound/card2",
		"dev/snd/controlC2":     "116:2", "dev/snd/pcmC2D0c": "116:3", "dev/snd/pcmC20D0c": "116:9"}
	for _, c := range []struct {
		name  string
		files map[string]string
		kinds []string
		want  []string
		nodes string // of the first
	}{
		{"nothing", nil, Kinds(), nil, ""},
		{"an adapter", all(usb("1-1", "0403", "6001", "A50285BI"), port("1-1", "ttyUSB0", "0", "0")), Kinds(),
			[]string{"serial=0403-6001-A50285BI"}, "ttyUSB0"},
		{"an adapter of two ports", all(usb("1-1", "0403", "6010", "FT1"), port("1-1", "ttyUSB0", "0", "0"), port("1-1", "ttyUSB1", "1", "1")),
			Kinds(), []string{"serial=0403-6010-FT1", "serial=0403-6010-FT1-port1"}, "ttyUSB0"},
		{"without a serial number it is known by its place", all(usb("1-1.2", "1a86", "7523", ""), port("1-1.2", "ttyUSB5", "0", "5")), Kinds(),
			[]string{"serial=1a86-7523-at-1-1.2"}, "ttyUSB5"},
		{"two of the same serial number", all(usb("1-1", "0403", "6001", "0001"), port("1-1", "ttyUSB0", "0", "0"),
			usb("1-2", "0403", "6001", "0001"), port("1-2", "ttyUSB1", "0", "1")), Kinds(),
			[]string{"serial=0403-6001-0001-at-1-1", "serial=0403-6001-0001-at-1-2"}, "ttyUSB0"},
		{"a hostile serial number", all(usb("1-1", "0403", "6001", "../../=x,\x1b[2J"+strings.Repeat("A", 300)),
			port("1-1", "ttyUSB0", "0", "0")),
			Kinds(), []string{"serial=0403-6001-x---2J" + strings.Repeat("A", 51)}, "ttyUSB0"},
		{"a node of another device", all(usb("1-1", "0403", "6001", "A"),
			port("1-1", "ttyUSB0", "0", "0"), map[string]string{"dev/ttyUSB0": "1:1"}),
			Kinds(), nil, ""},
		{"of no allowed kind", all(usb("1-1", "0403", "6001", "A"), port("1-1", "ttyUSB0", "0", "0")), []string{KindCamera}, nil, ""},
		{"a camera, and its node of data", all(usb("1-4", "046d", "0825", "C1"), video("0", "0"), video("1", "1")), Kinds(),
			[]string{"camera=046d-0825-C1"}, "video0"},
		{"a graphics processor and its bus", pci, Kinds(), []string{"gpu=pci-0000:00:02.0", "i2c=0000:00:02.0-i915-gmbus-dpb"}, "dri/renderD128"},
		{"that of a driver with libraries", all(pci, map[string]string{
			"sys/devices/pci0/0000:00:02.0/driver": "->../../../bus/pci/drivers/nvidia"}), []string{KindGPU}, nil, ""},
		{"a chip of GPIO", chip, Kinds(), []string{"gpio=fe200000.gpio"}, "gpiochip0"},
		{"a sound card, and not the nodes of another", all(usb("1-4", "046d", "0825", "C1"), sound), Kinds(),
			[]string{"sound=046d-0825-C1"}, "snd/controlC2 snd/pcmC2D0c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := made(t, c.files)
			got := tree.Find(c.kinds)
			if !slices.Equal(ids(got), c.want) {
				t.Fatalf("found %q, want %q", ids(got), c.want)
			}
			if len(got) == 0 {
				return
			}
			var nodes []string
			for _, n := range got[0].Nodes {
				nodes = append(nodes, strings.TrimPrefix(n, tree.Dev+"/"))
			}
			if strings.Join(nodes, " ") != c.nodes {
				t.Errorf("nodes are %q, want %q", nodes, c.nodes)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	got := made(t, all(usb("1-1", "0403", "6001", "A5"), port("1-1", "ttyUSB0", "0", "0"))).Find(Kinds())
	want := map[string]string{LabelBus: "usb", LabelVendor: "0403", LabelProduct: "6001", LabelSerial: "A5",
		LabelDriver: "ftdi_sio", LabelPlace: "1-1"}
	if len(got) != 1 {
		t.Fatalf("found %d devices, want 1", len(got))
	}
	for k, v := range want {
		if got[0].Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, got[0].Labels[k], v)
		}
	}
	if m, ok := got[0].Labels[LabelModel]; ok {
		t.Errorf("a model with a control character is shown as %q, want none", m)
	}
}

func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"serial": "", "plc=serial,vendor=0403,shares=2": "", "nvidia.com/gpu,shares=4": "", "camera=onvif,interface=eth1": "",
		"camera=mdns,interface=eth1,service=_rtsp._tcp": "",
		"": "no kind", "usb": "no kind", "a=nvidia.com/gpu": "no kind", "nvidia.com/gpu=0,shares=2": "no kind", "P L C=serial": "names no class",
		"serial,vendor": "not KEY=VALUE", "serial,vendor=": "not KEY=VALUE", "serial,shares=0": "not a number",
		"serial,shares=1001": "not a number",
		"serial,ven dor=1":   "no label", "nvidia.com/gpu,vendor=1": "only shares", "onvif": "needs interface",
		"serial,interface=eth0": "not in a network",
		"mdns,interface=eth0":   "needs service", "mdns,interface=eth0,service=rtsp": "needs service", "onvif,interface=../../x": "no name",
		"onvif,interface=eth0,service=_a._tcp": "is for mdns",
	} {
		_, err := ParseRule(text)
		if got := ""; err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			if err != nil {
				got = err.Error()
			}
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// What no rule names is not offered, and of those that do the first one counts.
func TestOffer(t *testing.T) {
	found := []Device{{Class: KindSerial, Name: "a", Labels: map[string]string{LabelVendor: "0403"}}, {Class: KindSerial, Name: "b"},
		{Class: KindCamera, Name: "c"}}
	for want, texts := range map[string][]string{"": nil, "plc=a": {"plc=serial,vendor=0403"},
		"plc=a serial=b":    {"plc=serial,vendor=0403", "serial"},
		"serial=a serial=b": {"serial", "plc=serial,vendor=0403"}, "camera=c": {"camera"}} {
		var rules []Rule
		for _, text := range texts {
			r, err := ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
		if got := strings.Join(ids(Offer(found, rules)), " "); got != want {
			t.Errorf("rules %q offer %q, want %q", texts, got, want)
		}
	}
}

func TestFile(t *testing.T) {
	good := "devices:\n- {class: plc, name: press-4, nodes: [/dev/ttyS1], labels: {line: \"4\"}, shares: 2}\n" +
		"- {class: camera, name: gate, address: \"rtsp://10.0.0.7/stream\"}\n"
	file, err := ParseFile([]byte(good))
	if err != nil || strings.Join(ids(file.Devices), " ") != "plc=press-4 camera=gate" {
		t.Fatalf("got %q and %v, want two devices", ids(file.Devices), err)
	}
	for text, want := range map[string]string{
		"devices: [{class: plc, name: a}]":                                                        "either nodes",
		"devices: [{class: plc, name: a, nodes: [/dev/ttyS1], address: \"h:1\"}]":                 "either nodes",
		"devices: [{class: PLC, name: a, nodes: [/dev/ttyS1]}]":                                   "small letters",
		"devices: [{class: plc, name: \"a b\", nodes: [/dev/ttyS1]}]":                             "name",
		"devices: [{class: plc, name: a, nodes: [ttyS1]}]":                                        "no absolute path",
		"devices: [{class: plc, name: a, nodes: [/dev/../etc]}]":                                  "no absolute path",
		"devices: [{class: plc, name: a, nodes: [/dev/ttyS1], shares: -1}]":                       "shares",
		"devices: [{class: plc, name: a, nodes: [/dev/ttyS1], port: 1}]":                          "unknown field",
		"devices: [{class: c, name: a, address: \"rtsp://h/\\n\"}]":                               "neither a URL",
		"devices: [{class: c, name: a, address: \"h\"}]":                                          "neither a URL",
		"devices: [{class: c, name: a, address: \"h:1\"}, {class: c, name: a, address: \"h:2\"}]": "twice",
		"devices: [{class: c, name: a, address: \"h:1\", labels: {\"a b\": x}}]":                  "label",
		"devices: [{cdi: acme.com/gpu, class: gpu, labels: {a: b}}]":                              "nothing else",
		"devices: [{cdi: acme.com/gpu, labels: {a: b}, shares: 2}]":                               "--device-class",
		"devices: [{cdi: gpu, labels: {a: b}}]":                                                   "neither vendor.com/class",
		"devices: [{cdi: acme.com/gpu, labels: {a/b/c: b}}]":                                      "label",
		"devices: [{cdi: acme.com/gpu, labels: {a: b}}, {cdi: acme.com/gpu}]":                     "twice",
		"x": "",
	} {
		if _, err := ParseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
	if got := (&Device{Address: "rtsp://user:secret@10.0.0.7:554/x"}).Host(); got != "10.0.0.7:554" {
		t.Errorf("the host is shown as %q, want it without the password", got)
	}
}

// What the operator says of a device comes before what its vendor does, and one device before all of its class.
func TestLabelsOfVendorsDevices(t *testing.T) {
	file, err := ParseFile([]byte(`devices:
- {cdi: acme.com/gpu, labels: {rack: "1", side: both}}
- {cdi: acme.com/gpu=0, labels: {side: left}}
`))
	if err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range spec.MaxDeviceLabels {
		many["k"+strconv.Itoa(i)] = "v"
	}
	for _, dev := range []struct {
		name, device string
		own, all     map[string]string
		want         string
	}{
		{"the file alone", "acme.com/gpu=0", nil, nil, "map[rack:1 side:left]"},
		{"of another device", "acme.com/gpu=1", nil, nil, "map[rack:1 side:both]"},
		{"of another class", "acme.com/gpus=0", nil, nil, "map[]"},
		{"annotations", "acme.com/gpus=0", map[string]string{"acme.com/model": "T4"}, map[string]string{"acme.com/model": "any", "b": "c"},
			"map[acme.com/model:T4 b:c]"},
		{"annotations against the file", "acme.com/gpu=0", map[string]string{"side": "x", "a": "b"}, map[string]string{"rack": "9"},
			"map[a:b rack:1 side:left]"},
		{"what can be no label", "acme.com/gpus=0", map[string]string{"a b": "c", "/x": "y", "x/": "y", "n": "two\nlines", "t": "\x1b[2J",
			"long": strings.Repeat("x", 129), strings.Repeat("k", 129): "v", "ok": "yes"}, nil, "map[ok:yes]"},
	} {
		if got := fmt.Sprint(file.LabelsOf(dev.device, dev.own, dev.all)); got != dev.want {
			t.Errorf("%s: %s has %s, want %s", dev.name, dev.device, got, dev.want)
		}
	}
	if got := file.LabelsOf("acme.com/gpu=0", many, nil); len(got) != spec.MaxDeviceLabels || got["side"] != "left" {
		t.Errorf("with many annotations it has %d labels: %v; want %d, and those of the file among them", len(got), got, spec.MaxDeviceLabels)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("devices: [{class: plc, name: a, nodes: [/dev/ttyS1], labels: {a: b}, shares: 2}]"))
	f.Add([]byte("devices: [{class: camera, name: a, address: \"rtsp://u:p@10.0.0.7/x\"}]"))
	f.Add([]byte("devices: [{cdi: acme.com/gpu=0, labels: {acme.com/side: left}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseFile(data)
		if err != nil {
			return
		}
		for name := range file.Labels {
			for k, v := range file.LabelsOf(name, file.Labels[""], nil) {
				if _, _, _, ok := spec.ParseCDI(name); !ok || !spec.CheckDeviceLabel(k, v) {
					t.Errorf("%q has the label %q=%q", name, k, v)
				}
			}
		}
		for _, d := range file.Devices {
			if !spec.CheckDeviceClass(d.Class) || !spec.CheckDeviceName(d.Name) ||
				(d.Address == "") == (len(d.Nodes) == 0) || strings.ContainsAny(d.Address, "\n \x00") {
				t.Errorf("accepted %+v", d)
			}
		}
	})
}

func FuzzParseRule(f *testing.F) {
	f.Add("plc=serial,vendor=0403,shares=2")
	f.Add("camera=mdns,interface=eth1,service=_rtsp._tcp")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseRule(text); err == nil && !spec.CheckDeviceClass(r.Class) {
			if _, _, one, ok := spec.ParseCDI(r.Kind); !ok || one != "" {
				t.Errorf("%q gave %+v", text, r)
			}
		}
	})
}

// What devices say of themselves is printed on terminals and put into names.
func FuzzFind(f *testing.F) {
	f.Add("0403", "6001", "A50285BI")
	f.Add("", "../x", "=\x1b")
	f.Fuzz(func(t *testing.T, vendor, product, serial string) {
		tree := made(t, all(usb("1-1", vendor, product, serial), port("1-1", "ttyUSB0", "0", "0")))
		for _, d := range tree.Find(Kinds()) {
			if !checked(&d) {
				t.Errorf("found %+v", d)
			}
		}
	})
}

// checked reports whether a device's name and labels can be shown and asked for.
func checked(d *Device) bool {
	for k, v := range d.Labels {
		if !spec.CheckDeviceLabel(k, v) {
			return false
		}
	}
	return spec.CheckDeviceName(d.Name)
}
