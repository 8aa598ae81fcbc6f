package apps

import (
	"maps"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// A version that ends again and again, and is ready between, takes the place of none that serves beyond its first instance, and is taken back,
// without the manifest asking for any of that.
func TestCrashLoopTakesNoPlaces(t *testing.T) {
	for _, c := range []struct {
		every, least int
	}{{5, 3}, {8, 3}, {15, 2}} { // the last is healthy for longer than the default healthyTime
		s := newSite(t)
		s.least = -1
		s.tell(apply(3, image("web:1", spec.UpdateSpec{})))
		s.run(10 * time.Second)
		s.least, s.crash, s.every = c.least, "web:2", c.every
		s.tell(apply(3, image("web:2", spec.UpdateSpec{})))
		s.run(3 * time.Minute)
		s.expect("3 web:1")
		if v := s.appView(); s.heard("RolledBack") != 1 || v.Status != view.AppRolledBack || !strings.HasPrefix(v.Reason, "RolledBack: revision ") {
			t.Errorf("every %d s: %s, %q", c.every, v.Status, v.Reason)
		}
	}
}

// Restarts that somebody asked for during an update do not speak against the new version.
func TestRestartIsNoFailure(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(3, image("web:1", spec.UpdateSpec{})))
	s.run(10 * time.Second)
	s.tell(apply(3, image("web:2", spec.UpdateSpec{})))
	s.run(5 * time.Second)
	for n := range 4 { // as a worker tells: the restart is counted first, and said to be carried out when the program runs again
		s.tell(Restart{Service: web})
		for _, i := range s.c.InstancesOf(shop) {
			if i.Spec.Image != "web:2" || i.Holder == "" {
				continue
			}
			var fx wire.Effects
			o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Restarts: n + 1, Restart: i.Restarted}
			s.c.Observe(s.now, "site", o, &fx)
			o.Restart, o.Ready = i.Restart, true
			s.c.Observe(s.now, "site", o, &fx)
			s.take(fx)
		}
	}
	if f := s.c.App(shop).Rollouts["web"].Failures; f != 0 {
		t.Errorf("%d failures", f)
	}
}

// A site that keeps an original in place of its replacement tells the original's restarts again, which are no news. Those of one copy are.
func TestRestartsOfAnotherCopyAreNoFailures(t *testing.T) {
	for name, other := range map[string]uint64{"another copy": 1, "the same": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.least = -1
			s.tell(apply(1, image("web:1", spec.UpdateSpec{})))
			s.run(10 * time.Second)
			s.tell(apply(1, image("web:2", spec.UpdateSpec{})))
			s.run(5 * time.Second)
			var fx wire.Effects
			for _, i := range s.c.InstancesOf(shop) {
				if i.Spec.Image != "web:2" || i.Holder == "" {
					continue
				}
				o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Ready: true, Restart: i.Restart}
				for _, n := range []int{1, 0, 1} { // the original, which was restarted, its replacement, the original
					o.Restarts, o.Fence.Sequence = n, o.Fence.Sequence+other
					s.c.Observe(s.now, "site", o, &fx)
				}
			}
			s.take(fx)
			if f, want := s.c.App(shop).Rollouts["web"].Failures, map[uint64]int{0: 2, 1: 1}[other]; f != want {
				t.Errorf("%d failures, want %d", f, want)
			}
		})
	}
}

// A new application with a program that ends again and again is not ready, says why, and is well again once the program stays up.
func TestCrashLoopIsNotReady(t *testing.T) {
	s := newSite(t)
	s.least, s.crash = -1, "web:1"
	s.tell(apply(1, image("web:1", spec.UpdateSpec{})))
	s.run(19 * time.Second)
	v := s.appView()
	if v.Services[0].Ready != 1 || v.Services[0].CrashLoops != 1 || v.Status == "Ready" || !strings.HasPrefix(v.Reason, "CrashLoop: restarted 3 times: exit code 7") {
		t.Errorf("%s: %+v", v.Reason, v)
	}
	if s.heard("CrashLoop") != 1 {
		t.Error("no event")
	}
	// It is placed anew, and what is new is no proof that it stays up.
	var fx wire.Effects
	i := s.c.InstancesOf(shop)[0]
	s.c.Observe(s.now, "site", wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Failed, Reason: "gave up"}, &fx)
	s.take(fx)
	s.crash = ""
	s.run(8 * time.Second)
	if v := s.appView(); v.Services[0].CrashLoops != 1 {
		t.Errorf("%+v", v.Services[0])
	}
	s.run(10 * time.Second)
	if v := s.appView(); v.Services[0].CrashLoops != 0 || v.Status != "Ready" || v.Reason != "" {
		t.Errorf("%s %q: %+v", v.Status, v.Reason, v.Services[0])
	}
}

