package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// TestChaosComesToRest kills roles, cuts links, switches machines off and lets users change their minds, at random, and
// then checks that the fleet comes to exactly what was asked for last: no instance too few, none too many, and none that
// nobody knows.
func TestChaosComesToRest(t *testing.T) {
	for seed := range testenv.Times(50, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chaos(t, uint64(seed))
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	w := newWorld(t, seed)
	w.Audit = seed < uint64(testenv.Times(5, 20)) // it costs more than all the rest
	var nodes []*Node
	f := facts(2000)
	f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x"
	for c := range 2 {
		name := string(rune('a' + c))
		nodes = append(nodes, w.AddCluster(name))
		for i := range 3 {
			nodes = append(nodes, w.AddWorker(name, fmt.Sprintf("w%d", i+1), f))
		}
	}
	nodes = append(nodes, w.Root)
	w.Machine = Machine{Prepare: 20 * time.Millisecond, Start: 10 * time.Millisecond, Stop: 30 * time.Millisecond}
	w.Run(time.Second)
	want := map[string]int{}
	down, cut := map[*Node]bool{}, map[*Node]bool{}
	up := func(n *Node) {
		if w.Workers[n.Name] != nil {
			w.Restart(n, &f)
		} else {
			w.Restart(n, nil)
		}
		delete(down, n)
	}
	for range 60 {
		n := nodes[rng.IntN(len(nodes))]
		name := fmt.Sprintf("app%d", rng.IntN(3))
		switch rng.IntN(11) {
		case 0, 1:
			if down[w.Root] {
				break
			}
			k := rng.IntN(5)
			edit := func(s *spec.ServiceSpec) {
				s.Image = fmt.Sprintf("web:%d", rng.IntN(3))
				s.Placement.Priority = rng.IntN(3)
				rigid(float64(rng.IntN(3)) / 2)(s)
			}
			if _, bad := w.Do(w.Root, app(name, k, edit)).(error); !bad {
				want[name] = k
			}
		case 2:
			if _, there := want[name]; there && !down[w.Root] {
				w.Do(w.Root, apps.Delete{Key: web(name).App})
				delete(want, name)
			}
		case 3:
			if !down[n] {
				w.Kill(n)
				down[n] = true
			}
		case 4:
			if !down[n] && w.Workers[n.Name] != nil {
				w.PowerOff(n)
				down[n] = true
			}
		case 5:
			if down[n] {
				up(n)
			}
		case 6:
			if n != w.Root && !cut[n] {
				w.Cut(n)
				cut[n] = true
			}
		case 7:
			if cut[n] {
				w.Heal(n)
				delete(cut, n)
			}
		case 8:
			if _, there := want[name]; there && !down[w.Root] {
				w.Do(w.Root, apps.Restart{Service: web(name)})
			}
		case 9, 10: // what runs there suffers, or no longer does
			if !down[n] && w.Workers[n.Name] != nil {
				w.suffer(n, float64(rng.IntN(2)))
			}
		}
		w.Run(time.Duration(rng.IntN(6000)) * time.Millisecond)
	}
	for _, n := range nodes {
		if cut[n] {
			delete(cut, n)
			w.Heal(n)
		}
	}
	for _, n := range nodes {
		if down[n] {
			up(n)
		}
	}
	for _, n := range ordered(w.Workers) {
		w.suffer(n, 0)
	}
	w.Run(5 * time.Minute)
	// What is placed again and again, at the pace of the links, comes to rest only because somebody pulls a plug.
	placed := 0
	for _, e := range w.Events {
		if e.Reason == "Scheduled" {
			placed++
		}
	}
	if placed > 300 {
		t.Errorf("the root placed %d times", placed)
	}
	total := 0
	for a := range 3 {
		name := fmt.Sprintf("app%d", a)
		total += want[name]
		if g := w.ready(name); g != want[name] {
			t.Errorf("%s: %d ready, want %d", name, g, want[name])
			for _, i := range w.RootCore().Apps.Instances(web(name)) {
				t.Logf("  %s %s %s holder=%s stopping=%v failures=%d %q %v", i.ID, i.State, i.Phase, i.Holder, i.Stopping, i.Failures, i.Reason, i.Why)
			}
		}
	}
	if g := w.tasks(); g != total {
		t.Errorf("%d tasks run, want %d", g, total)
	}
	for _, name := range []string{"a", "b"} {
		for _, x := range w.ClusterCore(name).Workers() {
			need := spec.Resources{}
			for _, i := range w.ClusterCore(name).Instances() {
				if i.Worker == x.Name && i.State != skerry.Failed {
					need = need.Add(spec.Resources{CPU: 500, Memory: 64*skerry.MiB + spec.RuntimeNamed("oci").Memory})
				}
			}
			if x.Reserved.CPU != need.CPU || x.Reserved.Memory != need.Memory {
				t.Errorf("%s/%s: reserved %v, its instances need %v", name, x.Name, x.Reserved, need)
			}
		}
	}
	for _, x := range w.Faults {
		t.Error(x)
	}
}

// suffer has everything on a worker wait for a processor for a share of the time.
func (w *World) suffer(n *Node, share float64) {
	use := map[skerry.InstanceID]wire.QoS{}
	for _, o := range n.Core.(*worker.Core).Instances() {
		use[o.ID] = wire.QoS{CPU: 100, Waiting: share}
	}
	w.Do(n, worker.Usage{Instances: use})
}
