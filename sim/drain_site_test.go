package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// siteView is what the root shows of a site.
func (w *World) siteView(t *testing.T, name string) view.ClusterView {
	for _, v := range w.RootCore().Views().Sites() {
		if string(v.Name) == name {
			return v
		}
	}
	t.Fatalf("the root shows no site %s", name)
	return view.ClusterView{}
}

// heldBy counts the live instances of an application at each site, as in "a:1 b:2".
func (w *World) heldAt(name string) string {
	count := map[string]int{}
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		if i.Live() {
			count[i.Holder]++
		}
	}
	var out []string
	for _, site := range []string{"", "a", "b", "c"} {
		if n := count[site]; n > 0 {
			out = append(out, site+":"+string(rune('0'+n)))
		}
	}
	return strings.Join(out, " ")
}

// A cordoned site gets nothing new and keeps what it has; a drained one loses what can run elsewhere, each instance once another is ready.
// The sites are not asked.
func TestDrainSite(t *testing.T) {
	w := newWorld(t, 5)
	w.Audit = true
	for _, site := range []string{"a", "b"} {
		w.AddCluster(site)
		w.AddWorker(site, "w-"+site, facts(4000))
	}
	w.Run(time.Second)
	root1 := w.Root
	w.must(t, root1, root.CordonCluster{Name: "b", Reason: "new roof"})
	w.must(t, root1, app("shop", 3))
	w.must(t, root1, app("pinned", 1, func(s *spec.ServiceSpec) { s.Placement.Cluster = "b" }))
	w.must(t, root1, app("stays", 1, func(s *spec.ServiceSpec) { s.Placement.Cluster = "a" }))
	w.Run(5 * time.Second)
	if got := w.heldAt("shop"); got != "a:3" {
		t.Fatalf("with b cordoned: %s", got)
	}
	if got := w.heldAt("pinned"); got != ":1" {
		t.Errorf("what may only run at b is at %s", got)
	}
	if i := w.RootCore().Apps.Instances(web("pinned"))[0]; !slices.ContainsFunc(i.Why, func(r wire.Reason) bool {
		return r.What == "cordon" && strings.Contains(r.Text, "new roof") && strings.Contains(r.Hint, "uncordon cluster/b")
	}) {
		t.Errorf("it does not say why: %+v", i.Why)
	}
	if v := w.siteView(t, "b"); v.Cordon != "new roof" || v.Drain != nil {
		t.Errorf("the root shows %+v", v)
	}
	for name, msg := range map[string]any{"cordon": root.CordonCluster{Name: "x", Reason: "r"}, "drain": root.DrainCluster{Name: "x"},
		"uncordon": root.CordonCluster{Name: "x"}} {
		if err, _ := w.Do(root1, msg).(error); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeNotFound {
			t.Errorf("%s of a site that is not there: %v", name, err)
		}
	}
	if err, _ := w.Do(root1, root.DrainCluster{Name: "a", Parallel: 101}).(error); skerry.AsError(err) == nil {
		t.Error("101 at once are taken")
	}

	// With no other site that may be used, a drain ends nothing.
	ready := func(name string, n int) {
		t.Helper()
		if got := w.ready(name); got < n {
			t.Fatalf("%d of %s are ready", got, name)
		}
	}
	w.must(t, root1, root.DrainCluster{Name: "a", Parallel: 2})
	for range 20 {
		w.Run(time.Second)
		ready("shop", 3)
	}
	if got := w.heldAt("shop"); got != "a:3" {
		t.Fatalf("with no other site: %s", got)
	}
	d := w.siteView(t, "a").Drain
	if d == nil || d.Done || d.Left != 3 || len(d.Stays) != 4 {
		t.Fatalf("the drain is at %+v", d)
	}
	for _, s := range d.Stays {
		if want := "new roof"; s.Tries && !strings.Contains(s.Reason, want) || !s.Tries && !strings.Contains(s.Reason, "names cluster a") {
			t.Errorf("it stays because %+v", s)
		}
	}

	// It survives a restart of the root, and goes on when the other site may be used.
	w.Kill(root1)
	w.Restart(root1, nil)
	w.Run(5 * time.Second)
	w.must(t, root1, root.CordonCluster{Name: "b"})
	for range 60 {
		w.Run(time.Second)
		ready("shop", 3)
	}
	if got := w.heldAt("shop"); got != "b:3" {
		t.Fatalf("drained: %s, %+v", got, w.siteView(t, "a").Drain)
	}
	if got := w.heldAt("pinned"); got != "b:1" {
		t.Errorf("what may only run at b is at %s", got)
	}
	ready("stays", 1)
	if d := w.siteView(t, "a").Drain; d == nil || !d.Done || d.Left != 0 || len(d.Stays) != 1 {
		t.Errorf("the drain is at %+v", d)
	}
	for _, reason := range []string{"ClusterCordoned", "ClusterDraining", "ClusterDrained", "ClusterUncordoned"} {
		if w.told(reason) == 0 {
			t.Errorf("no event %s", reason)
		}
	}
	w.must(t, root1, root.CordonCluster{Name: "a"})
	if v := w.siteView(t, "a"); v.Cordon != "" || v.Drain != nil {
		t.Errorf("the root shows %+v", v)
	}
	w.must(t, root1, root.CordonCluster{Name: "b", Reason: "full"})
	w.must(t, root1, app("more", 1))
	w.Run(5 * time.Second)
	if got := w.heldAt("more"); got != "a:1" {
		t.Errorf("uncordoned: %s", got)
	}
}

// What a site grants is kept by it, told to the root, and gone without a trace when it is taken back.
func TestGrantsOfSite(t *testing.T) {
	w := newWorld(t, 5)
	w.Audit = true
	w.AddCluster("a")
	w.Run(time.Second)
	site := w.Clusters["a"]
	for range 2 {
		w.must(t, site, cluster.SetGrant{Grant: wire.GrantUpgrade, Given: true, By: "ada"})
		w.must(t, site, cluster.SetGrant{Grant: wire.GrantWorkers, Given: true, By: "ada"})
	}
	err, _ := w.Do(site, cluster.SetGrant{Grant: "all", Given: true}).(error)
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeInvalid {
		t.Errorf("a grant that is none: %v", err)
	}
	w.Kill(site)
	w.Restart(site, nil)
	w.Run(15 * time.Second)
	if got := w.siteView(t, "a").Report.Grants; len(got) != 2 || got[0] != wire.GrantWorkers || got[1] != wire.GrantUpgrade {
		t.Errorf("the root is told of %v", got)
	}
	w.must(t, site, cluster.SetGrant{Grant: wire.GrantUpgrade})
	w.must(t, site, cluster.SetGrant{Grant: wire.GrantWorkers})
	w.Kill(site)
	w.Restart(site, nil)
	w.Run(15 * time.Second)
	if got := w.siteView(t, "a").Report.Grants; len(got) != 0 {
		t.Errorf("revoked, the root is told of %v", got)
	}
}
