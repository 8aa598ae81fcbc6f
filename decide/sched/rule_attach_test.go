package sched

import (
	"slices"
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestAttachable(t *testing.T) {
	two := func(r *Request) {
		own := *r.Spec
		own.Devices = []spec.DeviceRequest{{CDI: "acme.example/sensor", Count: 2}}
		r.Spec = &own
	}
	offers := func(names ...string) func(*Worker) { return func(w *Worker) { w.Attachable = names } }
	taken := func(w *Worker) {
		w.Attachable = []string{"acme.example/sensor=a", "acme.example/sensor=b"}
		w.DevicesTaken = map[string]int{"acme.example/sensor=b": 1}
	}
	testRule(t, Attachable{}, []ruleCase{
		{name: "none is asked for"},
		{name: "enough", worker: offers("acme.example/sensor=a", "acme.example/sensor=b"), ask: two},
		{name: "none", ask: two, want: "devices: it has not as many devices acme.example/sensor as are asked for: 0"},
		{name: "of another class", worker: offers("acme.example/sensors=a", "acme.example/sensors=b", "acme.example/sensor=a"), ask: two,
			want: "devices: it has not as many devices acme.example/sensor as are asked for: 1"},
		{name: "taken", worker: taken, ask: two, want: "devices: other instances have its devices acme.example/sensor: 1 of 2 are taken"},
	})
	testRule(t, Attachable{Bare: true}, []ruleCase{
		{name: "none", ask: two, want: "devices: it has not as many devices acme.example/sensor as are asked for: 0"},
		{name: "taken", worker: taken, ask: two},
	})
}

// Of a worker that is full, and that a service is not for, the second counts where it is asked what the worker is.
func TestOfMachines(t *testing.T) {
	s := siteOf([]*Worker{worker("w", 1000, 1<<30, func(w *Worker) { w.HostPorts = map[string]bool{"tcp/80": true} })})
	ask := &spec.ServiceSpec{Resources: spec.Resources{CPU: 4000}, Ports: []spec.Port{{Name: "http", Port: 80, HostPort: 80}}}
	r := &Request{Spec: ask, Need: ask.Resources}
	if why := s.Fails(ROM(), r, "w"); why == nil || why.What != "cpu" {
		t.Errorf("of all: %+v", why)
	}
	if why := s.Fails(ROM().OfMachines(), r, "w"); why != nil {
		t.Errorf("of what the worker is: %+v", why)
	}
	ask.Placement.Labels = map[string]string{"site": "roof"}
	if why := s.Fails(LDP().OfMachines(), r, "w"); why == nil || why.What != "label" {
		t.Errorf("of its labels: %+v", why)
	}
}

// What a placement takes, in a plan as well, the next one does not find.
func TestTakeDevices(t *testing.T) {
	spec := &spec.ServiceSpec{Devices: []spec.DeviceRequest{{CDI: "acme.example/sensor"}}}
	s := siteOf([]*Worker{worker("w", 4000, 1<<30, func(w *Worker) { w.Attachable = []string{"acme.example/sensor=a", "acme.example/sensor=b"} })})
	r := &Request{Spec: spec}
	for _, want := range []string{"acme.example/sensor=a", "acme.example/sensor=b"} {
		if got := s.PickDevices("w", spec); !slices.Equal(got, []string{want}) {
			t.Errorf("%v, not %s", got, want)
		}
		s.Take("w", r)
	}
	if got := s.PickDevices("w", spec); got != nil {
		t.Errorf("a third one: %v", got)
	}
	r.Devices = []string{"acme.example/sensor=a"}
	s.Give("w", r)
	if got := s.PickDevices("w", spec); !slices.Equal(got, r.Devices) {
		t.Errorf("given back: %v", got)
	}
}

// For gpus and tpus a container has devices of the classes that its worker declares; where there are none, or it is no container, they are
// counted and nothing else.
func TestAcceleratorsAreHandedIn(t *testing.T) {
	const gpu, tpu = "nvidia.com/gpu", "google.com/tpu"
	site := func(runtime string, classes spec.Accelerators) *Site {
		return siteOf([]*Worker{worker("w", 4000, 1<<30, func(w *Worker) {
			w.Attachable, w.Accelerators, w.Runtimes = []string{tpu + "=0", gpu + "=0", gpu + "=1"}, classes, []string{runtime}
			w.Capacity.GPUs, w.Available.GPUs, w.Capacity.TPUs, w.Available.TPUs = 2, 2, 1, 1
		})})
	}
	both := spec.Accelerators{GPUs: gpu, TPUs: tpu}
	for _, c := range []struct {
		name    string
		runtime string
		classes spec.Accelerators
		gpus    int
		tpus    int
		own     []spec.DeviceRequest
		want    []string
	}{
		{"one", spec.RuntimeOCI, both, 1, 0, nil, []string{gpu + "=0"}},
		{"both kinds", spec.RuntimeOCI, both, 2, 1, nil, []string{gpu + "=0", gpu + "=1", tpu + "=0"}},
		{"none is asked for", spec.RuntimeOCI, both, 0, 0, nil, nil},
		{"beside devices of its own", spec.RuntimeOCI, both, 1, 0, []spec.DeviceRequest{{CDI: tpu}}, []string{tpu + "=0", gpu + "=0"}},
		{"a certain one of the class", spec.RuntimeOCI, both, 1, 0, []spec.DeviceRequest{{CDI: gpu + "=1"}}, []string{gpu + "=1"}},
		{"no class", spec.RuntimeOCI, spec.Accelerators{}, 1, 1, nil, nil},
		{"no container", spec.RuntimeMicroVM, both, 1, 0, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := &spec.ServiceSpec{Name: "infer", Runtime: c.runtime, Devices: c.own}
			svc.Image = "infer:1"
			svc.Resources.GPUs, svc.Resources.TPUs = c.gpus, c.tpus
			if got := site(c.runtime, c.classes).PickDevices("w", svc); !slices.Equal(got, c.want) {
				t.Errorf("it has %v, not %v", got, c.want)
			}
		})
	}
	// The device of an instance is nobody else's, although there are as many processors as before by their number alone.
	s := site(spec.RuntimeOCI, both)
	svc := &spec.ServiceSpec{Name: "infer", Runtime: spec.RuntimeOCI}
	svc.Image, svc.Resources.TPUs = "infer:1", 1
	r := &Request{Spec: svc, Instance: "infer-1"}
	s.Take("w", r)
	d := s.Place(epoch, Policy{Rules: []Rule{Attachable{}}, Rank: BestFit{}}, r, 1)
	if d.Chosen != "" || len(d.Why) != 1 || d.Why[0].Text != "other instances have its devices "+tpu+": 1 of 1 are taken" {
		t.Errorf("%q %+v", d.Chosen, d.Why)
	}
}

