package apps

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// vaulted is a site with a secret and a service that uses it.
func vaulted(t *testing.T) (s *site, deploy func(image string) Applied, rotate func(id string)) {
	s = newSite(t)
	s.least = -1
	s.tell(PutSecret{Namespace: "default", Name: "db", Version: sealed("a")})
	deploy = func(img string) Applied {
		return s.tell(apply(2, image(img, spec.UpdateSpec{Rollback: spec.RollbackAutomatic}), uses(spec.SecretUse{Name: "db"})))
	}
	rotate = func(id string) {
		s.tell(PutSecret{Namespace: "default", Name: "db", Rotate: true, Version: sealed(id)})
	}
	deploy("web:1")
	s.run(time.Minute)
	return s, deploy, rotate
}

// versions lists the versions of the secret that live instances have.
func (s *site) versions() string {
	var out []string
	for _, i := range s.c.InstancesOf(shop) {
		if i.Live() && len(i.Spec.Secrets) > 0 {
			out = append(out, i.Spec.Secrets[0].Current)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestSecretUndo(t *testing.T) {
	s, deploy, rotate := vaulted(t)
	rotate("b")
	s.run(2 * time.Minute)
	if got := s.versions(); got != "2-b 2-b" {
		t.Fatal(got)
	}
	undo := func(to int) view.SecretView {
		t.Helper()
		fx, _ := s.c.Handle(s.now, UndoSecret{Namespace: "default", Name: "db", To: to, Actor: "anne"})
		if fx.Err != nil {
			t.Fatal(fx.Err)
		}
		s.take(fx)
		s.take(s.c.Reconcile(s.now))
		return fx.Result.(view.SecretView)
	}
	if v := undo(0); v.Version != 1 || len(v.Versions) != 2 {
		t.Errorf("%+v", v)
	}
	s.run(time.Minute)
	if got := s.versions(); got != "1-a 1-a" {
		t.Errorf("after the undo they have %s", got)
	}
	// The same manifest again, and another one, keep to the version that somebody went back to; so does the next life.
	if r := deploy("web:1"); !r.Unchanged {
		t.Errorf("%+v", r)
	}
	again := New([16]byte{2}, "t")
	for key, value := range s.store {
		if _, err := again.Load(key, value.([]byte)); err != nil {
			t.Fatal(err)
		}
	}
	s.c = again
	deploy("web:2")
	s.run(2 * time.Minute)
	if got := s.versions(); got != "1-a 1-a" {
		t.Errorf("after another version of the service they have %s", got)
	}
	if v := undo(2); v.Version != 2 {
		t.Errorf("%+v", v)
	}
	rotate("c")
	s.run(2 * time.Minute)
	if got := s.versions(); got != "3-c 3-c" {
		t.Errorf("after another rotation they have %s", got)
	}
	refused(t, s.c, UndoSecret{Namespace: "default", Name: "db", To: 9}, skerry.CodeNotFound, "not kept")
	refused(t, s.c, UndoSecret{Namespace: "default", Name: "dc"}, skerry.CodeNotFound, "no secret")
	if v := undo(1); v.Version != 1 {
		t.Errorf("%+v", v)
	}
	refused(t, s.c, UndoSecret{Namespace: "default", Name: "db"}, skerry.CodeNotFound, "before 1")
}

// The version that somebody went back to stays, however many were made and though nobody uses it.
func TestUsedSecretIsKept(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, PutSecret{Namespace: "default", Name: "db", Version: sealed("a")})
	do(t, c, PutSecret{Namespace: "default", Name: "db", Rotate: true, Version: sealed("b")})
	do(t, c, UndoSecret{Namespace: "default", Name: "db"})
	for range 3 {
		do(t, c, apply(1, uses(spec.SecretUse{Name: "db"})))
		if got := c.App(shop).Manifest.Spec.Services[0].Secrets[0].Current; got != "1-a" {
			t.Fatal(got)
		}
	}
}

// A version that fails is taken back after rotations, also when one came while the one before had not come back yet.
func TestTakenBackAfterRotations(t *testing.T) {
	s, deploy, rotate := vaulted(t)
	for _, id := range []string{"b", "c", "d", "e", "f", "g"} {
		rotate(id)
		s.run(2 * time.Minute)
	}
	s.crash = "web:2"
	deploy("web:2")
	for range 120 { // until it goes back, and no further
		s.run(time.Second)
		if s.heard("RolledBack") > 0 {
			break
		}
	}
	s.fails = func(i *Instance) bool { return i.Spec.Secrets[0].Current == "8-h" }
	rotate("h")
	s.run(5 * time.Minute)
	for _, e := range s.events {
		if strings.Contains(e.Text, "cannot be taken back") {
			t.Errorf("%s: %s", e.Reason, e.Text)
		}
	}
	if s.heard("RolledBack") != 2 {
		t.Errorf("rolled back %d times", s.heard("RolledBack"))
	}
	if got := s.versions(); got != "7-g 7-g" {
		t.Errorf("they have %s", got)
	}
	// The same manifest does not bring the bad one back.
	deploy("web:1")
	s.run(2 * time.Minute)
	if got := s.versions(); got != "7-g 7-g" {
		t.Errorf("after the same manifest they have %s", got)
	}
}

// A service that provides has the new version before those that use it.
func TestRotationFollowsLinks(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(PutSecret{Namespace: "default", Name: "db", Version: sealed("a")})
	three := func(a *Apply) {
		front, db := a.App.Spec.Services[0], a.App.Spec.Services[0]
		front.Name, front.Links = "a-front", []spec.Link{{Service: "web"}}
		db.Name, db.Links = "z-db", nil
		a.App.Spec.Services[0].Links = []spec.Link{{Service: "z-db"}}
		a.App.Spec.Services = append(a.App.Spec.Services, front, db)
	}
	s.tell(apply(1, image("web:1", atOnce), uses(spec.SecretUse{Name: "db"}), three))
	second := func() { s.look(); s.now = s.now.Add(time.Second) }
	for range 60 {
		second()
	}
	s.tell(PutSecret{Namespace: "default", Name: "db", Rotate: true, Version: sealed("b")})
	var order []string
	for range 120 {
		second()
		for _, i := range s.c.InstancesOf(shop) {
			if i.IsReady() && i.Spec.Secrets[0].Current == "2-b" && !slices.Contains(order, i.Service.Service) {
				order = append(order, i.Service.Service)
				for _, o := range s.c.InstancesOf(shop) {
					if o.Spec.Secrets[0].Current == "2-b" && !slices.Contains(order, o.Service.Service) {
						t.Errorf("%s has the new version before %s is done", o.Service.Service, i.Service.Service)
					}
				}
			}
		}
	}
	if !slices.Equal(order, []string{"z-db", "web", "a-front"}) {
		t.Errorf("in the order %v", order)
	}
	for _, v := range s.c.View(s.c.App(shop), "root", true).Services {
		if v.Rollout == nil || v.Rollout.Phase != view.RolloutDone {
			t.Errorf("%s: %+v", v.Name, v.Rollout)
		}
	}
}

func TestTurns(t *testing.T) {
	m := spec.Application{}
	for name, to := range map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": nil} {
		s := spec.ServiceSpec{Name: name, Mode: spec.ModeService}
		for _, l := range to {
			s.Links = append(s.Links, spec.Link{Service: l})
		}
		m.Spec.Services = append(m.Spec.Services, s)
	}
	got := turns(&m, []string{"a", "b", "c", "d"})
	for name, want := range map[string]string{"a": "b c d", "b": "d", "c": "d", "d": ""} { // b and c are a circle
		if s := strings.Join(got[name], " "); s != want {
			t.Errorf("%s waits for %q, not %q", name, s, want)
		}
	}
}
