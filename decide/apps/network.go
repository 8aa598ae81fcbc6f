package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// network is the overlay network of one application: its id and its service addresses. It is a record of its own, because
// the application's is written far more often.
type network struct {
	ID        wire.NetworkID            `json:"id"`
	Addresses ipam.Addresses            `json:"addresses"`
	was       map[skerry.ServiceKey]int // services with numbers of instances that the addresses were worked out for
	gen       skerry.Generation
}

// Record keys.
const (
	prefixNet = "network/"
	keyNets   = "networks" // the last id that was given
)

// addressRest is how long a service address that is no longer wanted leads nowhere before it may lead elsewhere: clients
// that remember it must not reach a stranger.
const addressRest = 10 * time.Minute

// networks has the networks of applications with their service addresses, and says who may reach what in them. It reads applications and
// instances, and changes none.
type networks struct {
	catalog      *catalog
	ledger       *ledger
	certificates *certificates
	nets         map[skerry.AppKey]*network
	lastNet      wire.NetworkID
	exporters    map[skerry.AppKey]bool         // applications that export something
	importers    map[skerry.AppKey]bool         // and that want something of other organisations
	unaddressed  map[skerry.AppKey]*unaddressed // networks in which there is no room for all that they want
	readdressed  map[skerry.AppKey]bool         // applications whose network changed since somebody asked
	mostBytes    int                            // of a network's record
}

func newNetworks(apps *catalog, instances *ledger, certs *certificates) *networks {
	ns := &networks{catalog: apps, ledger: instances, certificates: certs, nets: map[skerry.AppKey]*network{},
		exporters: map[skerry.AppKey]bool{}, importers: map[skerry.AppKey]bool{},
		unaddressed: map[skerry.AppKey]*unaddressed{}, readdressed: map[skerry.AppKey]bool{}, mostBytes: maxNetwork}
	if instances.local != "r" {
		ns.lastNet = wire.LocalNetworks - 1 // the root gives those below
	}
	return ns
}

func (ns *networks) load(key string, value []byte) error {
	if key == keyNets {
		return json.Unmarshal(value, &ns.lastNet)
	}
	k, err := skerry.ParseAppKey(strings.TrimPrefix(key, prefixNet), "")
	if err != nil {
		return err
	}
	return read(value, func(n *network) { ns.nets[k] = n })
}

// wanted says how many instances of each service have an address of their own in an application's network. Services that
// others export to it come after its own: their number is not its own choice, so they get no more than is left, no
// more than maxImported, and no more than the record has room for. What does not fit is left out, the instances first, then the service.
func (ns *networks) wanted(a *App) map[skerry.ServiceKey]int {
	want := map[skerry.ServiceKey]int{}
	left, room := ipam.NumServices, ns.mostBytes
	take := func(k skerry.ServiceKey, n int) {
		left -= n
		room -= n * ipam.Room(k)
	}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		sk := skerry.ServiceKey{App: a.Key(), Service: s.Name}
		want[sk] = ns.ledger.numbered(sk, s)
		take(sk, len(spec.Balances())+want[sk])
	}
	for _, alias := range a.Manifest.Spec.Aliases() {
		sk := skerry.ServiceKey{App: a.Key(), Service: alias.Name}
		want[sk] = 0
		take(sk, len(spec.Balances()))
	}
	left = min(left, maxImported)
	for _, im := range ns.imports(a) {
		fit := min(left, room/ipam.Room(im.key)) - len(spec.Balances())
		if fit < 0 {
			break
		}
		take(im.key, len(spec.Balances()))
		want[im.key] = 0
		if im.spec == nil {
			continue // an alias has no instances of its own
		}
		if n := ns.ledger.numbered(im.key, im.spec); n <= fit {
			want[im.key] = n
			take(im.key, n)
		}
	}
	return want
}

// wants lists the addresses for that.
func wants(a *App, want map[skerry.ServiceKey]int) (out []ipam.Want) {
	for k, n := range want {
		var own *spec.ServiceSpec // addresses in its own network alone were chosen
		if k.App == a.Key() {
			own = a.Manifest.Spec.Service(k.Service)
		}
		out = append(out, ipam.Wants(k, own, n)...)
	}
	return out
}

// maxImported is how many addresses of a network services of other applications may take, a quarter of all.
const maxImported = ipam.NumServices / 4

