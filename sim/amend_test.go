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
)

// alone is a federation with one site and an application, whose site the root does not reach. It gives the site and
// how many instances it has.
func alone(t *testing.T, replicas int, edit ...func(*spec.ServiceSpec)) (w *World, site string, share int) {
	t.Helper()
	w = newWorld(t, 11)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	w.Run(12 * time.Second)
	w.must(t, w.Root, app("shop", replicas, edit...))
	w.Run(5 * time.Second)
	w.check(t, "shop", replicas, replicas)
	w.Cut(w.Clusters["a"])
	w.Run(10 * time.Second)
	return w, "a", replicas
}

func scale(n int) apps.Scale { return apps.Scale{Service: web("shop"), Replicas: n, Actor: "otto"} }

func changed(replicas int) apps.Apply {
	return app("shop", replicas, func(s *spec.ServiceSpec) { s.Args = []string{"changed"} })
}

// held gives the ids of an application's instances at a site, and at the root.
func (w *World) held(site string) (here, root []string) {
	for _, i := range w.ClusterCore(site).Instances() {
		if !i.Stopping {
			here = append(here, string(i.ID))
		}
	}
	for _, i := range w.RootCore().Apps.InstancesOf(web("shop").App) {
		if i.Holder == site && !i.Stopping {
			root = append(root, string(i.ID))
		}
	}
	slices.Sort(here)
	slices.Sort(root)
	return here, root
}

// agreed checks that root and site have the same instances under the same tokens, and that nothing is left of an amendment.
func (w *World) agreed(t *testing.T, site string) {
	t.Helper()
	here, root := w.held(site)
	if !slices.Equal(here, root) {
		t.Errorf("the site has %v, the root %v", here, root)
	}
	for _, id := range here {
		i, _, _ := w.ClusterCore(site).Instance(skerry.InstanceID(id))
		if r := w.RootCore().Apps.Instance(i.ID); r == nil || r.Fence.RootEpoch != i.Fence.RootEpoch {
			t.Errorf("%s runs under %v, the root has %+v", id, i.Fence, r)
		}
	}
	for _, v := range w.ClusterCore(site).AppViews(true) {
		if v.Amended != nil {
			t.Errorf("the site still shows an amendment: %+v", v.Amended)
		}
	}
	for key := range w.Clusters[site].Store {
		if strings.HasPrefix(key, "amend/") || strings.HasPrefix(key, "app/") || strings.HasPrefix(key, "past/") || strings.HasPrefix(key, "inst/") {
			t.Errorf("the site's store still has %s", key)
		}
	}
	for _, k := range w.RootCore().Children.Get(site).Desired.Keys() {
		if strings.HasPrefix(k, "amended/") {
			t.Errorf("the root still answers %s", k)
		}
	}
	w.sound(t)
}

func (w *World) reasons(app string, only ...string) (out []string) {
	for _, e := range w.Events {
		if slices.Contains(only, e.Reason) {
			out = append(out, e.Reason)
		}
	}
	return out
}

