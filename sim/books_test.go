package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// TestBooksBalance is chaos at one site with everything that holds room on a worker for a while: successors, copies that
// are leaving, preemption, host ports, questions that are answered late or never, and operators who delete and remove. The
// books of the site are checked after every step; at the end everything asked for runs, and nothing else.
func TestBooksBalance(t *testing.T) {
	for seed := range testenv.Times(10, 40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			books(t, uint64(seed))
		})
	}
}

func books(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	w := newWorld(t, seed)
	w.Audit = true
	site := w.AddCluster("a")
	w.Do(site, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.Do(site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	f := facts(2000)
	f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x"
	f.Location = &spec.Location{}
	names := []string{"w0", "w1", "w2", "w3"}
	for _, name := range names {
		w.feel(w.AddWorker("a", name, f), 0)
	}
	slow := func() time.Duration { return time.Duration(rng.IntN(4000)) * time.Millisecond }
	w.Machine = Machine{Prepare: 200 * time.Millisecond, Start: 100 * time.Millisecond, Stop: 2 * time.Second}
	w.Machine.Probe = func(a *spec.Assignment, kind worker.ProbeKind, attempt int) bool { return rng.IntN(4) > 0 }
	w.Machine.RTT = func(name, _ string) float64 { return float64(rng.IntN(20)) }
	w.Machine.Plugins = func(q cluster.Score) (out []wire.PluginAnswer) {
		for _, n := range q.Plugins {
			a := wire.PluginAnswer{Plugin: n, Out: map[string]string{}}
			for _, k := range q.Query.Candidates {
				if rng.IntN(6) == 0 {
					a.Out[k.Name] = "no"
				}
			}
			out = append(out, a)
		}
		return out
	}
	// Answers take their time, and may come to another life.
	w.Machine.Think = func() (time.Duration, bool) { return slow(), rng.IntN(5) > 0 }
	w.Run(time.Second)
	down, cut := map[*Node]bool{}, map[*Node]bool{}
	nodes := func() []*Node {
		out := []*Node{site}
		for _, name := range names {
			out = append(out, w.Workers["a/"+name])
		}
		return append(out, w.Root)
	}
	up := func(n *Node) {
		if w.Workers[n.Name] != nil {
			w.Restart(n, &f)
		} else {
			w.Restart(n, nil)
		}
		delete(down, n)
	}
	want := map[string]int{}
	for range 80 {
		list := nodes()
		n := list[rng.IntN(len(list))]
		k := rng.IntN(5)
		name := fmt.Sprintf("app%d", k)
		switch rng.IntN(14) {
		case 0, 1, 2: // app0..2 are the root's, app3 and app4 the site's own
			owner := w.Root
			if k > 2 {
				owner = site
			}
			if down[owner] {
				break
			}
			m := rng.IntN(4)
			a := app(name, m, rigid(float64(rng.IntN(3))/2), func(s *spec.ServiceSpec) {
				s.Resources.CPU = 300
				s.Image = fmt.Sprintf("web:%d", rng.IntN(2))
				s.Placement.Priority = rng.IntN(3)
				switch k {
				case 0:
					s.Placement.Users = []spec.User{{Address: "192.0.2.7", MaxLatency: ms(200)}}
				case 1:
					s.Placement.Policy = "plugin/greenest"
				case 2, 3:
					s.Ports = []spec.Port{{Port: 80, HostPort: 8000 + k}}
				case 4:
					s.Placement.Policy = spec.PolicySpread
					s.Links = []spec.Link{{Service: "db", MaxDistance: 10_000}}
				}
				s.Probes.Readiness = probe(time.Second, 1)
			})
			if k == 4 {
				db := a.App.Spec.Services[0]
				db.Name, db.Links = "db", nil
				a.App.Spec.Services = append(a.App.Spec.Services, db)
			}
			if _, bad := w.Do(owner, a).(error); !bad {
				want[name] = m
			}
		case 3:
			owner := w.Root
			if k > 2 {
				owner = site
			}
			if _, there := want[name]; there && !down[owner] {
				w.Do(owner, apps.Delete{Key: web(name).App})
				delete(want, name)
			}
		case 4:
			if !down[n] {
				w.Kill(n)
				down[n] = true
			}
		case 5:
			if !down[n] && w.Workers[n.Name] != nil {
				w.PowerOff(n)
				down[n] = true
			}
		case 6, 7:
			for _, n := range list {
				if down[n] {
					up(n)
					break
				}
			}
		case 8:
			if n != w.Root && !cut[n] {
				w.Cut(n)
				cut[n] = true
			}
		case 9:
			if cut[n] {
				delete(cut, n)
				w.Heal(n)
			}
		case 10, 11:
			if !down[n] && w.Workers[n.Name] != nil {
				w.feel(n, float64(rng.IntN(2)))
			}
		case 12: // somebody deletes an instance at the site
			if !down[site] {
				if list := site.Core.(*cluster.Core).Instances(); len(list) > 0 {
					w.Do(site, apps.DeleteInstance{ID: list[rng.IntN(len(list))].ID, Actor: "t"})
				}
			}
		case 13:
			if !down[site] {
				switch name := names[rng.IntN(len(names))]; rng.IntN(6) {
				case 4:
					if n := w.Workers["a/"+name]; !down[n] {
						w.Do(n, worker.FreezeLocal{Reason: "t"})
					}
				case 5:
					if n := w.Workers["a/"+name]; !down[n] {
						w.Do(n, worker.ApproveLocal{})
						if rng.IntN(2) == 0 {
							w.Do(n, worker.ReleaseLocal{})
						}
					}
				case 2:
					w.Do(site, cluster.DrainWorker{Name: name, Parallel: 1 + rng.IntN(3)})
				case 0:
					if n := w.Workers["a/"+name]; down[n] {
						if _, bad := w.Do(site, cluster.RemoveWorker{Name: name}).(error); !bad {
							clear(n.Store) // who is removed is revoked, and joins again as another
							clear(n.tasks)
						}
					}
				case 1:
					w.Do(site, cluster.CordonWorker{Name: name, Reason: "t"})
				default:
					w.Do(site, cluster.SetPlugins{List: []cluster.Plugin{{Name: "greenest", Reject: rng.IntN(2) == 0, All: rng.IntN(4) == 0}}})
				}
			}
		}
		w.Run(slow() * 2)
	}
	for _, n := range nodes() {
		if cut[n] {
			delete(cut, n)
			w.Heal(n)
		}
		if down[n] {
			up(n)
		}
	}
	w.Machine.Think, w.Machine.Probe = nil, nil
	w.Machine.RTT = func(string, string) float64 { return 1 }
	w.Machine.Plugins = answers(wire.PluginAnswer{})
	w.Do(site, cluster.SetPlugins{List: []cluster.Plugin{{Name: "greenest"}}})
	for _, name := range names {
		w.Do(site, cluster.CordonWorker{Name: name})
		w.Do(w.Workers["a/"+name], worker.ReleaseLocal{})
		w.feel(w.Workers["a/"+name], 0)
	}
	w.Run(10 * time.Minute)
	total := 0
	for k := range 5 {
		name := fmt.Sprintf("app%d", k)
		got, all := 0, 0
		for _, i := range site.Core.(*cluster.Core).Instances() {
			if i.Service.App.Name != name {
				continue
			}
			all++
			if skerry.HasCondition(i.Conditions, skerry.Ready) && !i.Stopping {
				got++
			}
		}
		m := want[name]
		if k == 4 {
			m *= 2
		}
		total += m
		if got != m {
			t.Errorf("%s: %d ready, want %d", name, got, m)
			for _, i := range slices.Concat(site.Core.(*cluster.Core).Instances(), instances(w.RootCore().Apps, name)) {
				if i.Service.App.Name == name {
					t.Logf("  %s %s %s on %q stopping=%v %q %v", i.ID, i.State, i.Phase, i.Worker, i.Stopping, i.Reason, i.Why)
				}
			}
		}
	}
	if g := w.tasks(); g != total {
		t.Errorf("%d tasks run, want %d", g, total)
	}
	for _, x := range site.Core.(*cluster.Core).Workers() {
		if x.Facts == nil || x.Available != x.Facts.Capacity.Sub(x.Reserved) {
			t.Errorf("%s: %v available of %v, %v reserved", x.Name, x.Available, x.Facts, x.Reserved)
		}
	}
	for _, x := range w.Faults {
		t.Error(x)
	}
}

func instances(c *apps.Controller, name string) (out []wire.Instance) {
	for _, i := range c.InstancesOf(web(name).App) {
		out = append(out, i.Instance)
	}
	return out
}

// feel is suffer on a worker that knows its place in the network.
func (w *World) feel(n *Node, share float64) {
	use := map[skerry.InstanceID]wire.QoS{}
	for _, o := range n.Core.(*worker.Core).Instances() {
		use[o.ID] = wire.QoS{CPU: 100, Waiting: share}
	}
	w.Do(n, worker.Usage{Instances: use, Coordinate: &spec.Coordinate{Vec: [3]float64{1}, Error: 0.1}})
}
