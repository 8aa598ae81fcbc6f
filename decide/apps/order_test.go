package apps

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// ordered is a site with a service that waits for a database to be ready and for a job to succeed, which waits for the database to run.
type ordered struct{ *site }

func newOrdered(t *testing.T) ordered {
	return ordered{newSite(t)}
}

func (o ordered) apply(image string) {
	o.t.Helper()
	o.tell(apply(1, func(a *Apply) {
		web := a.App.Spec.Services[0]
		web.Image = image
		db, migrate := web, web
		db.Name, db.Image = "db", "db:1"
		migrate.Name, migrate.Mode, migrate.Replicas = "migrate", spec.ModeJob, nil
		none := 0
		migrate.Job = &spec.JobSpec{BackoffLimit: &none}
		migrate.StartAfter = []spec.StartAfter{{Service: "db", Condition: spec.AfterRunning}}
		web.StartAfter = []spec.StartAfter{{Service: "db"}, {Service: "migrate"}}
		a.App.Spec.Services = []spec.ServiceSpec{web, migrate, db}
		a.App.SetDefaults()
	}))
}

// live lists what runs, or is being started, by service and image.
func (o ordered) live() string {
	var out []string
	for _, i := range o.c.InstancesOf(shop) {
		if i.Live() && !i.State.Final() {
			out = append(out, i.Service.Service+" "+i.Spec.Image)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// end has the instances of the job end.
func (o ordered) end(code int) {
	var fx wire.Effects
	for _, i := range o.c.InstancesOf(shop) {
		if i.Service.Service != "migrate" || i.State.Final() {
			continue
		}
		at := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Terminated, Phase: skerry.PhaseExited,
			Exit: &wire.Exit{Code: code, At: o.now}}
		if code != 0 {
			at.State, at.Reason = skerry.Failed, "exit code"
		}
		o.c.Observe(o.now, "site", at, &fx)
	}
	o.take(fx)
	o.take(o.c.Reconcile(o.now))
}

func (o ordered) expect(when, live, reason string) {
	o.t.Helper()
	if got := o.live(); got != live {
		o.t.Errorf("%s: %s, expected %s", when, got, live)
	}
	if got := o.c.View(o.c.App(shop), "root", false).Services[0].Reason; got != reason && !strings.HasPrefix(got, reason+":") {
		o.t.Errorf("%s: the service says %q, expected %q", when, got, reason)
	}
}

func (o ordered) pass(d time.Duration) {
	for end := o.now.Add(d); o.now.Before(end); o.now = o.now.Add(time.Second) {
		o.look()
	}
}

// What others wait for comes first, and the order holds over a restart of who decides. An instance that is replaced later waits for nobody.
func TestOthersComeFirst(t *testing.T) {
	o := newOrdered(t)
	o.apply("web:1")
	o.expect("at first", "db db:1", "StartWaits: service db is to be ready first")
	o.look()
	o.look()
	o.expect("when it runs", "db db:1, migrate web:1", "StartWaits: service db is to be ready first")
	o.pass(5 * time.Second)
	o.expect("when it is ready", "db db:1, migrate web:1", "StartWaits: job migrate is to succeed first")
	o.end(0)
	o.expect("when the job has succeeded", "db db:1, web web:1", "Placing")
	o.pass(5 * time.Second)

	o.bad = func(i *Instance) bool { return i.Service.Service == "db" }
	o.pass(5 * time.Second)
	for _, i := range o.c.InstancesOf(shop) {
		if i.Service.Service == "web" {
			var fx wire.Effects
			failed := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Failed, Reason: "exit code"}
			o.c.Observe(o.now, "site", failed, &fx)
			o.take(fx)
		}
	}
	o.take(o.c.Reconcile(o.now))
	o.look()
	if got := o.live(); !strings.Contains(got, "web web:1") {
		t.Errorf("an instance that failed is not replaced while another service is not ready: %s", got)
	}
}

// A new version waits as the first one did, and the old one serves meanwhile. A job that fails holds it up for good, and says so.
func TestNewVersionWaitsForItsJob(t *testing.T) {
	o := newOrdered(t)
	o.apply("web:1")
	o.pass(5 * time.Second)
	o.end(0)
	o.pass(20 * time.Second)
	o.apply("web:2")
	o.pass(5 * time.Second)
	if got := o.live(); got != "db db:1, migrate web:2, web web:1" {
		t.Fatalf("while the new job runs: %s", got)
	}
	store := map[string]any{}
	for k, v := range o.store {
		store[k] = v
	}
	o.end(1)
	o.pass(5 * time.Second)
	if got := o.live(); got != "db db:1, web web:1" {
		t.Errorf("when it has failed: %s", got)
	}
	reason := fmt.Sprint(o.c.View(o.c.App(shop), "root", false).Services[0].Reason)
	if got := reason; !strings.Contains(got, "job migrate is to succeed first, and has ended: Failed") {
		t.Errorf("it says %q", got)
	}
	// The same with a job that succeeds, decided by who was started anew meanwhile.
	o.store, o.c = store, New([16]byte{2}, "t")
	for key, value := range store {
		if _, err := o.c.Load(key, value.([]byte)); err != nil {
			t.Fatal(err)
		}
	}
	o.c.Start(o.now)
	o.pass(3 * time.Second)
	o.end(0)
	o.pass(30 * time.Second)
	if got := o.live(); got != "db db:1, web web:2" {
		t.Errorf("when it has succeeded: %s", got)
	}
}

// A service that runs has begun: what it is to start after from now on, without another version, holds nothing back.
func TestWhatRunsHasBegun(t *testing.T) {
	o := newOrdered(t)
	o.bad = func(i *Instance) bool { return i.Service.Service == "db" }
	both := func(after ...spec.StartAfter) {
		o.tell(apply(1, func(a *Apply) {
			web := a.App.Spec.Services[0]
			db := web
			db.Name = "db"
			web.StartAfter = after
			a.App.Spec.Services = []spec.ServiceSpec{web, db}
			a.App.SetDefaults()
		}))
	}
	both()
	o.pass(3 * time.Second)
	both(spec.StartAfter{Service: "db"})
	o.look()
	for _, i := range o.c.InstancesOf(shop) {
		if i.Service.Service == "web" {
			var fx wire.Effects
			o.c.Observe(o.now, "site", wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Failed, Reason: "exit code"}, &fx)
			o.take(fx)
		}
	}
	o.take(o.c.Reconcile(o.now))
	o.look()
	if got := o.live(); got != "db web:1, web web:1" {
		t.Errorf("an instance that failed is not replaced: %s", got)
	}
}

