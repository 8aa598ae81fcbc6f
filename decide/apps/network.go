package apps

import (
	"encoding/json"
	"fmt"
	"maps"
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

func (c *Controller) loadNetwork(key string, value []byte) error {
	k, err := skerry.ParseAppKey(strings.TrimPrefix(key, prefixNet), "")
	if err != nil {
		return err
	}
	n := new(network)
	if err := json.Unmarshal(value, n); err != nil {
		return err
	}
	c.nets[k] = n
	return nil
}

// wanted says how many instances of each service have an address of their own in an application's network. Services that
// others export to it come after its own: their number is not its own choice, so they get no more than is left, and no
// more than maxImported. What does not fit is left out, the instances first, then the service.
func (c *Controller) wanted(a *App) map[skerry.ServiceKey]int {
	want := map[skerry.ServiceKey]int{}
	left := ipam.NumServices
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		sk := skerry.ServiceKey{App: a.Key(), Service: s.Name}
		want[sk] = c.numbered(sk, s)
		left -= len(spec.Balances()) + want[sk]
	}
	left = min(left, maxImported)
	for _, im := range c.imports(a) {
		if left < len(spec.Balances()) {
			break
		}
		left -= len(spec.Balances())
		if n := c.numbered(im.key, im.spec); n <= left {
			want[im.key], left = n, left-n
		} else {
			want[im.key] = 0
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
func (c *Controller) address(now time.Time, a *App, fx *wire.Effects) error {
	if a.Borrowed {
		return nil // its owner gives it addresses
	}
	k := a.Key()
	n := c.nets[k]
	want := c.wanted(a)
	if n != nil && n.gen == a.Gen && maps.Equal(n.was, want) {
		return nil
	}
	fresh := n == nil
	if fresh {
		n = &network{ID: c.lastNet + 1}
	}
	if err := n.Addresses.Set(now, now.Add(addressRest), wants(a, want)); err != nil {
		return err
	}
	delete(c.unaddressed, k)
	if fresh {
		c.lastNet++
		fx.Put(keyNets, []byte(fmt.Sprint(c.lastNet)))
		c.nets[k] = n
	}
	n.was, n.gen = want, a.Gen
	fx.Put(prefixNet+k.String(), mustJSON(n))
	c.readdressed[k] = true
	if fresh {
		c.tellExporters(k)
	}
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
func (c *Controller) readdress(now time.Time, a *App, fx *wire.Effects) {
	k := a.Key()
	u := c.unaddressed[k]
	if u != nil {
		if u.gen != a.Gen || !maps.Equal(u.want, c.wanted(a)) {
			u = nil
		} else if now.Before(u.again) {
			c.wakeAt(k, u.again)
			return
		}
	}
	err := c.address(now, a, fx)
	if err == nil {
		return
	}
	if u == nil {
		u = &unaddressed{gen: a.Gen, want: c.wanted(a)}
		c.release(now, a, u.want, fx)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "NoAddress", Text: err.Error(), App: k, Org: a.Org})
	}
	u.again = now.Add(addressRest)
	c.unaddressed[k] = u
	c.wakeAt(k, u.again)
}

// release gives back the addresses of a network that are no longer wanted, and leaves the others as they are.
func (c *Controller) release(now time.Time, a *App, want map[skerry.ServiceKey]int, fx *wire.Effects) {
	n := c.nets[a.Key()]
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
	if n.Addresses.Set(now, now.Add(addressRest), kept) != nil {
		return // what is held can be kept
	}
	n.was = was
	fx.Put(prefixNet+a.Key().String(), mustJSON(n))
	c.readdressed[a.Key()] = true
}

// tellExporters has applications with exports looked at again when the network of another one comes or goes: who may reach
// their services is part of their directories.
func (c *Controller) tellExporters(k skerry.AppKey) {
	for o := range c.exporters {
		if o != k {
			c.readdressed[o] = true
		}
	}
}

// allowed lists the networks that a service is exported to, in order.
func (c *Controller) allowed(a *App, s *spec.ServiceSpec) (out []wire.NetworkID) {
	if len(s.Export) == 0 {
		return nil
	}
	for k, n := range c.nets {
		if o := c.apps[k]; o != nil && o != a && k != a.Key() {
			if _, ok := exportTo(a, s, o); ok {
				out = append(out, n.ID)
			}
		}
	}
	slices.Sort(out)
	return out
}

// imported is a service of another application that an application may reach.
type imported struct {
	key  skerry.ServiceKey
	spec *spec.ServiceSpec
	as   string
}

// imports lists what other applications export to one, by key.
func (c *Controller) imports(a *App) (out []imported) {
	for _, o := range c.exporting(a.Key()) {
		for i := range o.Manifest.Spec.Services {
			s := &o.Manifest.Spec.Services[i]
			if e, ok := exportTo(o, s, a); ok {
				im := imported{key: skerry.ServiceKey{App: o.Key(), Service: s.Name}, spec: s}
				if o.Org == a.Org { // a name that strangers choose could stand in for one that the application asks for, such as wpad
					im.as = e.As
				}
				out = append(out, im)
			}
		}
	}
	return out
}

// exporting lists applications with exports, other than one, in order of their keys.
func (c *Controller) exporting(k skerry.AppKey) (out []*App) {
	for o := range c.exporters {
		if o != k && c.apps[o] != nil && !c.apps[o].Deleting {
			out = append(out, c.apps[o])
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
func (c *Controller) noteExports(a *App) {
	k := a.Key()
	if imports := len(a.Manifest.Spec.Imports) > 0; imports || c.importers[k] {
		if c.importers[k] = imports; !imports {
			delete(c.importers, k)
		}
		c.readdressed[k] = true
		c.tellExporters(k)
	}
	exports := false
	for i := range a.Manifest.Spec.Services {
		exports = exports || len(a.Manifest.Spec.Services[i].Export) > 0
	}
	if !exports && !c.exporters[k] {
		return
	}
	if exports && !a.Deleting {
		c.exporters[k] = true
	} else {
		delete(c.exporters, k)
	}
	for o := range c.apps {
		if o != k {
			c.look(o)
		}
	}
}

// Network gives the directory of an application, or nil.
func (c *Controller) Network(k skerry.AppKey) *wire.AppNetwork {
	a, n := c.apps[k], c.nets[k]
	if a == nil || n == nil {
		return nil
	}
	out := &wire.AppNetwork{App: k, Org: a.Org, Net: n.ID}
	add := func(name string, sk skerry.ServiceKey, s *spec.ServiceSpec) *wire.NetworkService {
		v := wire.NetworkService{Name: name, Ports: s.Ports, Sleeps: s.Sleeps()}
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
		out.Services = append(out.Services, v)
		return &out.Services[len(out.Services)-1]
	}
	own := map[string]bool{}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		own[s.Name] = true
		v := add(s.Name, skerry.ServiceKey{App: k, Service: s.Name}, s)
		v.Short, v.Allow = true, c.allowed(a, s)
		v.Ingress = s.Ingress
		for _, l := range s.Links {
			v.Links = append(v.Links, l.Service)
		}
	}
	out.Certificates = c.certificates.of(a)
	for _, im := range c.imports(a) {
		if _, ok := n.was[im.key]; !ok {
			continue // not yet
		}
		name := im.as
		if name == "" {
			name = im.key.Service
		}
		v := add(name, im.key, im.spec)
		v.Of, v.Net = im.key, c.NetworkID(im.key.App)
		if im.as != "" && !own[name] {
			v.Short, own[name] = true, true
		}
	}
	return out
}

// NetworkID gives the network of an application, or 0.
func (c *Controller) NetworkID(k skerry.AppKey) wire.NetworkID {
	if n := c.nets[k]; n != nil {
		return n.ID
	}
	return 0
}

// Exported reports whether a service may be reached by another application.
func (c *Controller) Exported(to skerry.AppKey, k skerry.ServiceKey) bool {
	o, a := c.apps[k.App], c.apps[to]
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
func (c *Controller) Readdressed() []skerry.AppKey {
	if len(c.readdressed) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Keys(c.readdressed), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
	clear(c.readdressed)
	return out
}

// dropNetwork forgets the network of an application that is gone.
func (c *Controller) dropNetwork(k skerry.AppKey, fx *wire.Effects) {
	if c.nets[k] == nil {
		return
	}
	delete(c.nets, k)
	delete(c.unaddressed, k)
	c.readdressed[k] = true
	c.tellExporters(k)
	fx.Delete(prefixNet + k.String())
}
