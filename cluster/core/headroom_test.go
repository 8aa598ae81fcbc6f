package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// mixed is a site with workers of some runtimes each, and time that it is told.
type mixed struct {
	*Core
	t   *testing.T
	now time.Time
	seq uint64
	// ingress is what workers tell of what comes
	ingress []wire.IngressUse
	// events of the instances, by reason
	events map[string]string
}

func mixedSite(t *testing.T) *mixed {
	t.Helper()
	m := &mixed{Core: New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Standalone: true, Admission: Admission{Trusted: []string{"default"}}}),
		t: t, now: time.Unix(1_700_000_000, 0), events: map[string]string{}}
	m.Start(m.now)
	m.step(apps.PutOrg{Org: apps.Org{Name: "default"}})
	m.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	return m
}

func (m *mixed) step(msg any) {
	m.t.Helper()
	m.told(m.Step(m.now, msg))
}

func (m *mixed) told(fx wire.Effects) {
	m.t.Helper()
	if fx.Err != nil {
		m.t.Fatal(fx.Err)
	}
	for _, e := range fx.Events {
		if e.Instance != "" {
			m.events[e.Reason] = e.Text
		}
	}
}

// tell has a worker report its runtimes and what its instances use, after a while.
func (m *mixed) tell(name string, after time.Duration, use map[skerry.InstanceID]wire.QoS, runtimes ...wire.RuntimeReport) {
	m.t.Helper()
	m.now = m.now.Add(after)
	m.seq++
	r := wire.WorkerReport{Seq: m.seq, Instances: use, Ingress: m.ingress}
	if len(runtimes) > 0 {
		r.Facts = &wire.WorkerFacts{Arch: "amd64", Runtimes: runtimes, Capacity: spec.Resources{CPU: 4000, Memory: 2 * skerry.GiB}}
	}
	m.step(ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
}

func (m *mixed) join(name string, runtimes ...string) {
	m.t.Helper()
	var list []wire.RuntimeReport
	for _, r := range runtimes {
		list = append(list, wire.RuntimeReport{Name: r, Passed: true})
	}
	m.step(ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	m.tell(name, 0, nil, list...)
}

func (m *mixed) apply(edit func(*spec.ServiceSpec), replicas int) {
	m.t.Helper()
	s := spec.ServiceSpec{Name: "web", Replicas: &replicas, Ports: []spec.Port{{Port: 80}}, Resources: spec.Resources{CPU: 1000, Memory: 64 * skerry.MiB}}
	s.Image = "a/b:1"
	edit(&s)
	m.step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}})
}

// runs has a worker tell that all that it is to run is ready, in the runtimes that it is told, which are returned by instance.
func (m *mixed) runs(name string) map[skerry.InstanceID]string {
	m.t.Helper()
	in := map[skerry.InstanceID]string{}
	desired := m.Children.Get(name).Desired
	for _, key := range desired.Keys() {
		if !strings.HasPrefix(key, "inst/") {
			continue
		}
		value, _ := desired.Get(key)
		var a spec.Assignment
		if err := m.codec.Unmarshal(value, &a); err != nil {
			m.t.Fatal(err)
		}
		in[a.ID] = a.Runtime
		var fx wire.Effects
		m.reports.observe(m.now, name, wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true, Runtime: a.Runtime,
			Revision: a.Revision, StartedAt: m.now}, &fx)
		m.told(fx)
	}
	return in
}

func headRoom(v wire.Instance) string {
	for _, k := range v.Conditions {
		if k.Type == skerry.HeadRoom && !k.Status {
			return k.Reason
		}
	}
	return ""
}

