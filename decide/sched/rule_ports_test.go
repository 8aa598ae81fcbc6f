package sched

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestHostPorts(t *testing.T) {
	ports := func(list ...spec.Port) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Ports = list }
	}
	at := func(address string, port int) func(*spec.ServiceSpec) {
		return ports(spec.Port{Port: 1, HostPort: port, HostAddress: address})
	}
	const refused = "hostPort: host port 80 is taken"
	taken := func(k string) func(*Worker) { return func(w *Worker) { w.HostPorts = map[string]bool{k: true} } }
	testRule(t, HostPorts{}, []ruleCase{
		{name: "taken", spec: ports(spec.Port{Port: 1, HostPort: 80}), worker: taken("tcp/80"), want: refused},
		{name: "free", spec: ports(spec.Port{Port: 1, HostPort: 81}), worker: taken("tcp/80")},
		{name: "another protocol", spec: ports(spec.Port{Port: 1, HostPort: 80, Protocol: "udp"}), worker: taken("tcp/80")},
		{name: "the worker chooses", spec: ports(spec.Port{Port: 80, HostPort: -1}), worker: taken("tcp/80")},
		{name: "the second of two", spec: ports(spec.Port{Port: 1, HostPort: 81}, spec.Port{Port: 2, HostPort: 80}), worker: taken("tcp/80"), want: refused},
		{name: "one address, all taken", spec: at("127.0.0.1", 80), worker: taken("tcp/80"), want: refused},
		{name: "one address, it is taken", spec: at("127.0.0.1", 80), worker: taken("tcp/80@127.0.0.1"), want: refused},
		{name: "one address, another taken", spec: at("127.0.0.1", 80), worker: taken("tcp/80@192.0.2.1")},
		{name: "all, one taken", spec: at("", 80), worker: taken("tcp/80@192.0.2.1"), want: refused},
		{name: "all, another port of one address taken", spec: ports(spec.Port{Port: 1, HostPort: 8}), worker: taken("tcp/80@192.0.2.1")},
	})
	// Take and Give know of ports, and leave a clone alone.
	s := siteOf([]*Worker{worker("w", 4000, skerry.GiB)})
	r := request(1, 1, ports(spec.Port{Port: 1, HostPort: 80}))
	c := s.Clone()
	c.Take("w", r)
	if c.Fails(ROM(), r, "w") == nil || s.Fails(ROM(), r, "w") != nil {
		t.Error("a port was not taken, or taken in the original")
	}
	d := c.Clone()
	if c.Give("w", r); c.Fails(ROM(), r, "w") != nil || d.Fails(ROM(), r, "w") == nil {
		t.Error("a port was not given back, or given back in the copy")
	}
}
