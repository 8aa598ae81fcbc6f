package apps

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestPerWorkerThatHasDoneItsWork: a site that says so, which none of ours does, gets another one. That is wanted; less than none never is.
func TestPerWorkerThatHasDoneItsWork(t *testing.T) {
	s := newSite(t)
	s.c.SetTargets([]string{"site"})
	s.tell(apply(1, func(a *Apply) {
		x := &a.App.Spec.Services[0]
		x.Mode, x.Replicas, x.Restart.Policy = spec.ModePerWorker, nil, "onFailure"
	}))
	var fx wire.Effects
	for _, i := range s.c.Unplaced(s.now) {
		s.c.Place(s.now, i, "site", i.Fence, &wire.Decision{}, &fx)
	}
	for _, i := range s.c.InstancesOf(shop) {
		s.c.Observe(s.now, "site", wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Terminated}, &fx)
	}
	s.take(fx)
	s.now = s.now.Add(time.Second)
	s.take(s.c.Reconcile(s.now))
	if v := s.view(); v.Want != 1 || v.Ready != 0 {
		t.Errorf("%d of %d", v.Ready, v.Want)
	}
}

// older is two sites of an earlier version, which tell no more of the copies of a service than how many are ready.
func older(t *testing.T, s *site, image string) (ids map[string]*Instance) {
	t.Helper()
	s.tell(apply(1, func(a *Apply) {
		x := &a.App.Spec.Services[0]
		x.Mode, x.Replicas, x.Image = spec.ModePerWorker, nil, image
	}))
	return s.sites()
}

// sites gives what is to run at each site, all of it placed, and has what was told to end be gone.
func (s *site) sites() map[string]*Instance {
	out := map[string]*Instance{}
	var fx wire.Effects
	for _, i := range s.c.Unplaced(s.now) {
		s.c.Place(s.now, i, i.Target, i.Fence, &wire.Decision{}, &fx)
	}
	for _, i := range s.c.InstancesOf(shop) {
		if i.Live() {
			out[i.Target] = i
		}
	}
	s.take(fx)
	return out
}

// tells has a site of an earlier version tell of so many copies that are ready, and restarts.
func (s *site) tells(i *Instance, have, want, restarts int) {
	var fx wire.Effects
	s.c.Observe(s.now, i.Target, wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Have: have, Want: want,
		Ready: have == want, Restarts: restarts}, &fx)
	s.take(fx)
	s.take(s.c.Reconcile(s.now))
}

// The sites are older, or are put back to an older program in the middle of an update: it goes on in turn, does not take a large site that
// is slow for a failure, and takes back what fails, with new copies: such a site keeps none that it was told to end.
func TestPerWorkerAtOlderSites(t *testing.T) {
	s := newSite(t)
	s.c.SetTargets([]string{"a", "b"})
	first := older(t, s, "web:1")
	s.tells(first["a"], 9, 9, 0)
	s.tells(first["b"], 3, 3, 0)
	second := older(t, s, "web:2")
	if second["a"] != first["a"] || second["b"] == first["b"] {
		t.Fatalf("the site with fewer copies goes first: %v", second)
	}
	for n := range 40 { // a minute for each, more than the deadline of ten
		s.now = s.now.Add(time.Minute)
		s.tells(second["b"], n, 40, 0)
	}
	if v := s.view(); v.UpToDate != 39 || v.Rollout.Refused != nil || v.Rollout.Phase != "Canary" {
		t.Fatalf("want 39 up to date, and nothing taken back: %+v, %+v", v, v.Rollout)
	}
	s.tells(second["b"], 40, 40, 0)
	s.now = s.now.Add(20 * time.Second)
	s.take(s.c.Reconcile(s.now))
	third := s.sites()
	if third["a"] == first["a"] {
		t.Fatal("the other site does not follow")
	}
	s.tells(third["a"], 0, 9, 3)
	back := s.sites()
	v := s.view()
	if v.Rollout.Refused == nil || back["a"] == first["a"] || back["a"].Spec.Image != "web:1" || back["b"].Spec.Image != "web:1" {
		t.Errorf("want web:1 back at both sites, and new copies: %+v, %+v", v.Rollout, back)
	}
}

// A service with an instance for each device is one instance for its owner at each site, which says how many devices there are. Its record
// is marked: a program that does not know the mode refuses it, rather than count replicas that there are not.
func TestPerDeviceIsCountedByItsSites(t *testing.T) {
	owner := newSite(t)
	owner.c.SetTargets([]string{"a", "b"})
	perDevice := func(a *Apply) {
		x := &a.App.Spec.Services[0]
		x.Mode, x.Replicas, x.Devices = spec.ModePerDevice, nil, []spec.DeviceRequest{{Class: "serial"}}
	}
	fx, _ := owner.c.Handle(owner.now, apply(1, perDevice))
	marked := slices.ContainsFunc(fx.Writes, func(w wire.Write) bool {
		return strings.HasPrefix(w.Key, prefixApp) && strings.Contains(string(w.Value), `"perDevice":true`)
	})
	if fx.Err != nil || !marked {
		t.Errorf("applied: %v, and the record is marked: %v; want no error, and a mark", fx.Err, marked)
	}
	owner.take(fx)
	owner.take(owner.c.Reconcile(owner.now))
	at := owner.sites()
	if len(at) != 2 {
		t.Fatalf("there are %d instances for two sites, want one for each", len(at))
	}
	owner.tells(at["a"], 3, 3, 0)
	var none wire.Effects
	owner.c.Observe(owner.now, "b", wire.Observation{ID: at["b"].ID, Gen: at["b"].Gen, Fence: at["b"].Fence, State: skerry.ClusterScheduled,
		Reason: "no worker offers a device that fits yet", Copies: &wire.Copies{}}, &none)
	owner.take(none)
	if v := owner.view(); v.Want != 3 || v.Ready != 3 || v.Instances != 3 {
		t.Errorf("it shows %d of %d ready and %d instances, want 3 of 3 and 3", v.Ready, v.Want, v.Instances)
	}
}
