package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// hostileRoot is a root with sites that say what a test has them say.
type hostileRoot struct {
	t      *testing.T
	c      *Core
	now    time.Time
	src    map[string]*reconcile.Source
	kv     map[string][]byte
	events []wire.Event
}

func newHostileRoot(t *testing.T, sites ...string) *hostileRoot {
	r := &hostileRoot{t: t, c: New(Options{Incarnation: "a"}), now: time.Unix(1e9, 0), src: map[string]*reconcile.Source{},
		kv: map[string][]byte{}}
	r.step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	r.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	for _, name := range sites {
		r.step(ChildUp{Hello: &wire.Hello{Name: name}})
		r.src[name] = reconcile.NewSource(members.Observed, "", skerry.Incarnation(name), reconcile.Options{})
	}
	return r
}

func (r *hostileRoot) step(msg any) wire.Effects {
	r.t.Helper()
	fx := r.c.Step(r.now, msg)
	if fx.Err != nil {
		r.t.Fatal(fx.Err)
	}
	r.keep(fx)
	return fx
}

func (r *hostileRoot) keep(fx wire.Effects) {
	for _, w := range fx.Writes {
		r.kv[w.Key] = w.Value
	}
	r.events = append(r.events, fx.Events...)
}

// apply makes an application of one service, with an instance at each of some sites.
func (r *hostileRoot) apply(name, host string, sites ...string) skerry.ServiceKey {
	r.t.Helper()
	replicas := len(sites)
	s := spec.ServiceSpec{Name: "web", Replicas: &replicas, Ports: []spec.Port{{Name: "http", Port: 80}}}
	if host != "" {
		s.Ingress = []spec.Ingress{{Host: host, Port: "http"}}
	}
	s.Image = "web:1"
	r.step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: name, Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: name}, Service: "web"}
	var fx wire.Effects
	for n, i := range r.c.Apps.Instances(k) {
		r.c.give(r.now, i, sites[n], nil, &fx)
	}
	r.c.settle(r.now, &fx)
	r.keep(fx)
	return k
}

// say has a site report items.
func (r *hostileRoot) say(site string, items map[string][]byte) {
	r.t.Helper()
	src := r.src[site]
	for k, v := range items {
		if _, err := src.Put(k, v); err != nil {
			r.t.Fatal(err)
		}
	}
	src.Connect(r.now, r.c.Children.Get(site).Observed.State())
	defer src.Disconnect()
	for msgs := src.Next(r.now); len(msgs) > 0; msgs = src.Next(r.now) {
		for _, m := range msgs {
			for _, out := range r.step(ChildFrame{Name: site, Msg: m}).Sends {
				if msg, ok := out.Msg.(wire.Message); ok && out.To == site {
					src.Handle(r.now, msg)
				}
			}
		}
	}
}

func (r *hostileRoot) has(site, key string) bool {
	_, ok := r.c.Children.Get(site).Desired.Get(key)
	return ok
}

