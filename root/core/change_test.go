package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// federationOf is a root with sites that have a place for everything, and answer at once.
type federationOf struct {
	t       testing.TB
	root    *Core
	now     time.Time
	codec   *wire.Codec
	sites   map[string]*members.Parent
	stored  map[string][]byte
	writes  map[string]int // by kind of record
	written []wire.Write   // in order
	frames  int            // from and to sites
}

func newFederationOf(t testing.TB, sites int) *federationOf {
	fed := &federationOf{t: t, root: New(Options{Incarnation: "a", SealKey: []byte("key")}), now: time.Unix(1e9, 0), codec: wire.New(),
		sites: map[string]*members.Parent{}, stored: map[string][]byte{}, writes: map[string]int{}}
	fed.root.Start(fed.now)
	fed.step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	fed.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	for n := range sites {
		name := fmt.Sprintf("site-%04d", n)
		site := members.NewParent(skerry.Incarnation(name), reconcile.Options{})
		fed.sites[name] = site
		fx := fed.step(ChildUp{Hello: &wire.Hello{Name: name, Sets: site.Hello()}})
		site.Up(fed.now, fx.Result.(*wire.Welcome))
		fed.flush(name, fed.report())
	}
	return fed
}

// report is that of a site with room for everything.
func (fed *federationOf) report() wire.Message {
	out := wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"},
		Features: spec.AgentFeatures()}, Workers: 10}}}
	for at := range out.Classes[0].Available {
		out.Classes[0].Available[at] = wire.Moments{Sum: 1e13, Mean: 1e12}
	}
	return &wire.Report{Kind: wire.ReportCluster, Payload: fed.codec.Marshal(&out)}
}

func appKey(n int) skerry.AppKey {
	return skerry.AppKey{Namespace: "acme", Name: fmt.Sprintf("app-%04d", n)}
}

// step gives the root a message, and sites what follows from it.
func (fed *federationOf) step(msg any) wire.Effects {
	fed.t.Helper()
	fx := fed.root.Step(fed.now, msg)
	if fx.Err != nil {
		fed.t.Fatal(fx.Err)
	}
	fed.carry(fx.Writes, fx.Sends)
	return fx
}

func (fed *federationOf) carry(writes []wire.Write, sends []wire.Outgoing) {
	fed.keep(writes)
	for _, out := range sends {
		fed.frames++
		fed.deliver(out.To, out.Msg.(wire.Message))
	}
}

func (fed *federationOf) keep(writes []wire.Write) {
	fed.written = append(fed.written, writes...)
	for _, w := range writes {
		kind, _, _ := strings.Cut(w.Key, "/")
		fed.writes[kind]++
		if fed.stored[w.Key] = w.Value; w.Value == nil {
			delete(fed.stored, w.Key)
		}
	}
}

// deliver has a site take a frame: what is new runs, what runs goes on.
func (fed *federationOf) deliver(name string, msg wire.Message) {
	site := fed.sites[name]
	changed, deleted, replies := site.Frame(fed.now, msg)
	for _, key := range deleted {
		site.Observed.Delete(key)
	}
	for _, key := range changed {
		value, orphaned, has := site.Desired.Get(key)
		var as spec.Assignment
		if !strings.HasPrefix(key, "inst/") || !has || orphaned || fed.codec.Unmarshal(value, &as) != nil {
			continue
		}
		o := wire.Observation{ID: as.ID, Fence: as.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, Ready: true, Revision: as.Revision,
			Restart: as.Restart, StartedAt: fed.now}
		var was wire.Observation
		if value, ok := site.Observed.Get(key); ok && fed.codec.Unmarshal(value, &was) == nil && was.Fence == as.Fence {
			o = was
		}
		o.Gen = as.Gen
		if _, err := site.Observed.Put(key, fed.codec.Marshal(&o)); err != nil {
			fed.t.Fatal(err)
		}
	}
	fed.flush(name, replies...)
}

func (fed *federationOf) flush(name string, replies ...wire.Message) {
	var fx wire.Effects
	fed.sites[name].Flush(fed.now, &fx, replies)
	for _, out := range fx.Sends {
		fed.frames++
		fed.step(ChildFrame{Name: name, Msg: out.Msg.(wire.Message)})
	}
}

