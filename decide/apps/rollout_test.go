package apps

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// site is one holder that runs what it is given: an instance is ready two seconds after it was placed, unless its image is
// bad in one of the ways below.
type site struct {
	t      *testing.T
	c      *Controller
	now    time.Time
	placed map[skerry.InstanceID]time.Time
	crash  string // image whose instances restart every so many seconds, five if that is 0, two seconds after which they are ready again
	every  int
	bad    func(i *Instance) bool // one that runs and is never ready
	fails  func(i *Instance) bool // one that restarts like those of image crash
	mute   bool                   // it is older, and never says whether there is a place
	full   string                 // why there is no place for a successor
	stuck  string                 // image whose instances run and are never ready
	events []wire.Event
	most   int            // instances at once
	least  int            // ready ones at once, after the first were
	store  map[string]any // what was persisted
}

func newSite(t *testing.T) *site {
	s := &site{t: t, c: New([16]byte{1}, "t"), now: now, placed: map[skerry.InstanceID]time.Time{}, store: map[string]any{}}
	s.tell(PutOrg{Org: Org{Name: "harbour"}})
	s.tell(PutNamespace{Namespace: Namespace{Name: "default", Org: "harbour"}})
	return s
}

func (s *site) take(fx wire.Effects) {
	s.t.Helper()
	if faults := s.c.Audit(); len(faults) > 0 {
		s.t.Fatalf("the parts contradict each other: %q", faults)
	}
	s.events = append(s.events, fx.Events...)
	for _, w := range fx.Writes {
		if w.Value == nil {
			delete(s.store, w.Key)
		} else {
			s.store[w.Key] = w.Value
		}
	}
}

func (s *site) tell(msg any) Applied {
	s.t.Helper()
	fx, ok := s.c.Handle(s.now, msg)
	if !ok || fx.Err != nil {
		s.t.Fatalf("%T: %v", msg, fx.Err)
	}
	s.take(fx)
	s.take(s.c.Reconcile(s.now))
	r, _ := fx.Result.(Applied)
	return r
}

// run lets time pass, second by second, and holds the update to what it promises.
func (s *site) run(d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(time.Second) {
		s.look()
		s.hold()
	}
}

// look has the site do what it is asked for, and tell how it goes.
func (s *site) look() {
	var fx wire.Effects
	for _, i := range s.c.Unplaced(s.now) {
		s.c.Place(s.now, i, "site", i.Fence, &wire.Decision{}, &fx)
		s.placed[i.ID] = s.now
	}
	for _, i := range s.c.Stopping() {
		s.c.Gone(s.now, "site", i.ID, &fx)
	}
	for _, i := range s.c.InstancesOf(shop) {
		if i.Holder == "" {
			continue
		}
		o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, Restart: i.Restart, State: skerry.Running, StartedAt: s.placed[i.ID]}
		if i.Ask != nil {
			o.Successor = &wire.SuccessorAnswer{Revision: i.Ask.Revision, Why: s.full}
		}
		age := int(s.now.Sub(s.placed[i.ID]) / time.Second)
		o.Ready = age >= 2 && i.Spec.Image != s.stuck && (s.bad == nil || !s.bad(i))
		if i.Spec.Image == s.crash || s.fails != nil && s.fails(i) {
			every := max(s.every, 1)
			if s.every == 0 {
				every = 5
			}
			o.Restarts, o.Ready = age/every, age%every >= 2
			if age > 0 && age%every == 0 {
				o.Reason = "exit code 7"
			}
			if o.Restarts >= skerry.CrashLoops && time.Duration(every)*time.Second < skerry.SteadyTime {
				o.CrashLoop = fmt.Sprintf("restarted %d times: exit code 7", o.Restarts)
			}
		}
		s.c.Observe(s.now, "site", o, &fx)
	}
	s.take(fx)
	s.take(s.c.Reconcile(s.now))
}

func (s *site) hold() {
	s.t.Helper()
	ready, live := 0, 0
	for _, i := range s.c.InstancesOf(shop) {
		if i.IsReady() && !i.Stopping {
			ready++
		}
		if i.Live() {
			live++
		}
	}
	s.most = max(s.most, live)
	if want := *s.c.App(shop).Manifest.Spec.Services[0].Replicas; live > want+1 {
		s.t.Fatalf("%s: %d instances of %d, and one more is allowed", s.now.Sub(now), live, want)
	}
	if s.least >= 0 && ready < s.least {
		s.t.Fatalf("%s: %d instances are ready", s.now.Sub(now), ready)
	}
}

