package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// islands are sites of one worker each, which has room for one instance, with gateways that measure each other: "a b" to milliseconds.
func islands(t *testing.T, ways map[string]float64, at map[string]spec.Location) *World {
	t.Helper()
	w := newWorld(t, 17)
	w.Machine.Ways = func(from, to string) float64 { return ways[min(from, to)+" "+max(from, to)] }
	var names []string
	for pair := range ways {
		names = append(names, strings.Fields(pair)...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		site := w.AddCluster(name)
		f := facts(2000)
		if l, ok := at[name]; ok {
			f.Location = &l
		}
		n := w.AddWorker(name, "w0", f)
		w.Do(n, worker.Usage{Coordinate: &spec.Coordinate{Error: 0.1}})
		tellGateway(w, site)
	}
	w.Run(20 * time.Second)
	return w
}

// linkedPair is an application of two services, the first of which has a link to the second.
func linkedPair(link spec.Link, edit ...func(web, db *spec.ServiceSpec)) apps.Apply {
	link.Service = "db"
	two := app("shop", 1, func(s *spec.ServiceSpec) { s.Resources.CPU = 1500 })
	db := two.App.Spec.Services[0]
	db.Name = "db"
	two.App.Spec.Services = append(two.App.Spec.Services, db)
	two.App.Spec.Services[0].Links = []spec.Link{link}
	for _, f := range edit {
		f(&two.App.Spec.Services[0], &two.App.Spec.Services[1])
	}
	return two
}

// sitesOf gives where the two are and run, and why one of them is nowhere.
func sitesOf(w *World) (web, db string, why []string) {
	for _, name := range []string{"web", "db"} {
		k := webKey(name)
		for _, i := range w.RootCore().Apps.Instances(k) {
			if !i.Live() {
				continue
			}
			for _, r := range i.Why {
				why = append(why, r.What+": "+r.Text)
			}
			for _, c := range i.Conditions {
				if c.Type == skerry.Satisfied && !c.Status {
					why = append(why, "unsatisfied: "+c.Reason)
				}
			}
			if i.State == skerry.Running && name == "web" {
				web = i.Holder
			} else if i.State == skerry.Running {
				db = i.Holder
			}
		}
	}
	return web, db, why
}

func webKey(service string) skerry.ServiceKey {
	k := web("shop")
	k.Service = service
	return k
}

// A linked pair that no site holds ran 200 ms apart, although two sites were near enough for it.
func TestLinkAcrossSitesByLatency(t *testing.T) {
	ways := map[string]float64{"a b": 200, "a c": 12, "b c": 190}
	w := islands(t, ways, nil)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20)}, func(web, db *spec.ServiceSpec) { db.Placement.Cluster = "a" }))
	w.Run(30 * time.Second)
	if web, db, why := sitesOf(w); web != "c" || db != "a" {
		t.Errorf("web is at %q, db at %q: %v", web, db, why)
	}
	// The other end is bound as much.
	w = islands(t, ways, nil)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20)}, func(web, db *spec.ServiceSpec) { web.Placement.Cluster = "a" }))
	w.Run(30 * time.Second)
	if web, db, why := sitesOf(w); web != "a" || db != "c" {
		t.Errorf("web is at %q, db at %q: %v", web, db, why)
	}
}

// Where no two sites hold a pair, the second waits, and the reason names the nearest miss.
func TestLinkThatNoTwoSitesHold(t *testing.T) {
	w := islands(t, map[string]float64{"a b": 200, "a c": 41, "b c": 190}, nil)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20)}, func(web, db *spec.ServiceSpec) { db.Placement.Cluster = "a" }))
	w.Run(time.Minute)
	web, db, why := sitesOf(w)
	const miss = "latency: c: it is about 41 ms from a, where db runs, and its link to db allows 20ms"
	if web != "" || db != "a" || len(why) == 0 || why[0] != miss {
		t.Errorf("web is at %q, db at %q: %q", web, db, why)
	}
	// It is tried again when the sites come nearer.
	w.Machine.Ways = func(string, string) float64 { return 9 }
	for _, n := range ordered(w.Clusters) {
		tellGateway(w, n)
		heard(w, n, []string{gatewayOf("a"), gatewayOf("b"), gatewayOf("c")})
	}
	w.Run(time.Minute)
	if web, _, why := sitesOf(w); web == "" {
		t.Errorf("web is nowhere: %q", why)
	}
}