func (r *hostileRoot) told(reason string) (n int) {
	for _, e := range r.events {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func wantOf(k skerry.ServiceKey) map[string][]byte {
	return map[string][]byte{wire.WantKey(k): wire.New().Marshal(&wire.Want{Service: k})}
}

// A site cannot answer for a service that it holds nothing of, even where it has to do with the one that asks.
func TestMailAboutServicesOfOthers(t *testing.T) {
	r := newHostileRoot(t, "asks", "has", "thief")
	shop, lure := r.apply("shop", "", "has", "asks"), r.apply("lure", "", "thief", "asks")
	r.say("asks", wantOf(shop))
	r.say("asks", wantOf(lure))
	topic, baited := wire.TopicRoute(shop), wire.TopicRoute(lure)
	r.say("has", map[string][]byte{wire.MailTo("asks", topic): []byte("x"), wire.MailTo("thief", topic): []byte("x")})
	r.say("thief", map[string][]byte{wire.MailTo("asks", topic): []byte("forged"), wire.MailTo("asks", baited): []byte("x"),
		wire.MailTo("asks", wire.TopicPeers): []byte("x"),
		wire.MailTo("asks", "anything"):      []byte("x"), wire.MailTo("nowhere", topic): []byte("x")})
	for key, want := range map[string]bool{wire.MailFrom("has", topic): true, wire.MailFrom("thief", baited): true,
		wire.MailFrom("thief", wire.TopicPeers): true, wire.MailFrom("thief", topic): false, wire.MailFrom("thief", "anything"): false} {
		if r.has("asks", key) != want {
			t.Errorf("%s: passed on is %v", key, !want)
		}
	}
	if r.has("thief", wire.MailFrom("has", topic)) {
		t.Error("routes go to a site that did not ask for them")
	}
	if r.c.relations.counts[refusedMail] != 4 || r.told("OverlayRefused") != 2 {
		t.Errorf("%v, told %d times", r.c.relations.counts, r.told("OverlayRefused"))
	}
}

// Routes are confirmed by whom they are told to, and by nobody else.
func TestConfirmationsOfOthers(t *testing.T) {
	r := newHostileRoot(t, "asks", "has", "thief")
	shop := r.apply("shop", "", "has", "asks")
	r.apply("lure", "", "thief", "has")
	r.say("asks", wantOf(shop))
	heard := wire.TopicHeard(shop)
	for _, site := range []string{"asks", "thief"} {
		r.say(site, map[string][]byte{wire.MailTo("has", heard): []byte("x"), wire.MailTo("has", "heard/nothing"): []byte("x")})
	}
	ofAsking, ofThief, refused := r.has("has", wire.MailFrom("asks", heard)), r.has("has", wire.MailFrom("thief", heard)),
		r.c.relations.counts[refusedMail]
	if !ofAsking || ofThief || refused != 3 {
		t.Errorf("of who asked: %v, of another: %v; %d are refused", ofAsking, ofThief, refused)
	}
	r.say("has", map[string][]byte{wire.MailTo("asks", heard): []byte("x")})
	if r.has("asks", wire.MailFrom("has", heard)) {
		t.Error("who holds a service confirms its own routes")
	}
}

// What sites still tell each other, because they have yet to hear that neither has to do with the other any more, is no offence, however
// much else changes meanwhile.
func TestWhatHasEndedIsNoOffence(t *testing.T) {
	r := newHostileRoot(t, "asks", "has", "other")
	shop, lure := r.apply("shop", "", "has", "asks"), r.apply("lure", "", "has", "other")
	r.say("asks", wantOf(shop))
	r.say("has", map[string][]byte{wire.MailTo("asks", wire.TopicRoute(shop)): []byte("x")})
	r.say("asks", map[string][]byte{wire.MailTo("has", wire.TopicHeard(shop)): []byte("x"), wire.MailTo("has", wire.TopicPeers): []byte("x")})
	r.src["asks"].Delete(wire.WantKey(shop))
	r.say("asks", nil)
	r.say("other", wantOf(lure))
	expect := func(offences int) {
		t.Helper()
		if is := r.c.relations.counts[refusedMail]; is != offences || r.told("OverlayRefused") != offences {
			t.Errorf("%d offences, told %d times, not %d", is, r.told("OverlayRefused"), offences)
		}
	}
	expect(0)
	if r.has("has", wire.MailFrom("asks", wire.TopicHeard(shop))) {
		t.Error("what has ended is still carried")
	}
	// What they say of it later is.
	r.say("asks", map[string][]byte{wire.MailTo("has", wire.TopicHeard(shop)): []byte("y")})
	expect(1)
}

// A root that was started anew takes nothing from sites because others have not told it yet what they have to do with them.
func TestSitesThatHaveNotToldYet(t *testing.T) {
	r := newHostileRoot(t, "asks", "has")
	shop := r.apply("shop", "", "has", "asks")
	mail := map[string][]byte{wire.MailTo("asks", wire.TopicRoute(shop)): []byte("x"),
		wire.SiteItem: wire.New().Marshal(&wire.SiteInfo{Name: "has", Key: wire.OverlayKey{1}})}
	r.say("asks", wantOf(shop))
	r.say("has", mail)
	given := func() []bool {
		return []bool{r.has("asks", wire.MailFrom("has", wire.TopicRoute(shop))), r.has("asks", wire.SiteKey("has")),
			r.has("has", wire.WantedKey(shop, "asks"))}
	}
	check := func(when string, want bool) {
		t.Helper()
		if got := given(); slices.Contains(got, !want) {
			t.Errorf("%s: %v", when, got)
		}
	}
	check("before", true)
	again := func() {
		t.Helper()
		r.c = New(Options{Incarnation: "a"})
		for key, value := range r.kv {
			if value != nil {
				if err := r.c.Load(key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.keep(r.c.Start(r.now))
		for name := range r.src {
			r.src[name] = reconcile.NewSource(members.Observed, "", skerry.Incarnation(name), reconcile.Options{})
		}
	}
	again()
	check("nobody is back", true)
	r.step(ChildUp{Hello: &wire.Hello{Name: "has"}})
	r.say("has", mail)
	check("one is back", true)
	r.step(ChildUp{Hello: &wire.Hello{Name: "asks"}})
	check("both are back", true)
	r.say("asks", wantOf(shop))
	check("both have told all", true)

	// What is no longer wanted goes, as soon as that is known.
	again()
	r.step(ChildUp{Hello: &wire.Hello{Name: "has"}})
	r.say("has", mail)
	r.step(ChildUp{Hello: &wire.Hello{Name: "asks"}})
	r.say("asks", map[string][]byte{"other": []byte("x")})
	check("it is wanted no more", false)
}

// Interests beyond the bound are refused, counted, and told of once; those below it work on.
func TestInterestsWithoutBound(t *testing.T) {
	r := newHostileRoot(t, "has", "greedy")
	shop := r.apply("shop", "", "has", "greedy")
	items := wantOf(shop)
	for n := range maxWants + 50 {
		k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: fmt.Sprint("z", n)}, Service: strings.Repeat("s", 40)}
		for key, value := range wantOf(k) {
			items[key] = value
		}
	}
	r.say("greedy", items)
	if got := r.c.relations.counts[refusedWant]; got != 51 || r.told("OverlayRefused") == 0 {
		t.Errorf("%d were refused, told %d times", got, r.told("OverlayRefused"))
	}
	if !r.has("has", wire.WantedKey(shop, "greedy")) {
		t.Error("what is below the bound is refused, too")
	}
	if n := len(r.c.relations.apps); n > maxWants+1 {
		t.Errorf("%d applications are kept in mind", n)
	}
}

// A site gets neither clients for services that it does not have nor zones with names of others.
func TestHostsOfOthers(t *testing.T) {
	r := newHostileRoot(t, "harbour", "thief")
	shop := r.apply("shop", "shop.example.org", "harbour")
	report := func(site, zone string, entries ...wire.IngressDoor) {
		in := &wire.SiteIngress{Zone: zone, Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Entries: entries}
		r.step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&wire.ClusterReport{Ingress: in})}})
	}
	entry := wire.IngressDoor{Service: shop, Entry: "80 shop.example.org", Workers: 1}
	report("harbour", "harbour.example.org", entry)
	for _, zone := range []string{"thief.example.org", "shop.example.org", "example.org", "harbour.example.org", "a.harbour.example.org",
		"org", "", strings.Repeat("long.", 60) + "example.org", "Not A Zone"} {
		report("thief", zone, entry)
		var led []string
		for _, s := range r.c.Views().SiteNames() {
			for host := range s.Hosts {
				led = append(led, host+" at "+s.Site)
			}
			if s.Zone != "harbour.example.org" && s.Zone != "thief.example.org" {
				t.Errorf("zone %q: it gets %s", zone, s.Zone)
			}
		}
		if !slices.Equal(led, []string{"shop.example.org at harbour"}) {
			t.Errorf("zone %q: clients are sent to %v", zone, led)
		}
	}
	if n := r.told("ZoneRefused"); n != 7 {
		t.Errorf("%d refusals were told", n)
	}
	v := r.c.Apps.View(r.c.Apps.App(shop.App), "root", true)
	r.c.Views().showIngress(&v)
	if at := v.Services[0].Ingress[0].At; len(at) != 1 || at[0] != "harbour" {
		t.Errorf("it is offered at %v", at)
	}
	// Another life knows whose zones they are.
	c := New(Options{Incarnation: "a"})
	if err := c.Load(keyZones, r.kv[keyZones]); err != nil || c.zones.sites["harbour.example.org"] != "harbour" {
		t.Errorf("%v, %v", c.zones.sites, err)
	}
	r.step(ChildDown{Name: "harbour"})
	r.step(RemoveCluster{Name: "harbour"})
	report("thief", "harbour.example.org")
	if r.c.zones.sites["harbour.example.org"] != "thief" {
		t.Error("the zone of a site that is gone stays taken")
	}
}

