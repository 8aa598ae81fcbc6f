package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ipam"
)

// network is the overlay network of one application: its id and its service addresses. It is a record of its own, because
// the application's is written far more often.
type network struct {
	ID        skerry.NetworkID          `json:"id"`
	Addresses ipam.Addresses            `json:"addresses"`
	was       map[skerry.ServiceKey]int // services with numbers of instances that the addresses were worked out for
	gen       skerry.Generation
	refused   map[skerry.ServiceKey]int // that there was no room for, so that it is told once
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

// address gives an application's network the addresses that its manifest asks for. What conflicts is refused, and nothing
// changes then.
func (c *Controller) address(now time.Time, a *App, fx *skerry.Effects) error {
	k := a.Key()
	n := c.nets[k]
	imports := c.imports(a)
	want := map[skerry.ServiceKey]int{}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		sk := skerry.ServiceKey{App: k, Service: s.Name}
		want[sk] = c.numbered(sk, s)
	}
	for _, im := range imports {
		want[im.key] = c.numbered(im.key, im.spec)
	}
	if n != nil && n.gen == a.Gen && maps.Equal(n.was, want) {
		return nil
	}
	fresh := n == nil
	if fresh {
		n = &network{ID: c.lastNet + 1}
	}
	var wants []ipam.Want
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		sk := skerry.ServiceKey{App: k, Service: s.Name}
		wants = append(wants, ipam.Wants(sk, s, want[sk])...)
	}
	for _, im := range imports {
		wants = append(wants, ipam.Wants(im.key, nil, want[im.key])...)
	}
	if n.refused != nil && maps.Equal(n.refused, want) {
		return nil
	}
	if err := n.Addresses.Set(now, now.Add(addressRest), wants); err != nil {
		n.refused = want
		return err
	}
	n.refused = nil
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
func (c *Controller) allowed(a *App, s *skerry.ServiceSpec) (out []skerry.NetworkID) {
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

// numbered is how many instances of a service have an address of their own: those with an ordinal.
func (c *Controller) numbered(k skerry.ServiceKey, s *skerry.ServiceSpec) int {
	n := 0
	if s.Mode == "" || s.Mode == skerry.ModeService {
		n = 1
		if s.Replicas != nil {
			n = *s.Replicas
		}
		for _, i := range c.byService[k] {
			n = max(n, i.Ordinal+1) // one that is on its way out is still reached
		}
	}
	return min(n, skerry.MaxInstanceAddrs)
}

// imported is a service of another application that an application may reach.
type imported struct {
	key  skerry.ServiceKey
	spec *skerry.ServiceSpec
	as   string
}

// imports lists what other applications export to one, by key.
func (c *Controller) imports(a *App) (out []imported) {
	for _, o := range c.exporting(a.Key()) {
		for i := range o.Manifest.Spec.Services {
			s := &o.Manifest.Spec.Services[i]
			if e, ok := exportTo(o, s, a); ok {
				out = append(out, imported{skerry.ServiceKey{App: o.Key(), Service: s.Name}, s, e.As})
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
func exportTo(o *App, s *skerry.ServiceSpec, a *App) (skerry.Export, bool) {
	for _, e := range s.Export {
		org := e.Org
		if org == "" {
			org = o.Org
		}
		if org == a.Org && e.Covers(a.Key()) {
			return e, true
		}
	}
	return skerry.Export{}, false
}

// noteExports remembers whether an application exports something, and has those that may be concerned looked at again.
func (c *Controller) noteExports(a *App) {
	k := a.Key()
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
			c.dirty[o] = true
		}
	}
}

// Network gives the directory of an application, or nil.
func (c *Controller) Network(k skerry.AppKey) *skerry.AppNetwork {
	a, n := c.apps[k], c.nets[k]
	if a == nil || n == nil {
		return nil
	}
	out := &skerry.AppNetwork{App: k, Org: a.Org, Net: n.ID}
	add := func(name string, sk skerry.ServiceKey, s *skerry.ServiceSpec) *skerry.NetworkService {
		v := skerry.NetworkService{Name: name, Ports: s.Ports}
		at := func(b skerry.Balance, ordinal int) {
			addr, _ := n.Addresses.Of(ipam.Key{Service: sk, Policy: b, Ordinal: ordinal})
			switch b {
			case skerry.BalanceRoundRobin:
				v.RoundRobin = addr
			case skerry.BalanceClosest:
				v.Closest = addr
			case skerry.BalanceLeastLoaded:
				v.LeastLoaded = addr
			default:
				v.Instances = append(v.Instances, addr)
			}
		}
		for _, b := range skerry.Balances() {
			at(b, 0)
		}
		for i := range n.was[sk] {
			at(skerry.BalanceInstance, i)
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
	out.Certificates = c.certificatesOf(a)
	for _, im := range c.imports(a) {
		if _, ok := n.was[im.key]; !ok {
			continue // not yet
		}
		name := im.as
		if name == "" {
			name = im.key.Service
		}
		v := add(name, im.key, im.spec)
		v.Of = im.key
		if im.as != "" && !own[name] {
			v.Short, own[name] = true, true
		}
	}
	return out
}

// NetworkID gives the network of an application, or 0.
func (c *Controller) NetworkID(k skerry.AppKey) skerry.NetworkID {
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
func (c *Controller) dropNetwork(k skerry.AppKey, fx *skerry.Effects) {
	if c.nets[k] == nil {
		return
	}
	delete(c.nets, k)
	c.readdressed[k] = true
	c.tellExporters(k)
	fx.Delete(prefixNet + k.String())
}