// What a site without its root is told to do it does at once, the root adopts it on return, and nothing that runs is
// touched for that.
func TestAmendmentIsAdopted(t *testing.T) {
	for _, x := range []struct {
		name   string
		before int
		do     []any
		after  int // instances
		starts int // while it is alone
	}{
		{"scale up", 2, []any{scale(4)}, 4, 2},
		{"scale down", 3, []any{scale(1)}, 1, 0},
		{"update", 2, []any{changed(2)}, 2, 2},
		{"update and scale", 2, []any{changed(2), scale(3)}, 3, 3},
		{"apply with more", 2, []any{changed(3)}, 3, 3},
		{"restart", 2, []any{apps.Restart{Service: web("shop"), Actor: "otto"}}, 2, 2},
		{"there and back", 2, []any{scale(4), scale(2)}, 2, 0},
		{"undo", 2, []any{changed(2), apps.Undo{Service: web("shop"), Actor: "otto"}}, 2, -1},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, site, _ := alone(t, x.before)
			gen := w.RootCore().Apps.App(web("shop").App).Gen
			starts := w.starts()
			for _, m := range x.do {
				w.must(t, w.Clusters[site], m)
			}
			w.Run(3 * time.Minute)
			if n := w.tasks(); n != x.after || x.starts >= 0 && *starts != x.starts {
				t.Fatalf("%d run after %d starts, want %d after %d", n, *starts, x.after, x.starts)
			}
			views := w.ClusterCore(site).AppViews(true)
			if len(views) != 1 || views[0].Amended == nil || len(views[0].Amended.Steps) != len(x.do) || views[0].Origin != "root" || views[0].Status != "Ready" {
				t.Fatalf("the site shows %+v", views)
			}
			before := *starts
			w.Heal(w.Clusters[site])
			w.Run(20 * time.Second)
			w.check(t, "shop", x.after, x.after)
			if *starts != before {
				t.Errorf("%d containers were started after the link came back", *starts-before)
			}
			a := w.RootCore().Apps.App(web("shop").App)
			adopts := x.name != "restart" && x.name != "there and back" && x.name != "undo" // of what is as it was nothing is told
			if adopts && a.Gen != gen+1 || !adopts && a.Gen != gen || *a.Manifest.Spec.Services[0].Replicas != x.after {
				t.Errorf("the root is at generation %d after %d, with %d replicas", a.Gen, gen, *a.Manifest.Spec.Services[0].Replicas)
			}
			w.agreed(t, site)
			// It is the root's as before: a restart reaches every instance, once.
			before = *starts
			w.must(t, w.Root, apps.Restart{Service: web("shop")})
			w.Run(2 * time.Minute)
			if *starts-before != x.after {
				t.Errorf("a restart by the root led to %d starts, want %d", *starts-before, x.after)
			}
			w.check(t, "shop", x.after, x.after)
			w.agreed(t, site)
		})
	}
}

// While the root is there, what belongs to it is changed there.
func TestAmendmentNeedsTheRootAway(t *testing.T) {
	w, site, _ := alone(t, 1)
	w.Heal(w.Clusters[site])
	w.Run(time.Second)
	for _, m := range []any{scale(2), changed(1), deleteApp("shop"), apps.Restart{Service: web("shop")}, apps.Undo{Service: web("shop")}, apps.Pause{Service: web("shop")}} {
		if err, ok := w.Do(w.Clusters[site], m).(error); !ok || skerry.AsError(err).Code != skerry.CodeWrongTier {
			t.Errorf("%T: %v", m, err)
		}
	}
	w.agreed(t, site)
}

// An application that is deleted at the only site that has it is deleted.
func TestAmendmentDeletes(t *testing.T) {
	w, site, _ := alone(t, 2)
	w.must(t, w.Clusters[site], deleteApp("shop"))
	w.Run(20 * time.Second)
	if w.tasks() != 0 {
		t.Fatalf("%d run", w.tasks())
	}
	if err, ok := w.Do(w.Clusters[site], scale(2)).(error); !ok {
		t.Errorf("it could be scaled: %v", err)
	}
	w.Heal(w.Clusters[site])
	w.Run(20 * time.Second)
	if w.tasks() != 0 || w.RootCore().Apps.App(web("shop").App) != nil {
		t.Errorf("%d run, the root has %+v", w.tasks(), w.RootCore().Apps.App(web("shop").App))
	}
	w.agreed(t, site)
}

