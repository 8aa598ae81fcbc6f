package apps

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// choosing has the service choose its round-robin address.
func choosing(addr string) func(*Apply) {
	return func(a *Apply) {
		a.App.Spec.Services[0].Addresses = &spec.ServiceAddresses{RoundRobin: netip.MustParseAddr(addr)}
	}
}

// A refused choice is refused again, and a better one made after it is honoured.
func TestRefusedChoices(t *testing.T) {
	c := controller(t, Quota{})
	two := func(a *Apply) {
		b := a.App.Spec.Services[0]
		b.Name = "db"
		a.App.Spec.Services = append(a.App.Spec.Services, b)
	}
	do(t, c, apply(1, two))
	db := c.Network(shop).Services[1].Closest
	for range 2 {
		refused(t, c, apply(1, two, choosing(db.String())), skerry.CodeConflict, "in conflict")
	}
	do(t, c, apply(1, two, choosing("10.30.7.7")))
	if got := c.Network(shop).Services[0].RoundRobin.String(); got != "10.30.7.7" {
		t.Errorf("the choice was 10.30.7.7, the address is %s", got)
	}
}

// What scaling would need and cannot have is refused, and nothing is scaled.
func TestScaleIntoConflict(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, apply(1, func(a *Apply) { a.Register = true }))
	taken := c.Network(shop).Services[0].Closest
	do(t, c, apply(1, func(a *Apply) {
		a.App.Spec.Services[0].Addresses = &spec.ServiceAddresses{Instances: []netip.Addr{{}, taken}}
	}))
	web := skerry.ServiceKey{App: shop, Service: "web"}
	refused(t, c, Scale{Service: web, Replicas: 2}, skerry.CodeConflict, "in conflict")
	if a := c.App(shop); *a.Manifest.Spec.Services[0].Replicas != 1 || a.Gen != 2 {
		t.Errorf("%d replicas in generation %d", *a.Manifest.Spec.Services[0].Replicas, a.Gen)
	}
}

// register applies an application without instances: some services with so many replicas, exported to all of a namespace.
func register(t *testing.T, c *Controller, app, service string, services, replicas int, export ...spec.Export) wire.Effects {
	t.Helper()
	return do(t, c, apply(replicas, func(a *Apply) {
		a.Register, a.App.Metadata.Name = true, app
		one := a.App.Spec.Services[0]
		one.Export, a.App.Spec.Services = export, nil
		for i := range services {
			one.Name = fmt.Sprint(service, i)
			a.App.Spec.Services = append(a.App.Spec.Services, one)
		}
	}))
}

