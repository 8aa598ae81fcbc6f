package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// TestUseThatIsOver asks what counts of what instances used last: only that of those that serve on, where they are heard of.
func TestUseThatIsOver(t *testing.T) {
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Admission: Admission{Trusted: []string{"acme"}}})
	c.Start(time.Unix(1e9, 0))
	c.addWorker(&worker{Name: "here"}, trust.Record{})
	c.addWorker(&worker{Name: "lost"}, trust.Record{})
	c.detect.Lose("lost")
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	for id, p := range map[skerry.InstanceID]*placement{
		"serves":     {location: location{Worker: "here"}},
		"terminated": {location: location{Worker: "here"}, Obs: wire.Observation{State: skerry.Terminated}},
		"failed":     {location: location{Worker: "here"}, Obs: wire.Observation{State: skerry.Failed}},
		"drains":     {location: location{Worker: "here"}, Removing: true},
		"lost":       {location: location{Worker: "lost"}},
		"forgotten":  {location: location{Worker: "gone"}},
	} {
		p.Origin, p.A.ID, p.A.Service, p.qos = "root", id, k, &wire.QoS{CPU: 300}
		c.places[id] = p
	}
	if q := c.foldQoS(); len(q) != 1 || q[0].QoS.CPU != 300 {
		t.Errorf("the root is told %+v", q)
	}
	if list := c.RootApps(); len(list) != 1 || len(list[0].Services) != 1 || list[0].Services[0].QoS.CPU != 300 {
		t.Errorf("the site shows %+v, want that the service uses 300", list)
	}
	for _, inst := range c.Instances() {
		one, _, _ := c.Instance(inst.ID)
		if want := inst.ID == "serves"; (inst.QoS != nil) != want || (one.QoS != nil) != want {
			t.Errorf("of %s a use is shown: %v, and alone %v; want %v", inst.ID, inst.QoS != nil, one.QoS != nil, want)
		}
	}
}