// address gives an application's network the addresses that its manifest asks for. What conflicts is refused, and nothing
// changes then.
func (ns *networks) address(now time.Time, a *App, fx *wire.Effects) error {
	if a.Delegated {
		return nil // its owner gives it addresses
	}
	k := a.Key()
	n := ns.nets[k]
	want := ns.wanted(a)
	if n != nil && n.gen == a.Gen && maps.Equal(n.was, want) {
		return nil
	}
	fresh := n == nil
	if fresh {
		n = &network{ID: ns.lastNet + 1}
	}
	before := n.Addresses
	if err := n.set(now, k, wants(a, want), ns.mostBytes); err != nil {
		return err
	}
	delete(ns.unaddressed, k)
	if fresh {
		ns.lastNet++
		fx.Put(keyNets, []byte(fmt.Sprint(ns.lastNet)))
		ns.nets[k] = n
	}
	n.was, n.gen = want, a.Gen
	if fresh || !reflect.DeepEqual(before, n.Addresses) { // a new generation seldom wants others
		fx.Put(prefixNet+k.String(), mustJSON(n))
	}
	ns.readdressed[k] = true
	if fresh {
		ns.tellExporters(k)
	}
	return nil
}

// maxNetwork is how many bytes the record of a network may have, 7,500 instances with short names; the store takes it with what is in front
// of it. What the store does not take would make the role refuse the message only once it has changed the core.
const maxNetwork = 1<<20 - 16<<10

// set gives a network the addresses that are wanted, or none of them if their record would be too large. Those that were given back rest as
// long as there is room for them.
func (n *network) set(now time.Time, key skerry.AppKey, wants []ipam.Want, most int) error {
	next := n.Addresses
	if err := next.Set(now, now.Add(addressRest), wants); err != nil {
		return err
	}
	if !next.Fit(most) {
		instances := 0
		for _, w := range wants {
			if w.Policy == spec.BalanceInstance {
				instances++
			}
		}
		return skerry.Errorf(skerry.CodeTooLarge, "application %s would have %d instances, and the record of their addresses has no room for "+
			"them: it may have %d bytes", key, instances, most).WithHint("divide it into applications, which reach each other by exports")
	}
	n.Addresses = next
	return nil
}

// unaddressed is a network that could not be given what it wants.
type unaddressed struct {
	gen   skerry.Generation
	want  map[skerry.ServiceKey]int
	again time.Time
}

// readdress is address where nobody waits for an answer. Choices were checked when they were applied; what can fail here
// is room, and then nothing new gets an address. That is told once, and tried again when addresses that rest now are free.
func (ns *networks) readdress(now time.Time, a *App, fx *wire.Effects) {
	k := a.Key()
	u := ns.unaddressed[k]
	if u != nil {
		if u.gen != a.Gen || !maps.Equal(u.want, ns.wanted(a)) {
			u = nil
		} else if now.Before(u.again) {
			ns.catalog.wakeAt(k, u.again)
			return
		}
	}
	err := ns.address(now, a, fx)
	if err == nil {
		return
	}
	if u == nil {
		u = &unaddressed{gen: a.Gen, want: ns.wanted(a)}
		ns.release(now, a, u.want, fx)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "NoAddress", Text: err.Error(), App: k, Org: a.Org})
	}
	u.again = now.Add(addressRest)
	ns.unaddressed[k] = u
	ns.catalog.wakeAt(k, u.again)
}

// release gives back the addresses of a network that are no longer wanted, and leaves the others as they are.
func (ns *networks) release(now time.Time, a *App, want map[skerry.ServiceKey]int, fx *wire.Effects) {
	n := ns.nets[a.Key()]
	if n == nil {
		return
	}
	var kept []ipam.Want
	was := map[skerry.ServiceKey]int{}
	for _, w := range wants(a, want) {
		addr, ok := n.Addresses.Of(w.Key)
		if !ok {
			continue
		}
		w.Chosen = addr
		kept = append(kept, w)
		if w.Policy == spec.BalanceInstance {
			was[w.Service] = max(was[w.Service], w.Ordinal+1)
		} else {
			was[w.Service] += 0
		}
	}
	if n.set(now, a.Key(), kept, ns.mostBytes) != nil {
		return // what is held can be kept
	}
	n.was = was
	fx.Put(prefixNet+a.Key().String(), mustJSON(n))
	ns.readdressed[a.Key()] = true
}

// tellExporters has applications with exports looked at again when the network of another one comes or goes: who may reach
// their services is part of their directories.
func (ns *networks) tellExporters(k skerry.AppKey) {
	for o := range ns.exporters {
		if o != k {
			ns.readdressed[o] = true
		}
	}
}

