package spec

import (
	"net/netip"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// IPv6 addresses of services are chosen by what leads to the same: one address in two forms.
func TestChosenIPv6(t *testing.T) {
	four := netip.MustParseAddr("10.30.1.7")
	if got := ServiceOfTwin(ServiceTwin(four)); got != four {
		t.Errorf("%s", got)
	}
	for _, other := range []string{"fd00::1", "10.30.1.7", "fd30:5ce7:1::1"} {
		if a := netip.MustParseAddr(other); ServiceOfTwin(a) != a {
			t.Errorf("%s is %s", other, ServiceOfTwin(a))
		}
	}
	app := Application{Spec: ApplicationSpec{Services: []ServiceSpec{{Name: "web",
		Addresses: &ServiceAddresses{RoundRobin: ServiceTwin(four), Instances: []netip.Addr{{}, ServiceTwin(four)}}}}}}
	app.SetDefaults()
	if a := app.Spec.Services[0].Addresses; a.RoundRobin != four || a.Instances[1] != four || a.Instances[0].IsValid() || a.Closest.IsValid() {
		t.Errorf("%+v", a)
	}
}

// What is said for people, and how hard to look for a place, makes no instance another.
func TestRevisionLeavesOutTheSLAOfLinks(t *testing.T) {
	s := ServiceSpec{Name: "web", Links: []Link{{Service: "db", MaxDistance: 5}}}
	was := s.Revision()
	s.Description, s.Links[0].Rigidness, s.Links[0].ConvergenceTime = "x", new(0.3), new(Duration(time.Second))
	if s.Revision() != was || s.Links[0].Rigidness == nil {
		t.Error("it is another revision")
	}
	s.Links[0].MaxDistance = 6
	if s.Revision() == was {
		t.Error("a limit is no part of it")
	}
}

func TestSLAOfLinks(t *testing.T) {
	s := ServiceSpec{Name: "web", Resources: Resources{BandwidthOut: 5}, Links: []Link{
		{Service: "db", Rigidness: new(0.9), ConvergenceTime: new(Duration(time.Second)), Bandwidth: 40}, {Service: "log", Bandwidth: 2}}}
	s.Placement.Rigidness, s.Placement.ConvergenceTime = new(0.2), new(Duration(time.Minute))
	if *s.Rigidness("db") != 0.9 || *s.Rigidness("log") != 0.2 || *s.Rigidness("") != 0.2 || s.ConvergenceTime() != time.Second {
		t.Errorf("%v %v", *s.Rigidness("log"), s.ConvergenceTime())
	}
	if n := s.Need(); n.BandwidthOut != 42 || n.BandwidthIn != 0 {
		t.Errorf("%+v", n)
	}
	s.Links[0].ConvergenceTime, s.Resources.BandwidthOut = nil, 100*skerry.KiB
	if s.ConvergenceTime() != time.Minute || s.Need().BandwidthOut != 100*skerry.KiB {
		t.Errorf("%v %+v", s.ConvergenceTime(), s.Need())
	}
}

func TestAllowedClusters(t *testing.T) {
	for _, c := range []struct {
		p    Placement
		a, b bool
	}{{Placement{}, true, true}, {Placement{Cluster: "a"}, true, false}, {Placement{Clusters: []string{"b", "c"}}, false, true}} {
		if c.p.AllowsCluster("a") != c.a || c.p.AllowsCluster("b") != c.b {
			t.Errorf("%+v", c.p)
		}
	}
}
