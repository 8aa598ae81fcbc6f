package network

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// wish is an interest, as the twin of Interests keeps it.
type wish struct {
	who string // a worker, or "site/NAME"
	k   skerry.ServiceKey
}

// TestInterests holds Interests against a plain list of who wants what.
func TestInterests(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n, twin := NewInterests(), map[wish]bool{}
	var services []skerry.ServiceKey
	for i := range 6 {
		services = append(services, skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: fmt.Sprint("app", i/2)},
			Service: fmt.Sprint("s", i)})
	}
	names := []string{"w1", "w2", "w3", "site/a", "site/b"}
	for step := range 3000 {
		x := wish{names[rng.IntN(len(names))], services[rng.IntN(len(services))]}
		site, abroad := strings.CutPrefix(x.who, "site/")
		touched := map[skerry.ServiceKey]bool{}
		switch rng.IntN(5) {
		case 0, 1:
			if twin[x], touched[x.k] = true, true; abroad {
				n.AddSite(site, x.k)
			} else if !n.Add(x.who, x.k) {
				t.Fatal("an interest is refused")
			}
		case 2, 3:
			if delete(twin, x); abroad {
				n.RemoveSite(site, x.k)
			} else {
				n.Remove(x.who, x.k)
			}
			touched[x.k] = true
		case 4:
			which := rng.IntN(4)
			switch which {
			case 0:
				n.TouchApp(x.k.App)
			case 1:
				n.TouchSite(site)
			case 2:
				n.TouchAbroad()
			case 3:
				n.TouchRights(x.who, x.k.App)
			}
			for y := range twin {
				_, far := strings.CutPrefix(y.who, "site/")
				if which == 0 && y.k.App == x.k.App || which == 1 && abroad && y.who == x.who || which == 2 && far ||
					which == 3 && !far && y.who == x.who && y.k.App != x.k.App {
					touched[y.k] = true
				}
			}
		}
		if got, want := n.Changed(), slices.SortedFunc(maps.Keys(touched), skerry.ServiceKey.Compare); !slices.Equal(got, want) {
			t.Fatalf("step %d: %v changed, want %v", step, got, want)
		}
		for _, k := range services {
			var workers, sites []string
			for y := range twin {
				if at, far := strings.CutPrefix(y.who, "site/"); y.k == k && far {
					sites = append(sites, at)
				} else if y.k == k {
					workers = append(workers, y.who)
				}
			}
			slices.Sort(workers)
			slices.Sort(sites)
			if got := slices.Sorted(n.Workers(k)); !slices.Equal(got, workers) || !slices.Equal(n.Sites(k), sites) ||
				n.Wanted(k) != (len(workers)+len(sites) > 0) {
				t.Fatalf("step %d: %s is wanted by %v and %v, want %v and %v", step, k, got, n.Sites(k), workers, sites)
			}
			if n.Has("w1", k) != twin[wish{"w1", k}] || slices.Contains(n.Of("w1"), k) != twin[wish{"w1", k}] ||
				n.SiteHas("a", k) != twin[wish{"site/a", k}] {
				t.Fatalf("step %d: who wants %s differs", step, k)
			}
		}
		if faults := n.Audit(); len(faults) > 0 {
			t.Fatalf("step %d: %v", step, faults)
		}
	}
}

// TestTooManyInterests: a worker has so many and no more; when one ends, there is soon room for another.
func TestTooManyInterests(t *testing.T) {
	n, now := NewInterests(), time.Unix(1e9, 0)
	at := func(i int) skerry.ServiceKey { return skerry.ServiceKey{Service: fmt.Sprint(i)} }
	for i := range MaxWants {
		n.Add("w", at(i))
	}
	if n.Add("w", at(MaxWants)) || !n.Add("w", at(7)) || !n.Full("w") || n.Full("other") || !n.Due().IsZero() {
		t.Error("the bound does not hold, or what is there is refused")
	}
	n.Remove("w", at(MaxWants)) // was refused
	if !n.Due().IsZero() {
		t.Error("there is no room, and it is looked for")
	}
	n.Remove("w", at(7))
	if n.Full("w") || !slices.Equal(n.Refill(now), []string{"w"}) || n.Refill(now) != nil {
		t.Error("the room is not used")
	}
	n.Add("w", at(7))
	n.Remove("w", at(8))
	if !n.Due().Equal(now.Add(refillPause)) || n.Refill(now) != nil || !slices.Equal(n.Refill(n.Due()), []string{"w"}) {
		t.Errorf("it is looked again at %s", n.Due().Sub(now))
	}
}

// TestAuditOfInterests: lists that contradict each other are found.
func TestAuditOfInterests(t *testing.T) {
	web := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	for want, spoil := range map[string]func(n *Interests){
		"acme/shop/web is wanted by 1 workers, and listed with 2": func(n *Interests) { n.here[web]["w2"] = true },
		"w2 has 0 interests":                                                              func(n *Interests) { n.of["w2"] = nil },
		"1 services are wanted here, 0 listed":                                            func(n *Interests) { clear(n.here) },
		"acme/shop/web is listed for other sites, and none wants it":                      func(n *Interests) { n.abroad[web] = nil },
		"of applications map[acme/shop:map[acme/shop/web:true]] are wanted, listed map[]": func(n *Interests) { clear(n.apps) },
	} {
		n := NewInterests()
		n.Add("w", web)
		if faults := n.Audit(); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(n); !slices.Contains(n.Audit(), want) {
			t.Errorf("%v, want %q among them", n.Audit(), want)
		}
	}
}

// What an earlier life of the site knew holds until a worker has told all that it wants.
func TestRecalledInterests(t *testing.T) {
	n, k, other := NewInterests(), skerry.ServiceKey{Service: "web"}, skerry.ServiceKey{Service: "far"}
	for _, x := range []skerry.ServiceKey{k, other} {
		if !n.Recall("w1", x) {
			t.Fatalf("%s is refused", x)
		}
	}
	n.Add("w1", k)
	if left := n.Recalled("w1"); !slices.Equal(left, []skerry.ServiceKey{other}) || !n.Has("w1", other) {
		t.Errorf("not told again: %v", left)
	}
	n.Remove("w1", other)
	if left := n.Recalled("w1"); len(left) > 0 || n.Has("w1", other) || !n.Has("w1", k) || len(n.Audit()) > 0 {
		t.Errorf("left: %v; %v", left, n.Audit())
	}
}
