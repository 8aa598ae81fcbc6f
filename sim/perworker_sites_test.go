package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// newSites has a version 1 of a perWorker service serve at some sites, of which each has so many workers.
func newSites(t *testing.T, workers map[string]int) *turns {
	w := &turns{New(6), t, map[string]string{}}
	w.Machine.Start = 2 * time.Second
	w.Audit = true
	for _, site := range slices.Sorted(maps.Keys(workers)) {
		w.AddCluster(site)
		for n := range workers[site] {
			w.AddWorker(site, fmt.Sprintf("w%d", n+1), facts(2000))
		}
	}
	w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
		if strings.HasPrefix(a.Spec.Image, "bad:") {
			return 3 * time.Second, wire.Exit{Code: 7}
		}
		return -1, wire.Exit{}
	}
	w.Run(5 * time.Second)
	w.apply("x:1")
	w.Run(30 * time.Second)
	return w
}

// at gives which versions are ready at a site, as "x:1 x:1 x:2".
func (w *turns) at(site string) string {
	var out []string
	for _, i := range w.ClusterCore(site).Instances() {
		if skerry.HasCondition(i.Conditions, skerry.Ready) {
			out = append(out, w.images[i.Revision])
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *turns) sitesAre(what string, want map[string]string) {
	w.t.Helper()
	for site, text := range want {
		if got := w.at(site); got != text {
			w.t.Errorf("%s: at %s %q are ready, want %q", what, site, got, text)
		}
	}
}

// touched lists the sites that a version has come to.
func (w *turns) touched(image string) (out []string) {
	for name := range w.Clusters {
		if slices.ContainsFunc(w.ClusterCore(name).Instances(), func(i wire.Instance) bool { return w.images[i.Revision] == image }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// An update goes to the site with the fewest copies first, and from there to as many at a time as are done.
func TestSitesAreUpdatedInTurn(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 1, "c": 2, "d": 2})
	w.apply("x:2")
	most := 0
	var order []string
	for range 1200 {
		w.Run(200 * time.Millisecond)
		done, busy := 0, 0
		for name := range w.Clusters {
			switch n := strings.Count(w.at(name), "x:2"); {
			case slices.Contains(w.touched("x:2"), name) && n < len(w.Clusters[name].children):
				busy++
			case n > 0:
				done++
			}
		}
		for _, name := range w.touched("x:2") {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
		if busy > max(1, done) {
			t.Fatalf("%d sites are being updated, and %d are done", busy, done)
		}
		most = max(most, busy)
		status, s := w.shown()
		if s.Rollout.Sites == nil || s.Rollout.Sites.All != 4 || status == "Ready" && s.Rollout.Sites.Done != 4 {
			t.Fatalf("want four sites, all done when Ready: %s: %+v", status, s.Rollout.Sites)
		}
	}
	if len(order) != 4 || order[0] != "b" || order[3] != "a" {
		t.Errorf("the order was %v", order)
	}
	w.sitesAre("at the end", map[string]string{"a": "x:2 x:2 x:2", "b": "x:2", "c": "x:2 x:2", "d": "x:2 x:2"})
	w.status("Ready")

	w.apply("x:3", func(s *spec.ServiceSpec) { s.Update.Sites = spec.SitesAll })
	w.Run(2 * time.Second)
	if got := w.touched("x:3"); len(got) != 4 {
		t.Errorf("all at the same time: %v", got)
	}
}

// A bad version harms one copy at one site; it is taken back there. The root and that site are restarted meanwhile.
func TestBadVersionHarmsOneSite(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 2, "c": 2})
	w.apply("bad:1")
	for n := range 120 {
		w.Run(time.Second)
		if got := w.touched("bad:1"); len(got) > 1 || len(got) == 1 && got[0] != "b" {
			t.Fatalf("it has come to %v", got)
		}
		if n == 3 {
			w.Restart(w.Root, nil)
		} else if n == 6 {
			w.Restart(w.Clusters["b"], nil)
		}
	}
	w.sitesAre("taken back", map[string]string{"a": "x:1 x:1 x:1", "b": "x:1 x:1", "c": "x:1 x:1"})
	w.status(view.AppRolledBack)
}

// Sites that are out of touch hold up nobody, and are updated when they are back: those that have yet to get it, and the first one itself.
func TestSitesOutOfTouch(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 1, "c": 2})
	w.Cut(w.Clusters["c"])
	w.apply("x:2")
	w.Run(3 * time.Second)
	if got := w.touched("x:2"); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("first at %v", got)
	}
	w.Cut(w.Clusters["b"]) // the first one, before it is done
	w.Run(50 * time.Second)
	w.sitesAre("it may be back in a moment", map[string]string{"a": "x:1 x:1 x:1"})
	w.Run(20 * time.Minute)
	w.sitesAre("the first one is away", map[string]string{"a": "x:2 x:2 x:2", "b": "x:2", "c": "x:1 x:1"})
	if status, s := w.shown(); s.Rollout.Phase != view.RolloutDone || status == "Ready" || s.Rollout.Sites.Away != 1 || s.OutOfTouch == 0 {
		t.Errorf("want it done, with one site away: %s: %+v, %+v", status, s.Rollout, s.Rollout.Sites)
	}
	w.Heal(w.Clusters["b"])
	w.Heal(w.Clusters["c"])
	w.Run(2 * time.Minute)
	w.sitesAre("all are back", map[string]string{"a": "x:2 x:2 x:2", "b": "x:2", "c": "x:2 x:2"})
	w.status("Ready")

	// One that comes when the version has run elsewhere for long has it go bad there: it stops there, and nobody else goes back.
	w.Cut(w.Clusters["a"])
	w.apply("x:3")
	w.Run(3 * time.Minute)
	w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
		if a.Spec.Image == "x:3" {
			return 3 * time.Second, wire.Exit{Code: 7}
		}
		return -1, wire.Exit{}
	}
	w.Heal(w.Clusters["a"])
	w.Run(20 * time.Minute)
	w.sitesAre("it is bad at one", map[string]string{"a": "x:2 x:2", "b": "x:3", "c": "x:3 x:3"})
}

