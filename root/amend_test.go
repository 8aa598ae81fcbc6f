package root

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wire"
)

func (r *hostileRoot) amend(site string, m skerry.Amendment) {
	r.t.Helper()
	r.say(site, map[string][]byte{skerry.AmendmentKey(m.App): wire.New().Marshal(&m)})
}

// answer reads what a site was told about an amendment.
func (r *hostileRoot) answer(site string, k skerry.AppKey) (a skerry.Amended) {
	value, _ := r.c.Kids.Get(site).Desired.Get(skerry.AmendedKey(k))
	_ = wire.New().Unmarshal(value, &a)
	return a
}

// A site changes nothing of what it does not hold, nor what a service runs at others, and takes no instance of theirs.
func TestAmendmentsOfLiars(t *testing.T) {
	r := newHostileRoot(t, "has", "also", "thief")
	shared, foreign := r.apply("shop", "", "has", "also"), r.apply("bank", "", "has")
	other := r.c.Apps.Instances(shared)[1]
	spec := *r.c.Apps.App(shared.App).Manifest.Spec.Service("web")
	spec.Image = "evil:1"
	for n, m := range []skerry.Amendment{
		{App: foreign.App, Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 9}}},
		{App: foreign.App, Base: 1, Deleted: true, Services: []skerry.AmendedService{{Name: "web"}}},
		{App: foreign.App, Base: 1, Deleted: true},
		{App: shared.App, Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 1, Spec: &spec}}},
	} {
		m.Seq = uint64(n + 1)
		r.amend("thief", m)
		if a := r.answer("thief", m.App); a.Seq != m.Seq || a.Adopted != 0 {
			t.Errorf("%d: %+v", n, a)
		}
	}
	if r.told("AmendmentRefused") != 4 || r.told("Conflict") != 0 {
		t.Errorf("%d refused, %d conflicts", r.told("AmendmentRefused"), r.told("Conflict"))
	}
	for n, m := range []skerry.Amendment{
		{Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 1, Spec: &spec}}},                                     // runs at another site, too
		{Base: 7, Services: []skerry.AmendedService{{Name: "web", Replicas: 1}}},                                                  // of another generation
		{Base: 1, Services: []skerry.AmendedService{{Name: "db", Replicas: 1}}},                                                   // no such service
		{Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: -1}}},                                                 // nonsense
		{Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 1, Spec: &skerry.ServiceSpec{Name: "web"}}}},          // no manifest
		{Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 1, Spec: &skerry.ServiceSpec{Name: "x", Mode: "y"}}}}, // another name
	} {
		m.App, m.Seq = shared.App, uint64(n+1)
		r.amend("has", m)
		if a := r.answer("has", m.App); a.Seq != m.Seq || a.Adopted != 0 || a.Why == "" {
			t.Errorf("%d: %+v", n, a)
		}
	}
	if a := r.c.Apps.App(shared.App); a.Gen != 1 || a.Manifest.Spec.Services[0].Image != "web:1" {
		t.Errorf("the application is %+v", a)
	}
	// It claims the other site's instance, and one of a shape that no site makes.
	own := r.c.Apps.Instances(shared)[0]
	r.amend("has", skerry.Amendment{App: shared.App, Seq: 100, Base: 1, Services: []skerry.AmendedService{{Name: "web", Replicas: 3, Instances: []skerry.AmendedInstance{
		{ID: own.ID, Revision: own.Revision}, {ID: other.ID, Revision: other.Revision}, {ID: "web-c../../x", Revision: own.Revision}, {ID: "web-caaaaaaaa", Revision: "x"}}}}})
	if a := r.answer("has", shared.App); a.Adopted != 2 {
		t.Errorf("%+v", a)
	}
	if i := r.c.Apps.Instance(other.ID); i == nil || i.Holder != "also" || r.has("has", skerry.AssignmentKey(other.ID)) {
		t.Errorf("the other site's instance is %+v", i)
	}
	if r.c.Apps.Instance("web-c../../x") != nil || r.c.Apps.Instance("web-caaaaaaaa") != nil {
		t.Error("made-up instances are in the books")
	}
}

// FuzzAmendment has a site tell anything of an application that it shares with another one.
func FuzzAmendment(f *testing.F) {
	k := skerry.AppKey{Namespace: "acme", Name: "shop"}
	f.Add([]byte{0xa0})
	f.Add(wire.New().Marshal(&skerry.Amendment{App: k, Seq: 1, Base: 1, Author: "x", Services: []skerry.AmendedService{{Name: "web", Replicas: 3,
		Instances: []skerry.AmendedInstance{{ID: "web-cabcdefgh", Revision: "r", Fence: skerry.Fence{RootEpoch: 3}}}}}}))
	f.Add(wire.New().Marshal(&skerry.Amendment{App: k, Seq: 2, Base: 1, Deleted: true, Services: []skerry.AmendedService{{Name: "web"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newHostileRoot(t, "a", "b")
		shop := r.apply("shop", "", "a", "b")
		there := r.c.Apps.Instances(shop)[1]
		r.say("a", map[string][]byte{skerry.AmendmentKey(k): data})
		if i := r.c.Apps.Instance(there.ID); i == nil || i.Holder != "b" || i.Stopping && !r.c.Apps.App(k).Deleting && *r.c.Apps.App(k).Manifest.Spec.Services[0].Replicas > 0 {
			t.Errorf("what runs at the other site is %+v", i)
		}
		if a := r.c.Apps.App(k); a == nil || a.Manifest.Spec.Services[0].Image != "web:1" {
			t.Errorf("the application is %+v", a)
		}
	})
}
