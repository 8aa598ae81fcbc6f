package resolver

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// view is a Config made ready for questions. It never changes.
type view struct {
	serial    uint32
	ipv6      bool
	upstreams []netip.AddrPort
	private   []netip.Prefix
	apps      map[skerry.AppKey]*appView
	askers    map[netip.Addr]*appView
	inside    map[netip.Addr]bool // askers that may not go outside
	instances map[netip.Addr]Instance
}

type appView struct {
	Key      skerry.AppKey
	Complete bool
	short    map[string]*serviceView
	full     map[skerry.ServiceKey]*serviceView
	// inner are names below which there are others: app.namespace and namespace.
	inner map[string]bool
	byIP  map[netip.Addr]string // service addresses and their twins, with their names
}

type serviceView struct {
	Service
	policies map[spec.Balance]netip.Addr
	ordinals map[int]netip.Addr
}

func newView(conf Config, serial uint32) *view {
	v := &view{serial: serial, ipv6: conf.IPv6, upstreams: slices.Clone(conf.Upstreams), private: slices.Clone(conf.Private),
		apps: map[skerry.AppKey]*appView{}, askers: map[netip.Addr]*appView{}, inside: map[netip.Addr]bool{},
		instances: map[netip.Addr]Instance{}}
	for _, a := range conf.Apps {
		v.apps[a.Key] = newAppView(a)
	}
	for _, i := range conf.Instances {
		for _, addr := range i.Addrs {
			if !addr.IsValid() {
				continue
			}
			v.instances[addr] = i
			if app := v.apps[i.Service.App]; i.Local {
				if app == nil {
					app = newAppView(App{Key: i.Service.App})
					v.apps[i.Service.App] = app
				}
				v.askers[addr], v.inside[addr] = app, i.Inside
			}
		}
	}
	return v
}

func newAppView(a App) *appView {
	out := &appView{Key: a.Key, Complete: a.Complete, short: map[string]*serviceView{}, full: map[skerry.ServiceKey]*serviceView{},
		inner: map[string]bool{}, byIP: map[netip.Addr]string{}}
	out.within(a.Key)
	for _, s := range a.Services {
		s.Ports = slices.Clone(s.Ports)
		x := &serviceView{s, map[spec.Balance]netip.Addr{}, map[int]netip.Addr{}}
		out.full[s.Key] = x
		out.within(s.Key.App)
		for _, addr := range s.Addrs {
			if !addr.Addr.Is4() {
				continue // none is assigned yet
			}
			ordinal := -1
			if addr.Policy == spec.BalanceInstance {
				ordinal = addr.Ordinal
				x.ordinals[ordinal] = addr.Addr
			} else {
				x.policies[addr.Policy] = addr.Addr
			}
			name := canonical(s.Key, addr.Policy, ordinal)
			out.byIP[addr.Addr], out.byIP[spec.ServiceTwin(addr.Addr)] = name, name
		}
		switch {
		case s.Key.App == a.Key:
			out.short[s.Key.Service] = x
		case s.As != "" && out.short[s.As] == nil:
			out.short[s.As] = x
		}
	}
	// The application's own services come before those of others, in whatever order they were given.
	for _, s := range a.Services {
		if s.Key.App == a.Key {
			out.short[s.Key.Service] = out.full[s.Key]
		}
	}
	return out
}

func (a *appView) within(k skerry.AppKey) {
	a.inner[k.Namespace] = true
	a.inner[k.Name+"."+k.Namespace] = true
	for _, ns := range []string{defaultServiceNS, k.Namespace} {
		a.inner[ns+"."+k.Name+"."+k.Namespace] = true
	}
}

// defaultServiceNS is the namespace of services within an application; Skerry has no other, and takes the
// application's for the same.
const defaultServiceNS = spec.DefaultNamespace

// canonical gives the full name of a service address.
func canonical(k skerry.ServiceKey, b spec.Balance, ordinal int) string {
	first := "any"
	if ordinal >= 0 {
		first = strconv.Itoa(ordinal)
	}
	return first + "." + string(b) + "." + k.Service + "." + defaultServiceNS + "." + k.App.Name + "." + k.App.Namespace + "." + Zone
}

// kind says what there is at a name.
type kind int

const (
	foreign kind = iota // not ours: forward it
	nothing             // ours, and it does not exist
	empty               // ours, with nothing but names below it
	apex                // the zone itself
	address             // a service address
	server              // a port of a service, for SRV
	pointer             // the reverse name of an address
	loop                // localhost
)

// node is what was found at a name.
type node struct {
	kind  kind
	addr  netip.Addr
	port  uint16
	name  string            // canonical name, for SRV and PTR
	short bool              // it is an application's short name
	want  skerry.ServiceKey // service that was meant, if any
	zoned bool              // the name is in Zone
}

// lookup finds what a name means to an application. The name is in lower case, without the dot at its end.
func (v *view) lookup(a *appView, name string) node {
	if addr, ok := reverse(name); ok {
		return v.pointer(a, addr)
	}
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case last == "localhost":
		return node{kind: loop}
	case last == "skerry":
		n := a.find(labels[:len(labels)-1], true)
		n.zoned = true
		return n
	}
	return a.find(labels, false)
}