// A site that has a bad version, and is cut off before it can be taken back there, goes back when it is in touch; one that joins meanwhile
// has the version that serves.
func TestSiteIsCutOffWithABadVersion(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 2})
	w.apply("bad:1")
	w.Run(4 * time.Second)
	w.Cut(w.Clusters["b"])
	w.Run(10 * time.Second)
	w.AddCluster("c")
	w.AddWorker("c", "w1", facts(2000))
	w.Run(10 * time.Second)
	w.sitesAre("it has joined", map[string]string{"c": "x:1"})
	w.Run(10 * time.Minute)
	if got := w.touched("bad:1"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the one is cut off, another one went first, and had it taken back: %v", got)
	}
	w.sitesAre("the other ones", map[string]string{"a": "x:1 x:1 x:1", "c": "x:1"})
	w.status("Degraded")
	w.Heal(w.Clusters["b"])
	w.Run(3 * time.Minute)
	w.sitesAre("taken back", map[string]string{"a": "x:1 x:1 x:1", "b": "x:1 x:1", "c": "x:1"})
	w.status(view.AppRolledBack)
}

// A pause holds the site that is being updated, and all others.
func TestPauseOverSites(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 3})
	w.apply("x:2")
	w.Run(15 * time.Second)
	w.must(t, w.Root, apps.Pause{Service: web("probe"), Actor: "ann"})
	w.Run(time.Second)
	before := w.at("a")
	w.Run(20 * time.Minute)
	if w.at("a") != before || w.at("b") != "x:1 x:1 x:1" {
		t.Errorf("paused with %s; later %s, %s", before, w.at("a"), w.at("b"))
	}
	w.must(t, w.Root, apps.Resume{Service: web("probe")})
	w.Run(3 * time.Minute)
	w.sitesAre("resumed", map[string]string{"a": "x:2 x:2 x:2", "b": "x:2 x:2 x:2"})
}
