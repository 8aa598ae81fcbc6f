package core

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func probeOf(site string) string { return "192.0.2." + fmt.Sprint(site[0]) + ":7443" }

// heard has a site tell of its gateway, and of round trips to those of others.
func (r *hostileRoot) heard(site string, ms map[string]float64) {
	r.t.Helper()
	g := wire.Gateway{Probe: probeOf(site)}
	for to, x := range ms {
		g.Heard = append(g.Heard, wire.PeerRTT{Probe: probeOf(to), Ms: x})
	}
	r.say(site, map[string][]byte{wire.GatewayItem: wire.New().Marshal(&g)})
}

func (r *hostileRoot) peers(site string) (p wire.Peers) {
	value, ok := r.c.Children.Get(site).Desired.Get(wire.PeersKey)
	if ok && wire.New().Unmarshal(value, &p) != nil {
		r.t.Fatalf("%s has peers that cannot be read", site)
	}
	slices.Sort(p.List)
	return p
}

// Gateways are told of each other; one that does not speak of itself is not, and an address belongs to the first that has it.
func TestGatewaysMeasureEachOther(t *testing.T) {
	r := newHostileRoot(t, "a", "b", "c", "mute")
	r.heard("a", nil)
	if p := r.peers("a"); len(p.List) != 0 || len(p.Key) == 0 {
		t.Errorf("a measures to %v", p.List)
	}
	r.heard("b", nil)
	r.say("c", map[string][]byte{wire.GatewayItem: wire.New().Marshal(&wire.Gateway{Probe: probeOf("a")})})
	if p := r.peers("b"); strings.Join(p.List, " ") != probeOf("a") {
		t.Errorf("b measures to %v", p.List)
	}
	if p := r.peers("c"); len(p.List) != 2 {
		t.Errorf("c, whom nobody reaches, measures to %v", p.List)
	}
	if r.has("mute", wire.PeersKey) {
		t.Error("a site that says nothing of a gateway is told of others")
	}
	r.heard("b", map[string]float64{"a": 12})
	if ms, ok := r.c.relations.gateways.space.RTT("a", "b"); !ok || ms != 12 {
		t.Errorf("a is %v ms from b, %v", ms, ok)
	}
	if _, ok := r.c.relations.gateways.space.RTT("b", "c"); ok {
		t.Error("c took the place of a")
	}
	// Who is removed knows the key no longer, and its address is that of the other who told of it.
	key := r.peers("b").Key
	r.step(ChildDown{Name: "a"})
	r.step(RemoveCluster{Name: "a"})
	if p := r.peers("b"); slices.Equal(p.Key, key) || r.c.relations.gateways.probes[probeOf("a")] != "c" {
		t.Errorf("b measures to %v, by the old key or for %v", p.List, r.c.relations.gateways.probes)
	}
}

// An address that a site gave up, or had when it was removed, is that of the other one that told of it, without another word of that.
func TestGatewaysTakeOverAddresses(t *testing.T) {
	for _, removed := range []bool{false, true} {
		r := newHostileRoot(t, "a", "b", "h")
		r.say("h", map[string][]byte{wire.GatewayItem: wire.New().Marshal(&wire.Gateway{Probe: probeOf("a")})})
		r.heard("a", nil)
		r.heard("b", map[string]float64{"a": 20})
		if removed {
			r.step(ChildDown{Name: "h"})
			r.step(RemoveCluster{Name: "h"})
		} else {
			r.heard("h", nil)
		}
		if p := r.peers("b"); !slices.Contains(p.List, probeOf("a")) {
			t.Errorf("removed %v: b measures to %v", removed, p.List)
		}
		if ms, ok := r.c.relations.gateways.space.RTT("a", "b"); !ok || ms != 20 {
			t.Errorf("removed %v: a is %v ms from b, %v", removed, ms, ok)
		}
	}
}

