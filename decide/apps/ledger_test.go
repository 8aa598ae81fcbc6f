package apps

import (
	"fmt"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// manyApps is a ledger of applications with one instance each.
func manyApps(n int) *ledger {
	l := newLedger([16]byte{}, "r")
	for i := range n {
		service := skerry.ServiceKey{App: appOf(i), Service: "web"}
		l.addInstance(&Instance{Instance: wire.Instance{ID: skerry.InstanceID(fmt.Sprint(i)), Service: service}})
	}
	return l
}

func appOf(n int) skerry.AppKey {
	return skerry.AppKey{Namespace: "acme", Name: fmt.Sprintf("app-%d", n)}
}

// TestInstancesOfApps finds the instances of each application, and none once they are gone, with nothing left of it.
func TestInstancesOfApps(t *testing.T) {
	l := manyApps(10)
	for n := range 10 {
		if got := l.InstancesOf(appOf(n)); len(got) != 1 || got[0].Service.App != appOf(n) {
			t.Errorf("instances of application %d: got %d, want 1", n, len(got))
		}
		l.dropInstance(l.Instance(skerry.InstanceID(fmt.Sprint(n))), &wire.Effects{})
		if got := l.InstancesOf(appOf(n)); len(got) != 0 {
			t.Errorf("instances of application %d once it has none: got %d, want none", n, len(got))
		}
	}
	if len(l.ofApp) != 0 {
		t.Errorf("applications with instances once all are gone: got %d, want none", len(l.ofApp))
	}
}

// Whoever lists all instances asks for those of each application.
func BenchmarkInstancesOf(b *testing.B) {
	for _, n := range []int{10, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := manyApps(n)
			for b.Loop() {
				l.InstancesOf(appOf(n / 2))
			}
		})
	}
}