// A service that no runtime bears clear of its saturation point runs all the same, and says so until its worker has measured that it does.
func TestNoRuntimeStaysClear(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "oci", "microvm")
	m.step(ChildUp{Hello: &wire.Hello{Name: "w0", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}}) // which has told nothing yet
	m.apply(func(s *spec.ServiceSpec) { s.Isolation, s.ExpectedRate = spec.IsolationHardware, 15 }, 1)
	ran := m.runs("w1")
	if len(ran) != 1 {
		t.Fatal(ran)
	}
	for id, runtime := range ran {
		v, _, _ := m.Instance(id)
		if why := headRoom(v); runtime != "microvm" || !strings.Contains(why, "15 requests per second are 92 % of the rate at which runtime microvm saturates") || m.events["NoHeadRoom"] != why {
			t.Errorf("%s: %q, events %v", runtime, why, m.events)
		}
		list := m.RuntimeChoices(id)
		if n := slices.IndexFunc(list, func(r spec.RuntimeChoice) bool { return r.Chosen }); n < 0 || list[n].HeadRoom == nil || *list[n].HeadRoom < 0.07 || *list[n].HeadRoom > 0.08 || list[n].Crowded != headRoom(v) {
			t.Errorf("explained as %+v", list)
		}
		if k := m.Apps.Instance(id).Conditions; !slices.ContainsFunc(k, func(k skerry.Condition) bool { return k.Type == skerry.HeadRoom && !k.Status }) {
			t.Errorf("the owner is told %+v", k)
		}
		m.tell("w1", time.Minute, nil, wire.RuntimeReport{Name: "oci", Passed: true}, wire.RuntimeReport{Name: "microvm", Passed: true, Profile: &wire.RuntimeProfile{CPU: 1.2, At: m.now}})
		if v, _, _ = m.Instance(id); headRoom(v) != "" || m.events["HeadRoom"] == "" {
			t.Errorf("measured, and still %q", headRoom(v))
		}
		if list := m.RuntimeChoices(id); !slices.ContainsFunc(list, func(r spec.RuntimeChoice) bool {
			return r.Chosen && r.Processor.Source == "measured on its worker on 2023-11-14" && r.Crowded == ""
		}) {
			t.Errorf("explained as %+v", list)
		}
	}
}

// use has an instance use so much of a processor for a while.
func (m *mixed) use(worker string, id skerry.InstanceID, cpu skerry.MilliCPU, d time.Duration) {
	for ; d > 0; d -= 10 * time.Second {
		m.tell(worker, 10*time.Second, map[skerry.InstanceID]wire.QoS{id: {CPU: cpu}})
	}
}

// only gives the one instance that a worker is to run.
func (m *mixed) only(worker string) (skerry.InstanceID, string) {
	m.t.Helper()
	ran := m.runs(worker)
	if len(ran) != 1 {
		m.t.Fatalf("worker %s is to run %v", worker, ran)
	}
	for id, runtime := range ran {
		return id, runtime
	}
	panic("unreachable")
}

// An instance that has nearly all of its processor time in use in a microVM is moved to a worker that runs it as a container, make before
// break; one that must be kept apart by hardware stays, and one whose service may have more instances waits for them.
func TestRuntimeReconsidered(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(*spec.ServiceSpec)
		want  string // runtime on the other worker; empty: it stays
		tells string
	}{
		{"shared", func(s *spec.ServiceSpec) { s.Isolation = spec.IsolationShared }, "oci", ""},
		{"sandboxed, without a figure", func(s *spec.ServiceSpec) { s.Isolation = spec.IsolationSandboxed }, "", "in a runtime that is known to bear it"},
		{"hardware", func(s *spec.ServiceSpec) { s.Isolation = spec.IsolationHardware }, "", "no other worker has room for it"},
		{"never to be moved", func(s *spec.ServiceSpec) { r := 0.0; s.Placement.Rigidness = &r }, "", "rigidness 0"},
		{"may have more", func(s *spec.ServiceSpec) {
			s.Scale = &spec.ScaleSpec{Max: 2, Target: spec.ScaleTarget{CPU: new(1.0)}}
		}, "", "its service may have more instances"},
		{"has as many as it may", func(s *spec.ServiceSpec) {
			s.Scale = &spec.ScaleSpec{Max: 1, Target: spec.ScaleTarget{CPU: new(1.0)}}
		}, "oci", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := mixedSite(t)
			m.join("w1", "microvm")
			m.apply(tt.edit, 1)
			id, runtime := m.only("w1")
			if runtime != "microvm" {
				t.Fatal(runtime)
			}
			m.join("w2", "oci", "gvisor")
			m.use("w1", id, 800, 10*time.Minute)
			if len(m.runs("w2")) != 0 || m.events["NoHeadRoom"] != "" {
				t.Fatalf("moved at 80 %%: %v", m.events)
			}
			m.use("w1", id, 980, 3*time.Minute)
			v, _, _ := m.Instance(id)
			if tt.want == "" {
				if len(m.runs("w2")) != 0 || v.Worker != "w1" || !strings.Contains(headRoom(v), tt.tells) {
					t.Errorf("on %s, %q", v.Worker, headRoom(v))
				}
				m.use("w1", id, 500, time.Minute)
				if v, _, _ = m.Instance(id); headRoom(v) != "" {
					t.Errorf("at rest, and still %q", headRoom(v))
				}
				return
			}
			if v.Worker != "w1" || v.Runtime != "microvm" || len(v.Conditions) == 0 || m.events["RuntimeChanged"] == "" {
				t.Fatalf("it does not run on until the other is ready: %+v, %v", v, m.events)
			}
			if _, runtime := m.only("w2"); runtime != tt.want {
				t.Fatalf("started in %s", runtime)
			}
			v, d, _ := m.Instance(id)
			if v.Worker != "w2" || v.Runtime != tt.want || headRoom(v) != "" || v.Overhead.Memory != 2*skerry.MiB || !strings.Contains(d.Because, "near its saturation point in runtime microvm") {
				t.Errorf("it is %+v because %q", v, d.Because)
			}
			if last := v.Timeline[len(v.Timeline)-1].Text; !strings.Contains(last, "runs in runtime oci on worker w2, before in microvm on w1") {
				t.Errorf("the timeline ends with %q", last)
			}
			// Strained there, too: nothing bears more, and nothing bounces.
			m.use("w2", id, 990, 2*time.Hour)
			if v, _, _ = m.Instance(id); v.Worker != "w2" || !strings.Contains(headRoom(v), "near its saturation point in runtime oci") {
				t.Errorf("on %s, %q", v.Worker, headRoom(v))
			}
		})
	}
}

