package core

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func (r *hostileRoot) amend(site string, m wire.Amendment) {
	r.t.Helper()
	r.say(site, map[string][]byte{wire.AmendmentKey(m.App): wire.New().Marshal(&m)})
}

// answer reads what a site was told about an amendment.
func (r *hostileRoot) answer(site string, k skerry.AppKey) (a wire.Amended) {
	value, _ := r.c.Children.Get(site).Desired.Get(wire.AmendedKey(k))
	_ = wire.New().Unmarshal(value, &a)
	return a
}

// A site changes nothing of what it does not hold, nor what a service runs at others, and takes no instance of theirs.
func TestAmendmentsOfLiars(t *testing.T) {
	r := newHostileRoot(t, "has", "also", "thief")
	shared, foreign := r.apply("shop", "", "has", "also"), r.apply("bank", "", "has")
	other := r.c.Apps.Instances(shared)[1]
	svc := *r.c.Apps.App(shared.App).Manifest.Spec.Service("web")
	svc.Image = "evil:1"
	for n, m := range []wire.Amendment{
		{App: foreign.App, Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 9}}},
		{App: foreign.App, Base: 1, Deleted: true, Services: []wire.AmendedService{{Name: "web"}}},
		{App: foreign.App, Base: 1, Deleted: true},
		{App: shared.App, Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &svc}}},
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
	for n, m := range []wire.Amendment{
		{Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &svc}}},                                    // runs at another site, too
		{Base: 7, Services: []wire.AmendedService{{Name: "web", Replicas: 1}}},                                                // of another generation
		{Base: 1, Services: []wire.AmendedService{{Name: "db", Replicas: 1}}},                                                 // no such service
		{Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: -1}}},                                               // nonsense
		{Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &spec.ServiceSpec{Name: "web"}}}},          // no manifest
		{Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &spec.ServiceSpec{Name: "x", Mode: "y"}}}}, // another name
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
	r.amend("has", wire.Amendment{App: shared.App, Seq: 100, Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 3, Instances: []wire.AmendedInstance{
		{ID: own.ID, Revision: own.Revision}, {ID: other.ID, Revision: other.Revision}, {ID: "web-c../../x", Revision: own.Revision}, {ID: "web-caaaaaaaa", Revision: "x"}}}}})
	if a := r.answer("has", shared.App); a.Adopted != 2 {
		t.Errorf("%+v", a)
	}
	if i := r.c.Apps.Instance(other.ID); i == nil || i.Holder != "also" || r.has("has", wire.AssignmentKey(other.ID)) {
		t.Errorf("the other site's instance is %+v", i)
	}
	if r.c.Apps.Instance("web-c../../x") != nil || r.c.Apps.Instance("web-caaaaaaaa") != nil {
		t.Error("made-up instances are in the books")
	}
}

// A site does not have an application run another organisation's image, by name or by digest.
func TestAmendmentsWithForeignImages(t *testing.T) {
	for _, image := range []string{"rival/secret:1", "skerry.local/rival/secret:1", "web:2"} {
		r := newHostileRoot(t, "site")
		r.step(apps.PutOrg{Org: apps.Org{Name: "rival"}})
		r.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "rival", Org: "rival"}})
		k := r.apply("shop", "", "site")
		spec := *r.c.Apps.App(k.App).Manifest.Spec.Service("web")
		spec.Image = image
		own := r.c.Apps.Instances(k)[0]
		m := wire.Amendment{App: k.App, Seq: 1, Base: 1, Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &spec, Instances: []wire.AmendedInstance{{ID: own.ID, Revision: own.Revision}}}}}
		if image == "web:2" {
			m.Digests = map[string]string{image: "skerry.local/rival/secret@sha256:" + strings.Repeat("0", 64)}
		}
		r.amend("site", m)
		if a := r.answer("site", k.App); a.Adopted != 0 || !strings.Contains(a.Why, "another organisation") {
			t.Errorf("%s: %+v", image, a)
		}
		if r.told("AmendmentRefused") != 1 || r.told("Conflict") != 0 || r.c.Apps.App(k.App).Manifest.Spec.Services[0].Image != "web:1" {
			t.Errorf("%s is kept", image)
		}
	}
}

// Nor does it have a digest stand for what it does not: the image of another repository, or of another registry.
func TestAmendmentsPinNothingElse(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for pinned, ok := range map[string]bool{"skerry.local/web" + digest: true, "docker.io/library/web" + digest: true, "evil.example/web" + digest: false,
		"skerry.local/acme/other" + digest: false, "skerry.local/web:2": false, "x": false} {
		r := newHostileRoot(t, "site")
		k := r.apply("shop", "", "site")
		spec := *r.c.Apps.App(k.App).Manifest.Spec.Service("web")
		spec.Image = "web:2"
		spec.Pinned = map[string]string{"web:2": pinned}
		own := r.c.Apps.Instances(k)[0]
		r.amend("site", wire.Amendment{App: k.App, Seq: 1, Base: 1, Digests: map[string]string{"web:2": pinned},
			Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &spec, Instances: []wire.AmendedInstance{{ID: own.ID, Revision: own.Revision}}}}})
		a := r.answer("site", k.App)
		is := r.c.Apps.App(k.App).Manifest.Spec.Services[0]
		if ok != (a.Adopted != 0) || ok != (is.Image == "web:2") || !ok && (is.Pinned["web:2"] != "" || !strings.Contains(a.Why, "stands for")) {
			t.Errorf("%s: %+v, %s %v", pinned, a, is.Image, is.Pinned)
		}
		if ok != (r.told("AmendmentRefused") == 0) {
			t.Errorf("%s: %d refused", pinned, r.told("AmendmentRefused"))
		}
	}
}

