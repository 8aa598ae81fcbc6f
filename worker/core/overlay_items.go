package core

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

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

// overlayItem hands on an item that concerns the overlay.
func (c *Core) overlayItem(now time.Time, key string, value []byte, fx *wire.Effects) {
	item := newOverlayItem(key)
	if item == nil {
		return // of a newer cluster
	}
	if err := c.codec.Unmarshal(value, item); err != nil {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "BadItem",
			Text: "the cluster sent " + key + " and it cannot be read: " + err.Error()})
		return
	}
	fx.Actions = append(fx.Actions, OverlayItem{Key: key, Item: item})
}

// replay hands on, after a start, what earlier lives were told beside instances: all of it works without the cluster.
func (c *Core) replay(now time.Time, fx *wire.Effects) {
	var keys []string
	var routes []skerry.ServiceKey
	for key := range c.Up.Desired.All() {
		if !strings.HasPrefix(key, "inst/") {
			keys = append(keys, key)
		}
		if rest, ok := strings.CutPrefix(key, "route/"); ok {
			if k, ok := skerry.ParseServiceKey(rest); ok {
				routes = append(routes, k)
			}
		}
	}
	slices.Sort(keys)
	c.desired(now, keys, nil, fx)
	// What was wanted is wanted until the server says otherwise: the cluster would take the routes away.
	c.interest(routes)
}

// OverlayItems gives what the cluster said of the overlay last, before anything else happens.
func (c *Core) OverlayItems() (out []OverlayItem) {
	var keys []string
	for key := range c.Up.Desired.All() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var fx wire.Effects
	for _, key := range keys {
		if value, _, ok := c.Up.Desired.Get(key); ok {
			c.overlayItem(time.Time{}, key, value, &fx)
		}
	}
	for _, a := range fx.Actions {
		out = append(out, a.(OverlayItem))
	}
	return out
}

// ingressOffered tells the cluster what the ingress offers.
func (c *Core) ingressOffered(st wire.IngressState) {
	if len(st.Serving)+len(st.Problems) == 0 {
		c.Up.Observed.Delete(wire.IngressKey)
		return
	}
	_, _ = c.Up.Observed.Put(wire.IngressKey, c.codec.Marshal(&st)) // its size is bounded
}

// interest says which services' routes are wanted.
func (c *Core) interest(services []skerry.ServiceKey) {
	want := map[string]bool{}
	for _, k := range services {
		want[wire.WantKey(k)] = true
		// Interests are few and small.
		_, _ = c.Up.Observed.Put(wire.WantKey(k), c.codec.Marshal(&wire.Want{Service: k}))
	}
	for _, key := range c.Up.Observed.Keys() {
		if strings.HasPrefix(key, "want/") && !want[key] {
			c.Up.Observed.Delete(key)
		}
	}
}

func (c *Core) endpoints(value []byte, fx *wire.Effects) {
	var e wire.Endpoints
	if c.codec.Unmarshal(value, &e) == nil {
		fx.Actions = append(fx.Actions, Endpoints{Service: e.Service, List: e.List})
	}
}

func (c *Core) peers(value []byte, fx *wire.Effects) {
	var p wire.Peers
	if c.codec.Unmarshal(value, &p) == nil {
		fx.Actions = append(fx.Actions, MeasurePeers{p})
	}
}
