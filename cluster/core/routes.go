package core

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// unwant ends an interest of a worker.
func (o *overlay) unwant(name string, k skerry.ServiceKey) {
	o.interests.Remove(name, k)
	o.Children.Delete(name, wire.RouteKey(k))
	o.paths.Route(name, k, nil)
}

// refillWants takes up interests that were refused, where others have ended.
func (o *overlay) refillWants(now time.Time) {
	for _, name := range o.interests.Refill(now) {
		k := o.Children.Get(name)
		if k == nil {
			continue
		}
		for key, value := range k.Observed.All() {
			rest, ok := strings.CutPrefix(key, "want/")
			if s, is := skerry.ParseServiceKey(rest); ok && is && !o.interests.Has(name, s) && !o.interests.Full(name) {
				o.wantItem(name, key, value)
			}
		}
	}
}

// wantItem takes a change of a worker's interests from what it reports. It gives the reason for which it does not. What the worker may not
// know it is not told, and nothing says so: a service that is not there looks the same.
func (o *overlay) wantItem(name, key string, value []byte) string {
	var w wire.Want
	if o.codec.Unmarshal(value, &w) != nil || wire.WantKey(w.Service) != key {
		return refusedUnread
	}
	// Its end is told by the key alone.
	if k, ok := skerry.ParseServiceKey(strings.TrimPrefix(key, "want/")); !ok || k != w.Service {
		return refusedUnread
	}
	if !o.interests.Add(name, w.Service) {
		return refusedWants
	}
	return ""
}

// refuseWant counts an interest that is refused, and tells of a worker's first one on a connection.
func (o *overlay) refuseWant(now time.Time, name, why string, fx *wire.Effects) {
	o.overlayNet.refused[why]++
	if w := o.workers[name]; w != nil && !w.immodest {
		w.immodest = true
		o.siteEvent(fx, now, wire.EventWarning, "OverlayRefused", "worker "+name+": "+why, name)
	}
}

// loadWants takes up what workers wanted in an earlier life: the routes that they have. They tell it anew when they are back, and until
// then nothing follows from what is missing.
func (o *overlay) loadWants() {
	for _, name := range o.Children.Names() {
		for _, key := range o.Children.Get(name).Desired.Keys() {
			rest, is := strings.CutPrefix(key, "route/")
			if !is {
				continue
			}
			if k, ok := skerry.ParseServiceKey(rest); !ok || !o.workers.has(name) || !o.interests.Recall(name, k) {
				o.Children.Delete(name, key)
			}
		}
		o.paths.Touch(name)
	}
}

// endRecalled ends the interests of an earlier life that a worker does not tell any more, once it has told all.
func (o *overlay) endRecalled(child *members.Child) {
	if !child.Synced {
		return
	}
	for _, k := range o.interests.Recalled(child.Name) {
		o.unwant(child.Name, k)
	}
}

// backends lists the instances of a service that packets can go to.
func (o *overlay) backends(k skerry.ServiceKey) []backend {
	var out []backend
	add := func(id skerry.InstanceID, ordinal int, worker, addr string, draining bool, load float64) {
		w := o.workers[worker]
		a, err := netip.ParseAddr(addr)
		if w == nil || w.Peer == 0 || w.Facts == nil || w.Facts.Overlay == nil || w.sight.Lost() && !w.sight.CutOff() || err != nil ||
			!w.owns(a) {
			return
		}
		b := wire.RouteBackend{Instance: id, Ordinal: ordinal, Peer: w.Peer, Addr: a, Addr6: o.overlayNet.v6(w.Peer, a), Draining: draining,
			Load: load, Coordinate: w.coordinate(), Location: w.Facts.Location}
		out = append(out, backend{b, w, worker})
	}
	for _, id := range sortedIDs(o.byApp[k.App]) {
		p := o.places[id]
		if p.A.Service != k || p.ended() || p.Obs.Unreachable && !p.Served {
			continue
		}
		if p.Obs.State == skerry.Running { // what is cut off only from here serves until another does
			add(id, p.A.Ordinal, p.Worker, p.Obs.Address, !p.Obs.Ready && !p.Obs.Unreachable || p.Removing, p.load())
		}
	}
	for at, h := range o.releases.Of(k) {
		add(at.ID, h.Ordinal, at.Worker, h.Address, true, 0)
	}
	slices.SortFunc(out, func(a, b backend) int {
		return cmp.Or(strings.Compare(string(a.Instance), string(b.Instance)), a.Addr.Compare(b.Addr))
	})
	return out
}

// loadStep is how much an instance's load must change for routes to tell it.
const loadStep = 0.125