// A site keeps the addresses that it was the first to tell of, whoever else claims them, in this life and the next.
func TestExtentsOfOthers(t *testing.T) {
	r := newHostileRoot(t, "harbour", "thief", "asks")
	prefix := netip.MustParsePrefix
	say := func(site string, extents ...netip.Prefix) {
		r.say(site, map[string][]byte{wire.SiteItem: wire.New().Marshal(&wire.SiteInfo{Name: skerry.ClusterName(site), Key: wire.OverlayKey{1},
			Extents: extents})})
	}
	told := func(of string) []netip.Prefix {
		var s wire.SiteInfo
		value, ok := r.c.Children.Get("asks").Desired.Get(wire.SiteKey(of))
		if !ok || wire.New().Unmarshal(value, &s) != nil {
			t.Fatalf("site %s is not introduced", of)
		}
		return s.Extents
	}
	for _, name := range []string{"harbour", "thief"} {
		r.say("asks", wantOf(r.apply("at-"+name, "", name, "asks")))
	}
	a, b, c := prefix("10.64.16.0/20"), prefix("10.65.0.0/20"), prefix("10.66.0.0/20")
	say("harbour", a)
	say("thief", a, b, prefix("10.64.0.0/10"), prefix("10.64.17.0/26"))
	if got := told("thief"); !slices.Equal(got, []netip.Prefix{b}) || !slices.Equal(told("harbour"), []netip.Prefix{a}) {
		t.Errorf("thief has %v, harbour %v", got, told("harbour"))
	}
	if r.c.relations.counts[refusedExtent] != 3 {
		t.Errorf("%v", r.c.relations.counts)
	}
	var next Core
	next.extents = newExtents(wire.New())
	if err := next.Load(keyExtents, r.kv[keyExtents]); err != nil || next.extents.sites[a] != "harbour" || next.extents.sites[b] != "thief" {
		t.Errorf("another life has %v, %v", next.extents.sites, err)
	}
	// What a site gives up others may have.
	say("harbour", c)
	say("thief", a)
	if got := told("thief"); !slices.Equal(got, []netip.Prefix{a}) {
		t.Errorf("thief has %v", got)
	}
	r.step(ChildDown{Name: "harbour"})
	r.step(RemoveCluster{Name: "harbour"})
	say("thief", a, c)
	if got := told("thief"); !slices.Equal(got, []netip.Prefix{a, c}) {
		t.Errorf("thief has %v", got)
	}
}