// A name that another organisation chooses could stand in for one that an application asks for: there are none.
func TestShortNamesStayWithinAnOrganisation(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, PutOrg{Org: Org{Name: "rogue"}})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "den", Org: "rogue"}})
	hostile := apply(1, func(a *Apply) {
		a.App.Metadata.Namespace = "den"
		a.App.Spec.Services[0].Export = []spec.Export{{To: "default/*", Org: "harbour", As: "wpad"}}
	})
	refused(t, c, hostile, skerry.CodeInvalid, "export[0].as: a service has no short name in applications of another organisation")

	// An older one is still reached where somebody imports it, and by its full name alone; those of the own organisation have their short
	// names.
	register(t, c, "other", "db", 1, 1, spec.Export{To: "default/*", As: "db"})
	hostile.App.Spec.Services[0].Export[0].As = ""
	do(t, c, hostile)
	c.apps[hostile.App.Key()].Manifest.Spec.Services[0].Export[0].As = "wpad"
	do(t, c, apply(1, func(a *Apply) { a.App.Spec.Imports = []spec.Import{{From: "den/*", Org: "rogue"}} }))
	if got, want := importedBy(c), (map[string]bool{"default/other/db0 db": true, "den/shop/web web": false}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// importedBy lists what others export to the shop, by key and name; true: by a short name.
func importedBy(c *Controller) map[string]bool {
	names := map[string]bool{}
	for _, s := range c.Network(shop).Services {
		if s.Of != (skerry.ServiceKey{}) {
			names[s.Of.String()+" "+s.Name] = s.Short
		}
	}
	return names
}

// What another organisation exports is not there for an application that did not ask for it, whichever of the two comes first, and goes
// when it does not ask any more. Neither end lets the other's packets in.
func TestImporterConsents(t *testing.T) {
	c := controller(t, Quota{})
	for _, org := range []string{"friend", "rogue"} {
		do(t, c, PutOrg{Org: Org{Name: org}})
		do(t, c, PutNamespace{Namespace: Namespace{Name: org + "s", Org: org}})
	}
	exports := func(org string) {
		do(t, c, apply(1, func(a *Apply) {
			a.App.Metadata.Namespace = org + "s"
			a.App.Spec.Services[0].Export = []spec.Export{{To: "default/shop", Org: "harbour"}}
		}))
	}
	asks := func(list ...spec.Import) { do(t, c, apply(1, func(a *Apply) { a.App.Spec.Imports = list })) }
	friend, rogue := skerry.AppKey{Namespace: "friends", Name: "shop"}, skerry.AppKey{Namespace: "rogues", Name: "shop"}
	check := func(when string, of ...skerry.AppKey) {
		t.Helper()
		want := map[string]bool{}
		for _, k := range of {
			want[k.String()+"/web web"] = false
		}
		if got := importedBy(c); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		for _, k := range []skerry.AppKey{friend, rogue} {
			asked := slices.Contains(of, k)
			if got := c.Exported(shop, skerry.ServiceKey{App: k, Service: "web"}); got != asked {
				t.Errorf("%s: %s is reached: %v", when, k, got)
			}
			for _, s := range c.Network(k).Services {
				if (len(s.Allow) > 0) != asked {
					t.Errorf("%s: instances of %s let %v in", when, k, s.Allow)
				}
			}
		}
	}
	exports("friend")
	exports("rogue")
	asks()
	check("nobody was asked for")
	c.Readdressed()
	asks(spec.Import{From: "friends/shop", Org: "friend"})
	check("one was asked for", friend)
	if told := c.Readdressed(); !slices.Contains(told, friend) || !slices.Contains(told, shop) {
		t.Errorf("directories that are told anew: %v", told)
	}
	// A namespace is taken at its organisation's word alone.
	asks(spec.Import{From: "friends/*", Org: "friend"}, spec.Import{From: "rogues/*", Org: "friend"})
	check("the other was asked for as somebody else's", friend)
	exports("rogue")
	check("it was applied again", friend)
	asks(spec.Import{From: "friends/shop", Org: "friend"}, spec.Import{From: "rogues/shop", Org: "rogue"})
	check("both were asked for", friend, rogue)
	c.Readdressed()
	asks()
	check("not any more")
	if told := c.Readdressed(); !slices.Contains(told, friend) || !slices.Contains(told, rogue) {
		t.Errorf("directories that are told anew: %v", told)
	}
	for path, bad := range map[string]spec.Import{"from": {From: "shop", Org: "friend"}, "org": {From: "friends/shop"}} {
		refused(t, c, apply(1, func(a *Apply) { a.App.Spec.Imports = []spec.Import{bad} }), skerry.CodeInvalid, "imports[0]."+path)
	}
}

// Who exports to others takes no more of their networks than a part, however much is exported.
func TestExportsLeaveRoom(t *testing.T) {
	c := controller(t, Quota{})
	register(t, c, "greedy", "much", 6, 10000, spec.Export{To: "default/*"})
	register(t, c, "shop", "own", 4, 10000)
	n := c.Network(shop)
	own, others := 0, 0
	for _, s := range n.Services {
		count := len(s.Instances)
		if s.RoundRobin.IsValid() && s.Closest.IsValid() && s.LeastLoaded.IsValid() {
			count += 3
		}
		if s.Of == (skerry.ServiceKey{}) {
			own += count
		} else {
			others += count
		}
	}
	if own != 40012 {
		t.Errorf("%d addresses of its own, want 40012", own)
	}
	if others < 10000 || others > maxImported {
		t.Errorf("services of others have %d addresses, at most %d are for them", others, maxImported)
	}
	register(t, c, "shop", "own", 5, 10000)
	if n := c.nets[shop].Addresses.Len(); n > ipam.NumServices || n < 50015+6*3 {
		t.Errorf("%d addresses", n)
	}
}

// Nor do they make the record of another's addresses so large that it would be refused what is its own.
func TestExportsLeaveRoomInTheRecord(t *testing.T) {
	c := controller(t, Quota{})
	c.networks.mostBytes = maxNetwork
	register(t, c, "greedy", "much", 1, 6000, spec.Export{To: "default/*"})
	register(t, c, "greedy2", "much", 1, 6000, spec.Export{To: "default/*"})
	register(t, c, "shop", "own", 1, 3000)
	n := c.Network(shop)
	if n == nil || len(n.Services) != 3 {
		t.Fatalf("got %+v, want a network with three services", n)
	}
	for _, s := range n.Services {
		want := 0 // none has room for all of its instances
		if s.Of == (skerry.ServiceKey{}) {
			want = 3000
		}
		if len(s.Instances) != want || !s.RoundRobin.IsValid() {
			t.Errorf("%s of %v: got %d addresses of instances, want %d, and one of the service", s.Name, s.Of, len(s.Instances), want)
		}
	}
}

// What there is no room for because addresses rest gets them when their rest is over.
func TestRoomAfterRest(t *testing.T) {
	c := controller(t, Quota{})
	register(t, c, "shop", "own", 5, 10000)
	register(t, c, "other", "first", 1, 10000, spec.Export{To: "default/shop"})
	fx := register(t, c, "other", "second", 1, 10000, spec.Export{To: "default/shop"})
	told := 0
	for range 3 {
		for _, e := range fx.Events {
			if e.Reason == "NoAddress" && e.App == shop {
				told++
			}
		}
		c.Look(shop)
		fx = c.Reconcile(now.Add(time.Minute))
	}
	if told != 1 {
		t.Errorf("it is told %d times that there is no room", told)
	}
	second := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "other"}, Service: "second0"}
	if _, ok := c.nets[shop].Addresses.Of(ipam.Key{Service: second, Policy: spec.BalanceClosest}); ok {
		t.Fatal("there is room")
	}
	for at := c.NextWake(); !at.IsZero() && at.Before(now.Add(2*addressRest)); at = c.NextWake() {
		c.Reconcile(at)
	}
	if _, ok := c.nets[shop].Addresses.Of(ipam.Key{Service: second, Policy: spec.BalanceClosest}); !ok {
		t.Error("the addresses are free, and the service has none")
	}
}

