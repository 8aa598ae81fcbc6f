package apps

import (
	"fmt"
	"testing"
	"unsafe"

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

// The list of a holder follows its instances: when they move, when they lose their holder, and when they are gone.
func TestHeldBy(t *testing.T) {
	l := manyApps(3)
	ids := func(holder string) (out string) {
		for _, i := range l.HeldBy(holder) {
			out += string(i.ID) + " "
		}
		if n := l.CountHeldBy(holder); n != len(l.HeldBy(holder)) {
			t.Errorf("instances that %q holds: counted %d, want %d", holder, n, len(l.HeldBy(holder)))
		}
		return out
	}
	give := func(id, holder string) {
		i := l.Instance(skerry.InstanceID(id))
		i.Holder = holder
		l.index(i)
	}
	check := func(after, a, b string) {
		t.Helper()
		if gotA, gotB := ids("a"), ids("b"); gotA != a || gotB != b {
			t.Errorf("%s: a holds %q and b %q, want %q and %q", after, gotA, gotB, a, b)
		}
		if got := l.HeldBy(""); len(got) != 0 {
			t.Errorf("%s: nobody holds %d, want none", after, len(got))
		}
	}
	check("at first", "", "")
	give("2", "a")
	give("0", "a")
	give("1", "b")
	check("given", "0 2 ", "1 ")
	give("2", "b")
	check("moved", "0 ", "1 2 ")
	give("0", "")
	check("lost", "", "1 2 ")
	l.dropInstance(l.Instance("1"), &wire.Effects{})
	check("gone", "", "2 ")
	l.Instance("2").Holder = "a"
	if faults := l.audit(); len(faults) == 0 {
		t.Error("an instance that is listed under another holder than its own: got no fault, want one")
	}
}

// The root asks for those of each site, whatever others hold.
func BenchmarkHeldBy(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := manyApps(n)
			for id, i := range l.inst {
				i.Holder = fmt.Sprint("site", len(id)%3, i.Service.App.Name[len(i.Service.App.Name)-1:])
				if i.ID == "7" {
					i.Holder = "one"
				}
				l.index(i)
			}
			for b.Loop() {
				l.HeldBy("one")
			}
		})
	}
}

// An instance takes one kilobyte, with the run time's word for it: the next size that is allocated is an eighth larger, and a root has a
// hundred thousand of them.
func TestInstanceSize(t *testing.T) {
	if got := unsafe.Sizeof(Instance{}); got > 1024-8 {
		t.Errorf("an instance: got %d bytes, want 1016 at most; what few instances have can be behind a pointer", got)
	}
}