// A site writes nothing into the events of applications that it has nothing to do with, and does not count requests to them. What it tells
// of its own is kept short: no record that its root's store refuses follows from it.
func TestSiteReportsOnlyItsOwn(t *testing.T) {
	r := newHostileRoot(t, "has", "liar")
	shop, own := r.apply("shop", "shop.example.org", "has"), r.apply("own", "", "liar")
	long := strings.Repeat("\x01", 400<<10)
	var seq uint64
	tell := func(site string, k skerry.ServiceKey, text string) {
		seq++
		r.step(ChildFrame{Name: site, Msg: &wire.Events{Stream: "x", Floor: 1, First: seq,
			Items: [][]byte{wire.New().Marshal(&wire.Event{At: r.now, Type: wire.EventWarning, Reason: "Broken", App: k.App, Text: text})}}})
	}
	tell("liar", shop, "not its own")
	if r.told("Broken") != 0 {
		t.Error("it tells of what another site has")
	}
	tell("liar", own, long)
	if r.told("Broken") != 1 || len(r.events[len(r.events)-1].Text) > 10_000 {
		t.Errorf("of its own: %d", r.told("Broken"))
	}
	one, wanted := 1, 10.0
	app := r.c.Apps.App(shop.App).Manifest
	app.Spec.Services = slices.Clone(app.Spec.Services)
	app.Spec.Services[0].Scale = &spec.ScaleSpec{Min: &one, Max: 3, Target: spec.ScaleTarget{Requests: &wanted}}
	r.step(apps.Apply{App: app})
	first := r.c.Apps.Instances(shop)[0]
	r.say("has", map[string][]byte{wire.AssignmentKey(first.ID): wire.New().Marshal(&wire.Observation{ID: first.ID, Gen: first.Gen,
		Fence: first.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true})})
	replicas := func(from string) int {
		for _, site := range []string{"liar", "has"} {
			report := wire.ClusterReport{Services: []wire.ServiceQoS{{Service: shop, Ready: 1, QoS: wire.QoS{CPU: 1}}}}
			if site == from {
				report.Arrivals = []wire.IngressUse{{Service: shop, Requests: 1e6}}
			}
			r.step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&report)}})
		}
		for range 30 {
			r.now = r.now.Add(apps.ScaleEvery)
			r.keep(r.c.Tick(r.now))
		}
		return *r.c.Apps.App(shop.App).Manifest.Spec.Services[0].Replicas
	}
	if n := replicas("liar"); n != 1 {
		t.Errorf("requests that it counts make %d of what another site has", n)
	}
	if n := replicas("has"); n != 3 {
		t.Errorf("requests at the site that has it make %d", n)
	}
	// Its last words may come after it has let go of all.
	i := r.c.Apps.Instances(own)[0]
	r.say("liar", map[string][]byte{wire.AssignmentKey(i.ID): wire.New().Marshal(&wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence,
		State: skerry.ClusterScheduled, Reason: long, CrashLoop: "x" + long[:50<<10],
		Successor: &wire.SuccessorAnswer{Why: long[:20<<10]}, Ports: make([]wire.PortBinding, 1_000)})})
	for key, value := range r.kv {
		if len(value) > 100<<10 {
			t.Errorf("record %s has %d bytes", key, len(value))
		}
	}
	var fx wire.Effects
	r.c.gone(r.now, "liar", i.ID, &fx)
	r.c.settle(r.now, &fx)
	r.keep(fx)
	tell("liar", own, "its last words")
	if r.told("Broken") != 2 {
		t.Error("its last words are not heard")
	}
	r.now = r.now.Add(time.Hour)
	if tell("liar", own, "late"); r.told("Broken") != 2 {
		t.Error("it is heard for ever")
	}
}
