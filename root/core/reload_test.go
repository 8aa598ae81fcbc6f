package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A root that is built anew from its records, after any change, has the instances that it had, each with its generation, its service and
// its resources: what is not written for each of them follows from what is.
func TestInstancesAfterAnyChange(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			fed, dice := newFederationOf(t, 3), rand.New(rand.NewPCG(seed, 1))
			for n := range 40 {
				stored, had := maps.Clone(fed.stored), fed.generations()
				fed.written = nil
				what := fed.change(dice)
				if older := fed.olderInAPart(stored, had, dice); older != "" {
					t.Fatalf("after a part of change %d, %s: %s", n, what, older)
				}
				if t.Failed() {
					t.Fatalf("after change %d, %s", n, what)
				}
				if lost := fed.lostByAStart(fed.stored); lost != "" {
					t.Fatalf("after change %d, %s: %s", n, what, lost)
				}
			}
		})
	}
}

func (fed *federationOf) generations() map[skerry.InstanceID]skerry.Generation {
	out := map[skerry.InstanceID]skerry.Generation{}
	for _, i := range fed.root.Apps.InstancesOf(appKey(0)) {
		out[i.ID] = i.Gen
	}
	return out
}

// olderInAPart says which instance has an older generation than it had, and was given, if a part of the writes is lost.
func (fed *federationOf) olderInAPart(stored map[string][]byte, had map[skerry.InstanceID]skerry.Generation, dice *rand.Rand) string {
	last := map[string]int{} // of each key the last write is kept, as in loop.Engine
	for n, w := range fed.written {
		last[w.Key] = n
	}
	at := -1
	fed.written = slices.DeleteFunc(fed.written, func(w wire.Write) bool { at++; return last[w.Key] != at })
	part := fed.written[:1+slices.IndexFunc(fed.written, func(w wire.Write) bool { return strings.HasPrefix(w.Key, "app/") })]
	if dice.IntN(2) == 0 {
		part = fed.written[:dice.IntN(len(fed.written)+1)]
	}
	for _, w := range part {
		if stored[w.Key] = w.Value; w.Value == nil {
			delete(stored, w.Key)
		}
	}
	for _, i := range fed.reloaded(stored).Apps.InstancesOf(appKey(0)) {
		if is := fed.root.Apps.Instance(i.ID); is == nil || is.Stopping || is.Resize != nil || is.Revision != i.Revision {
			continue // it is stopped, or resized, once more
		}
		if i.Gen < had[i.ID] {
			return fmt.Sprintf("%s has generation %d, and had %d; %d of %d writes are there", i.ID, i.Gen, had[i.ID], len(part), len(fed.written))
		}
	}
	return ""
}

// reloaded gives a root that is built from records.
func (fed *federationOf) reloaded(records map[string][]byte) *Core {
	fed.t.Helper()
	next := New(Options{Incarnation: "a", SealKey: []byte("key"), Epoch: 1})
	var takes []func() error
	for _, k := range slices.Sorted(maps.Keys(records)) {
		takes = append(takes, Decode(next)(k, records[k])) // nothing of which needs what others are taken for
	}
	for _, take := range takes {
		if err := take(); err != nil {
			fed.t.Fatal(err)
		}
	}
	next.Start(fed.now)
	return next
}

// lostByAStart says what of the instances of the root is otherwise in one that is built from records; empty: nothing.
func (fed *federationOf) lostByAStart(records map[string][]byte) string {
	fed.t.Helper()
	was, is := fed.root.Apps.InstancesOf(appKey(0)), fed.reloaded(records).Apps.InstancesOf(appKey(0))
	if len(was) != len(is) {
		return fmt.Sprintf("%d instances, and %d before the start", len(is), len(was))
	}
	for n, i := range was {
		before, after := fed.keptOf(i), fed.keptOf(is[n])
		for what := range before {
			if before[what] != after[what] {
				return fmt.Sprintf("%s has %s %s, and had %s before the start", i.ID, what, after[what], before[what])
			}
		}
	}
	return ""
}

// keptOf gives what an instance has whoever holds it, and whether that is connected.
func (fed *federationOf) keptOf(i *apps.Instance) map[string]string {
	fed.t.Helper()
	reachable := func(k skerry.Condition) bool { return k.Type == skerry.Reachable }
	out := map[string]string{}
	for what, v := range map[string]any{"generation": i.Gen, "revision": i.Revision, "service": i.Spec, "resources": i.Resources,
		"state": i.State,
		"end":   i.Stopping, "restart": []uint64{i.Restart, i.Restarted}, "limits": i.Resize, "place": i.Holder,
		"conditions": slices.DeleteFunc(slices.Clone(i.Conditions), reachable)} {
		text, err := json.Marshal(v)
		if err != nil {
			fed.t.Fatal(err)
		}
		out[what] = string(text)
	}
	return out
}

