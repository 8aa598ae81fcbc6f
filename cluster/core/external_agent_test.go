package core

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// textSite is a site with one worker, connected over a carrier, and an instance of a native service on it.
func textSite(t testing.TB, now time.Time, carrier string) *Core {
	t.Helper()
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Admission: Admission{Trusted: []string{"default"}}})
	c.Start(now)
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Carrier: carrier, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	r := wire.WorkerReport{Seq: 1, Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "native", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB}}}
	payload := wire.New().Marshal(&r)
	if carrier != "" {
		payload = wire.New().Text(&r)
	}
	c.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: payload}})
	c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
	c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	one := 1
	s := spec.ServiceSpec{Name: "pump", Runtime: "native", Replicas: &one}
	s.Command = []string{"/bin/pump"}
	if fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "plant"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	return c
}

func (c *Core) onlyAssignment(t testing.TB) (spec.Assignment, wire.Payload) {
	t.Helper()
	for id, p := range c.places {
		if value, ok := c.Children.Get("w").Desired.Get(wire.AssignmentKey(id)); ok {
			var a spec.Assignment
			if err := c.codec.Unmarshal(value, &a); err != nil || a.ID != id || a.Fence != p.A.Fence || a.Spec.Command[0] != "/bin/pump" {
				t.Fatalf("%+v, %v", a, err)
			}
			return a, value
		}
	}
	t.Fatal("nothing is placed")
	panic("unreachable")
}

// TestItemsAsTheAgentReadsThem: a worker by MQTT gets JSON, and when another kind of agent takes over its name all that it is to run comes
// anew in the other form, under the same token. What a restart of the orchestrator reads says so, too.
func TestItemsAsTheAgentReadsThem(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, wire.CarrierMQTT)
	a, text := c.onlyAssignment(t)
	if !text.IsText() || !json.Valid(text) {
		t.Fatalf("%q", text)
	}
	if v := c.Workers()[0]; v.Carrier != wire.CarrierMQTT {
		t.Errorf("%+v", v)
	}
	c.Step(now, ChildDown{Name: "w"})
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w"}})
	again, value := c.onlyAssignment(t)
	if value.IsText() || again.Fence != a.Fence {
		t.Errorf("%q", value)
	}
	c.Step(now, ChildDown{Name: "w"})
	fx := c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Carrier: wire.CarrierMQTT}})
	if _, value = c.onlyAssignment(t); string(value) != string(text) {
		t.Errorf("%q, then %q", text, value)
	}
	kept := false
	for _, w := range fx.Writes {
		kept = kept || w.Key == prefixWorker+"w" && strings.Contains(string(w.Value), `"carrier":"mqtt"`)
	}
	if !kept {
		t.Error("how it is connected is not kept")
	}
}

// TestExternalObservations: what an agent says as text counts like what others say, and what makes no sense is counted and changes nothing.
func TestExternalObservations(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, wire.CarrierMQTT)
	a, _ := c.onlyAssignment(t)
	src := reconcile.NewSource("observed", "x/", "life", reconcile.Options{})
	src.Connect(now, wire.SetAck{Set: "observed"})
	tell := func(id skerry.InstanceID, value []byte) {
		t.Helper()
		if _, err := src.Put(wire.AssignmentKey(id), value); err != nil {
			t.Fatal(err)
		}
		for _, m := range src.Next(now) {
			for _, s := range c.Step(now, ChildFrame{Name: "w", Msg: m}).Sends {
				if ack, ok := s.Msg.(*wire.SetAck); ok {
					src.Handle(now, ack)
				}
			}
		}
	}
	ignored := func(reason string) int { return c.Children.Ignored.All()[reason] }
	o := wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true, Runtime: "native", StartedAt: now}
	tell(a.ID, wire.New().Text(&o))
	if p := c.places[a.ID]; p.Obs.State != skerry.Running || !p.Obs.Ready {
		t.Fatalf("%+v", p.Obs)
	}
	for _, bad := range []string{`{"id":"` + string(a.ID) + `"`, `{"id":"another"}`, `{"id":3}`, `{`} {
		n := ignored(members.IgnoredUnreadable)
		tell(a.ID, []byte(bad))
		if ignored(members.IgnoredUnreadable) != n+1 {
			t.Errorf("%s was not counted", bad)
		}
	}
	n := ignored(members.IgnoredUnknown)
	tell("nobody", []byte(`{"id":"nobody","state":"Running"}`))
	if ignored(members.IgnoredUnknown) != n+1 {
		t.Error("an unknown instance was not counted")
	}
	n = ignored(members.IgnoredToken)
	o.Fence.Sequence, o.State, o.Reason = a.Fence.Sequence-1, skerry.Failed, "under an old token"
	tell(a.ID, wire.New().Text(&o))
	if ignored(members.IgnoredToken) != n+1 {
		t.Error("a lower token was not counted")
	}
	if p := c.places[a.ID]; p.Obs.State != skerry.Running {
		t.Errorf("%+v", p.Obs)
	}
}

