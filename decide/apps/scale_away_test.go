package apps

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// The instance that a user names ends, whatever it is, and nothing else does; nothing comes in its place.
func TestOneInstanceLess(t *testing.T) {
	s := newSite(t)
	s.tell(apply(3))
	s.run(5 * time.Second)
	id := func(ordinal int) (id skerry.InstanceID) {
		for _, i := range s.c.InstancesOf(shop) {
			if i.Ordinal == ordinal && i.Live() {
				id = i.ID
			}
		}
		return id
	}
	stay := []skerry.InstanceID{id(1), id(2)}
	s.tell(DeleteInstance{ID: id(0), Scale: true, Actor: "ann"})
	s.run(time.Minute)
	var left []skerry.InstanceID
	for _, i := range s.c.InstancesOf(shop) {
		left = append(left, i.ID)
	}
	if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(stay))) {
		t.Errorf("%v are left, want %v", left, stay)
	}
	if n := *s.c.App(shop).Manifest.Spec.Services[0].Replicas; n != 2 {
		t.Errorf("%d replicas are wanted", n)
	}
	// A number that became free is taken again.
	s.tell(Scale{Service: web, Replicas: 3})
	s.run(5 * time.Second)
	if id(0) == "" || len(s.c.InstancesOf(shop)) != 3 {
		t.Errorf("%d instances; the first number is %q", len(s.c.InstancesOf(shop)), id(0))
	}
	for n := range 3 {
		s.tell(DeleteInstance{ID: id(n), Scale: true})
	}
	s.run(time.Minute)
	if n := len(s.c.InstancesOf(shop)); n != 0 {
		t.Errorf("%d instances are left of none", n)
	}
}

func TestOneInstanceLessIsRefused(t *testing.T) {
	c := controller(t, Quota{})
	refused(t, c, DeleteInstance{ID: "web-x", Scale: true}, skerry.CodeNotFound, "no instance")
	do(t, c, apply(0, func(a *Apply) {
		a.App.Metadata.Name = "batch"
		a.App.Spec.Services[0].Replicas, a.App.Spec.Services[0].Mode = nil, spec.ModeJob
	}))
	job := c.InstancesOf(skerry.AppKey{Namespace: "default", Name: "batch"})[0]
	refused(t, c, DeleteInstance{ID: job.ID, Scale: true}, skerry.CodeInvalid, "has no replicas")
	if job.Stopping {
		t.Error("it ends all the same")
	}
	do(t, c, apply(1, func(a *Apply) { a.App.Spec.Services[0].Scale = &spec.ScaleSpec{Max: 3} }))
	refused(t, c, DeleteInstance{ID: c.InstancesOf(shop)[0].ID, Scale: true}, skerry.CodeInvalid, "follows their load")
}
