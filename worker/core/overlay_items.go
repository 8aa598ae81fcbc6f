package core

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// overlayItems owns what the cluster and this worker tell each other of the overlay: it hands on the items of the desired set, and keeps
// those of the observed set that say which routes are wanted here and what the ingress offers. It knows no instances.
type overlayItems struct {
	up    *members.Parent
	codec *wire.Codec
}

// newOverlayItem gives a pointer to what an item of the overlay is read into, or nil for a key of something else.
func newOverlayItem(key string) any {
	kind, _, _ := strings.Cut(key, "/")
	switch kind {
	case wire.NodeKey:
		return new(wire.OverlayNode)
	case "net":
		return new(wire.AppNetwork)
	case "route":
		return new(wire.Route)
	case "peer":
		return new(wire.OverlayPeer)
	}
	return nil
}

// take hands on an item of the desired set; one of another kind has no effect.
func (o *overlayItems) take(now time.Time, key string, value []byte, fx *wire.Effects) {
	switch {
	case strings.HasPrefix(key, "ep/"):
		var e wire.Endpoints
		if o.codec.Unmarshal(value, &e) == nil {
			fx.Actions = append(fx.Actions, Endpoints{Service: e.Service, List: e.List})
		}
		return
	case key == wire.PeersKey:
		var p wire.Peers
		if o.codec.Unmarshal(value, &p) == nil {
			fx.Actions = append(fx.Actions, MeasurePeers{p})
		}
		return
	}
	item := newOverlayItem(key)
	if item == nil {
		return // of a newer cluster
	}
	if err := o.codec.Unmarshal(value, item); err != nil {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "BadItem",
			Text: "the cluster sent " + key + " and it cannot be read: " + err.Error()})
		return
	}
	fx.Actions = append(fx.Actions, OverlayItem{Key: key, Item: item})
}

// ingressOffered tells the cluster what the ingress offers.
func (o *overlayItems) ingressOffered(st wire.IngressState) {
	if len(st.Serving)+len(st.Problems) == 0 {
		o.up.Observed.Delete(wire.IngressKey)
		return
	}
	_, _ = o.up.Observed.Put(wire.IngressKey, o.codec.Marshal(&st)) // its size is bounded
}

// interest says which services' routes are wanted.
func (o *overlayItems) interest(services []skerry.ServiceKey) {
	want := map[string]bool{}
	for _, k := range services {
		want[wire.WantKey(k)] = true
		// Interests are few and small.
		_, _ = o.up.Observed.Put(wire.WantKey(k), o.codec.Marshal(&wire.Want{Service: k}))
	}
	for _, key := range o.up.Observed.Keys() {
		if strings.HasPrefix(key, "want/") && !want[key] {
			o.up.Observed.Delete(key)
		}
	}
}

// gone hands on that an item is gone from the desired set.
func (o *overlayItems) gone(key string, fx *wire.Effects) {
	if rest, ok := strings.CutPrefix(key, "ep/"); ok {
		if p := strings.Split(rest, "/"); len(p) == 3 {
			service := skerry.ServiceKey{App: skerry.AppKey{Namespace: p[0], Name: p[1]}, Service: p[2]}
			fx.Actions = append(fx.Actions, Endpoints{Service: service, Gone: true})
		}
	} else if newOverlayItem(key) != nil {
		fx.Actions = append(fx.Actions, OverlayItem{Key: key})
	}
}

// resend hands on, as soon as what runs is known, the endpoints and peers that earlier lives were told.
func (o *overlayItems) resend(now time.Time, fx *wire.Effects) {
	for key, value := range o.up.Desired.All() {
		if strings.HasPrefix(key, "ep/") || key == wire.PeersKey {
			o.take(now, key, value, fx)
		}
	}
}

// list gives what the cluster said of the overlay last.
func (o *overlayItems) list() (out []OverlayItem) {
	var keys []string
	for key := range o.up.Desired.All() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var fx wire.Effects
	for _, key := range keys {
		if value, _, ok := o.up.Desired.Get(key); ok && newOverlayItem(key) != nil {
			o.take(time.Time{}, key, value, &fx)
		}
	}
	for _, a := range fx.Actions {
		out = append(out, a.(OverlayItem))
	}
	return out
}