// FuzzAmendment has a site tell anything of an application that it shares with another one.
func FuzzAmendment(f *testing.F) {
	k := skerry.AppKey{Namespace: "acme", Name: "shop"}
	f.Add([]byte{0xa0})
	f.Add(wire.New().Marshal(&wire.Amendment{App: k, Seq: 1, Base: 1, Author: "x", Services: []wire.AmendedService{{Name: "web", Replicas: 3,
		Instances: []wire.AmendedInstance{{ID: "web-cabcdefgh", Revision: "r", Fence: skerry.Fence{RootEpoch: 3}}}}}}))
	f.Add(wire.New().Marshal(&wire.Amendment{App: k, Seq: 2, Base: 1, Deleted: true, Services: []wire.AmendedService{{Name: "web"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newHostileRoot(t, "a", "b")
		shop := r.apply("shop", "", "a", "b")
		there := r.c.Apps.Instances(shop)[1]
		r.say("a", map[string][]byte{wire.AmendmentKey(k): data})
		if i := r.c.Apps.Instance(there.ID); i == nil || i.Holder != "b" || i.Stopping && !r.c.Apps.App(k).Deleting && *r.c.Apps.App(k).Manifest.Spec.Services[0].Replicas > 0 {
			t.Errorf("what runs at the other site is %+v", i)
		}
		if a := r.c.Apps.App(k); a == nil || a.Manifest.Spec.Services[0].Image != "web:1" {
			t.Errorf("the application is %+v", a)
		}
	})
}

// A captured site, which never was out of touch, says that it was changed while it was alone, to get a program of its own onto other
// machines. Nothing of that is adopted. It is shown with what it would change and why it waits, and a person may adopt it.
func TestAmendmentsOfACapturedSite(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	shop := r.apply("shop", "", "a")
	r.now = r.now.Add(time.Hour)
	for _, site := range []string{"a", "b"} { // both have been there all the time
		r.c.Children.Get(site).Since = r.now.Add(-time.Hour)
	}
	r.c.away.sites["a"].Away[0].From = r.now.Add(-2 * time.Hour)
	manifest := func() spec.ServiceSpec { return r.c.Apps.App(shop.App).Manifest.Spec.Services[0] }
	before := manifest()
	evil := func(edit func(s *spec.ServiceSpec)) *spec.ServiceSpec {
		s := cloneSpec(t, before)
		edit(&s)
		return &s
	}
	native := evil(func(s *spec.ServiceSpec) {
		s.Image, s.Runtime, s.Command, s.Security.Privileged = "", spec.RuntimeNative, []string{"/bin/sh", "-c", "id"}, true
		s.Placement.Cluster = "b"
	})
	var seq uint64
	tell := func(at time.Time, w wire.AmendedService) wire.Amended {
		t.Helper()
		seq++
		w.Name = "web"
		for _, i := range r.c.Apps.Instances(shop) {
			w.Instances = append(w.Instances, wire.AmendedInstance{ID: i.ID, Revision: i.Revision, Fence: i.Fence})
		}
		r.amend("a", wire.Amendment{App: shop.App, Seq: seq, Base: r.c.Apps.App(shop.App).Gen, Author: "ada", At: at, Services: []wire.AmendedService{w}})
		a := r.answer("a", shop.App)
		if a.Seq != seq {
			t.Fatalf("no answer: %+v", a)
		}
		return a
	}
	unchanged := func(a wire.Amended, parts ...string) {
		t.Helper()
		if got := manifest(); a.Adopted != 0 || got.Image != before.Image || got.Runtime != before.Runtime || got.Placement.Cluster != "" || len(got.Args) > 0 || *got.Replicas != 1 {
			t.Fatalf("adopted: %+v, %+v", a, got)
		}
		last := r.events[len(r.events)-1]
		for _, e := range r.events {
			if e.Reason == "AmendmentWaits" {
				last = e
			}
		}
		for _, p := range parts {
			if !strings.Contains(a.Why, p) || !strings.Contains(last.Text, p) {
				t.Errorf("it says %q, the event %q; %q is not in it", a.Why, last.Text, p)
			}
		}
	}
	inTouch := "was out of touch"
	unchanged(tell(r.now, wire.AmendedService{Replicas: 1, Before: 1, Spec: native}), inTouch)
	unchanged(tell(r.now, wire.AmendedService{Replicas: 5, Before: 1}), inTouch)
	unchanged(tell(r.now.Add(-90*time.Minute), wire.AmendedService{Replicas: 5, Before: 1}), inTouch) // when it was away, long ago
	unchanged(tell(time.Time{}, wire.AmendedService{Replicas: 5, Before: 1}), inTouch)

	// It breaks its own link to have been away.
	r.step(ChildDown{Name: "a"})
	gone := r.now
	r.now = r.now.Add(5 * time.Minute)
	r.step(ChildUp{Hello: &wire.Hello{Name: "a"}})
	unchanged(tell(gone.Add(time.Minute), wire.AmendedService{Replicas: 1, Before: 1, Spec: native}), "runtime", "security.privileged (a privileged container, level privileged)", "placement", "image")
	unchanged(tell(gone.Add(time.Minute), wire.AmendedService{Replicas: 1, Before: 1, Spec: evil(func(s *spec.ServiceSpec) { s.Image = "evil:1" })}), "image")
	unchanged(tell(gone.Add(-time.Hour), wire.AmendedService{Replicas: 4, Before: 1}), inTouch)
	unchanged(tell(r.now.Add(time.Hour), wire.AmendedService{Replicas: 4, Before: 1}), inTouch)
	if v := r.c.Apps.View(r.c.Apps.App(shop.App), "root", true); len(v.Revisions) != 2 || v.Revisions[1].Site != "a" || v.Revisions[1].Why == "" {
		t.Errorf("it is not shown as waiting: %+v", v.Revisions)
	}

	// What it may decide it decides, and the rest when a person says so.
	if a := tell(gone.Add(time.Minute), wire.AmendedService{Replicas: 1, Before: 1, Spec: evil(func(s *spec.ServiceSpec) { s.Image, s.Args = "web:2", []string{"x"} })}); a.Adopted == 0 || manifest().Image != "web:2" {
		t.Errorf("an honest amendment: %+v", a)
	}
	before = manifest()
	if a := tell(gone.Add(time.Minute), wire.AmendedService{Replicas: 1, Before: 1, Spec: evil(func(s *spec.ServiceSpec) { s.Image = "other:3" })}); a.Adopted != 0 {
		t.Errorf("%+v", a)
	}
	if fx := r.step(apps.Undo{Service: skerry.ServiceKey{App: shop.App}, Site: "a", Actor: "ada"}); fx.Err != nil || manifest().Image != "other:3" {
		t.Errorf("a person does not get it adopted: %v, %s", fx.Err, manifest().Image)
	}
}

func cloneSpec(t *testing.T, s spec.ServiceSpec) (out spec.ServiceSpec) {
	t.Helper()
	data, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The root's record of a site's link outlives the root: what happened while it was down is a time in which sites were alone.
func TestAwayIsKept(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(minutes) * time.Minute) }
	kv := map[string][]byte{}
	life := func() presences {
		p := newPresences()
		for k, v := range kv {
			var err error
			if site, ok := strings.CutPrefix(k, prefixAway); ok {
				err = p.load(site, v)
			} else {
				err = p.alive.UnmarshalText(v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	keep := func(fx wire.Effects) {
		for _, w := range fx.Writes {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
		}
	}
	p := life()
	var fx wire.Effects
	p.arrivals(at(0), "a", time.Time{}, &fx)
	p.lives(at(0), &fx)
	p.lives(at(20), &fx)
	keep(fx)
	p = life() // the root was down from 20 to 30
	p.start(at(30))
	fx = wire.Effects{}
	p.arrivals(at(31), "a", time.Time{}, &fx)
	keep(fx)
	for minute, want := range map[int]bool{-5: true, 1: true, 5: false, 17: false, 19: true, 25: true, 32: true, 40: false} {
		if p.wasAutonomous(at(33), at(31), "a", at(minute)) != want {
			t.Errorf("at %d it was alone: %v", minute, !want)
		}
	}
	if p.wasAutonomous(at(45), at(31), "a", at(25)) || p.wasAutonomous(at(33), at(31), "b", at(25)) {
		t.Error("a site tells too late, or one that never was there")
	}
	fx = wire.Effects{}
	p.left(at(50), "a", at(31), at(49), &fx)
	p.arrivals(at(60), "a", time.Time{}, &fx)
	if p.wasAutonomous(at(61), at(60), "a", at(25)) || !p.wasAutonomous(at(61), at(60), "a", at(55)) {
		t.Error("what it should have told long ago is believed, or what it did now is not")
	}
	for i := range 3 * maxAway {
		p.left(at(61+2*i), "a", at(60+2*i), at(61+2*i), &fx)
		p.arrivals(at(62+2*i), "a", time.Time{}, &fx)
	}
	if n := len(p.sites["a"].Away); n != maxAway {
		t.Errorf("%d times are kept", n)
	}
	keep(fx)
	fx = wire.Effects{}
	p.forget("a", &fx)
	keep(fx)
	if len(kv) != 1 {
		t.Errorf("left behind: %v", kv)
	}
}
