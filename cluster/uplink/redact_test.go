package uplink

import "testing"

// roster is a site's workers, without addresses.
type roster map[string]bool

func (r roster) Worker(name string) (string, bool) { return "", r[name] }

func TestRedact(t *testing.T) {
	workers := roster{"s": true, "w1": true, "harbour-crane": true, "quay": true}
	near, short := []string{"harbour-crane", ""}, []string{"s", "w1"}
	for _, x := range []struct {
		near     []string
		in, want string
	}{
		{near, "worker harbour-crane has no room", "a worker has no room"},
		{near, "mount /run/xharbour-craney/1: busy", "mount /run/xa workery/1: busy"},
		{near, "quay.example refuses, quayside does not", "a worker.example refuses, quayside does not"},
		{short, "readiness: worker s is stopped", "readiness: a worker is stopped"},
		{short, "pinned to w1, and w10 is no worker", "pinned to a worker, and w10 is no worker"},
		{short, "/run/skerry/w1/x.s", "/run/skerry/a worker/x.a worker"},
	} {
		if got := Redact(workers, x.in, x.near...); got != x.want {
			t.Errorf("%q became %q, want %q", x.in, got, x.want)
		}
	}
}
