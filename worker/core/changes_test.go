package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// hundred is the use of a hundred instances that do next to nothing but answer their probes, of which some work.
func hundred(working int) func(time.Duration) Usage {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(at time.Duration) Usage {
		u := Usage{Instances: map[skerry.InstanceID]wire.QoS{}}
		u.Used.CPU, u.Used.Memory = skerry.MilliCPU(200+rng.IntN(20)), 4*skerry.GiB+skerry.Bytes(rng.IntN(1<<20))
		for i := range 100 {
			seconds := int64(at / time.Second)
			q := wire.QoS{CPU: skerry.MilliCPU(rng.IntN(3)), Memory: 12*skerry.MiB + skerry.Bytes(rng.IntN(1<<18)), RxBytes: 700 * seconds,
				TxBytes: 900 * seconds, ReadBytes: 4 << 20, WriteBytes: 1 << 16, Waiting: rng.Float64() / 200, ProbeMs: 1 + rng.Float64()/2}
			if i < working {
				q.CPU, q.Waiting = skerry.MilliCPU(rng.IntN(1000)), rng.Float64()
			}
			u.Instances[skerry.InstanceID(fmt.Sprintf("web-%05d", i*7919))] = q
		}
		return u
	}
}

// TestReportsOfChanges: a cluster that understands it is told of what changed, and puts together what it would have been told of all,
// within what is worth telling; one that does not is told of all. The goal is 20 kB a minute for a hundred instances.
func TestReportsOfChanges(t *testing.T) {
	const most = 20_000 // bytes a minute
	for _, c := range []struct {
		name     string
		working  int
		features []string
	}{{"at rest", 0, []string{wire.FeatureChanges}}, {"one works", 1, []string{wire.FeatureChanges}}, {"an older cluster", 1, nil}} {
		p := newPaced(t, Options{}, nil)
		p.take(p.c.Step(p.now, ParentDown{}))
		p.take(p.c.Step(p.now, ParentUp{Welcome: &wire.Welcome{Features: c.features}}))
		var last Usage
		use := hundred(c.working)
		bytes, known := 0, map[skerry.InstanceID]wire.QoS{}
		const minutes = 30
		for range minutes * 6 {
			before := len(p.got)
			p.run(UsualMeasure, UsualMeasure, func(at time.Duration) Usage { last = use(at); return last })
			for _, r := range p.got[before:] {
				bytes += len(wire.New().Marshal(&r))
				if r.Changes && c.features == nil {
					t.Fatalf("%s: it is told of changes, want all", c.name)
				}
				r.Complete(known, func(skerry.InstanceID) bool { return true })
				known = r.Instances
			}
		}
		t.Logf("%s: %d bytes a minute", c.name, bytes/minutes)
		if got := bytes / minutes; c.features != nil && got > most || c.features == nil && got <= most {
			t.Errorf("%s: got %d bytes a minute; want at most %d, and more from one of before", c.name, got, most)
		}
		told := p.c.reports.told
		if len(known) != len(told.Instances) {
			t.Errorf("%s: the cluster knows %d instances, want %d", c.name, len(known), len(told.Instances))
		}
		for id, is := range told.Instances {
			if was, ok := known[id]; !ok || worthTelling(&was, &is) {
				t.Errorf("%s: the cluster knows of %s %+v, want %+v", c.name, id, was, is)
			}
		}
	}
}

// TestChangesFollowInstances: one that is gone is named, one that comes is told, one that is restarted has new counters, and whoever
// connects anew is told of all.
func TestChangesFollowInstances(t *testing.T) {
	r := &reporter{}
	welcome := &wire.Welcome{Features: []string{wire.FeatureChanges}}
	now := time.Unix(1e9, 0)
	var fx wire.Effects
	r.linked(now, welcome, &fx)
	tell := func(use map[skerry.InstanceID]wire.QoS) wire.WorkerReport {
		now = now.Add(time.Minute)
		r.used(now, Usage{Instances: use})
		return r.report(now, "")
	}
	check := func(step string, got wire.WorkerReport, changes bool, named, gone string) {
		t.Helper()
		var names []skerry.InstanceID
		for _, id := range []skerry.InstanceID{"a", "b", "c"} {
			if _, ok := got.Instances[id]; ok {
				names = append(names, id)
			}
		}
		if got.Changes != changes || fmt.Sprint(names) != named || fmt.Sprint(got.Gone) != gone {
			t.Errorf("%s: changes %v, named %v, gone %v; want %v, %s, %s", step, got.Changes, names, got.Gone, changes, named, gone)
		}
	}
	check("the first", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 5000}, "b": {}}), false, "[a b]", "[]")
	check("nothing", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 6000}, "b": {CPU: 2}}), true, "[]", "[]")
	check("b goes, c comes", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 6000}, "c": {}}), true, "[c]", "[b]")
	check("a is restarted", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 10}, "c": {}}), true, "[a]", "[]")
	check("c drifts", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 10}, "c": {CPU: 4}}), true, "[]", "[]")
	check("and on", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 10}, "c": {CPU: 6}}), true, "[c]", "[]")
	now = now.Add(wholeEvery)
	check("after a while", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 10}, "c": {CPU: 6}}), false, "[a c]", "[]")
	r.linked(now, welcome, &fx)
	check("connected anew", tell(map[skerry.InstanceID]wire.QoS{"a": {RxBytes: 10}, "c": {CPU: 6}}), false, "[a c]", "[]")
}
