//go:build linux

package worker

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/ingress"
	"skerry.dev/skerry/wire"
)

// TestArrivals turns counters of routes into rates by service.
func TestArrivals(t *testing.T) {
	var c arrivals
	now := time.Unix(1e9, 0)
	one := func(after time.Duration, total, ended, took, active int64) wire.IngressUse {
		t.Helper()
		now = now.Add(after)
		out := c.look(now, []ingress.RouteStats{{Name: "default/shop/web", Total: total, Ended: ended, Took: took, Active: active}, {Name: "default/shop/web", Total: 5}, {Name: "nonsense"}})
		if len(out) != 1 || out[0].Service != (skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}) {
			t.Fatalf("%+v", out)
		}
		return out[0]
	}
	for n, x := range []struct {
		got                  wire.IngressUse
		requests, active, ms float64
	}{
		{one(0, 100, 90, 9e6, 3), 0, 3, 0}, // since when is not known
		{one(10*time.Second, 150, 110, 10e6, 4), 5, 4, 50},
		{one(time.Second, 300, 300, 90e6, 9), 5, 9, 50}, // too soon for a rate
		{one(4*time.Second, 155, 112, 10e6+3e3, 0), 1, 0, 1.5},
		{one(10*time.Second, 155, 112, 10e6+3e3, 0), 0, 0, 0},
		{one(10*time.Second, 5, 5, 5, 0), 0, 0, 0}, // a route that is counted anew
		{one(10*time.Second, 25, 25, 5, 0), 2, 0, 0},
	} {
		if x.got.Requests != x.requests || x.got.Active != x.active || x.got.Ms != x.ms {
			t.Errorf("look %d: %+v; expected %g a second, %g, %g ms", n, x.got, x.requests, x.active, x.ms)
		}
	}
}
