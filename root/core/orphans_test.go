package core

import (
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

// given is an assignment as a root gave it to a site, sealed.
func given(t *testing.T, site string, key []byte) (*hostileRoot, spec.Assignment, []byte) {
	t.Helper()
	r := &hostileRoot{t: t, c: New(Options{Incarnation: "a", SealKey: key}), now: time.Unix(1e9, 0), src: map[string]*reconcile.Source{}, kv: map[string][]byte{}}
	r.step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	r.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	r.step(ChildUp{Hello: &wire.Hello{Name: site}})
	k := r.apply("shop", "", site)
	id := r.c.Apps.Instances(k)[0].ID
	value, ok := r.c.Children.Get(site).Desired.Get(wire.AssignmentKey(id))
	var a spec.Assignment
	if !ok || wire.New().Unmarshal(value, &a) != nil {
		t.Fatalf("%s was not given %s", site, id)
	}
	return r, a, value
}

// A root whose store was restored adopts what it gave a site itself, and not what a site has made up: that would run at other sites next, under
// any organisation's name. Nor is what another site was given adopted from this one.
func TestMadeUpOrphans(t *testing.T) {
	key, codec := []byte("kept beside the store"), wire.New()
	_, honest, value := given(t, "a", key)
	_, _, elsewhere := given(t, "b", key)
	forged, stripped, renamed := honest, honest, honest
	forged.Spec.Security.Privileged = true
	stripped.Seal = nil
	renamed.Org = "trusted"
	for what, held := range map[string][]byte{"": value, "another site's": elsewhere, "changed": codec.Marshal(&forged), "of another organisation": codec.Marshal(&renamed),
		"without a seal": codec.Marshal(&stripped)} {
		r := &hostileRoot{t: t, c: New(Options{Incarnation: "b", Epoch: 2, SealKey: key}), now: time.Unix(1e9, 0), src: map[string]*reconcile.Source{}, kv: map[string][]byte{}}
		r.keep(r.c.Start(r.now))
		told, set := reconcile.NewSource(members.Desired, "s/", "a", reconcile.Options{}), reconcile.NewReplica(members.Desired, "r/", reconcile.Options{})
		var a spec.Assignment
		if codec.Unmarshal(held, &a) != nil {
			t.Fatal(what)
		}
		id := a.ID
		if _, err := told.Put(wire.AssignmentKey(id), held); err != nil {
			t.Fatal(err)
		}
		told.Connect(r.now, set.State())
		for _, m := range told.Next(r.now) {
			set.Apply(m)
		}
		down := r.step(ChildUp{Hello: &wire.Hello{Name: "a", Sets: []wire.SetAck{set.State()}}}).Sends
		for range 20 {
			var up []wire.Message
			for _, s := range down {
				if _, ok := s.Msg.(*wire.SetAck); !ok {
					up = append(up, set.Apply(s.Msg.(wire.Message)).Reply...)
				}
			}
			down = nil
			for _, m := range up {
				down = append(down, r.step(ChildFrame{Name: "a", Msg: m}).Sends...)
			}
		}
		r.src["a"] = reconcile.NewSource(members.Observed, "", "a", reconcile.Options{})
		r.say("a", map[string][]byte{wire.AssignmentKey(id): codec.Marshal(&wire.Observation{ID: id, Gen: a.Gen, Fence: a.Fence, State: skerry.Running, Ready: true})})
		list := r.c.Views().Orphans()
		if len(list) != 1 || list[0].Instance != id || (list[0].Problem == "") != (what == "") {
			t.Fatalf("%q: %+v", what, list)
		}
		fx := r.c.Step(r.now, apps.DecideOrphan{Name: string(id), Adopt: true})
		e := skerry.AsError(fx.Err)
		switch app := r.c.Apps.App(a.Service.App); {
		case what == "" && (fx.Err != nil || app == nil):
			t.Errorf("what the root gave is not adopted: %v", fx.Err)
		case what == "" && r.c.Apps.Instance(id).Cluster != "a":
			t.Errorf("it is shown at cluster %q", r.c.Apps.Instance(id).Cluster)
		case what != "" && (app != nil || e == nil || e.Code != skerry.CodeConflict || !strings.Contains(e.Error(), "not shown") || e.Hint == ""):
			t.Errorf("%s: adopted by hand: %v", what, fx.Err)
		}
	}
}

// What a root of before there were seals gave is sealed at the next start, and only once.
func TestSealedAtTheStart(t *testing.T) {
	r, a, _ := given(t, "a", nil)
	if a.Seal != nil {
		t.Fatal("sealed without a key")
	}
	later := New(Options{Incarnation: "a", Epoch: 2, SealKey: []byte("key")})
	for k, v := range r.kv {
		if v == nil {
			continue
		}
		if err := later.Load(k, v); err != nil {
			t.Fatal(k, err)
		}
	}
	later.Start(r.now)
	value, _ := later.Children.Get("a").Desired.Get(wire.AssignmentKey(a.ID))
	if !later.codec.Sealed(later.opt.SealKey, "a", value) {
		t.Fatal("not sealed")
	}
	gen := later.Children.Get("a").Desired.Gen()
	var fx wire.Effects
	later.refresh(r.now, later.Apps.Instance(a.ID), &fx)
	if later.Children.Get("a").Desired.Gen() != gen {
		t.Error("it is given again")
	}
}
