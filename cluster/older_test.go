package cluster

import (
	"encoding/base64"
	"fmt"
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
