package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/cluster"
)

// volumes tells which machines have local volumes of which replicas of a service, as "a/w1 0".
func (w *World) volumes(name string) (out []string) {
	for _, n := range ordered(w.Workers) {
		for claim := range n.volumes {
			if claim.Service == web(name) {
				out = append(out, fmt.Sprintf("%s %d", n.Name, claim.Ordinal))
			}
		}
	}
	slices.Sort(out)
	return out
}

// kept is a service whose replicas have local volumes.
func kept(version string, replicas int) apps.Apply {
	return app("db", replicas, func(s *skerry.ServiceSpec) {
		s.Env = map[string]string{"VERSION": version}
		s.Volumes = []skerry.Volume{{Name: "data", Local: &skerry.LocalVolume{Size: skerry.GiB}}}
		s.Mounts = []skerry.Mount{{Volume: "data", Path: "/data"}}
	})
}

// Each replica runs where its data is: after updates, restarts of every tier, failures and moves; it waits for a worker or a site that is
// away, although others are free. What is scaled down keeps its data. With the service, and only then, all of it goes.
func TestDataStaysWithItsReplica(t *testing.T) {
	w := newWorld(t, 9)
	w.Audit = true
	for _, site := range []string{"a", "b"} {
		w.AddCluster(site)
		for _, name := range []string{"w1", "w2", "w3"} {
			w.AddWorker(site, name, facts(8000))
		}
	}
	w.Run(time.Second)
	w.must(t, w.Root, kept("1", 3))
	w.Run(10 * time.Second)
	before := w.volumes("db")
	if len(before) != 3 || w.ready("db") != 3 {
		t.Fatalf("%v, %d ready", before, w.ready("db"))
	}
	same := func(what string) {
		t.Helper()
		if now := w.volumes("db"); !slices.Equal(now, before) || w.ready("db") != 3 {
			t.Fatalf("%s: data at %v, before at %v; %d ready", what, now, before, w.ready("db"))
		}
	}
	w.must(t, w.Root, kept("2", 3))
	w.Run(time.Minute)
	same("after an update")
	w.Restart(w.Root, nil)
	for _, n := range ordered(w.Clusters) {
		w.Restart(n, nil)
	}
	w.Run(time.Minute)
	w.must(t, w.Root, kept("3", 3))
	w.Run(time.Minute)
	same("after restarts and another update")
	w.must(t, w.Root, kept("3", 1))
	w.Run(time.Minute)
	if now := w.volumes("db"); !slices.Equal(now, before) || w.ready("db") != 1 {
		t.Fatalf("scaled down, the data is at %v", now)
	}
	room := func() (sum skerry.Bytes) {
		for _, site := range []string{"a", "b"} {
			for _, v := range w.ClusterCore(site).Workers() {
				sum += v.Available.Storage
			}
		}
		return sum
	}
	left := room()
	if left != 57*skerry.GiB {
		t.Errorf("of 60Gi %s are left beside three volumes, of which one is in use", left)
	}
	w.must(t, w.Root, kept("3", 3))
	w.Run(time.Minute)
	if room() != left {
		t.Errorf("%s are left when all are in use again, not %s", room(), left)
	}
	same("scaled up again")
	for _, i := range w.RootCore().Apps.Instances(web("db")) {
		w.must(t, w.Root, apps.DeleteInstance{ID: i.ID, Actor: "t"})
	}
	w.Run(time.Minute)
	same("after its instances were deleted")

	at, _, _ := strings.Cut(before[0], " ")
	site, name, _ := strings.Cut(at, "/")
	w.PowerOff(w.Workers[at])
	w.Run(10 * time.Minute)
	if now := w.volumes("db"); !slices.Equal(now, before) {
		t.Fatalf("its worker is away, and the data is at %v", now)
	}
	w.Restart(w.Workers[at], nil)
	w.Run(time.Minute)
	same("its worker is back")
	w.Cut(w.Clusters[site])
	w.Run(20 * time.Minute)
	w.Heal(w.Clusters[site])
	w.Run(time.Minute)
	same("its site is back")
	w.must(t, w.Clusters[site], cluster.DrainWorker{Name: name})
	w.Run(time.Minute)
	same("its worker is drained")
	if d := w.drainOf(site, name); len(d.Stays) == 0 || !strings.Contains(d.Stays[0].Reason, "local volumes") {
		t.Errorf("what stays: %+v", d)
	}
	w.must(t, w.Clusters[site], cluster.HoldWorker{Name: name})

	w.must(t, w.Root, deleteApp("db"))
	w.Run(time.Minute)
	if left := w.volumes("db"); len(left) > 0 {
		t.Errorf("left after the application: %v", left)
	}
	w.sound(t)
}

// A worker that is gone for good takes its data along; the replica begins anew elsewhere, and the worker, should it come back, has
// nothing of it.
func TestDataIsGivenUp(t *testing.T) {
	w := newWorld(t, 10)
	w.Audit = true
	w.AddCluster("a")
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, facts(8000))
	}
	w.Run(time.Second)
	site := w.Clusters["a"]
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	w.must(t, site, kept("1", 1)) // an application of the site's own
	w.Run(10 * time.Second)
	before := w.volumes("db")
	if len(before) != 1 {
		t.Fatal(before)
	}
	at, _, _ := strings.Cut(before[0], " ")
	_, name, _ := strings.Cut(at, "/")
	w.PowerOff(w.Workers[at])
	w.Run(time.Minute)
	var text string
	for _, i := range w.ClusterCore("a").Instances() {
		text += i.Reason
		for _, v := range w.ClusterCore("a").Explain(w.Now, i.ID) {
			for _, r := range v.Out {
				text += "; " + r.Text
			}
		}
	}
	if !strings.Contains(text, "the data in its local volumes is on worker "+name) {
		t.Errorf("nobody says what it waits for: %s", text)
	}
	w.must(t, site, cluster.RemoveWorker{Name: name})
	w.Run(time.Minute)
	if now := w.volumes("db"); len(now) != 2 || len(w.where(site, "db")) != 1 || w.where(site, "db")[0] == name {
		t.Errorf("data at %v, it runs at %v", now, w.where(site, "db"))
	}
	// By force it leaves what it has.
	w.AddWorker("a", "w3", facts(8000))
	w.Run(time.Minute)
	from := w.where(site, "db")[0]
	w.must(t, site, cluster.DrainWorker{Name: from, Force: true})
	w.Run(time.Minute)
	if now := w.where(site, "db"); len(now) != 1 || now[0] == from || len(w.Workers["a/"+from].volumes) > 0 {
		t.Errorf("it runs at %v; %s still has %v", now, from, w.Workers["a/"+from].volumes)
	}
	w.sound(t)
}