// change has something happen to the first application, or time go by. Not all of it is possible each time.
func (fed *federationOf) change(dice *rand.Rand) string {
	fed.now = fed.now.Add(time.Duration(dice.IntN(40)) * time.Second)
	key := appKey(0)
	service := skerry.ServiceKey{App: key, Service: []string{"a", "b"}[dice.IntN(2)]}
	app := fed.root.Apps.App(key)
	if app == nil {
		fed.apply(0)
		return "made"
	}
	var msg any
	switch dice.IntN(12) {
	case 0:
		msg = apps.Scale{Service: service, Replicas: dice.IntN(8)}
	case 1, 2, 3:
		msg = apps.Apply{App: changed(app.Manifest, dice)}
	case 4:
		msg = apps.Pause{Service: service}
	case 5:
		msg = apps.Resume{Service: service}
	case 6:
		msg = apps.Undo{Service: service}
	case 7:
		msg = apps.Restart{Service: service}
	case 8:
		if list := fed.root.Apps.InstancesOf(key); len(list) > 0 {
			msg = apps.DeleteInstance{ID: list[dice.IntN(len(list))].ID, Scale: dice.IntN(2) == 0}
		}
	case 9:
		if dice.IntN(4) == 0 {
			msg = apps.Delete{Key: key}
		}
	}
	if msg == nil {
		fx := fed.root.Tick(fed.now)
		fed.carry(fx.Writes, fx.Sends)
		return "a tick"
	}
	fx := fed.root.Step(fed.now, msg)
	fed.carry(fx.Writes, fx.Sends)
	return fmt.Sprintf("%T (%v)", msg, fx.Err)
}

// changed gives a manifest that differs in something that a new version needs, or that none does.
func changed(m spec.Application, dice *rand.Rand) spec.Application {
	var out spec.Application
	text, _ := json.Marshal(m)
	if json.Unmarshal(text, &out) != nil {
		panic("a manifest does not read its own text")
	}
	s := &out.Spec.Services[dice.IntN(len(out.Spec.Services))]
	watched := spec.Duration(time.Duration(dice.IntN(3)) * time.Minute)
	switch dice.IntN(6) {
	case 0, 1:
		s.Image = fmt.Sprintf("x:%d", 1+dice.IntN(3))
	case 2:
		s.Update.HealthyTime = &watched
	case 3:
		s.Resources.CPU = skerry.MilliCPU(10 * (1 + dice.IntN(3)))
	case 4:
		surge := 1 + dice.IntN(2)
		s.Update.MaxSurge = &surge
	case 5:
		s.Update.Strategy = []string{"rolling", "recreate"}[dice.IntN(2)]
	}
	return out
}

// A start writes no record of what is as it was, neither at once nor when its sites are back.
func TestAStartWritesNoInstances(t *testing.T) {
	fed := newFederationOf(t, 3)
	fed.apply(0)
	fed.apply(1)
	for n := range 2 {
		clear(fed.writes)
		fed.now = fed.now.Add(time.Hour)
		fed.started()
		for _, kind := range []string{"app", "inst", "network", "networks"} {
			if got := fed.writes[kind]; got != 0 {
				t.Errorf("start %d writes %d records of the kind %s, want none", n, got, kind)
			}
		}
		for _, i := range fed.root.Apps.InstancesOf(appKey(0)) {
			if !skerry.HasCondition(i.Conditions, skerry.Reachable) {
				t.Errorf("start %d: %s is not in touch, and its site is: %+v", n, i.ID, i.Conditions)
			}
		}
	}
}

// What a record says of an instance's worker is corrected, also if a site was out of touch meanwhile.
func TestInTouchAgainAfterASite(t *testing.T) {
	fed := newFederationOf(t, 1)
	fed.apply(0)
	id := fed.root.Apps.InstancesOf(appKey(0))[0].ID
	const name = "site-0000"
	site := fed.sites[name]
	tell := func(unreachable bool) {
		t.Helper()
		key := wire.AssignmentKey(id)
		value, _ := site.Observed.Get(key)
		var o wire.Observation
		if err := fed.codec.Unmarshal(value, &o); err != nil {
			t.Fatal(err)
		}
		o.Unreachable = unreachable
		if _, err := site.Observed.Put(key, fed.codec.Marshal(&o)); err != nil {
			t.Fatal(err)
		}
	}
	again := func(meanwhile func()) {
		t.Helper()
		fed.now = fed.now.Add(time.Minute)
		site.Down(fed.now)
		fed.step(ChildDown{Name: name})
		meanwhile()
		up := fed.step(ChildUp{Hello: &wire.Hello{Name: name, Sets: site.Hello()}})
		site.Up(fed.now, up.Result.(*wire.Welcome))
		fed.flush(name)
	}
	recorded := func() bool {
		t.Helper()
		var i apps.Instance
		if err := json.Unmarshal(fed.stored["inst/"+string(id)], &i); err != nil {
			t.Fatal(err)
		}
		return skerry.HasCondition(i.Conditions, skerry.Reachable)
	}
	clear(fed.writes)
	again(func() {})
	if got := fed.writes["inst"]; got != 0 {
		t.Errorf("a site that comes back writes %d instances, want none", got)
	}
	tell(true)
	fed.flush(name)
	if recorded() {
		t.Error("a worker that is out of touch is in no record")
	}
	again(func() { tell(false) })
	if !recorded() || !skerry.HasCondition(fed.root.Apps.Instance(id).Conditions, skerry.Reachable) {
		t.Error("a worker that is in touch again, which its site told when it came back, is in no record")
	}
	again(func() { tell(true) })
	if recorded() || skerry.HasCondition(fed.root.Apps.Instance(id).Conditions, skerry.Reachable) {
		t.Error("a worker that went out of touch while its site was, too, is in no record")
	}
}

// BenchmarkStart builds a root of 100 sites and 10,000 instances from its records.
func BenchmarkStart(b *testing.B) {
	const sites, applications = 100, 1000
	fed := newFederationOf(b, sites)
	for n := range applications {
		fed.apply(n)
	}
	fed.root = nil
	b.ReportAllocs()
	for b.Loop() {
		if got := len(fed.reloaded(fed.stored).Apps.HeldBy("site-0000")); got == 0 {
			b.Fatal("a site holds nothing, want its instances")
		}
	}
}