// One ran 5,500 km away: the root did not look at a link's distance.
func TestLinkAcrossSitesByDistance(t *testing.T) {
	ways := map[string]float64{"a b": 10, "a c": 10, "b c": 10}
	at := map[string]spec.Location{"a": {Lat: 48, Lon: 11}, "b": {Lat: 0, Lon: -6}, "c": {Lat: 48.5, Lon: 11}}
	w := islands(t, ways, at)
	w.must(t, w.Root, linkedPair(spec.Link{MaxDistance: 120}, func(web, db *spec.ServiceSpec) { db.Placement.Cluster = "a" }))
	w.Run(30 * time.Second)
	if web, db, why := sitesOf(w); web != "c" || db != "a" {
		t.Errorf("web is at %q, db at %q: %q", web, db, why)
	}
	w.must(t, w.Root, deleteApp("shop"))
	w.Run(10 * time.Second)
	w.must(t, w.Root, linkedPair(spec.Link{MaxDistance: 20}, func(web, db *spec.ServiceSpec) { db.Placement.Cluster = "a" }))
	w.Run(30 * time.Second)
	if web, _, why := sitesOf(w); web != "" || !strings.Contains(strings.Join(why, "\n"), "km from a, where db runs") {
		t.Errorf("web is at %q: %q", web, why)
	}
}

// A site chooses the worker by the way to its gateway, and from there to that of the other site.
func TestLinkAcrossSitesBindsTheWorker(t *testing.T) {
	w := newWorld(t, 18)
	w.Machine.Ways = func(string, string) float64 { return 12 }
	for _, name := range []string{"a", "b"} {
		site := w.AddCluster(name)
		for i := range 5 {
			n := w.AddWorker(name, fmt.Sprint("w", i), facts(2000))
			x := 0.0
			if name == "b" {
				x = []float64{-30, -9, 2, 7, 30}[i]
			}
			w.Do(n, worker.Usage{Coordinate: &spec.Coordinate{Vec: [3]float64{x}, Error: 0.1}})
		}
		tellGateway(w, site)
	}
	w.Run(20 * time.Second)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20)}, func(web, db *spec.ServiceSpec) {
		db.Placement.Cluster, web.Placement.Cluster = "a", "b"
		*web.Replicas = 2
	}))
	w.Run(30 * time.Second)
	var at []string
	for _, i := range w.Clusters["b"].Core.(*cluster.Core).Instances() {
		at = append(at, string(i.Worker))
	}
	slices.Sort(at)
	if strings.Join(at, " ") != "w2 w3" {
		t.Errorf("web is on %v: 9 ms to the gateway and 12 ms beyond are too many", at)
	}
}

// When the way to the other end becomes too long, the end that asks for the limit moves to a site where it holds; where there is none,
// it says why it is not satisfied.
func TestLinkAcrossSitesThatGrows(t *testing.T) {
	ways := map[string]float64{"a b": 10, "a c": 200, "b c": 200}
	w := islands(t, ways, nil)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20)}, func(web, db *spec.ServiceSpec) {
		db.Placement.Cluster = "a"
		web.Placement.Rigidness = new(0.9)
	}))
	w.Run(time.Minute)
	if web, db, why := sitesOf(w); web != "b" || db != "a" {
		t.Fatalf("web is at %q, db at %q: %q", web, db, why)
	}
	again := func() {
		for _, n := range ordered(w.Clusters) {
			heard(w, n, []string{gatewayOf("a"), gatewayOf("b"), gatewayOf("c")})
		}
		for range 60 {
			w.Run(5 * time.Second)
			w.report()
		}
	}
	ways["a b"] = 60
	again()
	web, db, why := sitesOf(w)
	if web != "b" || db != "a" || !strings.Contains(strings.Join(why, "\n"), "unsatisfied: ") {
		t.Errorf("web is at %q, db at %q: %q", web, db, why)
	}
	ways["a c"] = 8
	again()
	if web, db, why := sitesOf(w); web != "c" || db != "a" {
		t.Errorf("web is at %q, db at %q: %q", web, db, why)
	}
}

