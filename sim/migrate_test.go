package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
)

// An instance moves when somebody wants that, and is ready all the while; what cannot be done is refused with what stands against it.
func TestMigrateByHand(t *testing.T) {
	w := newWorld(t, 5)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(4000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.must(t, w.Root, app("data", 1, func(s *spec.ServiceSpec) {
		s.Volumes = []spec.Volume{{Name: "d", Host: &spec.HostVolume{Path: "/srv/data"}}}
		s.Mounts = []spec.Mount{{Volume: "d", Path: "/data"}}
	}))
	w.Run(3 * time.Second)
	site := w.Clusters["a"]
	id := func(name string) skerry.InstanceID { return w.RootCore().Apps.Instances(web(name))[0].ID }
	refused := func(n *Node, msg any, code skerry.Code, parts ...string) {
		t.Helper()
		err, _ := w.Do(n, msg).(error)
		e := skerry.AsError(err)
		if e == nil || e.Code != code {
			t.Fatalf("%v", err)
		}
		for _, part := range parts {
			if !strings.Contains(e.Error()+e.Hint, part) {
				t.Errorf("%q is not in %q", part, e.Error())
			}
		}
	}
	shop := id("shop")
	refused(site, cluster.MigrateInstance{ID: "shop-web-none"}, skerry.CodeNotFound, "no instance")
	refused(site, cluster.MigrateInstance{ID: shop, To: "w9"}, skerry.CodeNotFound, `no worker "w9"`)
	refused(site, cluster.MigrateInstance{ID: shop, To: "w1"}, skerry.CodeInvalid, "on worker w1 already")
	refused(site, cluster.MigrateInstance{ID: shop}, skerry.CodeConflict, "no other worker of the site can take", "it is there already")
	w.AddWorker("a", "keeper2", facts(10))
	w.Run(2 * time.Second)
	refused(site, cluster.MigrateInstance{ID: shop, To: "keeper2"}, skerry.CodeConflict, "worker keeper2 cannot take", "cpu")
	if err := w.Do(site, cluster.MigrateInstance{ID: shop, Root: true}).(error); strings.Contains(err.Error(), "keeper2") || !strings.Contains(err.Error(), "cannot spare the cpu") {
		t.Errorf("the root is told: %v", err)
	}
	refused(w.Root, root.MoveToCluster{ID: shop, To: "b"}, skerry.CodeNotFound, `no cluster "b"`)
	refused(w.Root, root.MoveToCluster{ID: shop, To: "a"}, skerry.CodeInvalid, "at cluster a already")

	w.AddWorker("a", "w3", facts(4000))
	w.Run(2 * time.Second)
	ready := func(d time.Duration) {
		t.Helper()
		for range int(d / (500 * time.Millisecond)) {
			w.Run(500 * time.Millisecond)
			if n := w.ready("shop"); n != 1 {
				t.Fatalf("%d are ready", n)
			}
		}
	}
	w.Machine.Start = 3 * time.Second
	if to := w.Do(site, cluster.MigrateInstance{ID: shop, Reason: "quieter there", Actor: "ada"}); to != "w3" {
		t.Fatal(to)
	}
	refused(site, cluster.MigrateInstance{ID: shop}, skerry.CodeConflict, "on its way to worker w3 already", "asked for by ada: quieter there")
	ready(10 * time.Second)
	w.must(t, site, cluster.MigrateInstance{ID: shop, To: "w1"})
	ready(10 * time.Second)
	if got := w.where(site, "shop"); strings.Join(got, " ") != "w1" {
		t.Error(got)
	}

	// What has data stays, but by force; a held worker takes nothing.
	data := id("data")
	refused(site, cluster.MigrateInstance{ID: data, To: "w3"}, skerry.CodeConflict, "keeps data at /srv/data", "--force")
	w.must(t, site, cluster.CordonWorker{Name: "w3", Reason: "new roof"})
	refused(site, cluster.MigrateInstance{ID: data, To: "w3", Force: true}, skerry.CodeConflict, "new roof")
	w.must(t, site, cluster.CordonWorker{Name: "w3"})
	w.must(t, site, cluster.MigrateInstance{ID: data, To: "w3", Force: true})
	ready(10 * time.Second)
	if got := w.where(site, "data"); strings.Join(got, " ") != "w3" {
		t.Error(got)
	}

	// To another cluster; the site keeps it until the one there is ready.
	w.AddCluster("b")
	w.Run(2 * time.Second)
	refused(w.Root, root.MoveToCluster{ID: shop, To: "b"}, skerry.CodeConflict, "cluster b cannot take")
	w.AddWorker("b", "w2", facts(4000))
	w.AddCluster("c")
	w.AddWorker("c", "w1", facts(4000))
	w.Run(40 * time.Second)
	n, ok := w.Do(w.Root, root.MoveToCluster{ID: shop, To: "b", Why: "asked for by ada"}).(skerry.InstanceID)
	if !ok || n == shop {
		t.Fatal(n)
	}
	refused(w.Root, root.MoveToCluster{ID: shop, To: "c"}, skerry.CodeConflict, "on its way already")
	for range 60 {
		w.Run(500 * time.Millisecond)
		if w.ready("shop") < 1 {
			t.Fatal("none is ready")
		}
	}
	if i := w.RootCore().Apps.Instance(n); i == nil || i.Holder != "b" || !i.IsReady() || i.Asked || len(i.Shun) > 0 || w.ready("shop") != 1 {
		t.Errorf("%+v, %d ready", i, w.ready("shop"))
	}
	w.sound(t)
}