// allowed lists the networks that a service is exported to, in order.
func (ns *networks) allowed(a *App, s *spec.ServiceSpec) (out []wire.NetworkID) {
	if len(s.Export) == 0 {
		return nil
	}
	for k, n := range ns.nets {
		if o := ns.catalog.apps[k]; o != nil && o != a && k != a.Key() {
			if _, ok := exportTo(a, s, o); ok {
				out = append(out, n.ID)
			}
		}
	}
	slices.Sort(out)
	return out
}

// imported is a service, or an alias, of another application that an application may reach.
type imported struct {
	key   skerry.ServiceKey
	spec  *spec.ServiceSpec // nil: it is an alias
	as    string
	alias spec.Alias // with those of its services that may be reached
}

// imports lists what other applications export to one, by key.
func (ns *networks) imports(app *App) (out []imported) {
	for _, other := range ns.exporting(app.Key()) {
		for i := range other.Manifest.Spec.Services {
			s := &other.Manifest.Spec.Services[i]
			if e, ok := exportTo(other, s, app); ok {
				im := imported{key: skerry.ServiceKey{App: other.Key(), Service: s.Name}, spec: s}
				if other.Org == app.Org { // a name that strangers choose could stand in for one that the application asks for, such as wpad
					im.as = e.As
				}
				out = append(out, im)
			}
		}
		for _, alias := range other.Manifest.Spec.Aliases() {
			alias.Services = slices.DeleteFunc(alias.Services, func(s *spec.ServiceSpec) bool {
				_, ok := exportTo(other, s, app)
				return !ok
			})
			if len(alias.Services) > 0 {
				out = append(out, imported{key: skerry.ServiceKey{App: other.Key(), Service: alias.Name}, alias: alias})
			}
		}
	}
	return out
}

// exporting lists applications with exports, other than one, in order of their keys.
func (ns *networks) exporting(k skerry.AppKey) (out []*App) {
	for o := range ns.exporters {
		if o != k && ns.catalog.apps[o] != nil && !ns.catalog.apps[o].Deleting {
			out = append(out, ns.catalog.apps[o])
		}
	}
	slices.SortFunc(out, func(a, b *App) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return out
}

// exportTo finds what lets an application reach a service of another.
func exportTo(o *App, s *spec.ServiceSpec, a *App) (spec.Export, bool) {
	for _, e := range s.Export {
		org := e.Org
		if org == "" {
			org = o.Org
		}
		// Across organisations both must want it: else anybody could have a service be where others look for theirs.
		if org == a.Org && e.Covers(a.Key()) && (o.Org == a.Org || a.Manifest.Spec.Wants(o.Key(), o.Org)) {
			return e, true
		}
	}
	return spec.Export{}, false
}

// noteExports remembers whether an application exports or imports something, and has those that may be concerned looked at again.
func (ns *networks) noteExports(app *App) {
	key := app.Key()
	if imports := len(app.Manifest.Spec.Imports) > 0; imports || ns.importers[key] {
		if ns.importers[key] = imports; !imports {
			delete(ns.importers, key)
		}
		ns.readdressed[key] = true
		ns.tellExporters(key)
	}
	exports := false
	for i := range app.Manifest.Spec.Services {
		exports = exports || len(app.Manifest.Spec.Services[i].Export) > 0
	}
	if !exports && !ns.exporters[key] {
		return
	}
	if exports && !app.Deleting {
		ns.exporters[key] = true
	} else {
		delete(ns.exporters, key)
	}
	for o, other := range ns.catalog.apps {
		if o != key {
			ns.catalog.Look(o)
		}
		// What it has of this one may be reached at other ports, or be an alias of other services, at the addresses of before.
		if o != key && slices.ContainsFunc(app.Manifest.Spec.Services, func(s spec.ServiceSpec) bool {
			_, ok := exportTo(app, &s, other)
			return ok
		}) {
			ns.readdressed[o] = true
		}
	}
}

// Network gives the directory of an application, or nil.
func (ns *networks) Network(k skerry.AppKey) *wire.AppNetwork {
	a, n := ns.catalog.apps[k], ns.nets[k]
	if a == nil || n == nil {
		return nil
	}
	out := &wire.AppNetwork{App: k, Org: a.Org, Net: n.ID}
	addressed := func(name string, sk skerry.ServiceKey) wire.NetworkService {
		v := wire.NetworkService{Name: name}
		at := func(b spec.Balance, ordinal int) {
			addr, _ := n.Addresses.Of(ipam.Key{Service: sk, Policy: b, Ordinal: ordinal})
			switch b {
			case spec.BalanceRoundRobin:
				v.RoundRobin = addr
			case spec.BalanceClosest:
				v.Closest = addr
			case spec.BalanceLeastLoaded:
				v.LeastLoaded = addr
			default:
				v.Instances = append(v.Instances, addr)
			}
		}
		for _, b := range spec.Balances() {
			at(b, 0)
		}
		for i := range n.was[sk] {
			at(spec.BalanceInstance, i)
		}
		return v
	}
	add := func(name string, sk skerry.ServiceKey, s *spec.ServiceSpec) *wire.NetworkService {
		v := addressed(name, sk)
		v.Ports, v.Sleeps = s.Ports, s.Sleeps()
		out.Services = append(out.Services, v)
		return &out.Services[len(out.Services)-1]
	}
	addAlias := func(sk skerry.ServiceKey, alias *spec.Alias) *wire.NetworkService {
		v := addressed(sk.Service, sk)
		v.Ports, v.Leads = alias.Reached(), alias.Leads(sk.App)
		out.Aliases = append(out.Aliases, v)
		return &out.Aliases[len(out.Aliases)-1]
	}
	own := map[string]bool{}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		own[s.Name] = true
		v := add(s.Name, skerry.ServiceKey{App: k, Service: s.Name}, s)
		v.Short, v.Allow = true, ns.allowed(a, s)
		v.Ingress = s.Ingress
		for _, l := range s.Links {
			v.Links = append(v.Links, l.Service)
		}
	}
	for _, alias := range a.Manifest.Spec.Aliases() {
		own[alias.Name] = true
		addAlias(skerry.ServiceKey{App: k, Service: alias.Name}, &alias).Short = true
	}
	out.Certificates = ns.certificates.of(a)
	for _, im := range ns.imports(a) {
		if _, ok := n.was[im.key]; !ok {
			continue // not yet
		}
		if im.spec == nil {
			v := addAlias(im.key, &im.alias)
			v.Of, v.Net = im.key, ns.NetworkID(im.key.App)
			continue
		}
		name := im.as
		if name == "" {
			name = im.key.Service
		}
		v := add(name, im.key, im.spec)
		v.Of, v.Net = im.key, ns.NetworkID(im.key.App)
		if im.as != "" && !own[name] {
			v.Short, own[name] = true, true
		}
	}
	return out
}

