package core

import (
	"encoding/base64"
	"fmt"
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

// olderReport is what a worker of before security levels says of itself, as such a program wrote it.
const olderReport = "oQKlAaMBGQ+gAhsAAAACAAAAAAMbAAAAEAAAAAACZWFtZDY0A2VsaW51eAWBowFjb2NpAvUFaGNydW4gMS44C2VkZXZlbA=="

// A worker that knows of no levels would give an instance more than its organisation has. It gets those of organisations at the level
// privileged alone; the others are told why, and go elsewhere once there is a worker that holds them to it. So do those whose images must be signed.
func TestOlderWorkerGetsNothingRestricted(t *testing.T) {
	raw, err := base64.StdEncoding.DecodeString(olderReport)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Standalone: true, Admission: Admission{Trusted: []string{"home", "careful"}, Signers: map[string][]string{"careful": {"key"}}}})
	c.Start(now)
	join := func(name string, payload []byte) {
		c.Step(now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		c.Step(now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: payload}})
	}
	join("old", raw)
	one := 1
	for _, org := range []string{"home", "guest", "careful"} {
		c.Step(now, apps.PutOrg{Org: apps.Org{Name: org}})
		c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: org, Org: org}})
		s := spec.ServiceSpec{Name: "web", Replicas: &one}
		s.Image = "web:1"
		if fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop", Namespace: org}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}); fx.Err != nil {
			t.Fatal(fx.Err)
		}
	}
	at := func(org string) (where, why string) {
		for id, p := range c.places {
			if p.A.Org == org {
				v, d, _ := c.Instance(id)
				return p.Worker, fmt.Sprintf("%s %v", v.Reason, d)
			}
		}
		for _, i := range c.Apps.InstancesOf(skerry.AppKey{Namespace: org, Name: "shop"}) {
			why += fmt.Sprintf("%s %s %v %v", i.State, i.Reason, i.Why, i.Decision)
		}
		return "", why
	}
	if where, why := at("home"); where != "old" {
		t.Errorf("privileged: at %q, %s", where, why)
	}
	if where, why := at("guest"); where != "" || !strings.Contains(why, "older than security levels") {
		t.Errorf("restricted: at %q, %s", where, why)
	}
	if where, why := at("careful"); where != "" || !strings.Contains(why, "older than signatures of images") {
		t.Errorf("signed: at %q, %s", where, why)
	}
	join("new", wire.New().Marshal(&wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
		Capacity: spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB, Storage: 64 * skerry.GiB}, Levels: true}}))
	c.Tick(now.Add(time.Second))
	if where, why := at("guest"); where != "new" {
		t.Errorf("restricted, with a newer worker: at %q, %s", where, why)
	}
	if where, why := at("careful"); where != "" {
		t.Errorf("signed, with a worker that knows of levels alone: at %q, %s", where, why)
	}
	join("newest", wire.New().Marshal(&wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
		Capacity: spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB, Storage: 64 * skerry.GiB}, Levels: true, Signatures: true}}))
	c.Tick(now.Add(time.Minute))
	if where, why := at("careful"); where != "newest" {
		t.Errorf("signed, with a worker that checks: at %q, %s", where, why)
	}
}

// Graphics processors took no level before workers handed devices in for them. What was admitted then goes on after an upgrade, and is
// listed; no more of it is admitted.
func TestGPUsAdmittedBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	kv := map[string][]byte{}
	var c *Core
	keep := func(fx wire.Effects) {
		t.Helper()
		if fx.Err != nil {
			t.Fatal(fx.Err)
		}
		for _, w := range fx.Writes {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
		}
	}
	begin := func(level spec.SecurityLevel) {
		c = New(Options{Name: "a", Incarnation: "a1", Term: 1, Standalone: true, LostAfter: time.Second, StartGrace: time.Second,
			Admission: Admission{Level: level}})
		for k, v := range kv {
			if !strings.HasPrefix(k, "meta/") {
				if err := c.Load(k, v); err != nil {
					t.Fatal(err)
				}
			}
		}
		keep(c.Start(now))
	}
	join := func(name string) {
		keep(c.Step(now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}}))
		r := wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Levels: true,
			Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
			Capacity: spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB, Storage: 64 * skerry.GiB, GPUs: 2}}}
		keep(c.Step(now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}}))
	}
	apply := func(replicas int) {
		s := spec.ServiceSpec{Name: "web", Replicas: &replicas}
		s.Image, s.Resources.GPUs = "web:1", 1
		keep(c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop", Namespace: "guest"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}))
	}
	at := func() (out []string) {
		for _, i := range c.Apps.InstancesOf(skerry.AppKey{Namespace: "guest", Name: "shop"}) {
			if p := c.places[i.ID]; p != nil && i.Live() && !p.Removing && !p.Refused {
				out = append(out, p.Worker)
			}
		}
		slices.Sort(out)
		return out
	}
	begin(spec.LevelBaseline) // which is as much as none for it then
	keep(c.Step(now, apps.PutOrg{Org: apps.Org{Name: "guest"}}))
	keep(c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "guest", Org: "guest"}}))
	join("w1")
	apply(1)
	if got := at(); !slices.Equal(got, []string{"w1"}) {
		t.Fatalf("before, it is on %v", got)
	}

	begin(spec.LevelRestricted)
	join("w1")
	join("w2")
	now = now.Add(time.Minute)
	keep(c.Tick(now))
	if got := at(); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("after an upgrade it is on %v", got)
	}
	if list := c.Unadmitted(); len(list) != 1 || !strings.Contains(list[0].Reason.Text, "graphics processor") {
		t.Errorf("listed are %+v", list)
	}
	apply(2)
	keep(c.Tick(now.Add(time.Second)))
	if got := at(); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("with a second one wanted it is on %v", got)
	}
}
