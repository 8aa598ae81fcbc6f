package apps

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// sized gives the service local volumes named a, b and so on, with these sizes.
func sized(sizes ...skerry.Bytes) func(*Apply) {
	return func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Volumes, s.Mounts = nil, nil
		for i, size := range sizes {
			name := string(rune('a' + i))
			s.Volumes = append(s.Volumes, spec.Volume{Name: name, Local: &spec.LocalVolume{Size: size}})
			s.Mounts = append(s.Mounts, spec.Mount{Volume: name, Path: "/" + name})
		}
	}
}

// TestVolumesNeverShrink: a manifest that asks for less than there is would say what is not so, and is refused, also if it comes after its
// application was deleted, after a start, or for one of several volumes. What was not made yet may have any size.
func TestVolumesNeverShrink(t *testing.T) {
	const gi = skerry.GiB
	s := newSite(t)
	smaller := func(when, text string, a Apply) {
		t.Helper()
		refused(t, s.c, a, skerry.CodeInvalid, text)
		if _, err := s.c.Plan(s.now, a.App, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: a plan says %v, want %q", when, err, text)
		}
	}
	s.tell(apply(2, sized(2*gi, 0)))
	s.tell(apply(2, sized(gi, 3*gi))) // nothing is there yet
	s.run(30 * time.Second)
	smaller("one of two", "spec.services[0].volumes[1].local.size: volume b of shop/web/0 has 3Gi, and a volume never becomes smaller",
		apply(2, sized(4*gi, 2*gi)))
	smaller("none named", "spec.services[0].volumes[0].local.size: volume a of shop/web/0 has 1Gi", apply(2, sized(0, 3*gi)))
	s.tell(apply(2, sized(2*gi, 3*gi)))
	s.run(time.Minute)
	smaller("grown", "volumes[0].local.size: volume a of shop/web/0 has 2Gi", apply(2, sized(gi, 3*gi)))

	s.tell(Undo{Service: skerry.ServiceKey{App: shop}}) // the volumes stay as they are, and the manifest may say again what it says
	s.run(time.Minute)
	if res := s.tell(apply(2, sized(gi, 3*gi))); !res.Unchanged {
		t.Errorf("the manifest that is in use: %+v", res)
	}
	smaller("between both", "volumes[0].local.size: volume a of shop/web/0 has 2Gi", apply(2, sized(gi+1, 3*gi)))
	if got := s.volumes(); got != "shop/web/0 Used 5Gi keep; shop/web/1 Used 5Gi keep" {
		t.Errorf("after the undo: %q", got)
	}

	s.remove(false)
	s.again()
	smaller("deleted", "volumes[1].local.size: volume b of shop/web/0 has 3Gi", apply(1, sized(2*gi, gi)))
	s.tell(DeleteVolume{Claim: s.claim(0)})
	smaller("of a replica to come", "volumes[1].local.size: volume b of shop/web/1 has 3Gi", apply(1, sized(2*gi, gi)))
	s.tell(DeleteVolume{Claim: s.claim(1)})
	s.tell(apply(1, sized(gi, gi)))
}