// images counts live instances per image.
func (s *site) images() string {
	n := map[string]int{}
	for _, i := range s.c.InstancesOf(shop) {
		if i.Live() {
			n[i.Spec.Image]++
		}
	}
	var out []string
	for _, image := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%d %s", n[image], image))
	}
	return strings.Join(out, ", ")
}

func (s *site) expect(images string) {
	s.t.Helper()
	if got := s.images(); got != images {
		s.t.Fatalf("after %s there are %q, want %q: %+v", s.now.Sub(now), got, images, s.view().Rollout)
	}
}

func (s *site) view() view.ServiceView { return s.c.View(s.c.App(shop), "root", true).Services[0] }

func (s *site) appView() view.AppView { return s.c.View(s.c.App(shop), "root", true) }

func (s *site) heard(reason string) (n int) {
	for _, e := range s.events {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func image(name string, u spec.UpdateSpec) func(*Apply) {
	return func(a *Apply) { a.App.Spec.Services[0].Image, a.App.Spec.Services[0].Update = name, u }
}

var (
	web    = skerry.ServiceKey{App: shop, Service: "web"}
	atOnce = spec.UpdateSpec{HealthyTime: new(spec.Duration)} // as soon as they are ready
	waves  = spec.UpdateSpec{Canary: &spec.Canary{Count: 1, For: spec.Duration(30 * time.Second)}, Batch: 2, Pause: spec.Duration(20 * time.Second), Rollback: spec.RollbackAutomatic}
)

func TestCanaryThenWaves(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(5, image("web:1", waves)))
	s.run(10 * time.Second)
	s.least = 5
	s.expect("5 web:1")
	s.tell(apply(5, image("web:2", waves)))
	s.run(30 * time.Second) // ready after two, old one ended after ten more
	s.expect("4 web:1, 1 web:2")
	if r := s.view().Rollout; r.Phase != view.RolloutCanary || r.Limit != 1 {
		t.Errorf("%+v", r)
	}
	s.run(30 * time.Second) // the first wave takes two one after the other, each of which counts after ten seconds
	s.expect("2 web:1, 3 web:2")
	s.run(15 * time.Second)
	s.expect("2 web:1, 3 web:2") // the pause
	s.run(time.Minute)
	s.expect("5 web:2")
	if r := s.view().Rollout; r.Phase != view.RolloutDone || s.heard("RolledOut") != 1 || s.heard("Wave") != 2 {
		t.Errorf("%+v, %d, %d", r, s.heard("RolledOut"), s.heard("Wave"))
	}
}

func TestRollBack(t *testing.T) {
	for _, how := range []string{"crash", "stuck"} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			s.least = -1
			u := waves
			u.Deadline = new(spec.Duration)
			*u.Deadline = spec.Duration(40 * time.Second)
			s.tell(apply(3, image("web:1", u)))
			s.run(10 * time.Second)
			s.least = 2 // the canary takes the place of one as soon as it seems healthy
			if how == "stuck" {
				s.stuck, s.least = "web:2", 3
			} else {
				s.crash = "web:2"
			}
			s.tell(apply(3, image("web:2", u)))
			s.run(time.Minute)
			s.expect("3 web:1")
			v := s.view()
			if v.Rollout == nil || v.Rollout.Refused == nil || v.Rollout.Phase != view.RolloutDone || s.heard("RolledBack") != 1 {
				t.Fatalf("%+v", v.Rollout)
			}
			if why := v.Rollout.Refused.Reason; how == "crash" && !strings.Contains(why, "failed 3 times: exit code 7") || how == "stuck" && !strings.Contains(why, "was not ready for 40s") {
				t.Error(why)
			}
			if status := s.appView().Status; status != view.AppRolledBack {
				t.Errorf("the application is %s", status)
			}
			// The same manifest again changes nothing, other than the number of instances.
			gen := s.c.App(shop).Gen
			if r := s.tell(apply(3, image("web:2", u))); !r.Unchanged || r.Gen != gen || len(r.Warnings) != 1 {
				t.Errorf("%+v", r)
			}
			s.tell(apply(4, image("web:2", u)))
			s.run(time.Minute)
			s.expect("4 web:1")
			// It survives a restart of the orchestrator.
			again := New([16]byte{2}, "t")
			for key, value := range s.store {
				if _, err := again.Load(key, value.([]byte)); err != nil {
					t.Fatal(err)
				}
			}
			s.c = again
			s.run(10 * time.Second)
			if r := s.tell(apply(4, image("web:2", u))); !r.Unchanged {
				t.Errorf("%+v", r)
			}
			// Another version is tried, and so is the same one when it is asked for.
			s.crash, s.stuck = "", ""
			s.tell(Resume{Service: web})
			s.run(3 * time.Minute)
			s.expect("4 web:2")
			s.tell(apply(4, image("web:3", u)))
			s.run(3 * time.Minute)
			s.expect("4 web:3")
			if s.view().Rollout.Refused != nil || s.appView().Status != "Ready" {
				t.Error("it is still refused")
			}
			// Whoever applies the version that runs again has seen what happened to the other.
			s.crash = "web:4"
			s.tell(apply(4, image("web:4", u)))
			s.run(3 * time.Minute)
			s.expect("4 web:3")
			if status := s.appView().Status; status != view.AppRolledBack {
				t.Errorf("the application is %s", status)
			}
			if r := s.tell(apply(4, image("web:3", u))); !r.Unchanged || s.appView().Status != "Ready" {
				t.Errorf("%+v, and the application is %s", r, s.appView().Status)
			}
		})
	}
}

