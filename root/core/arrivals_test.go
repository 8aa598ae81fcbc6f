package core

import (
	"math"
	"testing"

	"skerry.dev/skerry/wire"
)

// TestLoadFromLiars has a site tell of requests and use that cannot be: what others tell decides all the same.
func TestLoadFromLiars(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	k := r.apply("shop", "", "a", "b")
	r.step(ChildFrame{Name: "a", Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&wire.ClusterReport{
		Services: []wire.ServiceQoS{{Service: k, QoS: wire.QoS{CPU: math.MinInt64}}, {Service: k, QoS: wire.QoS{CPU: -1}}}})}})
	for _, i := range r.c.Apps.Instances(k) {
		if i.QoS != nil && i.QoS.CPU < 0 {
			t.Errorf("%s uses %d", i.ID, i.QoS.CPU)
		}
	}
	for _, u := range []wire.IngressUse{{Requests: math.NaN()}, {Requests: -1e6}, {Active: math.Inf(1)}, {Requests: 1, Ms: -1}} {
		if u.Service = k; u.Valid() {
			t.Errorf("%+v is believed", u)
		}
	}
}
