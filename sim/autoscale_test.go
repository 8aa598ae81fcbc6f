package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

func follows(lo, hi int, down time.Duration) func(*spec.ServiceSpec) {
	return func(s *spec.ServiceSpec) {
		d, share := spec.Duration(down), 0.5
		s.Resources.CPU = 100
		s.Scale = &spec.ScaleSpec{Min: &lo, Max: hi, Down: &d, Target: spec.ScaleTarget{CPU: &share}}
	}
}

// bear has all instances of a service at a site bear a load together, for a while.
func (w *World) bear(site string, load skerry.MilliCPU, d time.Duration) {
	for ; d > 0; d -= 5 * time.Second {
		var list []wire.Instance
		for _, i := range w.ClusterCore(site).Instances() {
			if i.State == skerry.Running && !i.Stopping {
				list = append(list, i)
			}
		}
		use := map[skerry.InstanceID]wire.QoS{}
		for _, i := range list {
			use[i.ID] = wire.QoS{CPU: min(load/skerry.MilliCPU(len(list)), 100)}
		}
		w.Do(w.Workers[site+"/w1"], worker.Usage{Instances: use})
		w.Run(5 * time.Second)
	}
}

// The root has a service's instances follow their load, and says why there are so many. A manifest that is applied again leaves
// their number alone.
func TestInstancesFollowTheirLoad(t *testing.T) {
	w := newWorld(t, 7)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	w.Run(12 * time.Second)
	edit := follows(1, 6, 2*time.Minute)
	w.must(t, w.Root, app("shop", 1, edit))
	w.Run(5 * time.Second)
	w.bear("a", 190, time.Minute)
	w.check(t, "shop", 4, 4)
	v := w.RootCore().Apps.View(w.RootCore().Apps.App(web("shop").App), "root", false).Services[0]
	if v.Scale == nil || v.Scale.Want != 4 || v.Scale.Max != 6 || !strings.Contains(v.Scale.Why, "cpu: 188m of 50m") {
		t.Errorf("it is shown as %+v", v.Scale)
	}
	w.must(t, w.Root, app("shop", 1, edit, func(s *spec.ServiceSpec) { s.Args = []string{"changed"} }))
	w.bear("a", 190, time.Minute)
	w.check(t, "shop", 4, 4)
	w.bear("a", 5000, 2*time.Minute)
	w.check(t, "shop", 6, 6)
	w.bear("a", 10, 5*time.Minute)
	w.check(t, "shop", 1, 1)
	for _, n := range []int{0, 7} {
		if _, refused := w.Do(w.Root, apps.Scale{Service: web("shop"), Replicas: n}).(error); !refused {
			t.Errorf("scaled to %d by hand", n)
		}
	}
}

// While the root is away the site does it for its share, and the root adopts the number.
func TestASiteAloneFollowsTheLoad(t *testing.T) {
	w, site, _ := alone(t, 2, follows(1, 6, 2*time.Minute))
	w.bear(site, 240, 2*time.Minute)
	if n := w.tasks(); n != 5 {
		t.Errorf("%d run", n)
	}
	if v := w.ClusterCore(site).AppViews(true); len(v) != 1 || v[0].Amended == nil || !strings.Contains(v[0].Amended.Steps[0].Author, "cpu: ") {
		t.Errorf("the site shows %+v", v)
	}
	starts := w.starts()
	w.Heal(w.Clusters[site])
	w.bear(site, 240, 30*time.Second)
	w.check(t, "shop", 5, 5)
	w.agreed(t, site)
	if *starts > 0 {
		t.Errorf("%d containers were started after the link came back", *starts)
	}
	w.bear(site, 60, 5*time.Minute) // it is the root's again
	w.check(t, "shop", 2, 2)
	w.agreed(t, site)
}

// Requests are counted where they come in, which may be another worker than the one that answers them. A site that has nothing of a service
// lets nobody in, and is not believed.
func TestInstancesFollowRequests(t *testing.T) {
	w := newWorld(t, 8)
	w.Audit = true
	for _, site := range []string{"a", "b"} {
		w.AddCluster(site)
		w.AddWorker(site, "w1", facts(4000))
	}
	w.Run(12 * time.Second)
	requests := 10.0
	w.must(t, w.Root, app("shop", 1, follows(1, 6, 2*time.Minute), func(s *spec.ServiceSpec) {
		s.Ports = []spec.Port{{Name: "web", Port: 80}}
		s.Ingress = []spec.Ingress{{Host: "shop.example", Port: "web"}}
		s.Scale.Target = spec.ScaleTarget{Requests: &requests}
	}))
	w.Run(5 * time.Second)
	come := func(rate float64) {
		for range 12 {
			for _, i := range []string{"a", "b"} {
				part := rate / 2
				if n := len(w.ClusterCore(i).Instances()); n == 0 {
					part = 1000
				} else if n == len(w.RootCore().Apps.Instances(web("shop"))) {
					part = rate
				}
				use := map[skerry.InstanceID]wire.QoS{}
				for _, x := range w.ClusterCore(i).Instances() {
					use[x.ID] = wire.QoS{CPU: 1}
				}
				w.Do(w.Workers[i+"/w1"], worker.Usage{Instances: use, Ingress: []wire.IngressUse{{Service: web("shop"), Requests: part}}})
			}
			w.Run(5 * time.Second)
		}
	}
	come(45)
	w.check(t, "shop", 5, 5)
	come(45)
	w.check(t, "shop", 5, 5)
	for range 5 {
		come(8)
	}
	w.check(t, "shop", 1, 1)
}

// What a scenario says of loads and of those who drain, pause and undo comes to what it should.
func TestScenarioOfOperators(t *testing.T) {
	s, err := ParseScenario(strings.NewReader(`
site a
worker a/edgewk1 cpu=4000
worker a/edgewk2 cpu=4000
at 0s apply app0 cpu=100 max=6
at 1s load app0 cpu=190
at 1s apply app1 cpu=100 replicas=2 version=1
at 20s apply app1 cpu=100 replicas=2 version=2
at 40s undo app1
at 1m drain a/edgewk1 parallel=2
at 1m pause app0
at 1m30s block a dir=both
at 3m scale app1 replicas=3 at=a
`))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	res := Run(s, RunOptions{Trace: func(_ int, _ time.Duration, text string) {
		for _, word := range []string{"Undone", "RolloutPaused", "RolloutResumed", "Drained", "Amended"} {
			said[word] = said[word] || strings.Contains(text, word)
		}
	}})
	if res.Broken != nil || res.World == nil {
		t.Fatal(res.Broken)
	}
	c := res.World.RootCore().Apps
	scaled, undone := c.App(web("app0").App).Manifest.Spec.Service("web"), c.App(web("app1").App).Manifest.Spec.Service("web")
	if *scaled.Replicas != 4 || undone.Image != "web:1" || *undone.Replicas != 3 {
		t.Errorf("%d of app0, %d of app1, which is %s", *scaled.Replicas, *undone.Replicas, undone.Image)
	}
	for word, heard := range said {
		if !heard {
			t.Errorf("nothing was %s", word)
		}
	}
}