// FuzzExternalWorker gives the core what a device may say as text: reports, observations, events. It never panics, and what it
// keeps it can write.
func FuzzExternalWorker(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	for kind, v := range []any{
		wire.WorkerReport{Seq: 2, Facts: &wire.WorkerFacts{Arch: "arm64", Capacity: spec.Resources{CPU: 1000}}, Used: spec.Resources{CPU: 1}, Instances: map[skerry.InstanceID]wire.QoS{"i": {CPU: 3}}},
		wire.Observation{State: skerry.Running, Ready: true, Exit: &wire.Exit{Code: 1, At: now}, Ports: []wire.PortBinding{{Port: 80, HostPort: 80}}},
		wire.Event{At: now, Type: wire.EventWarning, Reason: "OOMKilled", Text: "x"},
	} {
		f.Add(byte(kind), wire.New().Text(v))
	}
	f.Add(byte(0), []byte(`{"seq":3,"facts":{"capacity":{"cpu":"1e9","memory":"-1"},"runtimes":[{"name":"native","passed":true,"abilities":["ports"]}]}}`))
	f.Add(byte(0), []byte(`{"seq":4,"used":{"cpu":"-5","memory":"9e18"},"instances":{"i":{"cpu":"1e12","waiting":-7}},"heard":[{"probe":"192.0.2.1:1","ms":-1},{"probe":"","ms":1e300}],"pace":{"every":4294967295,"why":"never"},"coordinate":{"vec":[1,2,3],"height":1}}`))
	f.Add(byte(1), []byte(`{"state":"Failed","fence":{"sequence":18446744073709551615},"restarts":-1}`))
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		c := textSite(t, now, wire.CarrierMQTT)
		a, _ := c.onlyAssignment(t)
		var m wire.Message
		switch kind % 3 {
		case 0:
			m = &wire.Report{Kind: wire.ReportWorker, Payload: text}
		case 1:
			// As if it were about the instance that there is.
			var o map[string]any
			if json.Unmarshal(text, &o) == nil && o != nil {
				o["id"], o["fence"] = a.ID, a.Fence
				text, _ = json.Marshal(o)
			}
			key := wire.AssignmentKey(a.ID)
			m = &wire.SetChunk{Set: "observed", Incarnation: "x", Gen: 1, Last: true, Digest: reconcile.DigestOf(map[string][]byte{key: text}), Items: []wire.SetItem{{Key: key, Value: text, Gen: 1}}}
		case 2:
			m = &wire.Events{Stream: "s", First: 1, Floor: 1, Items: [][]byte{text}}
		}
		c.Step(now, ChildFrame{Name: "w", Msg: m})
		c.Tick(now.Add(time.Minute))
		if _, err := json.Marshal(c.Workers()); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(c.Instances()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTextSaysTheSame: what a worker is told in one form it is told in the other, whatever a manifest asks for.
func TestTextSaysTheSame(t *testing.T) {
	codec := wire.New()
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../spec/testdata/manifests/ok-*.txt")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, more...)
	services := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		manifest, _, _ := strings.Cut(string(text), "\n----\n")
		for _, doc := range strings.Split(manifest, "\n---\n") {
			data, err := yaml.YAMLToJSON([]byte(doc))
			if err != nil {
				continue // no manifest
			}
			var app spec.Application
			if err := json.Unmarshal(data, &app); err != nil {
				continue
			}
			for _, s := range app.Spec.Services {
				services++
				now := time.Unix(1_700_000_000, 123456789).UTC()
				a := spec.Assignment{ID: "i", Service: skerry.ServiceKey{App: app.Key(), Service: s.Name}, Org: "o", Ordinal: 2, Gen: 3, Revision: "r", Spec: s, Fence: skerry.Fence{RootEpoch: 1 << 52, ClusterTerm: 2, Sequence: 3},
					Restart: 4, Deadline: now, Digest: map[string]string{"a": "b"}, Due: now, PriorFence: &skerry.Fence{Sequence: 1}, Failover: true}
				var fromText, fromCBOR spec.Assignment
				if err := codec.Unmarshal(codec.Text(&a), &fromText); err != nil {
					t.Fatalf("%s %s: %v", file, s.Name, err)
				}
				if err := codec.Unmarshal(codec.Marshal(&a), &fromCBOR); err != nil {
					t.Fatalf("%s %s: %v", file, s.Name, err)
				}
				if got, want := codec.Marshal(&fromText), codec.Marshal(&fromCBOR); !bytes.Equal(got, want) {
					t.Errorf("%s %s:\n%s\n%s", file, s.Name, codec.Text(&fromText), codec.Text(&fromCBOR))
				}
			}
		}
	}
	if services < 15 {
		t.Errorf("%d services are few", services)
	}
}