// find looks labels up without the zone; zoned says that they had it, so that they are ours whatever they say.
func (a *appView) find(labels []string, zoned bool) node {
	miss := node{kind: foreign}
	if zoned {
		miss.kind = nothing
	}
	if len(labels) == 0 {
		return node{kind: apex}
	}
	port, proto, below := "", "", false // _PORT._PROTO before a name; below: _PROTO alone
	if strings.HasPrefix(labels[0], "_") {
		switch {
		case len(labels) > 2 && strings.HasPrefix(labels[1], "_"):
			port, proto, labels = labels[0][1:], labels[1][1:], labels[2:]
		case len(labels) > 1:
			below, labels = true, labels[1:]
		}
	}
	n := a.named(labels, zoned)
	switch {
	case n.kind == foreign || n.kind == nothing:
		if n.kind == foreign {
			return miss
		}
		return n.node
	case below && n.kind == address:
		n.kind = empty
	case port != "" && n.kind == address:
		n.kind = nothing
		for _, p := range n.svc.Ports {
			if (p.PortName() == port || strconv.Itoa(p.Port) == port) && (p.Proto() == proto || p.Proto() == "any") {
				n.kind, n.port = server, uint16(p.Port)
			}
		}
	case port != "" || below:
		n.kind = nothing
	}
	return n.node
}

// found is a node with the service it belongs to.
type found struct {
	node
	svc *serviceView
}

func (a *appView) named(labels []string, zoned bool) found {
	n := len(labels)
	// Short names: the last label is the service.
	if which, ok := selector(labels[:n-1]); ok && n <= 3 {
		if s := a.short[labels[n-1]]; s != nil {
			return s.at(which, true)
		}
	}
	if inner := strings.Join(labels, "."); zoned && a.inner[inner] {
		return found{node: node{kind: empty}}
	}
	if n >= 4 && n <= 6 && (zoned || n == 6) {
		which, ok := selector(labels[:n-4])
		k := skerry.ServiceKey{App: skerry.AppKey{Namespace: labels[n-1], Name: labels[n-2]}, Service: labels[n-4]}
		if ok && (labels[n-3] == defaultServiceNS || labels[n-3] == k.App.Namespace) && valid(k) {
			if s := a.full[k]; s != nil {
				return s.at(which, false)
			}
			return found{node: node{kind: nothing, want: k}}
		}
		if ok && !zoned {
			return found{node: node{kind: nothing}} // no other name has this form
		}
	}
	if _, ok := selector(labels[:n-1]); ok && (zoned && n <= 3 || n == 1) {
		k := skerry.ServiceKey{App: a.Key, Service: labels[n-1]}
		if valid(k) {
			return found{node: node{kind: nothing, want: k, short: true}}
		}
	}
	if zoned {
		return found{node: node{kind: nothing}}
	}
	return found{node: node{kind: foreign}}
}

func valid(k skerry.ServiceKey) bool {
	return skerry.CheckName(k.Service) == nil && skerry.CheckName(k.App.Name) == nil && skerry.CheckName(k.App.Namespace) == nil
}

// which says what address of a service is meant. Ordinal -1 is any.
type which struct {
	policy  spec.Balance
	ordinal int
}

// selector reads the labels before a service: none, POLICY, INSTANCE, or INSTANCE.POLICY.
func selector(labels []string) (which, bool) {
	w := which{spec.BalanceRoundRobin, -1}
	if len(labels) > 2 {
		return w, false
	}
	if n := len(labels); n > 0 {
		if b := spec.Balance(labels[n-1]); slices.Contains(spec.Balances(), b) || b == spec.BalanceInstance {
			w.policy, labels = b, labels[:n-1]
		} else if n == 2 {
			return w, false
		}
	}
	if len(labels) == 1 && labels[0] != "any" {
		o, err := strconv.Atoi(labels[0])
		if err != nil || o < 0 || strconv.Itoa(o) != labels[0] {
			return w, false
		}
		w.ordinal = o
	}
	return w, true
}

func (s *serviceView) at(w which, short bool) found {
	n := node{kind: nothing, short: short, want: s.Key}
	var ok bool
	if w.ordinal >= 0 {
		n.addr, ok = s.ordinals[w.ordinal]
		n.name = canonical(s.Key, spec.BalanceInstance, w.ordinal)
	} else {
		n.addr, ok = s.policies[w.policy]
		n.name = canonical(s.Key, w.policy, -1)
	}
	if ok {
		n.kind = address
	}
	return found{n, s}
}

// pointer finds the name of an address: of a service address in the asker's network, or of an instance of its own
// application.
func (v *view) pointer(a *appView, addr netip.Addr) node {
	if name, ok := a.byIP[addr]; ok {
		return node{kind: pointer, name: name}
	}
	if i, ok := v.instances[addr]; ok && i.Service.App == a.Key {
		return node{kind: pointer, name: canonical(i.Service, spec.BalanceInstance, i.Ordinal)}
	}
	if spec.ServicePrefix().Contains(addr) || spec.ServicePrefix6().Contains(addr) ||
		slices.ContainsFunc(v.private, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return node{kind: nothing}
	}
	return node{kind: foreign}
}

// reverse reads a reverse name of one address.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		part := strings.Split(rest, ".")
		slices.Reverse(part)
		a, err := netip.ParseAddr(strings.Join(part, "."))
		return a, err == nil && a.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i := range 32 {
		d := strings.IndexByte("0123456789abcdef", rest[2*i])
		if d < 0 || i > 0 && rest[2*i-1] != '.' {
			return netip.Addr{}, false
		}
		b[15-i/2] |= byte(d) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}