// What the root was told meanwhile counts for more; what the site was told is kept, and can be brought back.
func TestAmendmentConflicts(t *testing.T) {
	for _, x := range []struct {
		name  string
		there any // at the root
		want  int
	}{
		{"scaled", apps.Scale{Service: web("shop"), Replicas: 3}, 3},
		{"updated", app("shop", 2, func(s *spec.ServiceSpec) { s.Args = []string{"otherwise"} }), 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, site, _ := alone(t, 2)
			w.must(t, w.Clusters[site], changed(4))
			w.Run(time.Minute)
			w.must(t, w.Root, x.there)
			w.Run(10 * time.Second)
			w.Heal(w.Clusters[site])
			w.Run(2 * time.Minute)
			w.check(t, "shop", x.want, x.want)
			w.agreed(t, site)
			if got := w.reasons("shop", "Conflict", "Adopted"); len(got) != 2 || got[0] != "Conflict" || got[1] != "Conflict" {
				t.Errorf("%v was told, want a conflict by each", got)
			}
			if i := w.RootCore().Apps.InstancesOf(web("shop").App)[0]; slices.Equal(i.Spec.Args, []string{"changed"}) {
				t.Error("what the site was told counted")
			}
			kept := w.RootCore().Apps.View(w.RootCore().Apps.App(web("shop").App), "root", true).Revisions
			if !slices.ContainsFunc(kept, func(r view.RevisionView) bool { return r.Site == site }) {
				t.Fatalf("it is not kept: %+v", kept)
			}
			w.must(t, w.Root, apps.Undo{Service: skerry.ServiceKey{App: web("shop").App}, Site: site})
			w.Run(2 * time.Minute)
			a := w.RootCore().Apps.App(web("shop").App)
			if s := a.Manifest.Spec.Services[0]; !slices.Equal(s.Args, []string{"changed"}) || *s.Replicas != x.want+2 {
				t.Errorf("undo brought %v and %d replicas", s.Args, *s.Replicas)
			}
			w.check(t, "shop", x.want+2, x.want+2)
			w.agreed(t, site)
		})
	}
}

// However often the link fails while the two agree, they do in the end, once, and nothing is started for that.
func TestAmendmentOnABadLink(t *testing.T) {
	for n := range 12 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w, site, _ := alone(t, 2)
			starts := w.starts()
			w.must(t, w.Clusters[site], scale(4))
			w.Run(10 * time.Second)
			w.Heal(w.Clusters[site])
			w.Run(time.Duration(n) * 500 * time.Microsecond)
			w.Cut(w.Clusters[site])
			w.Run(time.Second)
			if n%2 == 0 {
				w.Kill(w.Clusters[site])
				w.Restart(w.Clusters[site], nil)
				w.Run(time.Second)
			}
			if n%3 == 0 {
				w.Kill(w.Root)
				w.Restart(w.Root, nil)
			}
			w.Heal(w.Clusters[site])
			w.Run(20 * time.Second)
			w.check(t, "shop", 4, 4)
			if *starts != 2 {
				t.Errorf("%d starts, want 2", *starts)
			}
			if a := w.RootCore().Apps.App(web("shop").App); a.Gen != 2 || w.told("Conflict") != 0 {
				t.Errorf("generation %d, %d conflicts", a.Gen, w.told("Conflict"))
			}
			w.agreed(t, site)
		})
	}
}

// What happens at a site without its root is told in its order, once.
func TestEventsOfALoneSiteArriveInOrder(t *testing.T) {
	w, site, _ := alone(t, 1)
	for n := 2; n < 12; n++ {
		w.must(t, w.Clusters[site], scale(n%3+1))
		w.Run(time.Second)
	}
	local := len(w.Events)
	w.Heal(w.Clusters[site])
	w.Run(20 * time.Second)
	var told []string
	for _, e := range w.Events[local:] {
		if e.Reason == "Amended" {
			told = append(told, e.Text)
		}
	}
	var did []string
	for _, e := range w.Events[:local] {
		if e.Reason == "Amended" {
			did = append(did, e.Text)
		}
	}
	if len(did) < 8 || !slices.Equal(did, told) {
		t.Errorf("the site did\n%s\nthe root heard\n%s", strings.Join(did, "\n"), strings.Join(told, "\n"))
	}
}

