package sim

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/testenv"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// spoiled is a core with a mistake in it.
type spoiled struct {
	core
	spoil func(fx *wire.Effects)
}

func (s spoiled) Step(now time.Time, msg any) wire.Effects {
	fx := s.core.Step(now, msg)
	s.spoil(&fx)
	return fx
}

func (s spoiled) Tick(now time.Time) wire.Effects {
	fx := s.core.Tick(now)
	s.spoil(&fx)
	return fx
}

// spoil plants a mistake into all cores of a kind.
func spoil[C core](fn func(w *World, n *Node, fx *wire.Effects)) func(*World) {
	return func(w *World) {
		old := w.Root.outer
		w.wrap = func(n *Node, c core) core {
			if _, ok := c.(C); !ok {
				return c
			}
			return spoiled{c, func(fx *wire.Effects) { fn(w, n, fx) }}
		}
		if old != nil {
			w.Root.outer = w.wrap(w.Root, w.Root.Core)
		}
	}
}

// plants are the mistakes, by the invariant that must notice.
func plants() map[string]func(*World) {
	return map[string]func(*World){
		// A root that forgets to write applications down.
		BrokenWrite: spoil[*root.Core](func(_ *World, _ *Node, fx *wire.Effects) {
			fx.Writes = slices.DeleteFunc(fx.Writes, func(x wire.Write) bool { return len(x.Key) > 4 && x.Key[:4] == "app/" })
		}),
		// A worker that does not stop what it should stop when it is cut off.
		BrokenTwice: spoil[*worker.Core](func(_ *World, n *Node, fx *wire.Effects) {
			if n.deaf() {
				fx.Actions = slices.DeleteFunc(fx.Actions, func(a any) bool { _, stop := a.(worker.StopContainer); return stop })
			}
		}),
		// A worker whose machine does not end what it is told to end.
		BrokenLive: spoil[*worker.Core](func(_ *World, _ *Node, fx *wire.Effects) {
			fx.Actions = slices.DeleteFunc(fx.Actions, func(a any) bool { _, stop := a.(worker.StopContainer); return stop })
		}),
		// A cluster that gives nothing to its workers.
		BrokenPlace: spoil[*cluster.Core](func(_ *World, _ *Node, fx *wire.Effects) {
			fx.Sends = slices.DeleteFunc(fx.Sends, func(s wire.Outgoing) bool { _, set := s.Msg.(*wire.SetDelta); return set && s.To != "" })
		}),
		// A machine that ends every container after a while, as a worker that restarts healthy instances would.
		BrokenRest: func(w *World) {
			w.Machine.Exit = func(a *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit) {
				if a.Spec.Mode == spec.ModeJob {
					return 3 * time.Second, wire.Exit{}
				}
				return 5*time.Minute + 10*time.Second, wire.Exit{Code: 1}
			}
		},
		// Workers that claim twenty times what they have.
		BrokenCapacity: func(w *World) {
			w.boast = func(f *wire.WorkerFacts) { f.Capacity.CPU *= 20 }
		},
		// A worker that starts what it is given under a lower token the second time.
		BrokenFence: func(w *World) {
			starts := map[skerry.InstanceID]int{}
			spoil[*worker.Core](func(_ *World, _ *Node, fx *wire.Effects) {
				for i, a := range fx.Actions {
					if s, ok := a.(worker.StartContainer); ok {
						if starts[s.A.ID]++; starts[s.A.ID] > 1 {
							s.A.Fence.RootEpoch = 0
							fx.Actions[i] = s
						}
					}
				}
			})(w)
		},
		// A cluster whose workers all get the block of addresses that the first one got.
		BrokenAddress: func(w *World) {
			var first *wire.OverlayNode
			spoil[*worker.Core](func(_ *World, _ *Node, fx *wire.Effects) {
				for i, a := range fx.Actions {
					f, ok := a.(worker.OverlayItem)
					node, is := f.Item.(*wire.OverlayNode)
					if !ok || !is {
						continue
					}
					if first == nil {
						first = node
					}
					same := *node
					same.Blocks = first.Blocks
					f.Item = &same
					fx.Actions[i] = f
				}
			})(w)
		},
		// A site that gives its workers nothing once one of them lies.
		BrokenHarm: spoil[*cluster.Core](func(w *World, _ *Node, fx *wire.Effects) {
			if len(w.guard.liars) > 0 {
				fx.Sends = slices.DeleteFunc(fx.Sends, func(s wire.Outgoing) bool { _, set := s.Msg.(*wire.SetDelta); return set && s.To != "" })
			}
		}),
		// A root that shows other limits than its instances have.
		BrokenView: spoil[*root.Core](func(_ *World, n *Node, fx *wire.Effects) {
			for _, ch := range fx.Changed {
				if i := n.Core.(*root.Core).Apps.Instance(ch.Instance); i != nil {
					other := i.Spec.Resources
					other.CPU++
					i.Resources = &other
				}
			}
		}),
		// A site that puts in quarantine whoever connects.
		BrokenTrust: spoil[*cluster.Core](func(_ *World, _ *Node, fx *wire.Effects) {
			for _, e := range fx.Events {
				if e.Reason == "WorkerConnected" {
					e.Reason = "WorkerQuarantined"
					fx.Events = append(fx.Events, e)
				}
			}
		}),
		// A cluster that names its workers in events for the root.
		BrokenSecret: spoil[*cluster.Core](func(_ *World, n *Node, fx *wire.Effects) {
			for i, s := range fx.Sends {
				if r, ok := s.Msg.(*wire.Report); ok && s.To == "" {
					fx.Sends[i].Msg = &wire.Report{Kind: r.Kind, Payload: append(slices.Clone(r.Payload), workerMark+"1"...)}
				}
			}
		}),
		// A worker that panics at an odd moment.
		BrokenSane: spoil[*worker.Core](func(w *World, _ *Node, fx *wire.Effects) {
			for _, a := range fx.Actions {
				if _, ok := a.(worker.StopContainer); ok {
					panic("planted")
				}
			}
		}),
	}
}

// TestEachInvariantCanFail plants a mistake for each invariant: some seed must show it under its name, and the scenario that is
// left of that must be small and show it, too.
func TestEachInvariantCanFail(t *testing.T) {
	all := plants()
	for i, name := range Invariants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if all[name] == nil {
				t.Fatal("no mistake is planted for it")
			}
			opt := RunOptions{plant: all[name]}
			for seed := range uint64(400) {
				s := Generate(seed)
				r := Run(s, opt)
				if r.Broken == nil || r.Broken.Invariant != name {
					continue
				}
				if same := Run(s, opt).Broken; *same != *r.Broken && name != BrokenSane { // a stack has addresses in it
					t.Errorf("seed %d broke as %v, then as %v", seed, r.Broken, same)
				}
				if i%testenv.Times(4, 1) != 0 {
					return // making it small takes five times as long as finding it
				}
				small := Minimise(s, opt, name, 300, nil)
				b := Run(small, opt).Broken
				if b == nil || b.Invariant != name {
					t.Fatalf("what is left of seed %d does not break it: %v\n%s", seed, b, small)
				}
				if len(small.Actions) > 8 || len(small.Actions) > len(s.Actions) {
					t.Errorf("%d of %d actions are left of seed %d:\n%s", len(small.Actions), len(s.Actions), seed, small)
				}
				if b := Run(small, RunOptions{}).Broken; b != nil {
					t.Errorf("without the mistake it breaks, too: %v", b)
				}
				return
			}
			t.Error("no seed shows it")
		})
	}
}
