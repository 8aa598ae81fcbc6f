package sched

import (
	"slices"
	"testing"

	"skerry.dev/skerry/spec"
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
		w.HostPorts = map[string]bool{DeviceKey("acme.example/sensor=b"): true}
	}
	testRule(t, Attachable{}, []ruleCase{
		{name: "none is asked for"},
		{name: "enough", worker: offers("acme.example/sensor=a", "acme.example/sensor=b"), ask: two},
		{name: "none", ask: two, want: "devices: it has not as many devices acme.example/sensor as are asked for"},
		{name: "of another class", worker: offers("acme.example/sensors=a", "acme.example/sensors=b", "acme.example/sensor=a"), ask: two, want: "devices: it has not as many devices acme.example/sensor as are asked for"},
		{name: "taken", worker: taken, ask: two, want: "devices: other instances have its devices acme.example/sensor"},
	})
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
