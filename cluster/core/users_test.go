package core

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Where the operator forbids it, nobody is asked to measure, and the decision can say why.
func TestNoMeasuring(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		s := newPeersSite(t)
		s.c.opt.Admission.NoMeasuring = forbidden
		s.join("w", "")
		s.report("w", wire.WorkerReport{Coordinate: &spec.Coordinate{}})
		limit := spec.Duration(10 * time.Millisecond)
		p := &placement{A: spec.Assignment{ID: "i"}}
		p.A.Spec.Placement.Users = []spec.User{{Address: "192.0.2.9", MaxLatency: &limit}}
		policy := sched.Policies()[spec.PolicyLDP]
		var fx wire.Effects
		known := s.c.find.usersKnown(s.now, p, policy, &fx)
		if forbidden && (!known || len(fx.Actions) > 0 || !strings.Contains(p.Users[0].Unknown, "operator")) {
			t.Errorf("known=%v, %d questions, %+v", known, len(fx.Actions), p.Users)
		}
		if !forbidden && (known && len(fx.Actions) == 0 && strings.Contains(p.Users[0].Unknown, "operator")) {
			t.Errorf("refused, though it is allowed: %+v", p.Users)
		}
	}
}

// A manifest has no worker look for who listens in the site's networks, unless the site trusts its organisation or grants that.
func TestUsersAreNoPortScan(t *testing.T) {
	limit := spec.Duration(10 * time.Millisecond)
	grants := Admission{Trusted: []string{"ours"}, MeasureNetworks: []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}, MeasurePorts: []int{5432}}
	for _, x := range []struct {
		address   string
		names     string // the field or what else the reason must name; empty: measured
		withGrant bool
	}{
		{"192.0.2.9", "", true}, {"192.0.2.9:443", "", true}, {"192.0.2.9:8443", "", true}, {"[2001:db8::1]:443", "", true},
		{"192.0.2.9:22", "port 22", false}, {"192.0.2.9:5432", "port 5432", true},
		{"10.0.0.1", "private", false}, {"192.168.7.1", "private", true}, {"192.168.8.1:443", "private", false}, {"::ffff:10.0.0.1", "private", false}, {"[fd00::1]:443", "private", false}, {"100.64.0.1", "private", false},
		{"127.0.0.1:80", "not the address", false}, {"169.254.169.254:80", "not the address", false},
	} {
		u := []spec.User{{}, {Address: x.address, MaxLatency: &limit}}
		q := &spec.Placement{Users: u}
		none := Admission{}
		if why := none.checkUsers("theirs", q); (why == "") != (x.names == "") || why != "" && (!strings.Contains(why, x.names) || !strings.Contains(why, "placement.users[1].address")) {
			t.Errorf("%s: %q", x.address, why)
		}
		if why := grants.checkUsers("theirs", q); (why == "") != x.withGrant {
			t.Errorf("%s with a grant: %q", x.address, why)
		}
		if why := grants.checkUsers("ours", q); why != "" {
			t.Errorf("%s of who is trusted: %q", x.address, why)
		}
	}
	s := newPeersSite(t)
	s.join("w", "")
	s.report("w", wire.WorkerReport{Coordinate: &spec.Coordinate{}})
	p := &placement{A: spec.Assignment{ID: "i", Org: "theirs"}}
	p.A.Spec.Placement.Users = []spec.User{{Address: "10.0.0.1", MaxLatency: &limit}}
	var fx wire.Effects
	s.c.opt.Admission = Admission{}
	if known := s.c.find.usersKnown(s.now, p, sched.Policies()[spec.PolicyLDP], &fx); !known || len(fx.Actions) > 0 || !strings.Contains(p.Users[0].Unknown, "measureNetworks") {
		t.Errorf("known=%v, %d questions, %+v", known, len(fx.Actions), p.Users)
	}
}