// One service has a container on one worker and a virtual machine on another: each is charged what its own runtime takes, keeps it when its
// worker comes to have a cheaper one, and is in nobody's way.
func TestContainersAndMachinesOfOneService(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "oci")
	m.join("w2", "microvm")
	m.apply(func(s *spec.ServiceSpec) { s.Placement.Policy = spec.PolicySpread }, 2)
	a, container := m.only("w1")
	b, machine := m.only("w2")
	if container != "oci" || machine != "microvm" || a == b {
		t.Fatalf("%s in %s, %s in %s", a, container, b, machine)
	}
	left := func(name string, memory skerry.Bytes) {
		t.Helper()
		free, _ := m.site.Available(name)
		if want := 2*skerry.GiB - memory; free.Memory != want || m.workers[name].available().Memory != want {
			t.Errorf("%s has %s left, and %s by its books; want %s", name, free.Memory, m.workers[name].available().Memory, want)
		}
	}
	left("w1", (64+2)*skerry.MiB)
	left("w2", (64+210)*skerry.MiB)
	view := m.Apps.View(m.Apps.App(skerry.AppKey{Namespace: "default", Name: "shop"}), "cluster", false)
	if n := len(view.Services); n != 1 || view.Services[0].Ready != 2 {
		t.Errorf("%+v", view.Services)
	}
	// The second worker can run containers now: the machine stays one, and gives back on paper what a machine takes.
	m.tell("w2", time.Minute, nil, wire.RuntimeReport{Name: "oci", Passed: true}, wire.RuntimeReport{Name: "microvm", Passed: true})
	if id, runtime := m.only("w2"); id != b || runtime != "microvm" {
		t.Errorf("%s in %s", id, runtime)
	}
	left("w2", (64+210)*skerry.MiB)
	m.Explain(m.now, b)
	m.balancer.planBalance(m.now)
	left("w1", (64+2)*skerry.MiB)
	left("w2", (64+210)*skerry.MiB)
	// A third is placed with what is so, and goes the cheaper way there.
	m.step(apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: 4, Actor: "t"})
	in := map[string]int{}
	for _, name := range []string{"w1", "w2"} {
		for _, runtime := range m.runs(name) {
			in[name+" "+runtime]++
		}
	}
	if in["w1 oci"] != 2 || in["w2 microvm"] != 1 || in["w2 oci"] != 1 {
		t.Errorf("%v", in)
	}
	left("w2", (64+210+64+2)*skerry.MiB)
}

// The runtime that bears it is not always the one that its new worker would choose: it is told which, and charged for that, and keeps it.
func TestReconsideredRuntimeIsKept(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "microvm")
	m.apply(func(*spec.ServiceSpec) {}, 1)
	id, _ := m.only("w1")
	m.join("w2", "oci")
	m.tell("w2", time.Second, nil, wire.RuntimeReport{Name: "oci", Passed: true, Profile: &wire.RuntimeProfile{CPU: 3, At: m.now}},
		wire.RuntimeReport{Name: "gvisor", Passed: true, Profile: &wire.RuntimeProfile{CPU: 0.9, At: m.now}})
	m.use("w1", id, 980, 3*time.Minute)
	if _, runtime := m.only("w2"); runtime != "gvisor" {
		t.Fatalf("started in %s", runtime)
	}
	if free, _ := m.site.Available("w2"); free.Memory != 2*skerry.GiB-(64+40)*skerry.MiB {
		t.Errorf("%s is left", free.Memory)
	}
	if v, _, _ := m.Instance(id); v.Worker != "w2" || v.Runtime != "gvisor" {
		t.Errorf("%+v", v)
	}
}