// An application that runs at two sites is changed at one: its number of instances by as much as the site's, and what it
// runs only where the root lets sites decide that for others.
func TestAmendmentOfWhatSpansSites(t *testing.T) {
	for _, x := range []struct {
		name    string
		adopts  string // by the root
		do      any
		adopted bool
		total   int // instances in the end
	}{
		{"scaled", "", scale(4), true, 6},
		{"scaled to nothing", "", scale(0), true, 2},
		{"deleted", "", deleteApp("shop"), true, 2},
		{"updated", "", changed(5), false, 4},
		{"updated, for all", "all", changed(5), true, 5},
		{"scaled, for nobody", "none", scale(4), false, 4},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, 17)
			w.Audit = true
			w.amendments = x.adopts
			w.Kill(w.Root)
			w.Restart(w.Root, nil)
			w.AddCluster("a")
			w.AddWorker("a", "w1", facts(8000))
			w.Run(12 * time.Second)
			w.must(t, w.Root, app("shop", 2))
			w.Run(5 * time.Second)
			w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1", Reason: "the rest goes elsewhere"})
			w.AddCluster("b")
			w.AddWorker("b", "w1", facts(8000))
			w.Run(12 * time.Second)
			w.must(t, w.Root, scale(4))
			w.Run(5 * time.Second)
			w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1"})
			w.Run(12 * time.Second)
			if n := w.holders("shop"); n["a"] != 2 || n["b"] != 2 {
				t.Fatalf("they are at %v", n)
			}
			starts := 0
			w.Machine.Started = func(*spec.Assignment, string, int) { starts++ }
			w.Cut(w.Clusters["a"])
			w.Run(time.Second)
			w.must(t, w.Clusters["a"], x.do)
			w.Run(time.Minute)
			alone := starts
			w.Heal(w.Clusters["a"])
			w.Run(3 * time.Minute)
			w.check(t, "shop", x.total, x.total)
			if got := w.told("Adopted") == 2; got != x.adopted || (w.told("Conflict") == 2) == x.adopted {
				t.Errorf("%d adopted, %d conflicts", w.told("Adopted"), w.told("Conflict"))
			}
			if x.adopts == "" && x.adopted && starts != alone {
				t.Errorf("%d containers were started after the link came back", starts-alone)
			}
			if a := w.RootCore().Apps.App(web("shop").App); a == nil || *a.Manifest.Spec.Services[0].Replicas != x.total {
				t.Errorf("the root has %+v", a)
			}
			w.agreed(t, "a")
			w.agreed(t, "b")
		})
	}
}

// A site that is lost, replaced and changed while it is alone comes back to one truth.
func TestAmendmentOfALostSite(t *testing.T) {
	for _, policy := range []string{spec.KeepReplacement, spec.KeepOriginal} {
		t.Run(policy, func(t *testing.T) {
			w, first, other := sites(t, func(s *spec.ServiceSpec) { s.OnReconnect = policy })
			w.Cut(w.Clusters[first])
			w.Run(time.Second)
			w.must(t, w.Clusters[first], scale(2))
			w.Run(10 * time.Minute)
			if w.holder(t) != other || w.tasks() != 3 {
				t.Fatalf("it is at %s, %d run", w.holder(t), w.tasks())
			}
			starts := w.starts()
			w.Heal(w.Clusters[first])
			w.Run(time.Minute)
			w.check(t, "shop", 2, 2)
			if *starts != 0 {
				t.Errorf("%d containers were started after the link came back", *starts)
			}
			w.agreed(t, first)
			w.agreed(t, other)
		})
	}
}

// An update that is half done when the root comes back is finished by the root, and nothing is started twice, however long
// the two take to agree.
func TestAmendmentInTheMiddleOfAnUpdate(t *testing.T) {
	for wait := range 8 {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			w, site, _ := alone(t, 4)
			w.Machine.Prepare = time.Second
			starts := w.starts()
			w.must(t, w.Clusters[site], changed(4))
			w.Run(time.Duration(wait) * 400 * time.Millisecond)
			w.Clusters[site].extra = 2 * time.Second
			w.Heal(w.Clusters[site])
			w.Run(3 * time.Minute)
			w.check(t, "shop", 4, 4)
			if *starts != 4 {
				t.Errorf("%d starts, want 4", *starts)
			}
			for _, i := range w.RootCore().Apps.Instances(web("shop")) {
				if !slices.Equal(i.Spec.Args, []string{"changed"}) {
					t.Errorf("%s runs %v", i.ID, i.Spec.Args)
				}
			}
			w.agreed(t, site)
		})
	}
}
