package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// entrances is which ways in the site offers, and to whom. Applications ask for doors (a port of the workers, a host, a
// path); each door leads to one service, and the first that asked keeps it.
//
//	manifests --> asked --(admission, then who was first)--> granted: in the directories of workers with an ingress
//	                                                     \-> refused, with a reason
type entrances struct {
	// Authority signs the certificates of routes that have none of their own. It is good for nothing else.
	Authority *skerry.IngressCertificate `json:"authority,omitempty"`
	AuthKey   []byte                     `json:"authorityKey,omitempty"`
	// Last and Orders say who came first: orders by application and door.
	Last   uint64            `json:"last,omitempty"`
	Orders map[string]uint64 `json:"orders,omitempty"`

	asked   map[skerry.AppKey][]asked
	refused map[skerry.AppKey]map[string]string // reasons, by door
	fresh   bool                                // nothing was looked at yet
}

// asked is a door that an application asks for.
type asked struct {
	app     skerry.AppKey
	org     string
	service string
	skerry.Ingress
	door  string
	order uint64
}

const keyIngress = "ingress"

func newEntrances() entrances {
	return entrances{Orders: map[string]uint64{}, asked: map[skerry.AppKey][]asked{}, refused: map[skerry.AppKey]map[string]string{}, fresh: true}
}

func (c *Core) loadIngress(value []byte) error {
	e := &c.ingress
	if err := json.Unmarshal(value, e); err != nil {
		return err
	}
	if e.Orders == nil {
		e.Orders = map[string]uint64{}
	}
	if e.Authority != nil {
		e.Authority.KeyPEM = e.AuthKey
	}
	return nil
}

// startIngress takes up what workers told an earlier life, and gives the site its authority if it has none.
func (c *Core) startIngress(now time.Time, fx *skerry.Effects) {
	if e := &c.ingress; e.Authority == nil && c.opt.IngressAuthority != nil {
		e.Authority, e.AuthKey = c.opt.IngressAuthority, c.opt.IngressAuthority.KeyPEM
		fx.Put(keyIngress, mustJSON(e))
	}
	for name := range c.workers {
		if k := c.Kids.Get(name); k != nil {
			if value, orphaned, ok := k.Observed.Get(skerry.IngressKey); ok && !orphaned {
				c.ingressState(now, name, value)
			}
		}
	}
}

// ingressState takes what a worker tells of its ingress; nil: nothing any more.
func (c *Core) ingressState(now time.Time, name string, value []byte) {
	w := c.workers[name]
	if w == nil {
		return
	}
	w.gate = nil
	var st skerry.IngressState
	if value != nil && c.codec.Unmarshal(value, &st) == nil {
		w.gate = plausible(&st)
	}
	if c.reportDue = true; w.gate == nil {
		c.Apps.Waits(now, name, nil)
	} else {
		c.Apps.Waits(now, name, w.gate.Waiting)
	}
}

// maxGateProblems and maxGateText bound what is kept of a worker's troubles.
const maxGateProblems, maxGateText = 500, 300

// maxWaiting bounds how many services a worker can say that something waits for.
const maxWaiting = 1000

// plausible gives what a worker tells with everything once, and troubles alone of what it serves: each worker counts for one
// in what is told of a way in, and only for itself.
func plausible(st *skerry.IngressState) *skerry.IngressState {
	out := new(skerry.IngressState)
	serving := map[skerry.AppKey]bool{}
	for _, app := range st.Serving {
		if !serving[app] {
			serving[app] = true
			out.Serving = append(out.Serving, app)
		}
	}
	told := map[skerry.IngressDoor]bool{}
	for _, p := range st.Problems {
		d := skerry.IngressDoor{Service: p.Service, Door: p.Door}
		if told[d] || !serving[p.Service.App] || len(out.Problems) == maxGateProblems {
			continue
		}
		told[d] = true
		if len(p.Text) > maxGateText {
			p.Text = strings.ToValidUTF8(p.Text[:maxGateText], "") + "..."
		}
		out.Problems = append(out.Problems, p)
	}
	for _, k := range st.Waiting[:min(len(st.Waiting), maxWaiting)] {
		if serving[k.App] {
			out.Waiting = append(out.Waiting, k)
		}
	}
	return out
}