func pinned(digest string) map[string]string {
	return map[string]string{"web:1": "skerry.local/web@sha256:" + strings.Repeat(digest, 64)}
}

func means(digest string) func(*Apply) {
	return func(a *Apply) { a.App.Spec.Services[0].Image, a.Digests = "web:1", pinned(digest) }
}

// digests counts the live instances by what their holder was told to run.
func (s *site) digests() string {
	n := map[string]int{}
	for _, i := range s.c.InstancesOf(shop) {
		if i.Live() {
			d := i.Assignment(s.c.App(shop).Digests).Digest["web:1"]
			n[d[max(0, len(d)-1):]]++
		}
	}
	var out []string
	for _, d := range []string{"", "a", "b", "c"} {
		if n[d] > 0 {
			out = append(out, itoa(n[d])+" "+d)
		}
	}
	return strings.Join(out, ", ")
}

// The same tag with other content is another version: it is rolled out, and no instance of the earlier one ever gets it.
func TestDigestIsPartOfTheRevision(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(3, means("a")))
	s.run(10 * time.Second)
	rev := s.view().Revision
	if r := s.tell(apply(3, means("a"))); !r.Unchanged || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	s.least = 3
	r := s.tell(apply(3, means("b")))
	if want := "image web:1 now is sha256:bbbbbbbbbbbb, was sha256:aaaaaaaaaaaa: updating"; len(r.Notes) != 1 || r.Notes[0] != want {
		t.Errorf("%q", r.Notes)
	}
	s.run(4 * time.Second)
	if v := s.view(); v.Revision == rev || v.UpToDate != 1 || v.Instances != 4 || s.digests() != "3 a, 1 b" {
		t.Errorf("%+v, %s", v, s.digests())
	}
	// One of the old ones goes meanwhile, and comes again as it was.
	s.tell(Pause{Service: web})
	s.least = 2
	for _, i := range s.c.InstancesOf(shop) {
		if i.Revision == rev {
			s.tell(DeleteInstance{ID: i.ID})
			break
		}
	}
	s.tell(Scale{Service: web, Replicas: 5})
	s.run(5 * time.Second)
	if s.digests() != "4 a, 1 b" {
		t.Error(s.digests())
	}
	s.tell(Resume{Service: web})
	s.run(3 * time.Minute)
	if v := s.view(); s.digests() != "5 b" || v.UpToDate != 5 {
		t.Error(s.digests())
	}
	// A restart changes nothing of that, whatever the tag means by now; asked to look it up again it does.
	s.tell(Restart{Service: web})
	s.run(10 * time.Second)
	if s.digests() != "5 b" {
		t.Error(s.digests())
	}
	s.tell(Restart{Service: web, Pull: &s.c.App(shop).Manifest, Digests: pinned("c")})
	s.run(3 * time.Minute)
	if s.digests() != "5 c" {
		t.Error(s.digests())
	}
	// A registry that is out of touch is no new version.
	r = s.tell(apply(5, func(a *Apply) { a.App.Spec.Services[0].Image = "web:1" }))
	if !r.Unchanged || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "could not be looked up; it stays sha256:cccc") {
		t.Errorf("%+v", r)
	}
	s.tell(Undo{Service: web})
	s.run(3 * time.Minute)
	if s.digests() != "5 b" {
		t.Error(s.digests())
	}
}

// Content that fails is taken back as any version.
func TestDigestIsTakenBack(t *testing.T) {
	s := newSite(t)
	s.least = -1
	u := spec.UpdateSpec{Deadline: new(spec.Duration)}
	*u.Deadline = spec.Duration(20 * time.Second)
	careful := func(a *Apply) { a.App.Spec.Services[0].Update = u }
	s.tell(apply(2, means("a"), careful))
	s.run(10 * time.Second)
	s.least = 2
	s.bad = func(i *Instance) bool { return strings.HasSuffix(i.Spec.Pinned["web:1"], "b") }
	s.tell(apply(2, means("b"), careful))
	s.run(time.Minute)
	if s.heard("RolledBack") != 1 || s.digests() != "2 a" {
		t.Errorf("%s: %+v", s.digests(), s.view())
	}
	if r := s.tell(apply(2, means("b"), careful)); !r.Unchanged || len(r.Warnings) != 1 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
}