func TestNoRollBackUnlessAsked(t *testing.T) {
	s := newSite(t)
	s.least = -1
	off := spec.UpdateSpec{Rollback: spec.RollbackOff}
	s.tell(apply(2, image("web:1", off)))
	s.run(5 * time.Second)
	s.stuck = "web:2"
	s.tell(apply(2, image("web:2", off)))
	s.run(20 * time.Minute)
	s.expect("2 web:1, 1 web:2")
	if s.heard("RolloutFailing") != 1 || s.heard("RolledBack") != 0 {
		t.Error(s.heard("RolloutFailing"), s.heard("RolledBack"))
	}
	s.tell(Undo{Service: web})
	s.run(5 * time.Second)
	s.expect("2 web:1")
}

func TestPauseResumeUndo(t *testing.T) {
	s := newSite(t)
	s.least = -1
	u := atOnce
	s.tell(apply(4, image("web:1", u)))
	s.run(5 * time.Second)
	s.least = 4
	s.tell(apply(4, image("web:2", u)))
	s.run(2 * time.Second)
	s.tell(Pause{Service: web, Actor: "ann"})
	s.run(time.Minute)
	s.expect("3 web:1, 1 web:2")
	if r := s.view().Rollout; r.Phase != view.RolloutPaused || r.Paused != "ann" {
		t.Errorf("%+v", r)
	}
	// One of the old ones that goes is replaced by its like, and so is one of more that are asked for.
	s.least = 3
	for _, i := range s.c.InstancesOf(shop) {
		if i.Spec.Image == "web:1" {
			s.tell(DeleteInstance{ID: i.ID})
			break
		}
	}
	s.run(5 * time.Second)
	s.expect("3 web:1, 1 web:2")
	s.tell(Scale{Service: web, Replicas: 5})
	s.run(5 * time.Second)
	s.expect("4 web:1, 1 web:2")
	s.tell(Resume{Service: web})
	s.run(time.Minute)
	s.expect("5 web:2")
	// A pause before an update keeps all of it back.
	s.tell(Pause{Service: skerry.ServiceKey{App: shop}, Actor: "ann"})
	s.tell(apply(5, image("web:3", u)))
	s.run(time.Minute)
	s.expect("5 web:2")
	s.tell(Resume{Service: skerry.ServiceKey{App: shop}})
	s.run(time.Minute)
	s.expect("5 web:3")
	// Undo goes to the one before, and undo again back.
	s.tell(Undo{Service: web, Actor: "ann"})
	s.run(time.Minute)
	s.expect("5 web:2")
	s.tell(Undo{Service: web, Actor: "ann"})
	s.run(time.Minute)
	s.expect("5 web:3")
	s.tell(Undo{Service: skerry.ServiceKey{App: shop}, To: 1})
	s.run(time.Minute)
	s.expect("5 web:1")
	refused(t, s.c, Undo{Service: web, To: 77}, skerry.CodeNotFound, "no generation 77")
	for n := range 20 {
		s.tell(apply(5, image(fmt.Sprint("web:", 10+n), u)))
	}
	if n := len(s.c.View(s.c.App(shop), "root", true).Revisions); n != maxPast+1 {
		t.Errorf("%d versions are kept", n)
	}
	s.tell(Delete{Key: shop})
	var fx wire.Effects
	for range 3 {
		for _, i := range s.c.Stopping() {
			s.c.Gone(s.now, "site", i.ID, &fx)
		}
		s.take(fx)
		s.take(s.c.Reconcile(s.now))
	}
	for key := range s.store {
		if strings.HasPrefix(key, prefixPast) {
			t.Errorf("%s is left", key)
		}
	}
}