// A device with shares is several instances', those first that the fewest have; what they are asked to be labelled they are.
func TestSharedDevices(t *testing.T) {
	s := siteOf([]*Worker{worker("w", 4000, 1<<30, func(w *Worker) {
		w.Attachable = []string{"plc=a", "plc=b", "plc=c"}
		ftdi := wire.Device{Shares: 2, Labels: map[string]string{"vendor": "0403"}}
		w.DeviceDetails = map[string]wire.Device{"plc=a": ftdi, "plc=b": ftdi}
	})})
	svc := &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Class: "plc", Match: map[string]string{"vendor": "0403"}}}}
	r := &Request{Spec: svc}
	for n, want := range []string{"plc=a", "plc=b", "plc=a", "plc=b"} {
		if got := s.PickDevices("w", svc); !slices.Equal(got, []string{want}) {
			t.Fatalf("instance %d has %v, want %s", n, got, want)
		}
		s.Take("w", r)
	}
	d := s.Place(epoch, Policy{Rules: []Rule{Attachable{}}, Rank: BestFit{}}, r, 1)
	want := "other instances have its devices plc (vendor=0403): 2 of 2 are taken"
	if d.Chosen != "" || len(d.Why) != 1 || d.Why[0].Text != want {
		t.Errorf("the fifth is on %q because of %+v, want nowhere and %q", d.Chosen, d.Why, want)
	}
	r.Devices = []string{"plc=b"}
	s.Give("w", r)
	if got := s.PickDevices("w", svc); !slices.Equal(got, r.Devices) {
		t.Errorf("after one was given back, the next has %v, want %v", got, r.Devices)
	}
	if got := s.PickDevices("w", &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Class: "plc", Count: 3}}}); got != nil {
		t.Errorf("three of a class of which one is full are %v, want none", got)
	}
}

// A serial line has a name by its maker and one by its socket: who has it by one of them has it by the other, too. What one host in a
// network offers are several devices.
func TestOneDeviceOfTwoNames(t *testing.T) {
	id, path := "/dev/serial/by-id/a", "/dev/serial/by-path/1"
	for name, c := range map[string]struct{ at, other, want string }{
		"one node":  {"/dev/ttyUSB0", "/dev/ttyUSB0", "other instances have its devices " + path + ": 1 of 1 are taken"},
		"two nodes": {"/dev/ttyUSB0", "/dev/ttyUSB1", ""}, "one host": {"10.0.0.7", "10.0.0.7", ""}, "nothing is told": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := siteOf([]*Worker{worker("w", 4000, 1<<30, func(w *Worker) {
				w.Attachable = []string{id, path}
				w.DeviceDetails = map[string]wire.Device{id: {At: c.at}, path: {At: c.other}}
			})})
			by := func(path string) *spec.ServiceSpec {
				return &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Path: path}}}
			}
			s.Take("w", &Request{Spec: by(id)})
			d := s.Place(epoch, Policy{Rules: []Rule{Attachable{}}, Rank: BestFit{}}, &Request{Spec: by(path), Instance: "i"}, 1)
			got := ""
			if len(d.Why) > 0 {
				got = d.Why[0].Text
			}
			if got != c.want || (d.Chosen == "w") != (c.want == "") {
				t.Errorf("it is on %q because of %q, want %q", d.Chosen, got, c.want)
			}
		})
	}
}

// A device that has got another name is nobody's by that before it is given back by its old one.
func TestDeviceOfAnotherName(t *testing.T) {
	s := siteOf([]*Worker{worker("w", 4000, 1<<30, func(w *Worker) {
		w.Attachable = []string{"serial=a-at-1", "serial=a-at-2"}
		w.DeviceDetails = map[string]wire.Device{"serial=a-at-1": {At: "/dev/ttyUSB0"}, "serial=a-at-2": {At: "/dev/ttyUSB1"}}
		w.DevicesTaken, w.DevicesWere = map[string]int{"serial=a": 1}, map[string]string{"serial=a": "/dev/ttyUSB0"}
	})})
	svc := &spec.ServiceSpec{Devices: []spec.DeviceRequest{{Class: "serial"}}}
	if got := s.PickDevices("w", svc); !slices.Equal(got, []string{"serial=a-at-2"}) {
		t.Errorf("while it is taken: got %v, want the other one", got)
	}
	s.Give("w", &Request{Spec: svc, Devices: []string{"serial=a"}})
	if got := s.PickDevices("w", svc); !slices.Equal(got, []string{"serial=a-at-1"}) {
		t.Errorf("once it is not: got %v, want it", got)
	}
}
