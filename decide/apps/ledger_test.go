package apps

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// TestInstancesOfManyApps finds the instances of one application as fast among many others as among few: whoever lists all instances asks
// for those of each application.
func TestInstancesOfManyApps(t *testing.T) {
	key := func(n int) skerry.ServiceKey {
		return skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: fmt.Sprintf("app-%d", n)}, Service: "web"}
	}
	takes := func(apps int) time.Duration {
		l := newLedger([16]byte{}, "r")
		for n := range apps {
			l.addInstance(&Instance{Instance: wire.Instance{ID: skerry.InstanceID(fmt.Sprint(n)), Service: key(n)}})
		}
		best := time.Hour
		for range 5 {
			began := time.Now()
			for n := range 100 {
				if got := l.InstancesOf(key(n % apps).App); len(got) != 1 {
					t.Fatalf("instances of application %d: got %d, want 1", n%apps, len(got))
				}
			}
			best = min(best, time.Since(began))
		}
		for n := range apps {
			l.dropInstance(l.Instance(skerry.InstanceID(fmt.Sprint(n))), &wire.Effects{})
			if got := l.InstancesOf(key(n).App); len(got) != 0 {
				t.Fatalf("instances of application %d once it has none: got %d, want none", n, len(got))
			}
		}
		if len(l.ofApp) != 0 {
			t.Errorf("applications with instances once all are gone: got %d, want none", len(l.ofApp))
		}
		return best
	}
	if few, many := takes(10), takes(10000); many > 50*few {
		t.Errorf("the instances of one of 10000 applications: got %v for 100 times, want little more than of 10 applications, %v", many, few)
	}
}