// Whatever the ways between sites become, and whichever site is out of touch, no instance stays ready beyond a limit of a link for long
// without a reason that is shown.
func TestNoLinkIsExceededInSilence(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { silence(t, seed) })
	}
}

func silence(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	names := []string{"a", "b", "c", "d"}
	ways := map[string]float64{}
	vary := func() {
		for i, x := range names {
			for _, y := range names[:i] {
				if rng.IntN(3) == 0 || ways[y+" "+x] == 0 {
					ways[y+" "+x] = []float64{5, 15, 40, 200}[rng.IntN(4)]
				}
			}
		}
	}
	vary()
	w := islands(t, ways, nil)
	const limit = 20
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(limit)}, func(web, db *spec.ServiceSpec) { web.Placement.Rigidness = new(0.9) }))
	away := ""
	for range 6 {
		vary()
		for _, n := range ordered(w.Clusters) {
			heard(w, n, []string{gatewayOf("a"), gatewayOf("b"), gatewayOf("c"), gatewayOf("d")})
		}
		if away != "" {
			w.Heal(w.Clusters[away])
			away = ""
		} else if rng.IntN(2) == 0 {
			away = names[rng.IntN(len(names))]
			w.Cut(w.Clusters[away])
		}
		for range 90 {
			w.report()
			w.Run(5 * time.Second)
		}
		at := map[string][]string{}
		for _, i := range w.RootCore().Apps.Instances(webKey("db")) {
			at["db"] = append(at["db"], i.Holder)
		}
		for _, i := range w.RootCore().Apps.Instances(webKey("web")) {
			near := len(at["db"]) == 0 || slices.ContainsFunc(at["db"], func(db string) bool {
				return db == i.Holder || db != "" && ways[min(db, i.Holder)+" "+max(db, i.Holder)] <= limit+2 // small changes are not told
			})
			shown := slices.ContainsFunc(i.Conditions, func(c skerry.Condition) bool {
				return !c.Status && c.Reason != "" && (c.Type == skerry.Satisfied || c.Type == skerry.Reachable)
			})
			if i.Live() && i.IsReady() && !near && !shown && i.Holder != away && !slices.Contains(at["db"], away) {
				t.Errorf("web is ready at %s, db at %v, the ways are %v: %+v", i.Holder, at["db"], ways, i.Conditions)
			}
		}
	}
}

// report has all workers report what runs there, and where they are.
func (w *World) report() {
	for _, n := range ordered(w.Clusters) {
		use := map[skerry.InstanceID]wire.QoS{}
		for _, i := range n.Core.(*cluster.Core).Instances() {
			use[i.ID] = wire.QoS{CPU: 10}
		}
		w.Do(w.Workers[n.Name+"/w0"], worker.Usage{Instances: use, Coordinate: &spec.Coordinate{Error: 0.1}})
	}
}

// A link whose rigidness is 0 leads to no move, however rigid the placement; it is only reported.
func TestRigidnessOfALink(t *testing.T) {
	ways := map[string]float64{"a b": 10, "a c": 200, "b c": 200}
	w := islands(t, ways, nil)
	w.must(t, w.Root, linkedPair(spec.Link{MaxLatency: ms(20), Rigidness: new(0.0)}, func(web, db *spec.ServiceSpec) {
		db.Placement.Cluster, web.Placement.Rigidness = "a", new(0.9)
	}))
	w.Run(time.Minute)
	ways["a b"], ways["a c"] = 60, 8
	for _, n := range ordered(w.Clusters) {
		heard(w, n, []string{gatewayOf("a"), gatewayOf("b"), gatewayOf("c")})
	}
	for range 60 {
		w.report()
		w.Run(5 * time.Second)
	}
	if web, _, why := sitesOf(w); web != "b" || w.told("SLAViolated") == 0 {
		t.Errorf("web is at %q, %d violations: %q", web, w.told("SLAViolated"), why)
	}
}