// hasIngress reports whether a worker lets clients in.
func (w *worker) hasIngress() bool {
	return w.Peer != 0 && w.Facts != nil && w.Facts.Overlay != nil && len(w.Facts.Overlay.Ingress) > 0
}

// attached is how many addresses of a worker are in use: those of instances, and of its ingress in each network.
func (c *Core) attached(w *worker) int {
	n := len(c.byWorker[w.Name])
	if w.hasIngress() {
		for app := range c.ingress.asked {
			if c.granted(app) {
				n++
			}
		}
	}
	return n
}

// asks gives the doors that an application asks for.
func (c *Core) asks(app skerry.AppKey) (out []asked) {
	add := func(org, service string, list []skerry.Ingress) {
		for _, g := range list {
			out = append(out, asked{app: app, org: org, service: service, Ingress: g, door: g.Door()})
		}
	}
	if a := c.ownApp(app); a != nil {
		for i := range a.Manifest.Spec.Services {
			if s := &a.Manifest.Spec.Services[i]; !a.Deleting {
				add(a.Org, s.Name, s.Ingress)
			}
		}
		return out
	}
	n := c.network(app)
	if n == nil {
		return nil
	}
	for i := range n.Services {
		if s := &n.Services[i]; s.Of == (skerry.ServiceKey{}) {
			add(n.Org, s.Name, s.Ingress)
		}
	}
	return out
}

func orderKey(app skerry.AppKey, door string) string { return app.String() + " " + door }

// settleIngress works out who gets which door, when something about that has changed, and has the directories of
// applications that are concerned published.
func (c *Core) settleIngress(now time.Time, fx *skerry.Effects) {
	e := &c.ingress
	look := map[skerry.AppKey]bool{}
	if e.fresh {
		e.fresh = false
		for _, a := range c.Apps.Apps() {
			look[a.Key()] = true
		}
		for key := range c.Up.Desired.All() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if k, err := skerry.ParseAppKey(rest, ""); err == nil {
					look[k] = true
				}
			}
		}
	}
	maps.Copy(look, c.linked)
	changed, saved := false, true
	for _, app := range slices.SortedFunc(maps.Keys(look), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) }) {
		list := c.asks(app)
		was := e.asked[app]
		for i := range list {
			k := orderKey(app, list[i].door)
			if e.Orders[k] == 0 {
				e.Last++
				e.Orders[k], saved = e.Last, false
			}
			list[i].order = e.Orders[k]
		}
		for _, o := range was {
			if !slices.ContainsFunc(list, func(a asked) bool { return a.door == o.door }) {
				delete(e.Orders, orderKey(app, o.door))
				saved = false
			}
		}
		if slices.Equal(list, was) {
			continue
		}
		changed = true
		if len(list) == 0 {
			delete(e.asked, app)
		} else {
			e.asked[app] = list
		}
	}
	if !saved {
		fx.Put(keyIngress, mustJSON(e))
	}
	if !changed {
		return
	}
	refused := c.judgeDoors()
	for _, app := range slices.SortedFunc(maps.Keys(c.ingress.asked), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) }) {
		for _, door := range slices.Sorted(maps.Keys(refused[app])) {
			if why := refused[app][door]; e.refused[app][door] != why {
				c.tellRefused(now, app, door, why, fx)
			}
		}
		if !maps.Equal(refused[app], e.refused[app]) {
			c.linked[app] = true
		}
	}
	e.refused = refused
	c.reportDue = true
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		if w := c.workers[name]; w.hasIngress() && w.cramped(c.attached(w)) {
			c.admit(now, w, fx)
		}
	}
}