// NetworkID gives the network of an application, or 0.
func (ns *networks) NetworkID(k skerry.AppKey) wire.NetworkID {
	if n := ns.nets[k]; n != nil {
		return n.ID
	}
	return 0
}

// Exported reports whether a service may be reached by another application.
func (ns *networks) Exported(to skerry.AppKey, k skerry.ServiceKey) bool {
	o, a := ns.catalog.apps[k.App], ns.catalog.apps[to]
	if o == nil || a == nil {
		return false
	}
	s := o.Manifest.Spec.Service(k.Service)
	if s == nil {
		return false
	}
	_, ok := exportTo(o, s, a)
	return ok
}

// Readdressed gives the applications whose network changed since the last call.
func (ns *networks) Readdressed() []skerry.AppKey {
	if len(ns.readdressed) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Keys(ns.readdressed), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
	ns.readdressed = map[skerry.AppKey]bool{} // as in catalog.due
	return out
}

// drop forgets the network of an application that is gone.
func (ns *networks) drop(k skerry.AppKey, fx *wire.Effects) {
	if ns.nets[k] == nil {
		return
	}
	delete(ns.nets, k)
	delete(ns.unaddressed, k)
	ns.readdressed[k] = true
	ns.tellExporters(k)
	fx.Delete(prefixNet + k.String())
}

// recertify has the directories of applications that name a certificate worked out again.
func (ns *networks) recertify(k certKey) {
	for _, a := range ns.catalog.apps {
		if a.Org == k.org && slices.Contains(namedBy(a), k.name) {
			ns.readdressed[a.Key()] = true
		}
	}
}

// audit says which networks have the id of another, or one that was never given.
func (ns *networks) audit() (faults []string) {
	seen := map[wire.NetworkID]bool{}
	for k, n := range ns.nets {
		if seen[n.ID] || n.ID > ns.lastNet {
			faults = append(faults, fmt.Sprintf("network %d of %s: given twice, or beyond the last, %d", n.ID, k, ns.lastNet))
		}
		seen[n.ID] = true
	}
	return faults
}
