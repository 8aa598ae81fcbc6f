package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/testenv"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// brittle is a core that panics after some steps, when its memory has changed and nothing is written.
type brittle struct {
	core
	node   *Node
	panics func(n *Node, msg any) bool
}

func (b brittle) Step(now time.Time, msg any) wire.Effects {
	fx := b.core.Step(now, msg)
	if b.panics(b.node, msg) {
		if _, frame := msg.(loop.Sent); frame {
			b.node.refusals = nil // the next time the same does not cause a panic; refusing it would keep up its whole set
		}
		panic("planted")
	}
	return fx
}

// panicking has cores panic on messages, and survive that as they do in production.
func panicking(w *World, panics func(n *Node, msg any) bool) {
	w.survives = true
	w.wrap = func(n *Node, c core) core { return brittle{c, n, panics} }
	for _, n := range append(w.all(), w.Root) {
		n.outer = w.wrap(n, n.Core)
	}
}

func (w *World) all() (out []*Node) {
	out = append(out, ordered(w.Clusters)...)
	out = append(out, ordered(w.Workers)...)
	return out
}

// A message that makes a core panic is refused, once and for all; what was acknowledged before is there, what runs goes on, and the
// next message works.
func TestPanicOfAMessage(t *testing.T) {
	w := New(1)
	w.UseNetwork()
	site := w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(8000))
	starts, planted := 0, map[string]bool{}
	w.Machine.Started = func(*spec.Assignment, string, int) { starts++ }
	panicking(w, func(n *Node, msg any) bool {
		if m, ok := msg.(apps.Apply); ok {
			return m.App.Metadata.Name == "boom"
		}
		var who string
		switch msg.(type) {
		case root.ChildFrame, cluster.ChildFrame:
			who = n.Name + " from below"
		case cluster.ParentFrame, worker.ParentFrame:
			who = n.Name + " from above"
		}
		defer delete(planted, who)
		return planted[who]
	})
	w.Run(5 * time.Second)
	if err, bad := w.Do(w.Root, app("shop", 1)).(error); bad {
		t.Fatal(err)
	}
	w.Run(10 * time.Second)
	if starts != 1 {
		t.Fatalf("%d starts", starts)
	}
	life := w.Root.life
	for try := range 2 {
		err, _ := w.Do(w.Root, app("boom", 1)).(error)
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeInternal {
			t.Errorf("try %d: %v", try, err)
		}
		w.Run(5 * time.Second)
		if w.Root.life == life {
			t.Error("a core that panicked lives on")
		}
		if try > 0 && w.Root.life != life+2 { // its end, and its start
			t.Errorf("the same message was tried again: life %d, then %d", life, w.Root.life)
		}
	}
	for _, who := range []string{"root from below", "a from below", "a from above", "a/w1 from above"} {
		planted[who] = true
		w.Do(w.Root, apps.Scale{Service: web("shop"), Replicas: 1 + starts})
		w.Run(time.Minute)
		if planted[who] {
			t.Errorf("%s: nothing came", who)
		}
	}
	if err, bad := w.Do(w.Root, app("other", 1)).(error); bad {
		t.Error(err)
	}
	w.Run(time.Minute)
	if got := n.Tasks(); got != starts || starts != 6 {
		t.Errorf("%d run of %d that were started", got, starts)
	}
	if c := w.Root.Core.(*root.Core); c.Apps.App(skerry.AppKey{Namespace: "default", Name: "boom"}) != nil || c.Apps.App(skerry.AppKey{Namespace: "default", Name: "shop"}) == nil {
		t.Error("the root has lost something, or kept what it refused")
	}
	if !w.Root.Up || !site.Up || len(w.Faults) > 0 {
		t.Error(w.Faults)
	}
}

// TestPanicsAnywhere: whatever frame makes a core panic, all that is promised holds, as it does when a process crashes.
func TestPanicsAnywhere(t *testing.T) {
	for seed := range uint64(testenv.Times(10, 40)) {
		s := Generate(seed)
		count, panics := uint64(0), 0
		b := Run(s, RunOptions{plant: func(w *World) {
			panicking(w, func(_ *Node, msg any) bool {
				switch msg.(type) {
				case root.ChildFrame, cluster.ChildFrame, cluster.ParentFrame, worker.ParentFrame:
				default:
					return false
				}
				if count++; (count+seed)%97 != 0 || panics >= 5 {
					return false
				}
				panics++
				return true
			})
		}}).Broken
		if b != nil {
			t.Errorf("seed %d after %d panics: %v\n%s", seed, panics, b, s)
		}
	}
}
