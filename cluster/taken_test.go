package cluster

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/internal/wire"
	"skerry.dev/skerry/reconcile"
)

// ofRootApp gives an assignment of an application of the root's, and its directory.
func ofRootApp(k skerry.ServiceKey, org string) (a skerry.Assignment, n skerry.AppNetwork) {
	a = skerry.Assignment{ID: "web-r1", Org: org, Service: k, Gen: 1, Fence: skerry.Fence{RootEpoch: 1}, Spec: skerry.ServiceSpec{Name: k.Service}}
	a.Spec.Image = "web:1"
	a.Revision = a.Spec.Revision()
	return a, skerry.AppNetwork{App: k.App, Org: org, Net: 1 << 20, Services: []skerry.NetworkService{{Name: k.Service}}}
}

// desire has the root want some items here.
func (s *fabricSite) desire(items map[string][]byte) {
	chunk := &skerry.SetChunk{Set: "desired", Incarnation: "r1", Gen: 1, Last: true, Digest: reconcile.DigestOf(items)}
	for k, v := range items {
		chunk.Items = append(chunk.Items, skerry.SetItem{Key: k, Value: v, Gen: 1})
	}
	s.do(ParentFrame{Msg: chunk})
}

// Two applications of one name, one of the root's and one of the site's own, are in one network, by one directory. Of two organisations,
// one would be led to the instances of the other: the second that comes is refused.
func TestNameOfAnotherOrganisation(t *testing.T) {
	k := key("acme", "shop")
	for _, org := range []string{"acme", "other"} {
		a, n := ofRootApp(k, org)
		s := newFabricSite(t)
		s.join(1)
		s.apply("acme", "shop", 1)
		s.desire(map[string][]byte{skerry.AssignmentKey(a.ID): wire.New().Marshal(&a), skerry.NetworkItem(k.App): wire.New().Marshal(&n)})
		p := s.c.places[a.ID]
		if refused := p != nil && p.Refused; p == nil || refused != (org == "other") {
			t.Errorf("an instance of %s: %+v", org, p)
		} else if refused && (!strings.Contains(p.Obs.Why[0].Text, "of its own") || strings.Contains(p.Obs.Why[0].Text, "acme is")) {
			t.Errorf("%+v", p.Obs.Why)
		}

		s = newFabricSite(t)
		s.join(1)
		s.desire(map[string][]byte{skerry.NetworkItem(k.App): wire.New().Marshal(&n)}) // it has no instance here, and may come back
		spec := skerry.ServiceSpec{Name: "web"}
		spec.Image = "web:1"
		fx := s.c.Step(s.now, apps.Apply{App: skerry.Application{APIVersion: skerry.APIVersion, Kind: skerry.KindApplication,
			Metadata: skerry.Metadata{Name: "shop", Namespace: "acme"}, Spec: skerry.ApplicationSpec{Services: []skerry.ServiceSpec{spec}}}})
		if (fx.Err != nil) != (org == "other") {
			t.Errorf("an application of the site's own beside one of %s: %v", org, fx.Err)
		}
	}
}