// A service runs at the clusters alone that its manifest lists.
func TestClustersThatAreAllowed(t *testing.T) {
	w := newWorld(t, 19)
	for _, name := range []string{"a", "b", "c"} {
		w.AddCluster(name)
		w.AddWorker(name, "w0", facts(2000))
	}
	w.Run(time.Second)
	only := func(names ...string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Clusters = names }
	}
	w.must(t, w.Root, app("some", 5, only("a", "c")))
	w.must(t, w.Root, app("none", 1, only("x", "y")))
	each := app("each", 1, only("b", "c"))
	each.App.Spec.Services[0].Mode, each.App.Spec.Services[0].Replicas = spec.ModePerWorker, nil
	w.must(t, w.Root, each)
	w.Run(20 * time.Second)
	if h := w.holders("some"); h["b"] > 0 || h["a"]+h["c"] != 5 {
		t.Errorf("some: %v", h)
	}
	if h := w.holders("each"); len(h) != 2 || h["b"] != 1 || h["c"] != 1 {
		t.Errorf("each: %v", h)
	}
	i := w.RootCore().Apps.Instances(web("none"))[0]
	if i.Holder != "" || len(i.Why) == 0 || i.Why[0].Text != "a: only clusters x, y are asked for" {
		t.Errorf("none is at %q: %+v", i.Holder, i.Why)
	}
}

// Two services with limited links to each other, at two sites between which the way becomes too long, come together; they
// do not change places again and again.
func TestTwoEndsThatMoveAtOnce(t *testing.T) {
	for seed := range uint64(4) {
		w := newWorld(t, 40+seed)
		far := false
		w.Machine.Ways = func(from, to string) float64 {
			if far {
				return 200
			}
			return 10
		}
		for _, name := range []string{"a", "b"} {
			site := w.AddCluster(name)
			n := w.AddWorker(name, "w0", facts(4000))
			w.Do(n, worker.Usage{Coordinate: &spec.Coordinate{Error: 0.1}})
			tellGateway(w, site)
		}
		w.Run(20 * time.Second)
		two := linkedPair(spec.Link{MaxLatency: ms(20), Rigidness: new(0.9)}, func(web, db *spec.ServiceSpec) {
			db.Links = []spec.Link{{Service: "web", MaxLatency: ms(20), Rigidness: new(0.9)}}
		})
		// Each begins at a site of its own because the other is full.
		full := app("full", 1, func(s *spec.ServiceSpec) { s.Resources.CPU = 2000; s.Placement.Cluster = "a" })
		fill := app("fill", 1, func(s *spec.ServiceSpec) { s.Resources.CPU = 2000; s.Placement.Cluster = "b" })
		w.must(t, w.Root, full)
		w.must(t, w.Root, fill)
		w.Run(20 * time.Second)
		w.must(t, w.Root, two)
		w.Run(time.Minute)
		if web, db, why := sitesOf(w); web == db || web == "" || db == "" {
			t.Fatalf("seed %d: web is at %q, db at %q: %q", seed, web, db, why)
		}
		w.must(t, w.Root, deleteApp("full"))
		w.must(t, w.Root, deleteApp("fill"))
		far = true
		for _, n := range ordered(w.Clusters) {
			heard(w, n, []string{gatewayOf("a"), gatewayOf("b")})
		}
		moves, was := 0, ""
		for range 360 {
			w.Run(5 * time.Second)
			w.report()
			if web, db, _ := sitesOf(w); web+" "+db != was {
				moves, was = moves+1, web+" "+db
			}
		}
		if web, db, why := sitesOf(w); web != db || web == "" || moves > 8 {
			t.Errorf("seed %d: after %d changes web is at %q, db at %q: %q", seed, moves, web, db, why)
		}
	}
}
