package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// stored keeps what is written, as a store does.
type stored map[string][]byte

func (s stored) keep(fx wire.Effects) {
	for _, w := range fx.Writes {
		if s[w.Key] = w.Value; w.Value == nil {
			delete(s, w.Key)
		}
	}
}

// load makes a controller of what is stored.
func (s stored) load(tb testing.TB) *Controller {
	tb.Helper()
	c := New([16]byte{2}, "t")
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if ours, err := c.Load(key, s[key]); !ours || err != nil {
			tb.Fatalf("load %s: got %v, %v, want it taken", key, ours, err)
		}
	}
	c.Start(now)
	return c
}

// Instances that are loaded share a specification with their application or, of an earlier version, with each other, and are what their
// records say.
func TestLoadedInstancesShare(t *testing.T) {
	first, st := controller(t, Quota{}), stored{}
	st.keep(do(t, first, apply(4)))
	running := first.InstancesOf(shop)
	for n, i := range running { // they run, so that the next version takes their places one after the other
		var fx wire.Effects
		first.Place(now, i, fmt.Sprint("site-", n), skerry.Fence{RootEpoch: uint64(n + 1)}, &wire.Decision{At: now, Instance: i.ID, Tier: "root",
			Policy: "rom", Chosen: fmt.Sprint("site-", n), Top: []wire.Candidate{{Name: fmt.Sprint("site-", n), Chosen: true}}}, &fx)
		first.Observe(now, i.Holder, wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Phase: skerry.PhaseRunning,
			Ready: true, Revision: i.Revision}, &fx)
		st.keep(fx)
	}
	st.keep(do(t, first, apply(4, func(a *Apply) { a.App.Spec.Services[0].Image = "web:2" })))
	again := st.load(t)
	own := again.App(shop).Manifest.Spec.Service("web")
	old, fresh := map[*spec.ServiceSpec]int{}, 0
	for _, i := range again.InstancesOf(shop) {
		if i.Spec == own {
			fresh++
		} else {
			old[i.Spec]++
		}
		if got, want := string(mustJSON(i)), string(st[prefixInst+string(i.ID)]); got != want {
			t.Errorf("%s: got\n%s\nwant what its record says:\n%s", i.ID, got, want)
		}
	}
	if fresh == 0 || len(old) != 1 {
		t.Errorf("got %d instances with their application's specification, and %d specifications of before; want some, and 1", fresh, len(old))
	}
	if again.loading != nil {
		t.Error("what is needed to load is kept after the start, want it dropped")
	}
}

// A record without a specification, or with a damaged one, is taken or refused as before specifications were shared.
func TestLoadOddSpecification(t *testing.T) {
	for record, says := range map[string]string{
		`{"id":"a","spec":null}`: "", `{"id":"a"}`: "", `{"id":"a","spec":7}`: "cannot unmarshal", `{"id":"a","spec":`: "unexpected end",
	} {
		c := New([16]byte{2}, "t")
		_, err := c.Load(prefixInst+"a", []byte(record))
		var want Instance
		plain := json.Unmarshal([]byte(record), &want)
		if (err == nil) != (plain == nil) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: got %v, want %v", record, err, plain)
		} else if err == nil && (c.Instance("a") == nil || c.Instance("a").Spec != nil) {
			t.Errorf("%s: got %+v, want an instance without a specification", record, c.Instance("a"))
		}
	}
}

// BenchmarkLoad loads applications of two services with five instances each. B/instance is what is kept.
func BenchmarkLoad(b *testing.B) {
	const applications = 300
	made, st := New([16]byte{1}, "t"), stored{}
	step := func(msg any) {
		fx, ok := made.Handle(now, msg)
		if !ok || fx.Err != nil {
			b.Fatalf("%T: got %v, %v, want it done", msg, ok, fx.Err)
		}
		fx.Merge(made.Reconcile(now))
		st.keep(fx)
	}
	step(PutOrg{Org: Org{Name: "harbour"}})
	step(PutNamespace{Namespace: Namespace{Name: "default", Org: "harbour"}})
	for n := range applications {
		step(apply(5, func(a *Apply) {
			a.App.Metadata.Name = fmt.Sprintf("app-%04d", n)
			s := a.App.Spec.Services[0]
			s.Name, s.Env = "db", map[string]string{"TEXT": a.App.Metadata.Name}
			a.App.Spec.Services = append(a.App.Spec.Services, s)
		}))
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b.ReportAllocs()
	var kept uint64
	for b.Loop() {
		b.StopTimer()
		before := heap()
		b.StartTimer()
		d := st.load(b)
		b.StopTimer()
		kept = heap() - before
		if got := len(d.inst); got != 10*applications {
			b.Fatalf("got %d instances, want %d", got, 10*applications)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(kept)/(10*applications), "B/instance")
}
