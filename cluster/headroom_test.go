package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/internal/wire"
	"skerry.dev/skerry/sched"
)

// mixed is a site with workers of some runtimes each, and time that it is told.
type mixed struct {
	*Core
	t   *testing.T
	now time.Time
	seq uint64
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

func (m *mixed) told(fx skerry.Effects) {
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
func (m *mixed) tell(name string, after time.Duration, use map[skerry.InstanceID]skerry.QoS, runtimes ...skerry.RuntimeReport) {
	m.t.Helper()
	m.now = m.now.Add(after)
	m.seq++
	r := skerry.WorkerReport{Seq: m.seq, Instances: use}
	if len(runtimes) > 0 {
		r.Facts = &skerry.WorkerFacts{Arch: "amd64", Runtimes: runtimes, Capacity: skerry.Resources{CPU: 4000, Memory: 2 * skerry.GiB}}
	}
	m.step(ChildFrame{Name: name, Msg: &skerry.Report{Kind: skerry.ReportWorker, Payload: wire.New().Marshal(&r)}})
}

func (m *mixed) join(name string, runtimes ...string) {
	m.t.Helper()
	var list []skerry.RuntimeReport
	for _, r := range runtimes {
		list = append(list, skerry.RuntimeReport{Name: r, Passed: true})
	}
	m.step(ChildUp{Hello: &skerry.Hello{Name: name, Sets: []skerry.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	m.tell(name, 0, nil, list...)
}

func (m *mixed) apply(edit func(*skerry.ServiceSpec), replicas int) {
	m.t.Helper()
	s := skerry.ServiceSpec{Name: "web", Replicas: &replicas, Ports: []skerry.Port{{Port: 80}}, Resources: skerry.Resources{CPU: 1000, Memory: 64 * skerry.MiB}}
	s.Image = "a/b:1"
	edit(&s)
	m.step(apps.Apply{App: skerry.Application{APIVersion: skerry.APIVersion, Kind: skerry.KindApplication,
		Metadata: skerry.Metadata{Name: "shop"}, Spec: skerry.ApplicationSpec{Services: []skerry.ServiceSpec{s}}}})
}

// runs has a worker tell that all that it is to run is ready, in the runtimes that it is told, which are returned by instance.
func (m *mixed) runs(name string) map[skerry.InstanceID]string {
	m.t.Helper()
	in := map[skerry.InstanceID]string{}
	desired := m.Kids.Get(name).Desired
	for _, key := range desired.Keys() {
		if !strings.HasPrefix(key, "inst/") {
			continue
		}
		value, _ := desired.Get(key)
		var a skerry.Assignment
		if err := m.codec.Unmarshal(value, &a); err != nil {
			m.t.Fatal(err)
		}
		in[a.ID] = a.Runtime
		var fx skerry.Effects
		m.observe(m.now, name, skerry.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true, Runtime: a.Runtime,
			Revision: a.Revision, StartedAt: m.now}, &fx)
		m.told(fx)
	}
	return in
}

func headRoom(v skerry.Instance) string {
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
	m.apply(func(s *skerry.ServiceSpec) { s.Isolation, s.ExpectedRate = skerry.IsolationHardware, 15 }, 1)
	ran := m.runs("w1")
	if len(ran) != 1 {
		t.Fatal(ran)
	}
	for id, runtime := range ran {
		v, _, _ := m.Instance(id)
		if why := headRoom(v); runtime != "microvm" || !strings.Contains(why, "15 requests per second are 92 % of the rate at which runtime microvm saturates") || m.events["NoHeadRoom"] != why {
			t.Errorf("%s: %q, events %v", runtime, why, m.events)
		}
		list := m.runtimeChoices(id)
		if n := slices.IndexFunc(list, func(r skerry.RuntimeChoice) bool { return r.Chosen }); n < 0 || list[n].HeadRoom == nil || *list[n].HeadRoom < 0.07 || *list[n].HeadRoom > 0.08 {
			t.Errorf("explained as %+v", list)
		}
		if k := m.Apps.Instance(id).Conditions; !slices.ContainsFunc(k, func(k skerry.Condition) bool { return k.Type == skerry.HeadRoom && !k.Status }) {
			t.Errorf("the owner is told %+v", k)
		}
		m.tell("w1", time.Minute, nil, skerry.RuntimeReport{Name: "oci", Passed: true}, skerry.RuntimeReport{Name: "microvm", Passed: true, Profile: &skerry.RuntimeProfile{CPU: 1.2, At: m.now}})
		if v, _, _ = m.Instance(id); headRoom(v) != "" || m.events["HeadRoom"] == "" {
			t.Errorf("measured, and still %q", headRoom(v))
		}
		if list := m.runtimeChoices(id); !slices.ContainsFunc(list, func(r skerry.RuntimeChoice) bool {
			return r.Chosen && strings.HasPrefix(r.Processor.Source, "measured")
		}) {
			t.Errorf("explained as %+v", list)
		}
	}
}