// apply makes an application of two services with five instances each.
func (fed *federationOf) apply(n int) {
	app, err := spec.DecodeApplication(fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application",
		"metadata":{"namespace":"acme","name":"app-%04d"},"spec":{"services":[
		{"name":"a","image":"x:1","replicas":5,"env":{"A":"b"},"resources":{"cpu":"10m"},"ports":[{"name":"http","port":80}]},
		{"name":"b","image":"x:1","replicas":5,"env":{"A":"b"},"resources":{"cpu":"10m"},"ports":[{"name":"http","port":80}]}]}}`, n))
	if err != nil {
		fed.t.Fatal(err)
	}
	fed.step(apps.Apply{App: *app})
}

func (fed *federationOf) scale(app, replicas int) {
	fed.t.Helper()
	k := skerry.ServiceKey{App: appKey(app), Service: "a"}
	fed.step(apps.Scale{Service: k, Replicas: replicas})
	if got := len(fed.root.Apps.Instances(k)); got != replicas {
		fed.t.Fatalf("%s has %d instances, want %d", k, got, replicas)
	}
}

// A change of one application costs what that application is, whatever the number of sites and applications: a record of what is new, and
// an item for the site of each of its instances, which name the newest generation.
func TestChangeCostsOneApplication(t *testing.T) {
	var before map[string]int
	for _, sites := range []int{3, 60} {
		fed := newFederationOf(t, sites)
		for n := range sites {
			fed.apply(n)
		}
		fed.scale(1, 6) // and what is done for the first change alone
		fed.scale(1, 5)
		fed.now = fed.now.Add(time.Minute)
		clear(fed.writes)
		fed.frames = 0
		fed.scale(1, 6)
		got := fed.writes
		got["frames"] = fed.frames
		// The new instance: made, placed, runs. Each of the eleven has the generation in its item, and the sites' sets have their own records.
		if got["app"] > 1 || got["inst"] > 3 || got["network"] > 1 || got["child"] > 11+5 {
			t.Errorf("%d sites: a change writes %v", sites, got)
		}
		if before != nil && !maps.Equal(got, before) {
			t.Errorf("%d sites: a change costs %v, and less with fewer sites: %v", sites, got, before)
		}
		before = maps.Clone(got)
	}
}

// Instances whose generation is in no record of theirs have it after a start, and no site is told anything else.
func TestGenerationsAfterAStart(t *testing.T) {
	fed := newFederationOf(t, 3)
	fed.apply(0)
	fed.scale(0, 6)
	gen := fed.root.Apps.App(appKey(0)).Gen
	if behind := fed.started(); behind != 10 {
		t.Errorf("%d records of instances have an older generation, want those of the ten that were there", behind)
	}
	for _, i := range fed.root.Apps.InstancesOf(appKey(0)) {
		if i.Gen != gen || *i.Spec.Replicas != *fed.root.Apps.App(appKey(0)).Manifest.Spec.Service(i.Service.Service).Replicas {
			t.Errorf("%s: generation %d after the start, want %d, with the service of that", i.ID, i.Gen, gen)
		}
	}
	fed.scale(0, 7)
	// Those of another template keep the generation that they had, and not that of their record.
	app := fed.root.Apps.App(appKey(0)).Manifest
	app.Spec.Services = slices.Clone(app.Spec.Services)
	watched := spec.Duration(time.Minute)
	for n := range app.Spec.Services {
		app.Spec.Services[n].Image, app.Spec.Services[n].Update.HealthyTime = "x:2", &watched
	}
	fed.step(apps.Apply{App: app})
	if behind := fed.started(); behind != 0 {
		t.Errorf("%d records of instances have an older generation than the instance, want none", behind)
	}
	if got := len(fed.root.Apps.InstancesOf(appKey(0))); got != 12+2 {
		t.Errorf("%d instances, want those that were there and the first of each service's new version", got)
	}
}

// started exchanges the root for one that is built from its records. It counts the instances that have another generation than their
// record, and reports what is not as it was.
func (fed *federationOf) started() (behind int) {
	fed.t.Helper()
	next := New(Options{Incarnation: "a", SealKey: []byte("key"), Epoch: 1})
	for _, k := range slices.Sorted(maps.Keys(fed.stored)) {
		var i apps.Instance
		if strings.HasPrefix(k, "inst/") && json.Unmarshal(fed.stored[k], &i) == nil && i.Gen != fed.root.Apps.Instance(i.ID).Gen {
			behind++
		}
		if err := next.Load(k, fed.stored[k]); err != nil {
			fed.t.Fatal(err)
		}
	}
	was, kept := fed.root.Apps.InstancesOf(appKey(0)), len(fed.stored)
	fx := next.Start(fed.now)
	fed.keep(fx.Writes)
	for _, w := range fx.Writes {
		if strings.HasPrefix(w.Key, "inst/") || strings.HasPrefix(w.Key, "child/") {
			fed.t.Errorf("the start writes %s", w.Key)
		}
	}
	for _, i := range was {
		if n := next.Apps.Instance(i.ID); n == nil || n.Gen != i.Gen {
			fed.t.Errorf("%s had generation %d before the start, and now: %+v", i.ID, i.Gen, n)
		}
	}
	if got := len(next.Apps.InstancesOf(appKey(0))); got != len(was) || len(fed.stored) < kept {
		fed.t.Errorf("%d instances and %d records after the start, want %d and %d", got, len(fed.stored), len(was), kept)
	}
	fed.root = next
	for name, site := range fed.sites {
		site.Down(fed.now)
		up := fed.step(ChildUp{Hello: &wire.Hello{Name: name, Sets: site.Hello()}})
		site.Up(fed.now, up.Result.(*wire.Welcome))
		fed.flush(name)
		fed.flush(name, fed.report())
	}
	return behind
}

// BenchmarkChange scales a service of one application out of many, up and down: what the core does for that, and the sites' ends of the
// sets.
func BenchmarkChange(b *testing.B) {
	for _, sites := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(sites), func(b *testing.B) {
			fed := newFederationOf(b, sites)
			for n := range sites {
				fed.apply(n)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				fed.now = fed.now.Add(time.Millisecond)
				fed.scale(n/2%sites, 6-n%2)
				n++
			}
		})
	}
}

// A look at an instance, which every watcher takes at each of its changes, is not one at all sites.
func TestInstanceLooksAtNoSite(t *testing.T) {
	fed := newFederationOf(t, 60)
	fed.apply(0)
	i := fed.root.Apps.InstancesOf(appKey(0))[0]
	fed.root.Children = nil // through which Explain would look
	got, err := fed.root.Views().Instance(i.ID)
	if err != nil || got.ID != i.ID || got.Cluster != i.Cluster {
		t.Errorf("got %+v, %v, want %s at %s", got, err, i.ID, i.Cluster)
	}
	if _, err := fed.root.Views().Instance("none"); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Errorf("an instance that is not there: got %v, want that it is not found", err)
	}
}
