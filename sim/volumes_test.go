package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
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
	return app("db", replicas, func(s *spec.ServiceSpec) {
		s.Env = map[string]string{"VERSION": version}
		s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: skerry.GiB}}}
		s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	})
}

// Each replica runs where its data is: after updates, restarts of every tier, failures and moves; it waits for a worker or a site that is
// away, although others are free. What is scaled down keeps its data. Its application's deletion leaves it, and with its volumes all of it goes.
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
	w.must(t, w.Clusters[site], cluster.CordonWorker{Name: name})

	w.must(t, w.Root, deleteApp("db"))
	w.Run(time.Minute)
	if now := w.volumes("db"); !slices.Equal(now, before) || w.ready("db") != 0 || room() != left {
		t.Errorf("its application is deleted: data at %v, %s are left; before %v, %s", now, room(), before, left)
	}
	w.must(t, w.Root, kept("4", 1))
	w.Run(time.Minute)
	w.must(t, w.Root, apps.Delete{Key: web("db").App, Volumes: true})
	w.Run(time.Minute)
	if now := w.volumes("db"); len(now) > 0 || room() != 60*skerry.GiB {
		t.Errorf("left after the application and its volumes: %v, %s", now, room())
	}
	w.sound(t)
}

// What is kept of an application outlives it: through deletions, restarts of every tier, a worker and a site that are away meanwhile. An
// application of the same name finds it where it is. It goes when somebody deletes it, also where that is learned later.
func TestVolumesOutliveTheirApplication(t *testing.T) {
	w := newWorld(t, 11)
	w.Audit = true
	for _, site := range []string{"a", "b"} {
		w.AddCluster(site)
		for _, name := range []string{"w1", "w2"} {
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
	same := func(when string, ready int) {
		t.Helper()
		if now := w.volumes("db"); !slices.Equal(now, before) || w.ready("db") != ready {
			t.Fatalf("%s: data at %v, before at %v; %d ready, want %d", when, now, before, w.ready("db"), ready)
		}
	}
	claim := func(n int) spec.VolumeClaim { return spec.VolumeClaim{Service: web("db"), Ordinal: n} }
	place := func(n int) (site, worker string) {
		at, _, _ := strings.Cut(before[slices.IndexFunc(before, func(s string) bool { return strings.HasSuffix(s, fmt.Sprint(" ", n)) })], " ")
		site, worker, _ = strings.Cut(at, "/")
		return site, worker
	}
	for round := range 3 {
		site, worker := place(round)
		switch round {
		case 0: // the site learns of the deletion later
			w.Cut(w.Clusters[site])
		case 1: // and so does a worker
			w.PowerOff(w.Workers[site+"/"+worker])
		}
		w.must(t, w.Root, deleteApp("db"))
		w.Run(2 * time.Minute)
		w.Restart(w.Root, nil)
		for _, n := range ordered(w.Clusters) {
			w.Restart(n, nil)
		}
		for _, n := range ordered(w.Workers) {
			w.Restart(n, nil)
		}
		w.Run(time.Minute)
		if round == 0 {
			w.Heal(w.Clusters[site])
		}
		w.Run(10 * time.Minute)
		same(fmt.Sprint("deleted, round ", round), 0)
		views := w.RootCore().Apps.Volumes("root")
		if len(views) != 3 || slices.ContainsFunc(views, func(v view.VolumeView) bool { return v.State != view.VolumeKept || v.Since.IsZero() }) {
			t.Errorf("the root shows %+v", views)
		}
		for _, v := range w.ClusterCore(site).Volumes() {
			if _, at := place(v.Replica); v.State != view.VolumeKept || string(v.Worker) != at || v.Org != "default" || v.Origin != "root" {
				t.Errorf("site %s shows %+v", site, v)
			}
		}
		w.must(t, w.Root, kept(fmt.Sprint("again", round), 3))
		w.Run(time.Minute)
		same(fmt.Sprint("applied again, round ", round), 3)
	}
	w.must(t, w.Root, deleteApp("db"))
	w.Run(time.Minute)
	site, worker := place(1)
	if err, ok := w.Do(w.Clusters[site], apps.DeleteVolume{Claim: claim(1)}).(error); !ok || skerry.AsError(err).Code != skerry.CodeWrongTier {
		t.Errorf("a site deletes what the root keeps: %v", err)
	}
	w.PowerOff(w.Workers[site+"/"+worker])
	w.must(t, w.Root, apps.DeleteVolume{Claim: claim(1)})
	w.Run(time.Minute)
	w.Restart(w.Workers[site+"/"+worker], nil)
	w.Run(time.Minute)
	if now := w.volumes("db"); len(now) != 2 || strings.HasSuffix(strings.Join(now, "\n"), " 1") || w.RootCore().Apps.Claimed(claim(1)) != "" {
		t.Errorf("after one was deleted: %v", now)
	}
	w.sound(t)
}

// A volume that was renamed in the manifest of a root's or a site's application is listed by both, with its room on the disk, through
// restarts of all tiers, and its worker removes it alone when somebody says so, though it was away at that moment.
func TestRenamedVolumeStays(t *testing.T) {
	for _, of := range []string{"root", "site"} {
		w := newWorld(t, 13)
		w.Audit = true
		w.AddCluster("a")
		w.AddWorker("a", "w1", facts(8000))
		w.Run(time.Second)
		site, owner, origin := w.Clusters["a"], w.Root, "root"
		if of == "site" {
			owner, origin = site, "local"
			w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
			w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		}
		w.must(t, owner, kept("1", 1))
		w.Run(time.Minute)
		renamed := kept("2", 1)
		s := &renamed.App.Spec.Services[0]
		s.Volumes[0].Name, s.Mounts[0].Volume = "base", "base"
		w.must(t, owner, renamed)
		w.Run(time.Minute)
		for _, n := range []*Node{w.Root, site, w.Workers["a/w1"]} {
			w.Restart(n, nil)
		}
		w.Run(time.Minute)
		list := func(views []view.VolumeView) string {
			var out []string
			for _, v := range views {
				out = append(out, fmt.Sprintf("%s %s %s %s", v.Name, v.State, v.Size, v.Origin))
			}
			return strings.Join(out, "; ")
		}
		want := fmt.Sprintf("db/web/0 Used 1Gi %s; db/web/0:data Kept 1Gi %[1]s", origin)
		if got := list(w.ClusterCore("a").Volumes()); got != want {
			t.Errorf("%s: the site shows %q, want %q", of, got, want)
		}
		if got := list(w.RootCore().Apps.Volumes("root")); of == "root" && got != want {
			t.Errorf("the root shows %q, want %q", got, want)
		}
		worker := w.Workers["a/w1"]
		whole := spec.VolumeClaim{Service: web("db")}
		one := whole
		one.Volume = "data"
		w.PowerOff(worker)
		w.must(t, owner, apps.DeleteVolume{Claim: one})
		w.Run(time.Minute)
		worker.volumes[one] = nil // what RemoveVolumes takes away
		w.Restart(worker, nil)
		w.Run(time.Minute)
		_, there := worker.volumes[one]
		if _, has := worker.volumes[whole]; there || !has {
			t.Errorf("%s: the worker has the old volume: %v, and the others: %v", of, there, has)
		}
		if got, want := list(w.ClusterCore("a").Volumes()), "db/web/0 Used 1Gi "+origin; got != want {
			t.Errorf("%s: the site shows %q, want %q", of, got, want)
		}
		w.sound(t)
	}
}

// Data that is kept for one organisation is not given to another that uses the same names: not by a site whose own namespaces are the other's.
func TestKeptDataStaysWithItsOrganisation(t *testing.T) {
	w := newWorld(t, 12)
	w.Audit = true
	w.AddCluster("a")
	f := facts(8000)
	f.Levels = true
	w.AddWorker("a", "w1", f)
	w.Run(time.Second)
	w.must(t, w.Root, kept("1", 1))
	w.Run(10 * time.Second)
	w.must(t, w.Root, deleteApp("db"))
	w.Run(time.Minute)
	site := w.Clusters["a"]
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "others"}})
	w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "others"}})
	w.must(t, site, kept("1", 1))
	w.Run(time.Minute)
	if at := w.where(site, "db"); len(at) != 1 || at[0] != "" {
		t.Errorf("it runs with the data of another organisation, at %q", at)
	}
	var why string
	for _, i := range w.ClusterCore("a").Instances() {
		why += wire.Summary(i.Trouble())
		for _, r := range i.Why {
			why += r.Text
		}
	}
	if !strings.Contains(why, "keeps volumes default/db/web/0 of another organisation") {
		t.Errorf("nobody says why it does not run: %q", why)
	}
	w.must(t, w.Root, apps.DeleteVolume{Claim: spec.VolumeClaim{Service: web("db")}})
	w.Run(5 * time.Minute)
	if at := w.where(site, "db"); len(at) != 1 || at[0] != "w1" {
		t.Errorf("it does not run though the name is free: %q %q", at, w.ClusterCore("a").Instances()[0].Reason)
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
