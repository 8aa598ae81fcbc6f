package apps

import (
	"math"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// following gives the web service a number of instances that follows its load.
func following(lo, hi int) func(*Apply) {
	return func(a *Apply) {
		down, per := spec.Duration(0), 10.0
		s := &a.App.Spec.Services[0]
		s.Ingress = []spec.Ingress{{Host: "web.example", Port: "http"}}
		s.Scale = &spec.ScaleSpec{Min: &lo, Max: hi, Down: &down, Target: spec.ScaleTarget{Requests: &per}}
		s.Ports = []spec.Port{{Name: "http", Port: 80}}
	}
}

func used(s *site, n skerry.MilliCPU) {
	for _, i := range s.c.InstancesOf(shop) {
		i.QoS = &wire.QoS{CPU: n}
	}
}

func (s *site) arrivals(child string, requests float64) {
	s.c.Arrivals(s.now, child, map[skerry.ServiceKey]wire.IngressUse{web: {Service: web, Requests: requests}})
}

// TestOutOfTouchIsBusy has the site of all instances out of touch: that nothing is told of what comes there does not end them.
func TestOutOfTouchIsBusy(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(4, following(1, 8)))
	s.run(5 * time.Second)
	used(s, 100)
	s.arrivals("site", 40)
	for _, i := range s.c.InstancesOf(shop) {
		i.Conditions = skerry.SetCondition(i.Conditions, s.now, skerry.Reachable, false, "cluster site is not connected")
	}
	for range 60 {
		s.now = s.now.Add(ScaleEvery)
		s.take(s.c.Reconcile(s.now))
	}
	if n := *s.c.App(shop).Manifest.Spec.Services[0].Replicas; n != 4 {
		t.Errorf("there are to be %d: %s", n, s.view().Scale.Why)
	}
}

// TestLoadOfManySites sums in the same order whatever the order in which sites told: a core decides the same when it is replayed.
func TestLoadOfManySites(t *testing.T) {
	var first uint64
	for n := range 50 {
		s := newSite(t)
		for k := range 20 {
			child := (k*7 + n) % 20
			s.arrivals(string(rune('a'+child)), 0.1*math.Pow(3, float64(child)))
		}
		s.arrivals("gone", 1)
		s.c.Arrivals(s.now, "gone", nil)
		s.c.Arrivals(s.now, "gone", nil)
		if len(s.c.arrivals) != 20 {
			t.Fatalf("%d sites are remembered", len(s.c.arrivals))
		}
		got := math.Float64bits(s.c.demand.load(s.now, web).Requests)
		if n == 0 {
			first = got
		} else if got != first {
			t.Fatalf("%x, and before %x", got, first)
		}
	}
}

func (s *site) spec() spec.ServiceSpec { return s.c.App(shop).Manifest.Spec.Services[0] }

// TestNumberStays has a service that bears something given a scale, other limits, and earlier versions: it never begins anew.
func TestNumberStays(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(6))
	s.run(5 * time.Second)
	begin := func(a *Apply) { a.App.Spec.Services[0].Replicas = nil }
	s.tell(apply(0, begin, following(1, 6)))
	if n := *s.spec().Replicas; n != 6 {
		t.Fatalf("%d instances once their number follows their load, before 6", n)
	}
	s.tell(apply(0, begin, following(1, 20), image("web:2", spec.UpdateSpec{})))
	s.tell(Scale{Service: web, Replicas: 12})
	s.tell(Undo{Service: web, To: 2})
	if x := s.spec(); x.Image != "web:1" || x.Scale == nil || x.Scale.Max != 20 || *x.Replicas != 12 {
		t.Errorf("after the undo: %s, %+v, %d", x.Image, x.Scale, *x.Replicas)
	}
	// The first version has no ingress at which requests could be counted.
	s.tell(Undo{Service: web, To: 1})
	if x := s.spec(); x.Scale != nil || *x.Replicas != 12 {
		t.Errorf("after the second undo: %+v, %d", x.Scale, *x.Replicas)
	}
	// What is not deployed bears nothing.
	other := newSite(t)
	register := func(a *Apply) { a.Register = true }
	other.tell(apply(2, register, following(1, 9)))
	other.tell(apply(5, register, following(1, 9)))
	if n := *other.spec().Replicas; n != 5 {
		t.Errorf("%d are registered, 5 were asked for", n)
	}
}