// wandered has routes tell where a worker is now, if its place has changed by more than coordinates err.
func (o *overlay) wandered(w *worker) {
	was, is := w.placed, w.coordinate()
	if was == nil && is == nil {
		return
	}
	if was != nil && is != nil {
		far := math.Abs(was.Height - is.Height)
		for i := range is.Vec {
			far = max(far, math.Abs(was.Vec[i]-is.Vec[i]))
		}
		if far < 1 {
			return
		}
	}
	w.placed = is
	for _, p := range o.byWorker[w.Name] {
		if o.interests.Wanted(p.A.Service) {
			o.interests.Touch(p.A.Service)
		}
	}
}

// publishRoutes brings the routes of changed services to whoever wants them.
func (o *overlay) publishRoutes() {
	for _, k := range o.interests.Changed() {
		if !o.interests.Wanted(k) {
			o.publishRemote(k, nil)
			o.isLawful(k, false)
			continue
		}
		all := o.backends(k)
		o.publishRemote(k, all)
		if len(o.interests.Sites(k)) > 0 {
			for _, b := range all {
				o.paths.Touch(b.name) // whom they are told of depends on what they have
			}
		}
		all = append(all, o.remoteBackends(k)...)
		lawful := false
		var same []byte // for all, unless each gets the nearest ones of many
		for name := range o.interests.Workers(k) {
			w := o.workers[name]
			if w == nil || w.Peer == 0 {
				continue
			}
			net := o.mayReach(name, k)
			if net == 0 {
				o.Children.Delete(name, wire.RouteKey(k))
				o.paths.Route(name, k, nil)
				continue
			}
			lawful = o.exists(k)
			value, ends := same, all
			if value == nil {
				ends = w.nearest(all, o.routeOf(name, k))
				value = o.codec.Marshal(newRoute(k, net, ends))
				if len(all) <= wire.MaxBackends {
					same = value
				}
			}
			// A route of at most MaxBackends always fits.
			_ = o.Children.Put(name, wire.RouteKey(k), value)
			var to []string
			for _, b := range ends {
				if b.worker != w && !slices.Contains(to, b.name) {
					to = append(to, b.name)
				}
			}
			o.paths.Route(name, k, to)
		}
		o.isLawful(k, lawful)
	}
	o.publishPeers()
}

func newRoute(k skerry.ServiceKey, net wire.NetworkID, ends []backend) *wire.Route {
	r := &wire.Route{Service: k, Net: net, Backends: make([]wire.RouteBackend, len(ends))}
	for i, b := range ends {
		r.Backends[i] = b.RouteBackend
	}
	return r
}

// nearest gives a worker's own choice among the backends of a service. What leaves a worker's route loses its connections, so that one that
// it has stays unless another is less than half as far, and while it drains, for which half of the places are enough. Others that drain
// come last: nobody is sent there any more. Where the site has just started and does not know how far one is, those that the worker has
// come first.
func (w *worker) nearest(all []backend, has *wire.Route) []backend {
	if len(all) <= wire.MaxBackends {
		return all
	}
	held := map[netip.Addr]bool{}
	if has != nil {
		for _, b := range has.Backends {
			held[b.Addr] = true
		}
	}
	far := func(b backend) float64 {
		switch {
		case !held[b.Addr]:
			return w.distance(b.worker)
		case b.worker != nil && (w.reportAt.IsZero() || b.worker.reportAt.IsZero()):
			return 0
		}
		return w.distance(b.worker) / 2
	}
	var leaving, fresh, left []backend
	for _, b := range all {
		switch {
		case !b.Draining:
			fresh = append(fresh, b)
		case held[b.Addr] && len(leaving) < wire.MaxBackends/2:
			leaving = append(leaving, b)
		default:
			left = append(left, b)
		}
	}
	for _, list := range [][]backend{fresh, left} {
		slices.SortStableFunc(list, func(a, b backend) int { return cmp.Compare(far(a), far(b)) })
	}
	return slices.Concat(leaving, fresh, left)[:wire.MaxBackends]
}

// routeOf is the route of a service that a worker has, or nil.
func (o *overlay) routeOf(name string, k skerry.ServiceKey) *wire.Route {
	c := o.Children.Get(name)
	if c == nil {
		return nil
	}
	value, ok := c.Desired.Get(wire.RouteKey(k))
	r := new(wire.Route)
	if !ok || o.codec.Unmarshal(value, r) != nil {
		return nil
	}
	return r
}

// mayReach gives the network of a service if a worker runs something that may reach it, else 0.
func (o *overlay) mayReach(name string, k skerry.ServiceKey) wire.NetworkID {
	if o.letsIn(name, k) {
		return o.networkOf(k.App)
	}
	asked := map[skerry.AppKey]bool{}
	for _, p := range o.byWorker[name] {
		if app := p.A.Service.App; !asked[app] {
			asked[app] = true
			if net := o.reaches(app, k); net != 0 {
				return net
			}
		}
	}
	for id := range o.moving {
		if p := o.places[id]; p.Next.Worker == name {
			if net := o.reaches(p.A.Service.App, k); net != 0 {
				return net
			}
		}
	}
	return 0
}