// What waits for a place is not tried again whenever a round trip changes, but only if a link has something to do with that.
func TestGatewaysLeaveWhatWaits(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	web := spec.ServiceSpec{Name: "web", Replicas: new(1)}
	web.Image = "web:1"
	r.step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{web}}}})
	key := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	waits := func() time.Time { return r.c.Apps.Instances(key)[0].RetryAt }
	if waits().IsZero() {
		t.Fatalf("it is at %q", r.c.Apps.Instances(key)[0].Holder)
	}
	was := waits()
	r.heard("a", nil)
	r.heard("b", map[string]float64{"a": 20})
	if !waits().Equal(was) {
		t.Error("it is tried again because of a round trip")
	}
}

// What one site says of round trips changes nothing between two others, and what is no round trip changes nothing at all.
func TestHostileGateway(t *testing.T) {
	r := newHostileRoot(t, "a", "b", "h")
	r.heard("a", nil)
	r.heard("b", nil)
	r.heard("h", nil)
	r.heard("a", map[string]float64{"b": 20, "h": 100})
	r.heard("b", map[string]float64{"a": 20, "h": 100})
	for _, x := range []float64{0.001, 9999, -1, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		r.heard("h", map[string]float64{"a": x, "b": x, "h": x})
		if ms, ok := r.c.relations.gateways.space.RTT("a", "b"); !ok || ms != 20 {
			t.Errorf("h says %v: a is %v ms from b", x, ms)
		}
		if ms, _ := r.c.relations.gateways.space.RTT("a", "h"); ms < 100 || ms > 10_000 {
			t.Errorf("h says %v: it is %v ms from a", x, ms)
		}
	}
	r.heard("h", nil)
	r.say("h", map[string][]byte{wire.GatewayItem: {0xa1, 0x02, 0x81, 0xa2, 0x01, 0x61, 'x', 0x02, 0xf9, 0x7e, 0x00}}) // NaN
	if ms, ok := r.c.relations.gateways.space.RTT("a", "h"); ok {
		t.Errorf("what says no number has a gateway, %v ms from a", ms)
	}
}

