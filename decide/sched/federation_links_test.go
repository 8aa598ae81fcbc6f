package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ways is a table of round trips between sites: "a b" to milliseconds.
type ways map[string]float64

func (w ways) find(a, b string) (float64, bool) {
	if ms, ok := w[a+" "+b]; ok {
		return ms, true
	}
	ms, ok := w[b+" "+a]
	return ms, ok
}

func radius(ms float64) func(*cluster) {
	return func(c *cluster) { c.Report.Network, c.Report.NetworkMs = &spec.Coordinate{}, ms }
}

func lying(l spec.Location, km float64) func(*cluster) {
	return func(c *cluster) { c.Report.Centroid, c.Report.RadiusKm = &l, km }
}

func limit(ms int) *spec.Duration { return new(spec.Duration(time.Duration(ms) * time.Millisecond)) }

func whys(d wire.Decision) string {
	var out []string
	for _, r := range d.Why {
		out = append(out, r.What+": "+r.Text)
	}
	return strings.Join(out, "\n")
}

// A linked pair ran 200 ms apart at two sites without a reason. The limit binds whichever end comes second.
func TestLinkBindsSitesByLatency(t *testing.T) {
	sites := []*cluster{clusterOf("home", 10, 400, 0, radius(2)), clusterOf("near", 10, 2000, 100, radius(2)),
		clusterOf("far", 10, 2000, 100, radius(2)), clusterOf("mute", 10, 2000, 100)}
	table := ways{"home near": 12, "home far": 200, "near far": 190}
	link := []spec.Link{{Service: "db", MaxLatency: limit(20)}}
	web := request(1000, 1, func(s *spec.ServiceSpec) { s.Links = link })
	web.Service, web.Peers = "web", []Peer{{Worker: "home", Service: "db"}}
	db := request(1000, 1)
	db.Service, db.Peers = "db", []Peer{{Worker: "home", Service: "web", Links: link}}
	for _, r := range []*Request{web, db} {
		f := federation(r, sites)
		f.SetWays(table.find)
		if names, d := f.Rank(epoch, r, 1, 10); strings.Join(names, " ") != "near" {
			t.Errorf("%s: %v\n%s", r.Service, names, whys(d))
		}
		f.SetConnected("near", false)
		names, d := f.Rank(epoch, r, 1, 10)
		if len(names) > 0 || !strings.HasPrefix(whys(d), "latency: far: it is about 200 ms from home, where ") ||
			!strings.HasSuffix(d.Why[0].Text, " allows 20ms") {
			t.Errorf("%s: %v\n%s", r.Service, names, whys(d))
		}
		if !strings.Contains(whys(d), "mute: the round trip from there to home, where ") {
			t.Errorf("what nobody measured is not told of:\n%s", whys(d))
		}
	}
	// A service that is nowhere, and a link without limits, bind nobody.
	r := request(1000, 1, func(s *spec.ServiceSpec) {
		s.Links = []spec.Link{{Service: "db"}, {Service: "x", MaxLatency: limit(20)}}
	})
	r.Service, r.Peers = "web", web.Peers
	if names, _ := federation(r, sites).Rank(epoch, r, 1, 10); len(names) != 3 {
		t.Errorf("%v", names)
	}
}

// One ran 5,500 km away.
func TestLinkBindsSitesByDistance(t *testing.T) {
	home := spec.Location{Lat: 48, Lon: 11}
	sites := []*cluster{clusterOf("home", 10, 400, 0, lying(home, 5)),
		clusterOf("near", 10, 2000, 100, lying(spec.Location{Lat: 48.5, Lon: 11}, 5)),
		clusterOf("far", 10, 2000, 100, lying(spec.Location{Lat: 0, Lon: -6}, 5)), clusterOf("mute", 10, 2000, 100)}
	r := request(1000, 1, func(s *spec.ServiceSpec) { s.Links = []spec.Link{{Service: "db", MaxDistance: 120}} })
	r.Service, r.Peers = "web", []Peer{{Worker: "home", Service: "db"}}
	f := federation(r, sites)
	if names, d := f.Rank(epoch, r, 1, 10); strings.Join(names, " ") != "near" {
		t.Errorf("%v\n%s", names, whys(d))
	}
	f.SetConnected("near", false)
	_, d := f.Rank(epoch, r, 1, 10)
	if !strings.HasPrefix(whys(d), "distance: far: it is about 55") ||
		!strings.Contains(whys(d), "mute: where its workers or those of home are is not known") {
		t.Errorf("%s", whys(d))
	}
	// Of one that says nothing of distance, the place is not asked.
	r.Spec.Links[0] = spec.Link{Service: "db", MaxLatency: limit(20)}
	f.SetWays(ways{"home mute": 1}.find)
	if names, d := f.Rank(epoch, r, 1, 10); strings.Join(names, " ") != "mute" {
		t.Errorf("%v\n%s", names, whys(d))
	}
}