// Requests that take longer than they should count, where half of the processor time is in use, and not where it is not.
func TestSlowServiceChangesItsRuntime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ms    float64
		cpu   skerry.MilliCPU
		moves bool
	}{{"in time", 40, 600, false}, {"slow", 60, 600, true}, {"slow for other reasons", 60, 400, false}} {
		t.Run(tt.name, func(t *testing.T) {
			m := mixedSite(t)
			m.join("w1", "microvm")
			m.apply(func(s *spec.ServiceSpec) { s.LatencyObjective = spec.Duration(50 * time.Millisecond) }, 1)
			id, _ := m.only("w1")
			m.join("w2", "oci")
			m.ingress = []wire.IngressUse{{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Requests: 9, Ms: tt.ms}}
			m.use("w1", id, tt.cpu, 5*time.Minute)
			if moves := len(m.runs("w2")) == 1; moves != tt.moves {
				t.Errorf("moved is %v: %v", moves, m.events)
			}
		})
	}
}

// Of the instances of a service one at a time changes its runtime.
func TestOneAtATime(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "microvm")
	m.apply(func(*spec.ServiceSpec) {}, 3)
	use := map[skerry.InstanceID]wire.QoS{}
	for id := range m.runs("w1") {
		use[id] = wire.QoS{CPU: 990}
	}
	m.join("w2", "oci")
	for done := range 3 {
		for range 30 {
			m.tell("w1", 10*time.Second, use)
		}
		if n := len(m.moving); n != 1 {
			t.Fatalf("%d move after %d did", n, done)
		}
		ran := m.runs("w2")
		for id := range ran {
			delete(use, id)
		}
		if len(m.moving) != 0 || len(ran) != done+1 {
			t.Fatalf("%v run there, %d move", ran, len(m.moving))
		}
	}
}

// timed is a worker's report of containers that answer so many requests of a profile's work by the clock.
func timed(rate float64, at time.Time) wire.RuntimeReport {
	return wire.RuntimeReport{Name: "oci", Passed: true, Profile: &wire.RuntimeProfile{CPU: 1, At: at, Rate: rate, Share: 1, Spread: 0.1}}
}

// Of two workers that are alike but for how fast they were measured to be, the one that bears what is expected is chosen, and explain tells by what.
func TestPlacedByMeasuredSpeed(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "oci")
	m.join("w2", "oci")
	m.tell("w1", time.Second, nil, timed(1500, m.now))
	m.tell("w2", time.Second, nil, timed(6000, m.now))
	m.apply(func(s *spec.ServiceSpec) { s.ExpectedRate, s.Placement.Policy = 15, spec.PolicySpread }, 2)
	if ran := m.runs("w2"); len(ran) != 2 || len(m.runs("w1")) != 0 {
		t.Fatalf("%v on the quick one, %v on the slow one", ran, m.runs("w1"))
	}
	for id := range m.runs("w2") {
		list := m.RuntimeChoices(id)
		if n := slices.IndexFunc(list, func(r spec.RuntimeChoice) bool { return r.Chosen }); n < 0 || list[n].Crowded != "" || list[n].Saturation < 25 || list[n].Saturation > 30 ||
			!strings.Contains(list[n].Processor.Source, "work takes 0.96 times as long there") {
			t.Errorf("explained as %+v", list)
		}
		if n := slices.IndexFunc(list, func(r spec.RuntimeChoice) bool { return r.Runtime == "microvm" }); strings.Contains(list[n].Processor.Source, "as long there") {
			t.Errorf("what the worker does not have is %+v", list[n])
		}
	}
}

// What is full on a slow worker is relieved by a fast one, in the runtime that it has.
func TestFasterWorkerRelieves(t *testing.T) {
	m := mixedSite(t)
	m.join("w1", "oci")
	m.tell("w1", time.Second, nil, timed(1500, m.now))
	m.apply(func(*spec.ServiceSpec) {}, 1)
	id, _ := m.only("w1")
	m.join("w2", "oci")
	m.tell("w2", time.Second, nil, timed(6000, m.now))
	m.use("w1", id, 980, 3*time.Minute)
	if _, runtime := m.only("w2"); runtime != "oci" || !strings.Contains(m.events["RuntimeChanged"], "which takes less of one elsewhere") {
		t.Errorf("started in %q, events %v", runtime, m.events)
	}
}
