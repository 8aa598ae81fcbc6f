package cluster

import (
	"math"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func contended(t *testing.T) (*Core, *worker) {
	t.Helper()
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	w := &worker{Name: "w1", ports: map[string]int{}, Facts: &wire.WorkerFacts{Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}}
	c.workers["w1"] = w
	c.seeWorker(w)
	return c, w
}

func placed(c *Core, id, service string, stated *spec.Contention) *placement {
	p := &placement{Worker: "w1", Created: time.Unix(1, 0)}
	p.A.ID, p.A.Service = skerry.InstanceID(id), skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: service}
	p.A.Spec.Placement.Contention = stated
	p.Obs.State = skerry.Running
	c.addPlacement(p)
	return p
}

// What a service uses becomes what it is taken to do to others; what it states counts instead.
func TestIntensityIsLearned(t *testing.T) {
	c, _ := contended(t)
	p := placed(c, "x", "encoder", nil)
	for range 50 {
		c.learn(p, &wire.QoS{CPU: 2000, Disk: 0.25, Network: 0.1})
	}
	k := c.contentionOf(p)
	if math.Abs(k.Intensity.CPU-0.5) > 0.01 || math.Abs(k.Intensity.Disk-0.25) > 0.01 || math.Abs(k.Sensitivity.Network-0.1) > 0.01 || k.Intensity.Cache != 0 {
		t.Errorf("learned %+v", k)
	}
	stated := spec.Contention{Intensity: spec.Shares{Cache: 0.9}}
	if k := c.contentionOf(placed(c, "y", "encoder", &stated)); k != stated {
		t.Errorf("%+v instead of what it states", k)
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
			c, w := contended(t)
			own := spec.Contention{Sensitivity: spec.Shares{Cache: 1}}
			p := placed(c, "x", "front", &own)
			placed(c, "y", "encoder", &spec.Contention{Intensity: spec.Shares{Cache: 0.5}})
			c.reload(w, map[skerry.InstanceID]wire.QoS{"x": {}})
			c.learn(p, &wire.QoS{ProbeMs: 10}) // alone
			c.reload(w, map[skerry.InstanceID]wire.QoS{"x": {}, "y": {}})
			for range 200 {
				c.learn(p, &wire.QoS{ProbeMs: tt.probe})
			}
			got := c.contentionOf(p).Sensitivity.Cache
			if tt.up != (got > 1) || math.Abs(got-tt.factor) > 0.15*tt.factor {
				t.Errorf("sensitivity %.3f, want about %.3f", got, tt.factor)
			}
		})
	}
}

// The sum of what runs on a worker reaches the scheduler, and what left is no longer in it.
func TestLoadsReachTheScheduler(t *testing.T) {
	c, w := contended(t)
	calm := &worker{Name: "w2", ports: map[string]int{}, Facts: w.Facts}
	c.workers["w2"] = calm
	k := spec.Contention{Intensity: spec.Shares{Disk: 0.8}, Sensitivity: spec.Shares{Disk: 0.8}}
	placed(c, "x", "store", &k)
	c.reload(w, map[skerry.InstanceID]wire.QoS{"x": {}})
	for _, w := range c.workers {
		c.site.Set(&sched.Worker{Name: w.Name, Runtimes: []string{"oci"}, Capacity: w.Facts.Capacity, Available: w.Facts.Capacity, Load: w.loads})
	}
	policy, _, _ := c.policy(&spec.ServiceSpec{Placement: spec.Placement{Policy: spec.PolicyContention}})
	r := &sched.Request{Spec: &spec.ServiceSpec{}, Contention: k}
	if d := c.site.Place(time.Time{}, policy, r, 1); d.Chosen != "w2" {
		t.Errorf("a second store goes to %s, beside the first", d.Chosen)
	}
	c.reload(w, nil)
	if w.loads != (spec.Contention{}) {
		t.Errorf("%+v is left", w.loads)
	}
}

// A worker that reports nonsense does not spoil what is known of a service.
func TestLearnRefusesNonsense(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5} {
		c := New(Options{Name: "a", Incarnation: "a1"})
		c.workers["w"] = &worker{Name: "w", Facts: &wire.WorkerFacts{Capacity: spec.Resources{CPU: 1000}}, loads: spec.Contention{Intensity: spec.SharesOf([spec.NumShares]float64{1, 1, 1, 1, 1})}}
		p := &placement{Worker: "w"}
		c.learn(p, &wire.QoS{CPU: 100, ProbeMs: 1})
		c.learn(p, &wire.QoS{CPU: -100, Disk: v, Network: v, ProbeMs: v})
		k := c.contentionOf(p)
		for _, shares := range [][spec.NumShares]float64{k.Intensity.Vector(), k.Sensitivity.Vector()} {
			for i, x := range shares {
				if !(x >= 0 && x <= 10) {
					t.Errorf("%v: share %d is %v", v, i, x)
				}
			}
		}
	}
}
