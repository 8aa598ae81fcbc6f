package spec

import (
	"slices"
	"strings"
	"testing"
)

func TestHostAddress(t *testing.T) {
	for name, c := range map[string]struct {
		ports []Port
		want  string // part of the refusal
	}{
		"loopback":      {[]Port{{Port: 80, HostPort: 8080, HostAddress: "127.0.0.1"}}, ""},
		"chosen":        {[]Port{{Port: 80, HostPort: -1, HostAddress: "127.0.0.1"}}, ""},
		"two addresses": {[]Port{{Port: 80, HostPort: 80, HostAddress: "127.0.0.1"}, {Port: 81, HostPort: 80, HostAddress: "192.0.2.1"}}, ""},
		"two protocols": {[]Port{{Port: 80, HostPort: 80, HostAddress: "127.0.0.1"}, {Port: 80, HostPort: 80, Protocol: "udp"}}, ""},
		"twice":         {slices.Repeat([]Port{{Port: 80, HostPort: 80, HostAddress: "127.0.0.1"}}, 2), "used twice"},
		"one and all":   {[]Port{{Port: 80, HostPort: 80, HostAddress: "127.0.0.1"}, {Port: 81, HostPort: 80}}, "used twice"},
		"all and one":   {[]Port{{Port: 80, HostPort: 80}, {Port: 81, HostPort: 80, HostAddress: "127.0.0.1"}}, "used twice"},
		"all twice":     {[]Port{{Port: 80, HostPort: 80}, {Port: 81, HostPort: 80}}, "used twice"},
		"a name":        {[]Port{{Port: 80, HostPort: 80, HostAddress: "localhost"}}, "not an IP address"},
		"IPv6":          {[]Port{{Port: 80, HostPort: 80, HostAddress: "::1"}}, "IPv4"},
		"all":           {[]Port{{Port: 80, HostPort: 80, HostAddress: "0.0.0.0"}}, "stands for all"},
		"multicast":     {[]Port{{Port: 80, HostPort: 80, HostAddress: "224.0.0.1"}}, "no address of a machine"},
		"no host port":  {[]Port{{Port: 80, HostAddress: "127.0.0.1"}}, "nothing listens"},
	} {
		s := &ServiceSpec{Ports: c.ports}
		checked := &checker{}
		checked.ports("services[0]", s)
		got := ""
		for _, p := range checked.problems {
			got += p.Message
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: refused with %q, want %q", name, got, c.want)
		}
		one := slices.ContainsFunc(c.ports, func(p Port) bool { return p.HostAddress != "" })
		if has := slices.Contains(FeaturesOf(s), FeatureHostAddress); has != one {
			t.Errorf("%s: the feature is asked for: %v, want %v", name, has, one)
		}
	}
}