// A name that services share has addresses of its own, and leads to all of them; in another application to those that are exported to it.
// It counts against quotas, and keeps its addresses while services join it and leave it.
func TestAliasesLeadToAllThatHaveThem(t *testing.T) {
	c := controller(t, Quota{})
	versions := func(app string, exported ...string) *wire.AppNetwork {
		do(t, c, apply(1, func(a *Apply) {
			a.App.Metadata.Name = app
			one := a.App.Spec.Services[0]
			a.App.Spec.Services = nil
			for _, name := range []string{"blue", "green"} {
				one.Name, one.Export, one.Aliases = name, nil, []string{"front"}
				if slices.Contains(exported, name) {
					one.Export = []spec.Export{{To: "default/shop"}}
				}
				a.App.Spec.Services = append(a.App.Spec.Services, one)
			}
		}))
		return c.Network(skerry.AppKey{Namespace: "default", Name: app})
	}
	leads := func(list []wire.NetworkService) (out []string) {
		for _, s := range list {
			out = append(out, fmt.Sprint(s.Name, s.Leads, s.Short))
			for _, b := range spec.Balances() {
				if !s.Address(b).IsValid() || len(s.Instances) > 0 {
					t.Errorf("%s has addresses %+v", s.Name, s)
				}
			}
		}
		return out
	}
	do(t, c, apply(1))
	used := c.Usage("harbour", skerry.AppKey{}).ServiceAddresses
	own := versions("other", "green")
	if got := leads(own.Aliases); !slices.Equal(got, []string{"front[default/other/blue default/other/green] true"}) {
		t.Errorf("in its application: %v", got)
	}
	if more := c.Usage("harbour", skerry.AppKey{}).ServiceAddresses - used; more != 3*3+2 {
		t.Errorf("%d addresses are counted", more)
	}
	abroad := c.Network(shop).Aliases
	if got := leads(abroad); !slices.Equal(got, []string{"front[default/other/green] false"}) {
		t.Errorf("in the other: %v", got)
	}
	if len(abroad) > 0 && (abroad[0].Of.String() != "default/other/front" || abroad[0].Net != own.Net) {
		t.Errorf("it is %+v", abroad[0])
	}
	was := own.Aliases[0].RoundRobin
	own = versions("other")
	if got := leads(c.Network(shop).Aliases); len(got) > 0 || own.Aliases[0].RoundRobin != was {
		t.Errorf("not exported any more: %v, at %s, was %s", got, own.Aliases[0].RoundRobin, was)
	}
	other := skerry.AppKey{Namespace: "default", Name: "other"}
	if a := c.App(other); !slices.Equal(a.Manifest.Spec.Services[0].Needs, []string{spec.FeatureAliases}) {
		t.Errorf("its services need %v", a.Manifest.Spec.Services[0].Needs)
	}
}

