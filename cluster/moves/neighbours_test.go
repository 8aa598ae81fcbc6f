package moves

import (
	"math"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func assigned(service string, stated *spec.Contention) *spec.Assignment {
	a := &spec.Assignment{ID: "x", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: service}}
	a.Spec.Placement.Contention = stated
	return a
}

// machine is the capacity of one, in processors.
const machine skerry.MilliCPU = 4000

// What a service uses becomes what it is taken to do to others; what it states counts instead.
func TestIntensityIsLearned(t *testing.T) {
	n := NewNeighbours()
	a := assigned("encoder", nil)
	for range 50 {
		n.Learn(a, &wire.QoS{CPU: 2000, Disk: 0.25, Network: 0.1}, machine, spec.Contention{})
	}
	k := n.Of(a)
	if math.Abs(k.Intensity.CPU-0.5) > 0.01 || math.Abs(k.Intensity.Disk-0.25) > 0.01 || math.Abs(k.Sensitivity.Network-0.1) > 0.01 || k.Intensity.Cache != 0 {
		t.Errorf("learned %+v", k)
	}
	stated := spec.Contention{Intensity: spec.Shares{Cache: 0.9}}
	if k := n.Of(assigned("encoder", &stated)); k != stated {
		t.Errorf("%+v instead of what it states", k)
	}
	if faults := n.Audit(func(skerry.AppKey) bool { return false }); len(faults) != 1 {
		t.Errorf("its application is gone, and the audit says %v", faults)
	}
	if n.Forget(a.Service.App); n.Of(a) != (spec.Contention{}) {
		t.Errorf("%+v is known of an application that is gone", n.Of(a))
	}
}

// A probe that takes longer beside others than predicted raises the service's sensitivity, one that takes less lowers it.
func TestSensitivityIsCorrectedByWhatIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		probe  float64 // milliseconds beside the neighbour; 10 alone
		up     bool
		factor float64
	}{{"slower than predicted", 20, true, 2}, {"hardly slower", 10.5, false, 0.1}} {
		t.Run(tt.name, func(t *testing.T) {
			n := NewNeighbours()
			a := assigned("front", &spec.Contention{Sensitivity: spec.Shares{Cache: 1}})
			n.Learn(a, &wire.QoS{ProbeMs: 10}, machine, n.Of(a)) // alone
			for range 200 {
				n.Learn(a, &wire.QoS{ProbeMs: tt.probe}, machine, n.Of(a).Plus(spec.Contention{Intensity: spec.Shares{Cache: 0.5}}))
			}
			got := n.Of(a).Sensitivity.Cache
			if tt.up != (got > 1) || math.Abs(got-tt.factor) > 0.15*tt.factor {
				t.Errorf("sensitivity %.3f, want about %.3f", got, tt.factor)
			}
		})
	}
}

// A worker that reports nonsense does not spoil what is known of a service.
func TestLearnRefusesNonsense(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5} {
		n, a := NewNeighbours(), assigned("web", nil)
		loads := spec.Contention{Intensity: spec.SharesOf([spec.NumShares]float64{1, 1, 1, 1, 1})}
		n.Learn(a, &wire.QoS{CPU: 100, ProbeMs: 1}, 1000, loads)
		n.Learn(a, &wire.QoS{CPU: -100, Disk: v, Network: v, ProbeMs: v}, 1000, loads)
		k := n.Of(a)
		for _, shares := range [][spec.NumShares]float64{k.Intensity.Vector(), k.Sensitivity.Vector()} {
			for i, x := range shares {
				if !(x >= 0 && x <= 10) {
					t.Errorf("%v: share %d is %v", v, i, x)
				}
			}
		}
	}
}
