package apps

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// data gives the service local volumes.
func data(reclaim string) func(*Apply) {
	return func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: skerry.GiB, Reclaim: reclaim}}}
		s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	}
}

func (s *site) volumes() string {
	var out []string
	for _, v := range s.c.Volumes("root") {
		out = append(out, fmt.Sprintf("%s %s %s %s", v.Name, v.State, v.Size, v.Reclaim))
	}
	return strings.Join(out, "; ")
}

// remove deletes the application, and gives the names of the volumes that are kept and deleted.
func (s *site) remove(volumes bool) (out string) {
	s.t.Helper()
	fx, _ := s.c.Handle(s.now, Delete{Key: shop, Volumes: volumes})
	if fx.Err != nil {
		s.t.Fatal(fx.Err)
	}
	s.take(fx)
	s.take(s.c.Reconcile(s.now))
	for _, i := range s.c.Stopping() {
		var end wire.Effects
		s.c.Gone(s.now, "site", i.ID, &end)
		s.take(end)
	}
	s.take(s.c.Reconcile(s.now))
	if s.c.App(shop) != nil {
		s.t.Fatal("the application is not deleted")
	}
	d := fx.Result.(Deleted)
	for _, v := range d.Kept {
		out += "kept " + v.Name + " "
	}
	for _, v := range d.Deleted {
		out += "deleted " + v.Name + " "
	}
	return strings.TrimSpace(out)
}

// again is what a controller has that starts with what was persisted.
func (s *site) again() {
	s.t.Helper()
	s.c = New([16]byte{2}, "t")
	for key, value := range s.store {
		if _, err := s.c.Load(key, value.([]byte)); err != nil {
			s.t.Fatal(err)
		}
	}
	var fx wire.Effects
	s.c.Start(s.now)
	s.c.ReviewClaims(func(spec.VolumeClaim) bool { return false }, &fx)
	s.take(fx)
}

// TestVolumesOutliveTheirApplication: they are kept with their age through deletion and restarts, are found again by name, count against the
// quota, hold their namespace, and go when somebody says so.
func TestVolumesOutliveTheirApplication(t *testing.T) {
	s := newSite(t)
	want := func(when, list string) {
		t.Helper()
		if got := s.volumes(); got != list {
			t.Errorf("%s: %q, want %q", when, got, list)
		}
	}
	s.tell(apply(2, data("")))
	s.run(30 * time.Second)
	want("two run", "shop/web/0 Used 1Gi keep; shop/web/1 Used 1Gi keep")
	refused(t, s.c, DeleteVolume{Claim: s.claim(0)}, skerry.CodeConflict, "uses volume default/shop/web/0")
	s.tell(apply(1, data("")))
	s.run(30 * time.Second)
	want("scaled down", "shop/web/0 Used 1Gi keep; shop/web/1 Idle 1Gi keep")
	if got := s.c.Usage("harbour", skerry.AppKey{}).Need.Storage; got < 2*skerry.GiB {
		t.Errorf("%s of storage are counted; want that of both volumes", got)
	}
	if got := s.remove(false); got != "kept shop/web/0 kept shop/web/1" {
		t.Errorf("deleted: %q", got)
	}
	want("deleted", "shop/web/0 Kept 1Gi keep; shop/web/1 Kept 1Gi keep")
	s.again()
	want("after a start", "shop/web/0 Kept 1Gi keep; shop/web/1 Kept 1Gi keep")
	if s.c.Claimed(s.claim(0)) != "site" {
		t.Error("its holder is not to keep it any more")
	}
	if v := s.c.Volumes("root")[0]; v.Since.IsZero() || v.Since.After(s.now) || v.Cluster != "site" || v.Org != "harbour" || v.Volumes[0] != "data" {
		t.Errorf("%+v", v)
	}
	refused(t, s.c, DeleteNamespace{Name: "default"}, skerry.CodeConflict, "still holds volumes of application shop")
	refused(t, s.c, Delete{Key: shop}, skerry.CodeNotFound, "no application")

	s.tell(PutOrg{Org: Org{Name: "harbour", Quota: Quota{Storage: 13 * skerry.GiB / 2}}})
	if got := s.c.Usage("harbour", skerry.AppKey{}).Need.Storage; got != 2*skerry.GiB {
		t.Errorf("%s of kept volumes are counted, want 2Gi", got)
	}
	other := apply(1, data(""))
	other.App.Metadata.Name = "other"
	refused(t, s.c, other, skerry.CodeQuota, "2Gi are used and the application asks for 5Gi")

	res := s.tell(apply(1, data("")))
	if !strings.Contains(strings.Join(res.Notes, "\n"), "web uses the kept local volumes of 1 replica again") {
		t.Errorf("applied again: %q", res.Notes)
	}
	s.run(30 * time.Second)
	want("applied again", "shop/web/0 Used 1Gi keep; shop/web/1 Idle 1Gi keep")
	s.tell(DeleteVolume{Claim: s.claim(1)})
	want("one deleted", "shop/web/0 Used 1Gi keep")
	refused(t, s.c, DeleteVolume{Claim: s.claim(1)}, skerry.CodeNotFound, "no volume")
	if got := s.remove(true); got != "deleted shop/web/0" {
		t.Errorf("deleted with volumes: %q", got)
	}
	want("deleted with volumes", "")
	if s.c.Claimed(s.claim(0)) != "" {
		t.Error("its holder is still to keep it")
	}
}

// TestReclaimedVolumesGo with their application, also when that was said after they were made, and without a new revision.
func TestReclaimedVolumesGo(t *testing.T) {
	s := newSite(t)
	s.tell(apply(1, data("")))
	s.run(30 * time.Second)
	before := s.c.InstancesOf(shop)[0].ID
	s.tell(apply(1, data(spec.ReclaimDelete)))
	s.run(30 * time.Second)
	if got := s.volumes(); got != "shop/web/0 Used 1Gi delete" || s.c.InstancesOf(shop)[0].ID != before {
		t.Errorf("%q, and the instance is %s, before %s", got, s.c.InstancesOf(shop)[0].ID, before)
	}
	if got := s.remove(false); got != "deleted shop/web/0" || s.volumes() != "" {
		t.Errorf("%q, then %q", got, s.volumes())
	}
}

// TestVolumesOfARemovedService are kept, and the one who removes it is told.
func TestVolumesOfARemovedService(t *testing.T) {
	s := newSite(t)
	s.tell(apply(1, data("")))
	s.run(30 * time.Second)
	if res := s.tell(apply(1)); !strings.Contains(strings.Join(res.Warnings, "\n"), "web: the local volumes of 1 replica are kept") {
		t.Errorf("%q", res.Warnings)
	}
	s.run(time.Minute)
	if got := s.volumes(); got != "shop/web/0 Kept 1Gi keep" {
		t.Error(got)
	}
}

func (s *site) claim(n int) spec.VolumeClaim {
	return spec.VolumeClaim{Service: skerry.ServiceKey{App: shop, Service: "web"}, Ordinal: n}
}
