package core

import (
	"math"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A root does not make another service of an instance that was admitted, by its name alone.
func TestChangedSpecIsAdmitted(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	c.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: &wire.WorkerFacts{Levels: true, Arch: "amd64",
		Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}})}})
	a := spec.Assignment{ID: "web-r1", Org: "guest", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "guest", Name: "shop"}, Service: "web"}, Gen: 1, Spec: spec.ServiceSpec{Name: "web"}}
	a.Spec.Image = "web:1"
	a.Revision = a.Spec.Revision()
	var fx wire.Effects
	c.intake.accept(now, a, "root", &fx)
	c.Tick(now)
	if p := c.places[a.ID]; p == nil || p.Refused {
		t.Fatalf("%+v", p)
	}
	for _, gen := range []skerry.Generation{2, 1} {
		evil := a
		evil.Gen, evil.Restart = gen, 1 // under the revision that was admitted
		evil.Spec.Security.Privileged = true
		c.intake.accept(now, evil, "root", &fx)
		if p := c.places[a.ID]; p.A.Spec.Security.Privileged || len(fx.Events) == 0 || fx.Events[len(fx.Events)-1].Reason != "NotAdmitted" {
			t.Errorf("generation %d: it became privileged; %+v", gen, fx.Events)
		}
	}
	for what, edit := range map[string]func(a *spec.Assignment){
		"image of another registry": func(a *spec.Assignment) {
			a.Digest = map[string]string{"web:1": "evil.example/web@sha256:" + strings.Repeat("a", 64)}
		},
		"volume outside": func(a *spec.Assignment) {
			a.Spec.Volumes = []spec.Volume{{Name: "../../../../etc", Empty: &spec.EmptyVolume{Memory: true}}}
		},
	} {
		evil := a
		edit(&evil)
		evil.Gen, evil.Restart, fx.Events = 3, 1, nil
		c.intake.accept(now, evil, "root", &fx)
		if p := c.places[a.ID]; p.A.Gen != 1 || len(fx.Events) == 0 || fx.Events[0].Reason != "NotAdmitted" {
			t.Errorf("%s: it was taken: %+v", what, fx.Events)
		}
	}
	a.Restart = 2
	if c.intake.accept(now, a, "root", &fx); c.places[a.ID].A.Restart != 2 {
		t.Error("a restart of what was admitted is refused")
	}
	evil := a // under a new token for what runs
	held := a.Fence
	evil.PriorFence, evil.Spec.Security.Privileged = &held, true
	evil.Fence.RootEpoch++
	c.intake.accept(now, evil, "root", &fx)
	if p := c.places[a.ID]; p.A.Spec.Security.Privileged && !p.Refused {
		t.Errorf("it became privileged: %+v", p.A)
	}
}

// A worker that reports what is no number ends neither the site's process nor what others say.
func TestReportOfNoNumbers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Admission: Admission{Trusted: []string{"default"}}})
		c.Start(now)
		c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		report := func(r wire.WorkerReport) {
			c.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
		}
		facts := &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}
		report(wire.WorkerReport{Facts: facts})
		c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
		c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		one := 1
		s := spec.ServiceSpec{Name: "web", Replicas: &one}
		s.Image = "web:1"
		c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
		var id skerry.InstanceID
		for id = range c.places {
		}
		if id == "" || c.places[id].Worker != "w" {
			t.Fatalf("%q is not placed", id)
		}
		spoilt := *facts
		spoilt.Power = &wire.Power{Idle: v}
		report(wire.WorkerReport{Facts: &spoilt})
		report(wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{id: {Waiting: v, ProbeMs: v}}})
		c.Step(now, apps.Delete{Key: c.places[id].A.Service.App})
	}
}

