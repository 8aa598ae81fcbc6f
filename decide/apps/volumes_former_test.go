package apps

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestRenamedVolumesAreKept: what a replica had under another name is listed with its age, counts against the quota, is found again when
// the name comes back, and goes when somebody says so, or with all of the replica.
func TestRenamedVolumesAreKept(t *testing.T) {
	named := func(names ...string) func(*Apply) {
		return func(a *Apply) {
			sizes := make([]skerry.Bytes, len(names))
			for i := range sizes {
				sizes[i] = skerry.GiB
			}
			sized(sizes...)(a)
			s := &a.App.Spec.Services[0]
			for i, name := range names {
				s.Volumes[i].Name, s.Mounts[i].Volume = name, name
			}
		}
	}
	s := newSite(t)
	want := func(when, list string) {
		t.Helper()
		if got := s.volumes(); got != list {
			t.Errorf("%s: %q, want %q", when, got, list)
		}
	}
	one := s.claim(0)
	one.Volume = "data"
	s.tell(apply(1, named("data", "log")))
	s.run(30 * time.Second)
	before := s.c.Usage("harbour", skerry.AppKey{}).Need.Storage
	res := s.tell(apply(1, named("base", "log")))
	if got := strings.Join(res.Warnings, "\n"); !strings.Contains(got, "web: volume data is kept, although the manifest no longer has it; "+
		"`skerry delete volume shop/web/0:data` deletes it") {
		t.Errorf("renamed: %q", got)
	}
	s.run(time.Minute)
	want("renamed", "shop/web/0 Used 2Gi keep; shop/web/0:data Kept 1Gi keep")
	s.again()
	want("after a start", "shop/web/0 Used 2Gi keep; shop/web/0:data Kept 1Gi keep")
	if got := s.c.Usage("harbour", skerry.AppKey{}).Need.Storage; got != before+skerry.GiB {
		t.Errorf("%s of storage are counted, and %s were before", got, before)
	}
	v := s.c.Volumes("root")[1]
	if v.Since.IsZero() || v.Since.After(s.now) || v.Volumes[0] != "data" || v.Claim() != one || s.c.Claimed(one) != "site" {
		t.Errorf("%+v at %q", v, s.c.Claimed(one))
	}
	refused(t, s.c, apply(1, func(a *Apply) {
		named("data", "log")(a)
		a.App.Spec.Services[0].Volumes[0].Local.Size /= 2
	}), skerry.CodeInvalid, "volume data of shop/web/0:data has 1Gi, and a volume never becomes smaller")

	s.tell(apply(1, named("data", "log")))
	s.run(time.Minute)
	want("named as before", "shop/web/0 Used 2Gi keep; shop/web/0:base Kept 1Gi keep")
	refused(t, s.c, DeleteVolume{Claim: one}, skerry.CodeNotFound, "no volume")
	one.Volume = "base"
	s.tell(DeleteVolume{Claim: one})
	want("deleted", "shop/web/0 Used 2Gi keep")
	if s.c.Claimed(one) != "" {
		t.Error("its holder is still to keep it")
	}

	s.tell(apply(1, named("log")))
	s.run(time.Minute)
	want("one left out", "shop/web/0 Used 1Gi keep; shop/web/0:data Kept 1Gi keep")
	if got := s.remove(false); got != "kept shop/web/0 kept shop/web/0:data" {
		t.Errorf("deleted: %q", got)
	}
	want("the application is deleted", "shop/web/0 Kept 1Gi keep; shop/web/0:data Kept 1Gi keep")
	s.tell(DeleteVolume{Claim: s.claim(0)})
	want("all of the replica is deleted", "")

	s.tell(apply(1, named("data", "log")))
	s.run(time.Minute)
	s.tell(apply(1, named("log"), func(a *Apply) { a.App.Spec.Services[0].Volumes[0].Local.Reclaim = spec.ReclaimDelete }))
	s.run(time.Minute)
	want("to be deleted with the application", "shop/web/0 Used 1Gi delete; shop/web/0:data Kept 1Gi delete")
	if got := s.remove(false); got != "deleted shop/web/0 deleted shop/web/0:data" || s.volumes() != "" {
		t.Errorf("%q, then %q", got, s.volumes())
	}
}
