package spec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPickDevices(t *testing.T) {
	offer := func(name string, labels ...string) DeviceOffer {
		d := DeviceOffer{Name: name, Labels: map[string]string{}}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			d.Labels[k] = v
		}
		return d
	}
	ftdi, other := offer("serial=a", "vendor=0403", "line=1"), offer("serial=b", "vendor=1a86", "line=1")
	gpus := []DeviceOffer{offer("acme.com/gpu=0"), offer("acme.com/gpu=1"), offer("acme.com/gpus=0")}
	vendor := map[string]string{"vendor": "0403"}
	for _, c := range []struct {
		name    string
		free    []DeviceOffer
		ask     []DeviceRequest
		want    string
		missing string
	}{
		{"of a class", gpus, []DeviceRequest{{CDI: "acme.com/gpu", Count: 2}}, "acme.com/gpu=0 acme.com/gpu=1", ""},
		{"too many", gpus, []DeviceRequest{{CDI: "acme.com/gpu", Count: 3}}, "", "acme.com/gpu"},
		{"a certain one beside the first", gpus, []DeviceRequest{{CDI: "acme.com/gpu"}, {CDI: "acme.com/gpu=0"}},
			"acme.com/gpu=0 acme.com/gpu=1", ""},
		{"by a label", []DeviceOffer{other, ftdi}, []DeviceRequest{{Class: "serial", Match: vendor}}, "serial=a", ""},
		{"by a label of a vendor", []DeviceOffer{offer("acme.com/gpu=0"), offer("acme.com/gpu=1", "acme.com/model=T4")},
			[]DeviceRequest{{CDI: "acme.com/gpu", Match: map[string]string{"acme.com/model": "T4"}}}, "acme.com/gpu=1", ""},
		{"by a label that none has", []DeviceOffer{other}, []DeviceRequest{{Class: "serial", Match: vendor}}, "", "serial (vendor=0403)"},
		{"the choosy one gets what the other had", []DeviceOffer{ftdi, other},
			[]DeviceRequest{{Class: "serial"}, {Class: "serial", Match: vendor}},
			"serial=b serial=a", ""},
		{"three that must all move on", []DeviceOffer{offer("c=1", "a=", "b="), offer("c=2", "b=", "d="), offer("c=3", "d=")},
			[]DeviceRequest{{Class: "c", Match: map[string]string{"b": ""}}, {Class: "c", Match: map[string]string{"d": ""}},
				{Class: "c", Match: map[string]string{"a": ""}}},
			"c=2 c=3 c=1", ""},
		{"a class with another's beginning", []DeviceOffer{offer("serials=a")}, []DeviceRequest{{Class: "serial"}}, "", "serial"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, missing := (&ServiceSpec{Devices: c.ask}).PickDevices(c.free, Accelerators{})
			lacks := ""
			if missing != nil {
				lacks = missing.String()
			}
			if got := strings.Join(names, " "); got != c.want || lacks != c.missing {
				t.Errorf("picked %q, lacking %q; want %q, lacking %q", got, lacks, c.want, c.missing)
			}
		})
	}
}

// enough tries all ways, in place of moving devices from one request to another.
func enough(wanted []*DeviceRequest, free []DeviceOffer) bool {
	if len(wanted) == 0 {
		return true
	}
	for i := range free {
		if wanted[0].Fits(&free[i]) && enough(wanted[1:], slices.Delete(slices.Clone(free), i, i+1)) {
			return true
		}
	}
	return false
}

// Devices are found whenever there is a way, each fits the request that RequestsOf says it is for, and none is given twice.
func TestPickDevicesAsAllWays(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 25))
	some := func() map[string]string {
		m := map[string]string{}
		for range rng.IntN(3) {
			m[string(rune('a'+rng.IntN(3)))] = "x"
		}
		return m
	}
	for round := range 5000 {
		var free []DeviceOffer
		for i := range rng.IntN(6) {
			free = append(free, DeviceOffer{Name: fmt.Sprintf("%c=%d", 'p'+rng.IntN(2), i), Labels: some()})
		}
		s := &ServiceSpec{}
		for range 1 + rng.IntN(4) {
			r := DeviceRequest{Class: string(rune('p' + rng.IntN(2))), Match: some(), Count: rng.IntN(3)}
			if rng.IntN(5) == 0 {
				r.Class, r.Count = r.Class+"=0", 0
			}
			s.Devices = append(s.Devices, r)
		}
		names, missing := s.PickDevices(free, Accelerators{})
		if want := enough(inOrder(s.Devices), free); want != (missing == nil) {
			t.Fatalf("round %d: %+v of %+v: got %v, missing %v; there is a way: %v", round, s.Devices, free, names, missing, want)
		}
		for i, r := range RequestsOf(s, names) {
			at := slices.IndexFunc(free, func(d DeviceOffer) bool { return d.Name == names[i] })
			if at < 0 || !r.Fits(&free[at]) || slices.Index(names, names[i]) != i {
				t.Fatalf("round %d: %s of %v is not for %v", round, names[i], names, r)
			}
		}
	}
}

