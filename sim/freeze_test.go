package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	worker "skerry.dev/skerry/worker/core"
)

// waits gives, per instance of an application, what the site is told of it as waiting on a held device.
func (w *World) waits(site, name string) map[skerry.InstanceID]string {
	out := map[skerry.InstanceID]string{}
	for _, i := range w.ClusterCore(site).Instances() {
		for _, k := range i.Conditions {
			if i.Service.App.Name == name && k.Type == skerry.Frozen && k.Status {
				out[i.ID] = k.Reason
			}
		}
	}
	return out
}

// A held worker runs what it runs, through restarts, reboots and whatever the cluster asks for, tells what waits, and does it
// when it is released, or for one instance when that is approved.
func TestHeldOnTheDevice(t *testing.T) {
	w := newWorld(t, 8)
	w.Audit = true
	w.AddCluster("a")
	at := w.AddWorker("a", "w1", facts(4000))
	w.Run(time.Second)
	starts := w.starts()
	two := func(s *spec.ServiceSpec) { s.Image = "web:2" }
	w.must(t, w.Root, app("shop", 2))
	w.must(t, w.Root, app("gone", 1))
	w.Run(2 * time.Second)
	w.check(t, "shop", 2, 3)
	w.must(t, at, worker.FreezeLocal{Reason: "on the road"})
	w.Run(2 * time.Second)
	if v := w.ClusterCore("a").Workers()[0]; v.Frozen != "on the road" {
		t.Errorf("the site knows of %q", v.Frozen)
	}
	// An update, a restart, the end of one and the start of another.
	w.must(t, w.Root, app("shop", 2, two))
	w.must(t, w.Root, apps.Delete{Key: web("gone").App})
	w.must(t, w.Root, app("new", 1))
	w.Run(5 * time.Second)
	w.must(t, w.Root, apps.Restart{Service: web("new")})
	for n := range 8 {
		w.Run(time.Minute)
		switch n {
		case 1:
			w.Restart(at, w.ClusterCore("a").Workers()[0].Facts)
		case 2:
			w.Cut(at)
			w.Run(time.Second)
			w.Heal(at)
		case 4:
			w.Restart(w.Clusters["a"], nil)
		}
		if at.Tasks() != 3 || *starts != 3 {
			t.Fatalf("minute %d: %d run, %d starts", n, at.Tasks(), *starts)
		}
	}
	if v := w.ClusterCore("a").Workers()[0]; v.Frozen != "on the road" {
		t.Errorf("the site knows of %q", v.Frozen)
	}
	for name, part := range map[string]string{"shop": "its start waits", "gone": "its end waits", "new": "its start waits"} {
		if list := w.waits("a", name); len(list) != 1 {
			t.Errorf("%s: %v waits", name, list)
		} else {
			for _, why := range list {
				if !strings.Contains(why, part) || !strings.HasSuffix(why, "on the road") {
					t.Errorf("%s: %s", name, why)
				}
			}
		}
	}
	root := w.RootCore().Apps.Instances(web("new"))[0]
	if !skerry.HasCondition(root.Conditions, skerry.Frozen) {
		t.Errorf("the root is not told: %v", root.Conditions)
	}
	// The version is not to blame, however long it takes.
	if r := w.RootCore().Apps.View(w.RootCore().Apps.App(web("shop").App), "root", true).Services[0].Rollout; r.Failures != 0 || r.Reason != "" {
		t.Errorf("%+v", r)
	}
	// A reboot starts what ran, and nothing else.
	w.PowerOff(at)
	w.Run(2 * time.Second)
	w.Restart(at, w.ClusterCore("a").Workers()[0].Facts)
	w.Run(time.Minute)
	if at.Tasks() != 3 || *starts != 6 {
		t.Errorf("after a reboot %d run, %d starts", at.Tasks(), *starts)
	}
	// One is approved; the others go on waiting.
	if err, bad := w.Do(at, worker.ApproveLocal{ID: "nobody"}).(error); !bad || skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Error(err)
	}
	w.must(t, at, worker.ApproveLocal{ID: root.ID})
	w.Run(10 * time.Second)
	if at.Tasks() != 4 || w.ready("new") != 1 || len(w.waits("a", "new")) != 0 || len(w.waits("a", "gone")) != 1 {
		t.Errorf("%d run, %d ready, %v", at.Tasks(), w.ready("new"), w.waits("a", "gone"))
	}
	w.must(t, at, worker.ReleaseLocal{})
	w.Run(time.Minute)
	w.check(t, "shop", 2, 3)
	w.check(t, "new", 1, 3)
	for _, i := range w.RootCore().Apps.Instances(web("shop")) {
		if i.Spec.Image != "web:2" {
			t.Errorf("%s runs %s", i.ID, i.Spec.Image)
		}
	}
	if len(w.RootCore().Apps.Instances(web("gone"))) != 0 || len(w.waits("a", "shop"))+len(w.waits("a", "new")) != 0 {
		t.Error("something is left")
	}
	w.sound(t)
}

// What may run elsewhere does not wait for a device that is held, and what is to end there is ended when it is released, though
// it was moved meanwhile.
func TestHeldWorkersAreTheLastChoice(t *testing.T) {
	w, id, at := pair(t)
	w.must(t, at, worker.FreezeLocal{})
	w.Run(2 * time.Second)
	other := map[string]string{"w1": "w2", "w2": "w1"}[short(at)]
	w.must(t, w.Root, app("more", 2))
	w.Run(2 * time.Second)
	for _, name := range w.where(w.Clusters["a"], "more") {
		if name != other {
			t.Errorf("one is on %s", name)
		}
	}
	w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: short(at)})
	w.Run(time.Minute)
	if got := w.ClusterCore("a").WorkerOf(id); got != other || at.Tasks() != 1 || w.drainOf("a", short(at)).Done {
		t.Errorf("it is on %s, %d run on the held one", got, at.Tasks())
	}
	w.must(t, at, worker.ReleaseLocal{})
	w.Run(10 * time.Second)
	if at.Tasks() != 0 || !w.drainOf("a", short(at)).Done {
		t.Errorf("%d run on the drained one", at.Tasks())
	}
	w.check(t, "shop", 1, 3)
	w.sound(t)
}