// FuzzGateway has a site say anything of its gateway, and of those of others.
func FuzzGateway(f *testing.F) {
	f.Add([]byte{0xa0})
	f.Add(wire.New().Marshal(&wire.Gateway{Probe: probeOf("h"),
		Heard: []wire.PeerRTT{{Probe: probeOf("a"), Ms: 1}, {Probe: probeOf("b"), Ms: 1e300}}}))
	f.Add(wire.New().Marshal(&wire.Gateway{Probe: probeOf("a"), Heard: []wire.PeerRTT{{Probe: "x", Ms: -1}}}))
	f.Add([]byte(`{"probe":"[::]:0","heard":[{"probe":"192.0.2.97:7443","ms":0.00001}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newHostileRoot(t, "a", "b", "h")
		r.heard("a", nil)
		r.heard("b", map[string]float64{"a": 20})
		r.say("h", map[string][]byte{wire.GatewayItem: data})
		r.heard("a", map[string]float64{"b": 20})
		if ms, ok := r.c.relations.gateways.space.RTT("a", "b"); !ok || ms != 20 {
			t.Errorf("a is %v ms from b", ms)
		}
		if ms, ok := r.c.relations.gateways.space.RTT("a", "h"); ok && !(ms > 0 && ms <= 60_000) {
			t.Errorf("a is %v ms from h", ms)
		}
		if !slices.Contains(r.peers("b").List, probeOf("a")) {
			t.Error("b does not measure to a any more")
		}
	})
}

// Sites learn where the other ends of limited links are, and nothing of the others.
func TestOtherEndsAreTold(t *testing.T) {
	r := newHostileRoot(t, "a", "b", "c")
	for _, site := range []string{"a", "b", "c"} {
		r.heard(site, nil)
	}
	r.heard("a", map[string]float64{"b": 12.34})
	service := func(name string, links ...spec.Link) spec.ServiceSpec {
		s := spec.ServiceSpec{Name: name, Replicas: new(1), Links: links}
		s.Image = "web:1"
		return s
	}
	limit := spec.Duration(20 * time.Millisecond)
	r.step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop", Namespace: "acme"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{
			service("web", spec.Link{Service: "db", MaxLatency: &limit}, spec.Link{Service: "log"}), service("db"), service("log")}}}})
	key := func(name string) skerry.ServiceKey {
		return skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: name}
	}
	give := func(at map[string]string) {
		var fx wire.Effects
		for name, site := range at {
			r.c.give(r.now, r.c.Apps.Instances(key(name))[0], site, nil, &fx)
		}
		r.c.settle(r.now, &fx)
		r.keep(fx)
	}
	give(map[string]string{"web": "a", "db": "b", "log": "c"})
	var far wire.Far
	value, ok := r.c.Children.Get("a").Desired.Get(wire.FarKey(key("db")))
	if !ok || wire.New().Unmarshal(value, &far) != nil || len(far.At) != 1 || far.At[0].Site != "b" ||
		math.Abs(far.At[0].Ms-12.4) > 1e-9 || len(far.Links) != 0 {
		t.Errorf("a learns %+v of db", far)
	}
	far = wire.Far{}
	value, ok = r.c.Children.Get("b").Desired.Get(wire.FarKey(key("web")))
	if !ok || wire.New().Unmarshal(value, &far) != nil || len(far.At) != 1 || far.At[0].Site != "a" ||
		len(far.Links) != 1 || far.Links[0].Service != "db" {
		t.Errorf("b learns %+v of web", far)
	}
	for site, name := range map[string]string{"c": "web", "a": "log", "b": "log"} {
		if r.has(site, wire.FarKey(key(name))) {
			t.Errorf("%s learns where %s is", site, name)
		}
	}
	// A small change is none.
	r.heard("a", map[string]float64{"b": 13.1})
	value, _ = r.c.Children.Get("a").Desired.Get(wire.FarKey(key("db")))
	if far = (wire.Far{}); wire.New().Unmarshal(value, &far) != nil || math.Abs(far.At[0].Ms-12.4) > 1e-9 {
		t.Errorf("a learns %+v of db", far)
	}
	r.heard("a", map[string]float64{"b": 31})
	value, _ = r.c.Children.Get("a").Desired.Get(wire.FarKey(key("db")))
	if far = (wire.Far{}); wire.New().Unmarshal(value, &far) != nil || far.At[0].Ms != 31 {
		t.Errorf("a learns %+v of db", far)
	}
	r.step(apps.Delete{Key: key("").App})
	var fx wire.Effects
	r.c.gone(r.now, "b", r.c.Apps.Instances(key("db"))[0].ID, &fx)
	r.c.settle(r.now, &fx)
	if r.has("a", wire.FarKey(key("db"))) {
		t.Error("a still knows of db")
	}
}

// Where a service is at many sites, one without it is told of the nearest, and one with it of none: what all are told
// together does not grow by the square of their number.
func TestOtherEndsAreFew(t *testing.T) {
	var sites []string
	for n := range 40 {
		sites = append(sites, string(rune('A'+n)))
	}
	r := newHostileRoot(t, append(sites, "lone")...)
	ms := map[string]float64{}
	for n, site := range sites {
		if r.heard(site, nil); n >= 10 { // how far the others are is not known
			ms[site] = float64(400 - 10*n)
		}
	}
	r.heard("lone", ms)
	limit := spec.Duration(20 * time.Millisecond)
	web := spec.ServiceSpec{Name: "web", Replicas: new(41), Links: []spec.Link{{Service: "db", MaxLatency: &limit}}}
	db := spec.ServiceSpec{Name: "db", Replicas: new(40)}
	web.Image, db.Image = "web:1", "web:1"
	r.step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{web, db}}}})
	var fx wire.Effects
	key := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	for n, i := range r.c.Apps.Instances(key) {
		r.c.give(r.now, i, append(sites, "lone")[n], nil, &fx)
	}
	key.Service = "db"
	for n, i := range r.c.Apps.Instances(key) {
		r.c.give(r.now, i, sites[n], nil, &fx)
	}
	r.c.settle(r.now, &fx)
	r.keep(fx)
	var far wire.Far
	value, ok := r.c.Children.Get("lone").Desired.Get(wire.FarKey(key))
	if !ok || wire.New().Unmarshal(value, &far) != nil || len(far.At) != mostFar || far.At[0].Site != sites[40-mostFar] {
		t.Errorf("the one without db is told of %+v", far.At)
	}
	if r.has(sites[0], wire.FarKey(key)) {
		t.Errorf("%s has db itself, and is told of others", sites[0])
	}
}