func TestDeviceRequestsAreChecked(t *testing.T) {
	for want, r := range map[string]DeviceRequest{
		"":                                   {Class: "serial", Count: 2, Match: map[string]string{"vendor": "0403"}},
		"is named by one of":                 {Class: "serial", CDI: "acme.com/gpu"},
		"names no class of devices":          {Class: "acme.com/gpu"},
		"\"serial=\" names no class":         {Class: "serial="},
		"\"Serial\" names no class":          {Class: "Serial"},
		"one device of a name":               {Class: "serial=a", Count: 2},
		"have labels":                        {Path: "/dev/serial/by-id/a", Match: map[string]string{"a": "b"}},
		"no device has a label":              {Class: "serial", Match: map[string]string{"a": "b\n"}},
		"\"/dev/null\" is no place":          {Class: "serial", At: "/dev/null"},
		"\"/dev/pts/1\" is no place":         {Class: "serial", At: "/dev/pts/1"},
		"\"/etc/passwd\" is no place":        {Class: "serial", At: "/etc/passwd"},
		"\"/dev/../etc/x\" is no place":      {Class: "serial", At: "/dev/../etc/x"},
		"for one device of a class":          {Class: "serial", Count: 2, At: "/dev/plc"},
		"a path in the container is for one": {CDI: "acme.com/gpu", At: "/dev/plc"},
	} {
		c := &checker{}
		c.devices("s", &ServiceSpec{Devices: []DeviceRequest{r}})
		if got := fmt.Sprint(c.problems); want == "" && len(c.problems) > 0 || !strings.Contains(got, want) {
			t.Errorf("%+v: got %q, want %q", r, got, want)
		}
	}
}

// manyDevices are as many requests and devices as there can be, of which the last request has all others move on: request i fits the
// devices i and i+1 and takes the first of them, and the last one fits device 0 alone.
func manyDevices() (service *ServiceSpec, free []DeviceOffer) {
	service = &ServiceSpec{}
	label := func(i int) map[string]string { return map[string]string{"line": fmt.Sprint(i)} }
	for i := range MaxDevicesInstance - 1 {
		r := DeviceRequest{Class: "c", Match: map[string]string{fmt.Sprintf("k%d", i): "x"}}
		for n := range MaxDeviceLabels - 3 { // each label is looked at
			r.Match[fmt.Sprintf("a%02d", n)] = "x"
		}
		service.Devices = append(service.Devices, r)
	}
	service.Devices = append(service.Devices, DeviceRequest{Class: "c", Match: label(0)})
	for i := range MaxDevices {
		d := DeviceOffer{Name: fmt.Sprintf("c=%03d", i), Labels: label(i)}
		for n := range MaxDeviceLabels - 3 {
			d.Labels[fmt.Sprintf("a%02d", n)] = "x"
		}
		if i < MaxDevicesInstance {
			d.Labels[fmt.Sprintf("k%d", i)], d.Labels[fmt.Sprintf("k%d", i-1)] = "x", "x"
		}
		free = append(free, d)
	}
	return service, free
}