// What must end before another starts stays until its holder has a place for that. A holder that never answers is an older one.
func TestEndsOnlyForAPlace(t *testing.T) {
	for _, u := range []spec.UpdateSpec{{Strategy: "recreate"}, {MaxSurge: new(int), MaxUnavailable: func() *int { n := 1; return &n }()}} {
		s := newSite(t)
		s.least = -1
		s.tell(apply(2, image("web:1", u)))
		s.run(time.Minute)
		s.full = "its worker is cordoned"
		s.tell(apply(2, image("web:2", u)))
		s.run(10 * time.Minute)
		s.expect("2 web:1")
		if v := s.view(); v.Rollout.Waits != s.full || !strings.HasPrefix(v.Reason, "UpdateWaits") || s.heard("UpdateWaits") != 2 {
			t.Errorf("%+v: %s, told %d times", v.Rollout, v.Reason, s.heard("UpdateWaits"))
		}
		s.tell(apply(2, image("web:1", u))) // somebody changes their mind
		s.run(time.Minute)
		if v := s.view(); v.Rollout.Waits != "" || v.Reason != "" {
			t.Errorf("%+v: %s", v.Rollout, v.Reason)
		}
		s.tell(apply(2, image("web:3", u)))
		s.run(time.Minute)
		s.expect("2 web:1")
		s.full = ""
		s.run(2 * time.Minute)
		s.expect("2 web:3")
		s.mute = true
		s.tell(apply(2, image("web:4", u)))
		s.run(2 * time.Minute)
		s.expect("2 web:4")
	}
}

// A service that is put back has to fit the others as they are today.
func TestUndoOfOneServiceFits(t *testing.T) {
	c := controller(t, Quota{})
	db := func(a *Apply) {
		s := a.App.Spec.Services[0]
		s.Name, s.StartAfter = "db", nil
		a.App.Spec.Services = append(a.App.Spec.Services, s)
	}
	after := func(a *Apply) { a.App.Spec.Services[0].StartAfter = []spec.StartAfter{{Service: "db"}} }
	web := skerry.ServiceKey{App: shop, Service: "web"}
	do(t, c, apply(1, after, db))
	do(t, c, apply(1))
	refused(t, c, Undo{Service: web, To: 1}, skerry.CodeConflict, "does not fit")
	do(t, c, Undo{Service: skerry.ServiceKey{App: shop}, To: 1})
	if c.App(shop).Manifest.Spec.Service("db") == nil {
		t.Error("the whole application is not as it was in generation 1")
	}
}

// Whatever has no successor ends without a place for one.
func TestFewerOfAVersionWithoutRoom(t *testing.T) {
	for _, u := range []spec.UpdateSpec{{Strategy: "recreate"}, {MaxSurge: new(int), MaxUnavailable: func() *int { n := 1; return &n }()}} {
		s := newSite(t)
		s.least = -1
		s.tell(apply(3, image("web:1", u)))
		s.run(time.Minute)
		s.full = "its worker is cordoned"
		s.tell(apply(2, image("web:2", u)))
		s.run(time.Minute)
		s.expect("2 web:1")
		s.tell(apply(0, image("web:3", u)))
		s.run(time.Minute)
		s.expect("")
	}
}
