package root

import (
	"math"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wire"
)

// TestLoadFromLiars has a site tell of requests and use that cannot be: what others tell decides all the same.
func TestLoadFromLiars(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	k := r.apply("shop", "", "a", "b")
	r.step(ChildFrame{Name: "a", Msg: &skerry.Report{Kind: skerry.ReportCluster, Payload: wire.New().Marshal(&skerry.ClusterReport{
		Services: []skerry.ServiceQoS{{Service: k, QoS: skerry.QoS{CPU: math.MinInt64}}, {Service: k, QoS: skerry.QoS{CPU: -1}}}})}})
	for _, i := range r.c.Apps.Instances(k) {
		if i.QoS != nil && i.QoS.CPU < 0 {
			t.Errorf("%s uses %d", i.ID, i.QoS.CPU)
		}
	}
	for _, u := range []skerry.IngressUse{{Requests: math.NaN()}, {Requests: -1e6}, {Active: math.Inf(1)}, {Requests: 1, Ms: -1}} {
		if u.Service = k; u.Valid() {
			t.Errorf("%+v is believed", u)
		}
	}
}
