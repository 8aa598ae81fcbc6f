package core

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ofRootApp gives an assignment of an application of the root's, and its directory.
func ofRootApp(k skerry.ServiceKey, org string) (a spec.Assignment, n wire.AppNetwork) {
	a = spec.Assignment{ID: "web-r1", Org: org, Service: k, Gen: 1, Fence: skerry.Fence{RootEpoch: 1}, Spec: spec.ServiceSpec{Name: k.Service}}
	a.Spec.Image = "web:1"
	a.Revision = a.Spec.Revision()
	return a, wire.AppNetwork{App: k.App, Org: org, Net: 1 << 20, Services: []wire.NetworkService{{Name: k.Service}}}
}

// desire has the root want some items here.
func (s *overlayNetSite) desire(items map[string][]byte) {
	chunk := &wire.SetChunk{Set: "desired", Incarnation: "r1", Gen: 1, Last: true, Digest: reconcile.DigestOf(items)}
	for k, v := range items {
		chunk.Items = append(chunk.Items, wire.SetItem{Key: k, Value: v, Gen: 1})
	}
	s.do(ParentFrame{Msg: chunk})
}

// Two applications of one name, one of the root's and one of the site's own, are in one network, by one directory. Of two organisations,
// one would be led to the instances of the other: the second that comes is refused.
func TestNameOfAnotherOrganisation(t *testing.T) {
	k := key("acme", "shop")
	for _, org := range []string{"acme", "other"} {
		a, n := ofRootApp(k, org)
		s := newOverlayNetSite(t)
		s.join(1)
		s.apply("acme", "shop", 1)
		s.desire(map[string][]byte{wire.AssignmentKey(a.ID): wire.New().Marshal(&a), wire.NetworkItem(k.App): wire.New().Marshal(&n)})
		p := s.c.places[a.ID]
		if refused := p != nil && p.Refused; p == nil || refused != (org == "other") {
			t.Errorf("an instance of %s: %+v", org, p)
		} else if refused && (!strings.Contains(p.Obs.Why[0].Text, "of its own") || strings.Contains(p.Obs.Why[0].Text, "acme is")) {
			t.Errorf("%+v", p.Obs.Why)
		}

		s = newOverlayNetSite(t)
		s.join(1)
		s.desire(map[string][]byte{wire.NetworkItem(k.App): wire.New().Marshal(&n)}) // it has no instance here, and may come back
		svc := spec.ServiceSpec{Name: "web"}
		svc.Image = "web:1"
		fx := s.c.Step(s.now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}})
		if (fx.Err != nil) != (org == "other") {
			t.Errorf("an application of the site's own beside one of %s: %v", org, fx.Err)
		}
	}
}