// Who imports an alias learns that it leads to another service, and at which port another application's service is reached now, though all
// addresses are those of before.
func TestImportersFollowWhatIsBehindAnAddress(t *testing.T) {
	known := controller(t, Quota{})
	versions := func(front string, port int) {
		do(t, known, apply(1, func(a *Apply) {
			a.App.Metadata.Name = "other"
			one := a.App.Spec.Services[0]
			a.App.Spec.Services = nil
			for _, name := range []string{"blue", "green"} {
				one.Name, one.Export, one.Aliases = name, []spec.Export{{To: "default/shop"}}, nil
				if one.Ports = []spec.Port{{Port: port}}; name == front {
					one.Aliases = []string{"front"}
				}
				a.App.Spec.Services = append(a.App.Spec.Services, one)
			}
		}))
	}
	told := func(when string) {
		t.Helper()
		if list := known.Readdressed(); !slices.Contains(list, shop) {
			t.Errorf("%s: the importer is told nothing; those that are: %v", when, list)
		}
	}
	do(t, known, apply(1))
	versions("blue", 80)
	told("at first")
	versions("green", 80)
	told("when the alias leads elsewhere")
	if got := fmt.Sprint(known.Network(shop).Aliases[0].Leads); got != "[default/other/green]" {
		t.Errorf("it leads to %s", got)
	}
	versions("green", 81)
	told("when the ports are others")
	do(t, known, apply(1, func(a *Apply) { a.App.Metadata.Name = "stranger" }))
	known.Readdressed()
	versions("blue", 81)
	if list := known.Readdressed(); slices.ContainsFunc(list, func(k skerry.AppKey) bool { return k.Name == "stranger" }) {
		t.Errorf("who imports nothing is told, too: %v", list)
	}
}

// That workers must know aliases holds for what comes from an earlier version, or was applied at a site while its root is away; and what
// is applied there unchanged changes nothing.
func TestNeedsOfWhatComesFromElsewhere(t *testing.T) {
	two := func(image string, aliases ...string) Apply {
		return apply(1, func(a *Apply) {
			front := a.App.Spec.Services[0]
			front.Name, front.Aliases = "front", aliases
			a.App.Spec.Services[0].Image = image
			a.App.Spec.Services = append(a.App.Spec.Services, front)
			a.App.SetDefaults()
		})
	}
	known := controller(t, Quota{})
	do(t, known, two("web:1"))
	do(t, known, two("web:2", "door"))
	do(t, known, Undo{Service: skerry.ServiceKey{App: shop, Service: "web"}})
	web := known.App(shop).Manifest.Spec.Service("web")
	if web.Image != "web:1" || !slices.Equal(web.Needs, []string{spec.FeatureAliases}) {
		t.Errorf("it goes back to %s, which needs %v", web.Image, web.Needs)
	}

	site := New([16]byte{2}, "c")
	var fx wire.Effects
	here := two("web:2", "door").App
	here.Spec.NeedAliases()
	here.Spec.Services = here.Spec.Services[:1] // the other one is elsewhere
	here.Metadata.Namespace = "default"
	site.Delegate(now, &App{Manifest: here, Org: "harbour", Gen: 7, revisions: revisionsOf(&here)}, nil, &fx)
	totals := map[string]int{"web": 1}
	asked := two("web:2", "door")
	asked.App.Metadata.Namespace = "default"
	if res, _, _ := site.ApplyDelegated(now, asked, totals); !res.Unchanged {
		t.Errorf("the same manifest changes something: %+v", res)
	}
	asked.App.Spec.Services[0].Image = "web:3"
	site.ApplyDelegated(now, asked, totals)
	if web := site.App(shop).Manifest.Spec.Service("web"); web.Image != "web:3" || len(web.Needs) != 1 {
		t.Errorf("%s needs %v", web.Image, web.Needs)
	}
}