// Copies of the version before, which a site keeps until it is their turn, are not what another service waits for.
func TestFormerCopiesAreNotTheNewVersion(t *testing.T) {
	c := New([16]byte{1}, "r")
	s := &spec.ServiceSpec{Name: "agent", Mode: spec.ModePerWorker}
	a := &App{Manifest: spec.Application{Metadata: spec.Metadata{Namespace: "default", Name: "shop"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{*s}}}, revisions: map[string]string{"agent": "r2"}}
	i := &Instance{Instance: wire.Instance{ID: "agent-1", Service: skerry.ServiceKey{App: shop, Service: "agent"}, Revision: "r2",
		State: skerry.WorkerScheduled, Want: 3}, Copies: &wire.Copies{Former: 3, Serving: 3}}
	c.addInstance(i)
	if c.begun(a, s, true) || c.begun(a, s, false) {
		t.Error("three copies of the version before count as the present one")
	}
	if i.Have, i.Copies = 1, (&wire.Copies{Former: 2, Serving: 2}); !c.begun(a, s, true) {
		t.Error("a copy of the present version is ready, and does not count")
	}
}

// Of two services that get a secret together, one that links to the other does not wait for it where that starts after it.
func TestTurnsAgainstTheOrderOfStarting(t *testing.T) {
	m := spec.Application{Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{
		{Name: "api", Mode: spec.ModeService, Links: []spec.Link{{Service: "worker"}}},
		{Name: "worker", Mode: spec.ModeService, StartAfter: []spec.StartAfter{{Service: "between"}}, Links: []spec.Link{{Service: "db"}}},
		{Name: "between", Mode: spec.ModeService, StartAfter: []spec.StartAfter{{Service: "api"}}},
		{Name: "db", Mode: spec.ModeService},
	}}}
	got := fmt.Sprint(turns(&m, []string{"api", "worker", "between", "db"}))
	if want := "map[api:[db] worker:[db]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A job whose new version, or whose restart, waits for others has not run yet: what an earlier run came to is not its result.
func TestJobThatWaitsHasNotRun(t *testing.T) {
	o := newOrdered(t)
	pending := func(when string, want bool) {
		t.Helper()
		if got := o.appView().Services[1]; got.Pending != want {
			t.Errorf("%s: pending is %v, want %v; runs: %+v", when, got.Pending, want, got.Runs)
		}
	}
	o.apply("web:1")
	pending("before its first run", true)
	o.pass(5 * time.Second)
	pending("while it runs", false)
	o.end(1)
	o.pass(20 * time.Second)
	pending("when it has failed", false)
	o.bad = func(i *Instance) bool { return i.Service.Service == "db" }
	o.tell(apply(1, func(a *Apply) {
		a.App = o.c.App(shop).Manifest
		a.App.Spec.Services = slices.Clone(a.App.Spec.Services)
		for i := range a.App.Spec.Services {
			s := &a.App.Spec.Services[i]
			if s.Name != "web" {
				s.Image += "-2"
			}
			if s.Name == "migrate" {
				s.StartAfter = []spec.StartAfter{{Service: "db"}}
			}
		}
	}))
	pending("when its new version waits", true)
	if reason := o.appView().Services[1].Reason; !strings.HasPrefix(reason, "StartWaits") {
		t.Errorf("the job that waits says %q, want StartWaits", reason)
	}
	for _, result := range []string{"Succeeded", "Failed"} {
		job := view.ServiceView{Mode: spec.ModeJob, Pending: true, Runs: []view.RunView{{Result: result}}}
		if got := status(&view.AppView{Deployed: true, Services: []view.ServiceView{job}}); got != "Progressing" {
			t.Errorf("an application of which the earlier run has %s is %s, want Progressing", result, got)
		}
	}
}