// Records of before digests were a part of revisions keep their revisions: nothing is replaced by its like.
func TestOldRecordsKeepTheirRevision(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(2, means("a")))
	s.run(10 * time.Second)
	a := *s.c.App(shop)
	a.Manifest = cloneManifest(a.Manifest)
	a.Manifest.Spec.Services[0].Pinned = nil
	a.Manifest.Spec.Services[0].Update = spec.UpdateSpec{Strategy: "rolling", MaxSurge: new(int), MaxUnavailable: new(int), Rollback: spec.RollbackOff, HealthyTime: new(spec.Duration),
		Failures: a.Manifest.Spec.Services[0].Update.Failures, Deadline: a.Manifest.Spec.Services[0].Update.Deadline}
	*a.Manifest.Spec.Services[0].Update.MaxSurge = 1
	s.c.addApp(&a)
	old := a.revisions["web"]
	for _, i := range s.c.InstancesOf(shop) {
		i.Revision, i.Spec = old, &a.Manifest.Spec.Services[0]
	}
	a.Rollouts["web"].Revision = old
	before := maps.Clone(s.c.inst)
	s.tell(apply(2, means("a")))
	s.run(20 * time.Second)
	s.tell(apply(3, means("a")))
	s.run(20 * time.Second)
	for id := range before {
		if s.c.inst[id] == nil {
			t.Errorf("%s was replaced", id)
		}
	}
	if v := s.view(); v.Revision != old || v.UpToDate != 3 || s.digests() != "3 a" {
		t.Errorf("%+v, %s", v, s.digests())
	}
	s.tell(apply(3, means("b")))
	s.run(2 * time.Minute)
	if v := s.view(); v.Revision == old || s.digests() != "3 b" {
		t.Errorf("%+v, %s", v, s.digests())
	}
}

func TestEntryIsTaken(t *testing.T) {
	s := newSite(t)
	entry := func(app, host string) func(*Apply) {
		return func(a *Apply) {
			a.App.Metadata.Name = app
			a.App.Spec.Services[0].Ports = []spec.Port{{Name: "http", Port: 8080}}
			a.App.Spec.Services[0].Ingress = []spec.Ingress{{Host: host, Port: spec.PortRef("http")}}
		}
	}
	s.tell(apply(1, entry("shop", "shop.example")))
	s.tell(apply(1, entry("shop", "shop.example"))) // its own
	refused(t, s.c, apply(1, entry("rival", "shop.example")), skerry.CodeConflict, "another application has this ingress already")
	s.tell(apply(1, entry("rival", "rival.example")))
	fx, _ := s.c.Handle(s.now, apply(1, entry("rival", "shop.example")))
	if e := skerry.AsError(fx.Err); len(e.Problems) != 1 || e.Problems[0].Path != "spec.services[0].ingress[0]" || !strings.Contains(e.Problems[0].Message, "leads to application default/shop") {
		t.Errorf("%+v", e)
	}
}

// Two services with one short name in an application: which it reached would be left to the order of their names.
func TestShortNameIsTaken(t *testing.T) {
	s := newSite(t)
	export := func(app string, list ...spec.Export) func(*Apply) {
		return func(a *Apply) {
			a.App.Metadata.Name = app
			a.App.Spec.Services[0].Export = list
		}
	}
	s.tell(apply(1, export("shop", spec.Export{To: "default/web", As: "db"})))
	s.tell(apply(1, export("shop", spec.Export{To: "default/web", As: "db"}))) // its own
	for _, to := range []string{"default/web", "default/*"} {
		rival := apply(1, export("rival", spec.Export{To: "default/other"}, spec.Export{To: to, As: "db"}))
		refused(t, s.c, rival, skerry.CodeConflict, "another service has this short name already")
		fx, _ := s.c.Handle(s.now, rival)
		if e := skerry.AsError(fx.Err); len(e.Problems) != 1 || e.Problems[0].Path != "spec.services[0].export[1].as" ||
			!strings.Contains(e.Problems[0].Message, "db means default/shop/") {
			t.Errorf("%+v", e)
		}
	}
	s.tell(apply(1, export("rival", spec.Export{To: "default/web"}, spec.Export{To: "default/web2", As: "db"}, spec.Export{To: "other/*", As: "db"})))
}

