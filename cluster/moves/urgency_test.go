package moves

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Every constraint of an instance counts, the nearest one most.
func TestMargin(t *testing.T) {
	ms, share := spec.Duration(100*time.Millisecond), 0.5
	a := spec.Assignment{ID: "web-1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}}
	a.Spec.Resources = spec.Resources{CPU: 1000, Memory: skerry.GiB}
	a.Spec.Links = []spec.Link{{Service: "db", MaxLatency: &ms}}
	a.Spec.Scale = &spec.ScaleSpec{Max: 3, Target: spec.ScaleTarget{CPU: &share}}
	for _, x := range []struct {
		q    wire.QoS
		gain uint32
		near string
	}{
		{wire.QoS{}, 1, ""},
		{wire.QoS{Memory: skerry.GiB * 85 / 100}, 4, "the memory of default/shop/web"},
		{wire.QoS{Waiting: 0.24}, 8, "the wait for a processor of default/shop/web"},
		{wire.QoS{Links: map[string]float64{"db": 95}}, 8, "the link to db of default/shop/web"},
		{wire.QoS{Links: map[string]float64{"db": 500}}, 8, "the link to db of default/shop/web"},
		{wire.QoS{CPU: 470}, 8, "the autoscaling target of default/shop/web"},
		{wire.QoS{CPU: 560}, 4, "the autoscaling target of default/shop/web"},
		{wire.QoS{CPU: 1000}, 1, ""},
	} {
		m := NewMargin()
		m.Machine(&spec.Resources{}, &spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB})
		m.Instance(&a, &x.q)
		var u Urgency
		u.Connected(time.Unix(1e9, 0))
		u.See(time.Unix(1e9, 0), m)
		if gain, near := u.Told(); gain != x.gain || near != x.near {
			t.Errorf("%+v: gain %d for a margin of %g, %q", x.q, gain, m.least, near)
		}
	}
}