// Of sites where the limit may hold, one where it surely does comes first; one instance near enough is enough.
func TestSurelyWithinALink(t *testing.T) {
	sites := []*cluster{clusterOf("home", 10, 400, 0, radius(1)), clusterOf("other", 10, 400, 0, radius(1)),
		clusterOf("tight", 10, 2000, 100, radius(1)), clusterOf("wide", 10, 2000, 100, radius(40)), clusterOf("beside", 10, 2000, 100, radius(1))}
	r := request(1000, 1, func(s *spec.ServiceSpec) { s.Links = []spec.Link{{Service: "db", MaxLatency: limit(20)}} })
	r.Service, r.Peers = "web", []Peer{{Worker: "home", Service: "db"}, {Worker: "other", Service: "db"}}
	f := federation(r, sites)
	f.SetWays(ways{"home tight": 10, "home wide": 10, "home beside": 300, "other beside": 5, "other tight": 300, "other wide": 300}.find)
	names, d := f.Rank(epoch, r, 1, 10)
	if len(names) != 3 || names[2] != "wide" {
		t.Errorf("%v\n%s", names, whys(d))
	}
}

// The first of two services without a place goes where the second can follow.
func TestFirstOfTwoLeavesAPlace(t *testing.T) {
	gpu := func(c *cluster) { c.Report.Classes[0].Class.Devices = []string{"camera"} }
	sites := []*cluster{clusterOf("lonely", 10, 9000, 0, radius(1)), clusterOf("beside", 10, 2000, 0, radius(1)),
		clusterOf("eyes", 10, 1500, 0, radius(1), gpu)}
	link := []spec.Link{{Service: "see", MaxLatency: limit(20)}}
	see := request(1000, 1, func(s *spec.ServiceSpec) { s.Placement.Devices = []string{"camera"} })
	r := request(1800, 1, func(s *spec.ServiceSpec) { s.Links = link })
	r.Service, r.Linked = "web", []Linked{{Service: "see", Spec: see.Spec}}
	f := federation(r, sites)
	f.SetWays(ways{"lonely eyes": 200, "beside eyes": 5, "lonely beside": 200}.find)
	names, d := f.Rank(epoch, r, 1, 10)
	if strings.Join(names, " ") != "beside lonely" {
		t.Errorf("%v\n%s", names, whys(d))
	}
}

// A service at the other end that no site can take is looked for once, not from each site.
func TestAPartnerThatFitsNowhere(t *testing.T) {
	var sites []*cluster
	for n := range 60 {
		sites = append(sites, clusterOf(fmt.Sprint("s", n), 10, 2000, 100))
	}
	link := []spec.Link{{Service: "db", MaxLatency: limit(20)}}
	web := request(1000, 1, func(s *spec.ServiceSpec) { s.Links = link })
	db := request(1_000_000, 1)
	web.Service, web.Linked = "web", []Linked{{Service: "db", Spec: db.Spec}}
	f := federation(web, sites)
	asked := 0
	f.SetWays(func(a, b string) (float64, bool) { asked++; return 10, true })
	if names, d := f.Rank(epoch, web, 1, 10); len(names) != 10 || asked > len(sites) {
		t.Errorf("%v; %d round trips between %d sites were asked for\n%s", names, asked, len(sites), whys(d))
	}
}

// No site is ruled out that has a worker within the limit of one of those that the other end may run on.
func TestNoSiteWithinALinkIsRuledOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	held := 0
	for round := range 2000 {
		var points [2][]spec.Location
		var sites []*cluster
		for i := range points {
			middle := spec.Location{Lat: 100*rng.Float64() - 50, Lon: 4 * rng.Float64()}
			for range 1 + rng.IntN(5) {
				points[i] = append(points[i], spec.Location{Lat: middle.Lat + 2*rng.Float64(), Lon: middle.Lon + 2*rng.Float64()})
			}
			c, km, _ := coord.Centroid(points[i])
			sites = append(sites, clusterOf(fmt.Sprint("s", i), 3, 2000, 0, lying(c, km)))
		}
		km := math.Inf(1)
		for _, p := range points[0] {
			for _, q := range points[1] {
				km = min(km, coord.GreatCircleKm(p, q))
			}
		}
		r := request(1000, 1, func(s *spec.ServiceSpec) { s.Links = []spec.Link{{Service: "db", MaxDistance: km * (1 + 1e-9)}} })
		r.Service, r.Peers = "web", []Peer{{Worker: "s0", Service: "db"}}
		names, d := federation(r, sites).Rank(epoch, r, 1, 10)
		if !slices.Contains(names, "s1") {
			t.Fatalf("round %d: %v\n%s", round, names, whys(d))
		}
		held++
	}
	if held < 1000 {
		t.Errorf("%d cases", held)
	}
}