// TestNumbersOfSeveralSites has two sites scale their shares while the owner is away: both count.
func TestNumbersOfSeveralSites(t *testing.T) {
	s := newSite(t)
	s.tell(apply(4, following(1, 12)))
	var fx wire.Effects
	held := map[string][]*Instance{}
	for n, i := range s.c.Unplaced(s.now) {
		at := []string{"a", "b"}[n%2]
		s.c.Place(s.now, i, at, i.Fence, &wire.Decision{}, &fx)
		held[at] = append(held[at], i)
	}
	base, rev := s.c.App(shop).Gen, s.c.App(shop).revisions["web"]
	told := func(site string, more ...skerry.InstanceID) *wire.Amendment {
		w := wire.AmendedService{Name: "web", Before: 2, Replicas: 2 + len(more)}
		for _, i := range held[site] {
			w.Instances = append(w.Instances, wire.AmendedInstance{ID: i.ID, Ordinal: i.Ordinal, Revision: rev})
		}
		for _, id := range more {
			w.Instances = append(w.Instances, wire.AmendedInstance{ID: id, Revision: rev})
		}
		return &wire.Amendment{App: shop, Base: base, Services: []wire.AmendedService{w}}
	}
	mint := func(*wire.Effects) skerry.Fence { return skerry.Fence{} }
	for _, m := range []struct {
		site string
		m    *wire.Amendment
	}{{"a", told("a", "web-caaaaaaaa")}, {"b", told("b", "web-cbbbbbbbb", "web-ccccccccc")}} {
		if started, ended, err := s.c.Adopt(s.now, m.site, m.m, false, mint, &fx); err != nil ||
			len(started) != len(m.m.Services[0].Instances)-2 || len(ended) != 0 {
			t.Errorf("%s: %d started, %d ended, %v", m.site, len(started), len(ended), err)
		}
	}
	if n := *s.spec().Replicas; n != 7 {
		t.Errorf("%d, expected 4 and one and two more", n)
	}
	// Another version was applied meanwhile, or more than numbers was changed: that is the owner's.
	late := told("a", "web-cdddddddd")
	late.Deleted = true
	if _, _, err := s.c.Adopt(s.now, "a", late, false, mint, &fx); err == nil {
		t.Error("an old amendment deletes it")
	}
	s.tell(apply(4, following(1, 12), image("web:2", spec.UpdateSpec{})))
	if _, _, err := s.c.Adopt(s.now, "a", told("a", "web-cdddddddd"), false, mint, &fx); err == nil {
		t.Error("a number of another version is adopted")
	}
}

// TestNumbersWhileOneEnds has a site scale its share while the owner is ending one instance of it, of which the site
// may have heard nothing. An instance that ends is not counted twice, none at another site goes for it, and the same
// amendment may come again.
func TestNumbersWhileOneEnds(t *testing.T) {
	for _, more := range []int{-3, -1, 1} {
		at := newSite(t)
		at.tell(apply(5, following(1, 12)))
		var fx wire.Effects
		for n, i := range at.c.Unplaced(at.now) {
			at.c.Place(at.now, i, []string{"a", "b"}[n%2], i.Fence, &wire.Decision{}, &fx)
		}
		base, rev := at.c.App(shop).Gen, at.c.App(shop).revisions["web"]
		at.tell(Scale{Service: web, Replicas: 4})
		ending := at.c.Stopping()
		if len(ending) != 1 {
			t.Fatalf("%d end", len(ending))
		}
		site, here := ending[0].Holder, []wire.AmendedInstance{{ID: ending[0].ID, Revision: rev}}
		for _, i := range at.c.Instances(web) {
			if i.Holder == site && !i.Stopping {
				here = append(here, wire.AmendedInstance{ID: i.ID, Revision: rev})
			}
		}
		told := wire.AmendedService{Name: "web", Before: len(here)}
		live := len(here) - 1
		want := 4 // as many live as before, where the site ends that one, too
		switch {
		case more == 1:
			want, told.Instances = 5, append(here, wire.AmendedInstance{ID: "web-caaaaaaaa", Revision: rev})
		case more == -1:
			told.Instances = here[1:]
		default:
			want = 4 - live
		}
		told.Replicas = len(told.Instances)
		for range 2 {
			m := &wire.Amendment{App: shop, Base: base, Services: []wire.AmendedService{told}}
			if _, _, err := at.c.Adopt(at.now, site, m, false, func(*wire.Effects) skerry.Fence { return skerry.Fence{} }, &fx); err != nil {
				t.Fatal(err)
			}
			if n := *at.spec().Replicas; n != want {
				t.Errorf("%s has %d of %d after %d, and %d are wanted instead of %d", site, told.Replicas, live, told.Before, n, want)
			}
		}
	}
}

// TestSteadyRequestsCount has a worker on a metered link, to which as much comes as before, say so every five minutes alone.
func TestSteadyRequestsCount(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(4, following(1, 8)))
	s.run(5 * time.Second)
	used(s, 100)
	for n := range 120 {
		if n%60 == 0 {
			s.arrivals("w1", 40)
		}
		s.now = s.now.Add(ScaleEvery)
		s.take(s.c.Reconcile(s.now))
	}
	if n := *s.spec().Replicas; n != 4 {
		t.Errorf("there are to be %d: %s", n, s.view().Scale.Why)
	}
	for range 180 { // nothing is heard any more
		s.now = s.now.Add(ScaleEvery)
		s.take(s.c.Reconcile(s.now))
	}
	if n := *s.spec().Replicas; n != 1 {
		t.Errorf("there are to be %d: %s", n, s.view().Scale.Why)
	}
}