// tellRefused tells that an application does not get a door.
func (c *Core) tellRefused(now time.Time, app skerry.AppKey, door, why string, fx *skerry.Effects) {
	i := slices.IndexFunc(c.ingress.asked[app], func(a asked) bool { return a.door == door })
	a := &c.ingress.asked[app][i]
	text := fmt.Sprintf("ingress %s of service %s is not offered: %s", describeDoor(&a.Ingress), a.service, why)
	for _, id := range sortedIDs(c.byApp[app]) {
		if p := c.places[id]; p.A.Service.Service == a.service {
			c.event(fx, now, p, skerry.EventWarning, "IngressRefused", text)
			return
		}
	}
	fx.Events = append(fx.Events, skerry.Event{At: now, Type: skerry.EventWarning, Reason: "IngressRefused", Text: text, App: app, Service: a.service, Org: a.org, Cluster: skerry.ClusterName(c.opt.Name)})
}

func describeDoor(g *skerry.Ingress) string {
	host := g.Host
	if host == "" {
		host = "*"
	}
	return fmt.Sprintf("%s:%d%s", host, g.Listen, g.Path)
}

// judgeDoors gives the reasons for which doors are refused. What belongs to other organisations is not named.
func (c *Core) judgeDoors() map[skerry.AppKey]map[string]string {
	var all []*asked
	for _, list := range c.ingress.asked {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	slices.SortFunc(all, func(a, b *asked) int { return cmp.Compare(a.order, b.order) })
	out := map[skerry.AppKey]map[string]string{}
	var j doorJudge
	j.init()
	for _, a := range all {
		why := c.opt.Admission.CheckIngress(a.org)
		if why == "" {
			why = j.take(a)
		}
		if why == "" {
			continue
		}
		if out[a.app] == nil {
			out[a.app] = map[string]string{}
		}
		out[a.app][a.door] = why
	}
	return out
}

// doorJudge holds the doors that are taken.
type doorJudge struct {
	doors map[string]*asked
	ports map[int]*asked
	hosts map[string]*asked // by port and host, for what all paths of a host share
	names map[int][]*asked  // hosts by port, one each
}

func (j *doorJudge) init() {
	j.doors, j.ports, j.hosts, j.names = map[string]*asked{}, map[int]*asked{}, map[string]*asked{}, map[int][]*asked{}
}

// take gives a door to who asks for it, or the reason for not doing so.
func (j *doorJudge) take(a *asked) string {
	whose := func(o *asked) string {
		if o.org == a.org {
			return "application " + o.app.String()
		}
		return "another organisation"
	}
	if o := j.doors[a.door]; o != nil {
		return "the same host, path and port lead to a service of " + whose(o) + " already"
	}
	if o := j.ports[a.Listen]; o != nil && (o.Protocol != a.Protocol || o.EncryptedName() != a.EncryptedName()) {
		return fmt.Sprintf("port %d is used in another way (%s) by %s", a.Listen, kindOf(o), whose(o))
	}
	host := fmt.Sprint(a.Listen, " ", a.Host)
	o := j.hosts[host]
	if o != nil && (o.TLS != a.TLS || o.org != a.org && a.TLS != skerry.TLSOff && a.TLS != skerry.TLSSelf) {
		return fmt.Sprintf("the host has another certificate on port %d, of %s", a.Listen, whose(o))
	}
	// Paths below a host of somebody else's would get what its users send there.
	if a.Host != "" {
		for _, o := range j.names[a.Listen] {
			if o.org != a.org && o.Host != "" && overlap(o.Host, a.Host) {
				return fmt.Sprintf("host %s belongs to another organisation on port %d", o.Host, a.Listen)
			}
		}
	}
	j.doors[a.door] = a
	if j.ports[a.Listen] == nil {
		j.ports[a.Listen] = a
	}
	if o == nil {
		j.hosts[host] = a
		j.names[a.Listen] = append(j.names[a.Listen], a)
	}
	return ""
}

func kindOf(a *asked) string {
	if a.EncryptedName() {
		return a.Protocol + " with TLS"
	}
	return a.Protocol + " without TLS"
}

// overlap reports whether two hosts, either of which may be *.DOMAIN, have a name in common.
func overlap(a, b string) bool {
	covers := func(wild, name string) bool {
		domain, ok := strings.CutPrefix(wild, "*.")
		_, up, _ := strings.Cut(name, ".")
		return ok && up == domain
	}
	return a == b || covers(a, b) || covers(b, a)
}

// granted reports whether the site offers something of an application.
func (c *Core) granted(app skerry.AppKey) bool {
	return len(c.ingress.asked[app]) > len(c.ingress.refused[app])
}

// withIngress gives the directory of an application as workers with an ingress get it, and as others do.
func (c *Core) withIngress(n *skerry.AppNetwork) (gate, plain *skerry.AppNetwork) {
	full, bare := *n, *n
	full.Services, bare.Services = slices.Clone(n.Services), slices.Clone(n.Services)
	bare.Certificates, bare.Authority, full.Authority = nil, nil, nil
	refused := c.ingress.refused[n.App]
	for i := range full.Services {
		bare.Services[i].Ingress = nil
		full.Services[i].Ingress = slices.DeleteFunc(slices.Clone(n.Services[i].Ingress), func(g skerry.Ingress) bool {
			_, no := refused[g.Door()]
			return no
		})
		for _, g := range full.Services[i].Ingress {
			if g.TLS == skerry.TLSSelf {
				full.Authority = c.ingress.Authority
			}
		}
	}
	return &full, &bare
}

// letsIn reports whether a worker's ingress leads to a service.
func (c *Core) letsIn(name string, k skerry.ServiceKey) bool {
	w := c.workers[name]
	if w == nil || !w.hasIngress() {
		return false
	}
	return slices.ContainsFunc(c.ingress.asked[k.App], func(a asked) bool {
		_, no := c.ingress.refused[k.App][a.door]
		return a.service == k.Service && !no
	})
}

// gatesChanged has the directories of applications with a way in published again: workers with an ingress came or went.
func (c *Core) gatesChanged() {
	for app := range c.ingress.asked {
		c.linked[app] = true
	}
}

// gate is a worker that clients can come to.
type gate struct {
	w       *worker
	healthy bool
	problem string
}

// gatesOf lists the workers that should offer a door, by name, with how each fares.
func (c *Core) gatesOf(a *asked) (out []gate) {
	if _, no := c.ingress.refused[a.app][a.door]; no {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		w := c.workers[name]
		if !w.hasIngress() || w.sight.Lost() {
			continue
		}
		g := gate{w: w}
		k := c.Kids.Get(name)
		switch {
		case k == nil || !k.Connected:
			g.problem = "worker " + name + " is not connected"
		case w.gate == nil || !slices.Contains(w.gate.Serving, a.app):
			g.problem = "worker " + name + " does not serve it yet"
		default:
			g.healthy = true
			for _, p := range w.gate.Problems {
				if p.Service == (skerry.ServiceKey{App: a.app, Service: a.service}) && p.Door == a.door {
					g.healthy, g.problem = false, name+": "+p.Text
				}
			}
		}
		out = append(out, g)
	}
	return out
}

// readyFor reports whether a service has an instance to lead clients to, or gets one when they come.
func (c *Core) readyFor(k skerry.ServiceKey) bool {
	if n := c.network(k.App); n != nil && slices.ContainsFunc(n.Services, func(s skerry.NetworkService) bool { return s.Sleeps && n.Real(&s) == k }) {
		return true
	}
	return slices.ContainsFunc(c.backends(k), func(b backend) bool { return !b.Draining })
}

// ingressViews shows the ways in to the services of an application, by service.
func (c *Core) ingressViews(app skerry.AppKey) map[string][]skerry.IngressView {
	out := map[string][]skerry.IngressView{}
	for i := range c.ingress.asked[app] {
		a := &c.ingress.asked[app][i]
		v := skerry.IngressView{Host: a.Host, Path: a.Path, Listen: a.Listen, Protocol: a.Protocol, TLS: a.TLS, Policy: a.Policy}
		if why, no := c.ingress.refused[app][a.door]; no {
			v.Problems = []string{why}
		}
		for _, g := range c.gatesOf(a) {
			if g.healthy {
				v.At = append(v.At, g.w.Name)
			} else {
				v.Problems = append(v.Problems, g.problem)
			}
		}
		if len(v.At)+len(v.Problems) == 0 {
			v.Problems = []string{"no worker has an ingress"}
		}
		out[a.service] = append(out[a.service], v)
	}
	return out
}

// showIngress adds the ways in to the views of applications.
func (c *Core) showIngress(list []skerry.AppView) {
	for i := range list {
		by := c.ingressViews(list[i].Key)
		for j := range list[i].Services {
			list[i].Services[j].Ingress = by[list[i].Services[j].Name]
		}
	}
}

// foldIngress tells the root of the ways in to its applications. Workers are looked at once, however many doors there are.
func (c *Core) foldIngress() *skerry.SiteIngress {
	out := &skerry.SiteIngress{Zone: c.opt.Zone, Servers: c.opt.NameServers}
	serving, without, waiting := map[skerry.AppKey]int{}, map[skerry.IngressDoor]int{}, map[skerry.ServiceKey]bool{}
	if len(c.ingress.asked) > 0 {
		for name, w := range c.workers {
			if k := c.Kids.Get(name); w.gate == nil || !w.hasIngress() || w.sight.Lost() || k == nil || !k.Connected {
				continue
			}
			for _, app := range w.gate.Serving {
				serving[app]++
			}
			for _, k := range w.gate.Waiting {
				waiting[k] = true
			}
			for _, p := range w.gate.Problems {
				without[skerry.IngressDoor{Service: p.Service, Door: p.Door}]++
			}
		}
	}
	for app, list := range c.ingress.asked {
		if c.ownApp(app) != nil {
			continue
		}
		for i := range list {
			a := &list[i]
			d := skerry.IngressDoor{Service: skerry.ServiceKey{App: app, Service: a.service}, Door: a.door}
			n := serving[app] - without[d]
			if d.Problem = c.ingress.refused[app][a.door]; d.Problem == "" && n > 0 && c.readyFor(d.Service) {
				d.Workers, d.Waiting = n, waiting[d.Service]
			}
			out.Doors = append(out.Doors, d)
		}
	}
	if len(out.Doors) == 0 {
		return nil
	}
	slices.SortFunc(out.Doors, func(a, b skerry.IngressDoor) int {
		return cmp.Or(strings.Compare(a.Service.String(), b.Service.String()), strings.Compare(a.Door, b.Door))
	})
	out.Doors = out.Doors[:min(len(out.Doors), maxDoors)]
	return out
}

// maxDoors bounds what a site tells the root of.
const maxDoors = 2000

// Entry is a worker that a host name may lead clients to.
type Entry struct {
	Worker  string
	Addrs   []netip.Addr
	Near    []netip.Prefix // networks that the worker is in
	Healthy bool
}

// HostEntries is a host name with the workers that offer something under it.
type HostEntries struct {
	Host    string
	Entries []Entry
}

// HostNames lists the host names that the site offers something under, by name.
func (c *Core) HostNames() []HostEntries {
	by := map[string]map[string]*Entry{}
	for app, list := range c.ingress.asked {
		for i := range list {
			a := &list[i]
			if a.Host == "" {
				continue
			}
			ready := c.readyFor(skerry.ServiceKey{App: app, Service: a.service})
			for _, g := range c.gatesOf(a) {
				addrs := slices.DeleteFunc(slices.Clone(g.w.Facts.Overlay.Ingress), netip.Addr.IsUnspecified)
				if len(addrs) == 0 {
					continue
				}
				if by[a.Host] == nil {
					by[a.Host] = map[string]*Entry{}
				}
				e := by[a.Host][g.w.Name]
				if e == nil {
					e = &Entry{Worker: g.w.Name, Addrs: addrs, Near: g.w.Facts.Overlay.Networks}
					by[a.Host][g.w.Name] = e
				}
				e.Healthy = e.Healthy || g.healthy && ready
			}
		}
	}
	var out []HostEntries
	for _, host := range slices.Sorted(maps.Keys(by)) {
		h := HostEntries{Host: host}
		for _, w := range slices.Sorted(maps.Keys(by[host])) {
			h.Entries = append(h.Entries, *by[host][w])
		}
		out = append(out, h)
	}
	return out
}
