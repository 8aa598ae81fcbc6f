package core

import (
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
	p := &placement{location: location{Worker: "w1"}, Created: time.Unix(1, 0)}
	p.A.ID, p.A.Service = skerry.InstanceID(id), skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: service}
	p.A.Spec.Placement.Contention = stated
	p.Obs.State = skerry.Running
	c.addPlacement(p)
	return p
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
	policy, _, _ := c.questions.Policy(&spec.ServiceSpec{Placement: spec.Placement{Policy: spec.PolicyContention}}, false)
	r := &sched.Request{Spec: &spec.ServiceSpec{}, Contention: k}
	if d := c.site.Place(time.Time{}, policy, r, 1); d.Chosen != "w2" {
		t.Errorf("a second store goes to %s, beside the first", d.Chosen)
	}
	c.reload(w, nil)
	if w.loads != (spec.Contention{}) {
		t.Errorf("%+v is left", w.loads)
	}
}
