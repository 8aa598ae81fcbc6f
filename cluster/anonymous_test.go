package cluster

import "testing"

func TestAnonymous(t *testing.T) {
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	for _, name := range []string{"s", "w1", "harbour-crane", "quay"} {
		c.workers[name] = &worker{Name: name}
	}
	near := &placement{Worker: "harbour-crane"}
	short := &placement{Worker: "s", Pinned: "w1"}
	for _, x := range []struct {
		p        *placement
		in, want string
	}{
		{near, "worker harbour-crane has no room", "a worker has no room"},
		{near, "mount /run/xharbour-craney/1: busy", "mount /run/xa workery/1: busy"},
		{near, "quay.example refuses, quayside does not", "a worker.example refuses, quayside does not"},
		{short, "readiness: worker s is stopped", "readiness: a worker is stopped"},
		{short, "pinned to w1, and w10 is no worker", "pinned to a worker, and w10 is no worker"},
		{short, "/run/skerry/w1/x.s", "/run/skerry/a worker/x.a worker"},
	} {
		if got := c.anonymous(x.p, x.in); got != x.want {
			t.Errorf("%q became %q, want %q", x.in, got, x.want)
		}
	}
}
