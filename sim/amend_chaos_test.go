package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

// TestAmendmentsInAnyOrder has users change two applications at the root and at two sites, whose links fail, while the processes of
// all tiers die and the root starts elsewhere what is lost. In the end root and sites agree, on what the root's manifest says.
func TestAmendmentsInAnyOrder(t *testing.T) {
	for seed := range uint64(testenv.Times(8, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { amendments(t, seed) })
	}
}

func amendments(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	w := New(seed)
	w.Audit = true
	if rng.IntN(2) == 0 {
		w.lostAfter = 40 * time.Second
		w.Kill(w.Root)
		w.Restart(w.Root, nil)
	}
	names := []string{"a", "b"}
	for _, name := range names {
		w.AddCluster(name)
		for i := range 2 {
			w.AddWorker(name, fmt.Sprintf("w%d", i+1), facts(16000))
		}
	}
	if rng.IntN(2) == 0 {
		w.Clusters["a"].extra = time.Duration(rng.IntN(1500)) * time.Millisecond
	}
	w.Machine.Prepare = time.Duration(rng.IntN(2000)) * time.Millisecond
	w.Run(20 * time.Second)
	policies := []string{spec.KeepReplacement, spec.KeepOriginal, spec.KeepBest}
	list := []string{"shop", "bank"}
	manifest := func(name string) apps.Apply {
		return app(name, rng.IntN(5), func(s *spec.ServiceSpec) {
			s.Args = []string{fmt.Sprint(rng.IntN(3))}
			s.OnReconnect = policies[rng.IntN(3)]
			s.Placement.Policy = spec.PolicySpread
			if rng.IntN(4) == 0 {
				s.OnDisconnect = spec.StopAfter(20 * time.Second)
			}
		})
	}
	for _, name := range list {
		w.must(t, w.Root, manifest(name))
	}
	w.Run(5 * time.Second)
	cut := map[string]bool{}
	for range 60 {
		w.Run(time.Duration(rng.IntN(5000)) * time.Millisecond)
		site, name := names[rng.IntN(2)], list[rng.IntN(2)]
		at := w.Clusters[site]
		by := w.Root
		if cut[site] && rng.IntN(4) > 0 {
			by = at
		}
		do := func(m any) { w.Do(by, m) } // it may be refused
		switch rng.IntN(12) {
		case 0, 1:
			if !cut[site] {
				w.Cut(at)
				cut[site] = true
			}
		case 2:
			w.Heal(at)
			cut[site] = false
		case 3:
			w.Heal(at)
			w.Run(time.Duration(rng.IntN(8000)) * time.Microsecond)
			w.Cut(at)
			cut[site] = true
		case 4:
			w.Kill(at)
			w.Restart(at, nil)
		case 5:
			w.Kill(w.Root)
			w.Restart(w.Root, nil)
		case 6, 7:
			do(manifest(name))
		case 8, 9:
			do(apps.Scale{Service: web(name), Replicas: rng.IntN(5), Actor: "otto"})
		case 10:
			do(apps.Restart{Service: web(name)})
		case 11:
			switch rng.IntN(4) {
			case 0:
				do(deleteApp(name))
			case 1:
				do(apps.Undo{Service: web(name)})
			case 2:
				if i := w.ClusterCore(site).Instances(); len(i) > 0 {
					w.Do(at, apps.DeleteInstance{ID: i[rng.IntN(len(i))].ID, Actor: "otto"})
				}
			default:
				wk := w.Workers[site+"/w1"]
				w.Cut(wk)
				w.Run(time.Duration(rng.IntN(6000)) * time.Millisecond)
				w.Heal(wk)
			}
		}
	}
	for _, name := range names {
		w.Heal(w.Clusters[name])
	}
	w.Run(10 * time.Minute)
	want := 0
	for _, name := range list {
		a := w.RootCore().Apps.App(web(name).App)
		if a == nil {
			continue
		}
		n := *a.Manifest.Spec.Services[0].Replicas
		want += n
		if got := w.ready(name); got != n || a.Deleting {
			t.Errorf("%s: %d ready of %d, deleting %v", name, got, n, a.Deleting)
			for _, i := range w.RootCore().Apps.Instances(web(name)) {
				t.Logf("%s %s %s rev %s of %s gen %d holder=%s next=%v left=%v cut=%v %q stopping=%v %v", i.ID, i.State, i.Phase, i.Revision, a.Manifest.Spec.Services[0].Revision(), i.Gen, i.Holder, i.Next, i.Left, i.Cut, i.Reason, i.Stopping, i.Why)
			}
		}
	}
	if w.tasks() != want {
		t.Errorf("%d run, want %d", w.tasks(), want)
	}
	for _, site := range names {
		var here, there []string
		for _, i := range w.ClusterCore(site).Instances() {
			here = append(here, string(i.ID)+" "+fmt.Sprint(i.Fence.RootEpoch))
		}
		for _, i := range w.RootCore().Apps.HeldBy(site) {
			there = append(there, string(i.ID)+" "+fmt.Sprint(i.Fence.RootEpoch))
		}
		slices.Sort(here)
		slices.Sort(there)
		if !slices.Equal(here, there) {
			t.Errorf("site %s has %v, the root %v", site, here, there)
		}
		for key := range w.Clusters[site].Store {
			if strings.HasPrefix(key, "amend/") || strings.HasPrefix(key, "app/") || strings.HasPrefix(key, "inst/") {
				t.Errorf("the store of %s still has %s", site, key)
			}
		}
	}
	w.sound(t)
}