// Whatever a manifest asks for and a worker offers, finding devices takes a bounded number of steps: nobody holds a site up by labels.
func TestPickingIsBounded(t *testing.T) {
	const most = 160_000
	chain, free := manyDevices()
	taken := &ServiceSpec{} // one device more is asked for than fit, after all others have moved on for as long as they can
	for i := range MaxDevicesInstance {
		taken.Devices = append(taken.Devices, DeviceRequest{Class: "c", Match: map[string]string{"k" + fmt.Sprint(min(i, 61)): "x"}})
	}
	deepest := 0
	for name, s := range map[string]*ServiceSpec{"all move on": chain, "one too many": taken,
		"all of one class": {Devices: []DeviceRequest{{Class: "c", Count: MaxDevicesInstance}}}} {
		m := newMatching(inOrder(s.Devices), free)
		given := 0
		for i := range m.wanted {
			clear(m.seen)
			if m.give(i) {
				given++
			}
		}
		if want := map[string]int{"all move on": 64, "one too many": 63, "all of one class": 64}[name]; given != want || m.steps > most {
			t.Errorf("%s: %d of %d devices were given in %d steps, want %d in at most %d", name, given, len(m.wanted), m.steps, want, most)
		}
		deepest = max(deepest, m.steps)
	}
	if deepest < MaxDevices*MaxDeviceLabels {
		t.Errorf("the worst of these took %d steps, want at least a look at each label of each device", deepest)
	}
}

// A device that has two paths is one, and neither path is given for a second one.
func TestTwoNamesOfOneDevice(t *testing.T) {
	const byID, byPath, other = "/dev/serial/by-id/a", "/dev/serial/by-path/1", "/dev/serial/by-path/2"
	free := []DeviceOffer{{Name: byID, Node: "/dev/ttyUSB0"}, {Name: byPath, Node: "/dev/ttyUSB0"}, {Name: other, Node: "/dev/ttyUSB1"},
		{Name: "c=1"}, {Name: "c=2"}}
	ask := func(paths ...string) (s ServiceSpec) {
		for _, p := range paths {
			s.Devices = append(s.Devices, DeviceRequest{Path: p})
		}
		return s
	}
	for _, c := range []struct {
		service ServiceSpec
		want    string
		missing string
	}{
		{ask(byPath), byPath, ""}, {ask(byID, other), byID + " " + other, ""}, {ask(byID, byPath), "", byPath},
		{ServiceSpec{Devices: []DeviceRequest{{Class: "c", Count: 2}}}, "c=1 c=2", ""}, // of which no node is known
	} {
		names, missing := c.service.PickDevices(free, Accelerators{})
		lacks := ""
		if missing != nil {
			lacks = missing.String()
		}
		if got := strings.Join(names, " "); got != c.want || lacks != c.missing {
			t.Errorf("%v: picked %q, lacking %q; want %q, lacking %q", c.service.Devices, got, lacks, c.want, c.missing)
		}
	}
}

// BenchmarkPickDevices measures that worst case for one worker.
func BenchmarkPickDevices(b *testing.B) {
	s, free := manyDevices()
	for b.Loop() {
		if names, missing := s.PickDevices(free, Accelerators{}); len(names) != MaxDevicesInstance {
			b.Fatalf("%d devices, missing %v; want %d", len(names), missing, MaxDevicesInstance)
		}
	}
}

// Each device that fits gets an instance: once, by whatever name, and not by a name that no manifest could have.
func TestEachDevice(t *testing.T) {
	service := &ServiceSpec{Mode: ModePerDevice, Devices: []DeviceRequest{{Class: "serial", Match: map[string]string{"vendor": "0403"}}}}
	like := map[string]string{"vendor": "0403"}
	var names []string
	for _, d := range EachDevice(service, []DeviceOffer{{Name: "serial=c", Labels: like, Node: "/dev/ttyUSB1"},
		{Name: "serial=a", Labels: like, Node: "/dev/ttyUSB0"},
		{Name: "serial=b", Labels: like, Node: "/dev/ttyUSB0"}, {Name: "serial=x", Labels: map[string]string{"vendor": "1"}},
		{Name: "serials=a", Labels: like}, {Name: "serial=" + strings.Repeat("n", 300), Labels: like}, {Name: "serial=a b", Labels: like},
		{Name: "serial=c", Labels: like}}) {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "serial=a serial=c" {
		t.Errorf("devices that get an instance: got %q, want serial=a serial=c", got)
	}
	own := ForDevice(service, "serial=a")
	if own.Devices[0].Class != "serial=a" || service.Devices[0].Class != "serial" {
		t.Errorf("an instance asks for %q and the service for %q, want serial=a and serial", own.Devices[0].Class, service.Devices[0].Class)
	}
	if got, missing := own.PickDevices([]DeviceOffer{{Name: "serial=c", Labels: like}, {Name: "serial=a", Labels: like}},
		Accelerators{}); missing != nil || len(got) != 1 || got[0] != "serial=a" {
		t.Errorf("it is given %v, want serial=a alone", got)
	}
}