// A root that was taken over makes neither paths nor images of its own: no manifest with them is accepted anywhere, and a site looks
// itself.
func TestAssignmentsOfACapturedRoot(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	good := func() *spec.Assignment {
		a := &spec.Assignment{ID: "web-r1", Org: "guest", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "guest", Name: "shop"}, Service: "web"}, Gen: 1, Spec: spec.ServiceSpec{Name: "web"}}
		a.Spec.Image = "web:1"
		a.Digest = map[string]string{"web:1": "skerry.local/web@sha256:" + strings.Repeat("a", 64)}
		return a
	}
	send := func(a *spec.Assignment) (*placement, wire.Effects) {
		c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
		c.Start(now)
		key, value := wire.AssignmentKey(a.ID), wire.New().Marshal(a)
		fx := c.Step(now, ParentFrame{Msg: &wire.SetChunk{Set: "desired", Incarnation: "r1", Gen: 1, Last: true, Digest: reconcile.DigestOf(map[string][]byte{key: value}), Items: []wire.SetItem{{Key: key, Value: value, Gen: 1}}}})
		return c.places[a.ID], fx
	}
	if p, _ := send(good()); p == nil || p.Obs.Why[0].What != "workers" { // of which there are none
		t.Fatalf("a good one is not admitted: %+v", p)
	}
	for what, edit := range map[string]func(a *spec.Assignment){
		"the ID leads out of a worker's directory": func(a *spec.Assignment) { a.ID = "../../../../root" },
		"so does a volume": func(a *spec.Assignment) {
			a.Spec.Volumes = []spec.Volume{{Name: "../../../../etc", Local: &spec.LocalVolume{}}}
		},
		"so does an application":       func(a *spec.Assignment) { a.Service.App.Name = "../../../../etc" },
		"so does a side container":     func(a *spec.Assignment) { a.Spec.Sidecars = []spec.SideContainer{{Name: "../../../x"}} },
		"an image of another registry": func(a *spec.Assignment) { a.Digest["web:1"] = "evil.example/web@sha256:" + strings.Repeat("a", 64) },
		"an image of another repository": func(a *spec.Assignment) {
			a.Digest["web:1"] = "skerry.local/home/db@sha256:" + strings.Repeat("a", 64)
		},
		"a mount over the root":                   func(a *spec.Assignment) { a.Spec.Config = []spec.ConfigFile{{Path: "/x/../.."}} },
		"more than there is by an amount below 0": func(a *spec.Assignment) { a.Spec.Resources.GPUs = -5 },
	} {
		a := good()
		edit(a)
		if p, fx := send(a); p != nil && p.Obs.Why[0].What != "admission" || p == nil && (len(fx.Events) == 0 || fx.Events[0].Reason != "BadAssignment") {
			t.Errorf("%s: %+v, %+v", what, p, fx.Events)
		}
	}
}

// A worker that claims amounts that cannot be does not keep its site from starting again.
func TestSiteStartsAfterOddClaims(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, n := range []int64{-1, -5 << 30, math.MaxInt64, math.MinInt64} {
		c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
		c.Start(now)
		records := map[string][]byte{}
		step := func(msg any) {
			for _, w := range c.Step(now, msg).Writes {
				records[w.Key] = w.Value
			}
		}
		step(ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		step(ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: &wire.WorkerFacts{Levels: true, Arch: "amd64",
			Capacity: spec.Resources{CPU: skerry.MilliCPU(n), Memory: skerry.Bytes(n), Storage: skerry.Bytes(n)}}})}})
		next, claimed := New(Options{Name: "a", Incarnation: "a1", Term: 1}), false
		for key, value := range records {
			claimed = claimed || strings.Contains(string(value), `"capacity"`)
			if err := next.Load(key, value); err != nil {
				t.Errorf("claims of %d: %v", n, err)
			}
		}
		if !claimed {
			t.Error("nothing of the claims is kept")
		}
	}
}

// A worker that tells long stories of its instances, or that they listen on other machines, does not make its site write a record that
// the store refuses, nor send others to those machines.
func TestStoriesOfAWorker(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, "")
	a, _ := c.onlyAssignment(t)
	src := reconcile.NewSource("observed", "x/", "life", reconcile.Options{})
	src.Connect(now, wire.SetAck{Set: "observed"})
	largest := 0
	step := func(msg any) {
		fx := c.Step(now, msg)
		for _, w := range fx.Writes {
			largest = max(largest, len(w.Value))
		}
		for _, s := range fx.Sends {
			if ack, ok := s.Msg.(*wire.SetAck); ok {
				src.Handle(now, ack)
			}
		}
		for _, e := range fx.Events {
			if len(e.Text) > 10_000 {
				t.Errorf("an event of %d bytes", len(e.Text))
			}
		}
	}
	long := func(n int) string { return strings.Repeat("\x01", 100<<10+n) }
	for n := range 30 {
		o := wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true, Runtime: long(n), Reason: long(n), CrashLoop: long(n), StartedAt: now,
			Exit: &wire.Exit{Message: long(n)}, Ports: []wire.PortBinding{{Name: "http", Port: 80, Address: "169.254.169.254:80"}, {Name: "x", Port: 81, HostPort: 81, Address: "192.0.2.1:22"}}}
		if n%2 > 0 {
			o.Phase = skerry.PhaseStopping
		}
		if _, err := src.Put(wire.AssignmentKey(a.ID), wire.New().Marshal(&o)); err != nil {
			t.Fatal(err)
		}
		for _, m := range src.Next(now) {
			step(ChildFrame{Name: "w", Msg: m})
		}
		step(ChildFrame{Name: "w", Msg: &wire.Events{Stream: "x", Floor: 1, First: uint64(n + 1), Items: [][]byte{wire.New().Marshal(&wire.Event{At: now, Type: wire.EventWarning, Reason: long(n), Instance: a.ID, Text: long(n)})}}})
	}
	p := c.places[a.ID]
	if p.Obs.State != skerry.Running || len(p.Timeline) < 20 {
		t.Fatalf("nothing of it came: %+v", p.Obs.State)
	}
	if largest > 500<<10 {
		t.Errorf("a record of %d bytes", largest)
	}
	if x, y := p.Obs.Ports[0].Address, p.Obs.Ports[1].Address; x != "" || y != ":81" { // its site knows no address of this worker
		t.Errorf("others are sent to %q and %q", x, y)
	}
}