// A clock that is a year ahead after a start is no time in which a version was not ready.
func TestClockAheadTakesNothingBack(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(2, image("web:1", spec.UpdateSpec{})))
	s.run(10 * time.Second)
	s.stuck = "web:2"
	s.tell(apply(2, image("web:2", spec.UpdateSpec{})))
	s.run(5 * time.Second)
	again := New([16]byte{2}, "t")
	for key, value := range s.store {
		if _, err := again.Load(key, value.([]byte)); err != nil {
			t.Fatal(err)
		}
	}
	s.c, s.now = again, s.now.Add(365*24*time.Hour)
	for id := range s.placed {
		s.placed[id] = s.now
	}
	s.c.Start(s.now)
	s.run(9 * time.Minute)
	if s.heard("RolledBack") != 0 {
		t.Fatal("taken back for a clock")
	}
	s.run(2 * time.Minute)
	if s.heard("RolledBack") != 1 {
		t.Fatal("never taken back")
	}
}

// What is known as a sum alone is no instance's own.
func TestSharedUse(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(3, image("web:1", spec.UpdateSpec{})))
	s.run(5 * time.Second)
	for range 2 { // told again, it does not add up
		Used(s.c.Instances(web), "site", wire.QoS{CPU: 900})
	}
	for _, i := range s.c.InstancesOf(shop) {
		if i.QoS != nil {
			t.Errorf("%s has %+v", i.ID, i.QoS)
		}
	}
	if q := s.view().QoS; q == nil || q.CPU != 900 {
		t.Errorf("%+v", q)
	}
	s.tell(Scale{Service: web, Replicas: 1})
	s.run(5 * time.Second)
	Used(s.c.Instances(web), "site", wire.QoS{CPU: 300})
	if i := s.c.InstancesOf(shop)[0]; i.QoS == nil || i.QoS.CPU != 300 {
		t.Errorf("%+v", i.QoS)
	}
}

// A plan tells instances whose limits change from new ones, and the same content from other.
func TestPlanTellsResizeFromNew(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(2, means("a")))
	s.run(5 * time.Second)
	plan := func(digest string, edit func(*spec.ServiceSpec)) Planned {
		a := apply(2, means(digest))
		edit(&a.App.Spec.Services[0])
		p, err := s.c.Plan(s.now, a.App, a.Digests)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := plan("a", func(*spec.ServiceSpec) {}); len(p.Kept) != 2 || len(p.New)+len(p.Resized) != 0 {
		t.Errorf("the same: %+v", p)
	}
	p := plan("a", func(s *spec.ServiceSpec) { s.Resources.Memory = 128 * skerry.MiB })
	if len(p.Kept) != 2 || len(p.New) != 0 || p.Resized[p.Kept[0].ID] != "cpu 0.5, memory 64Mi -> cpu 0.5, memory 128Mi" {
		t.Errorf("other limits: %+v", p)
	}
	p = plan("a", func(s *spec.ServiceSpec) {
		s.Resources.Memory, s.Update.Limits = 128*skerry.MiB, spec.LimitsReplace
	})
	if len(p.New) != 2 || len(p.Kept) != 0 {
		t.Errorf("other limits by replacement: %+v", p)
	}
	if p := plan("b", func(*spec.ServiceSpec) {}); len(p.New) != 2 || len(p.Kept) != 0 {
		t.Errorf("other content: %+v", p)
	}
}

// A version that has failed and stays is not well while its instances happen to be ready, until they have been for long enough.
func TestFailedUpdateIsNotReady(t *testing.T) {
	v := &view.AppView{Deployed: true, Services: []view.ServiceView{{Mode: spec.ModePerWorker, Want: 3, Instances: 3, Ready: 3, UpToDate: 3,
		Rollout: &view.RolloutView{Failing: true, Failures: 3}}}}
	if got := status(v); got != "Degraded" {
		t.Errorf("it is %s, expected Degraded", got)
	}
	if v.Services[0].Rollout.EndedAt = time.Now(); status(v) != "Ready" {
		t.Errorf("it is %s after the end of its update, expected Ready", status(v))
	}
}

// TestLateInstanceTellsWhy: one that found no place in time, as it fails wherever it is put, tells that, and not that nobody is connected.
func TestLateInstanceTellsWhy(t *testing.T) {
	site := newSite(t)
	site.least = -1
	site.tell(apply(1, image("web:1", spec.UpdateSpec{})))
	told := ""
	for range 180 {
		for _, i := range site.c.InstancesOf(shop) {
			if i.Holder == "" {
				continue
			}
			var fx wire.Effects
			site.c.Observe(site.now, "site", wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Failed,
				Reason: "volume v: not here"}, &fx)
			site.take(fx)
		}
		site.run(time.Second)
		for _, e := range site.events {
			if e.Reason == "NotPlaced" {
				told = e.Text
			}
		}
	}
	if !strings.Contains(told, "volume v: not here") {
		t.Errorf("the event says %q, want the reason of the failures", told)
	}
}
