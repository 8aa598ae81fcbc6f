package uplink

import (
	"testing"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What rules workers out leaves the site in numbers, and in terms of what the service asks for.
func TestInCounts(t *testing.T) {
	spec := &spec.ServiceSpec{Placement: spec.Placement{Arch: []string{"amd64", "arm64"}}}
	for _, c := range []struct {
		reason wire.Reason
		want   string
	}{
		{wire.Reason{What: "arch", Count: 1, Text: "it is riscv64"}, "a worker of the site is of another architecture than amd64, arm64"},
		{wire.Reason{What: "arch", Count: 3, Text: "it is riscv64"}, "3 of the site's workers are of another architecture than amd64, arm64"},
		{wire.Reason{What: "memory", Count: 1, Text: "plc-7 has 3 MiB"}, "a worker of the site cannot spare the memory"},
		{wire.Reason{What: "devices", Count: 1}, "a worker of the site lacks a device"},
		{wire.Reason{What: "volumes", Count: 1}, "a worker of the site does not have the data of its local volumes"},
		{wire.Reason{What: "placed", Count: 2}, "2 of the site's workers have it already"},
		{wire.Reason{What: "policy", Count: 2, Text: "no"}, "no"},
		{wire.Reason{What: "latency", Count: 1, Link: "db"},
			"a worker of the site is too far from db at the other end of a link, or not measured yet"},
		{wire.Reason{What: "distance", Count: 3, Link: "db"},
			"3 of the site's workers are too far from db at the other end of a link, or not measured yet"},
	} {
		if got := InCounts(spec, []wire.Reason{c.reason}); len(got) != 1 || got[0].Text != c.want || got[0].Count != c.reason.Count {
			t.Errorf("%+v: %+v, want %q", c.reason, got, c.want)
		}
	}
}
