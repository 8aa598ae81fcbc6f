package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// slip is the production engine with a mistake between it and the store.
type slip struct {
	*loop.Engine
	commit func(first bool, real loop.Commit, ops []store.Op, done func(error))
}

func (s slip) Flush(now time.Time, real loop.Commit) {
	first := true
	s.Engine.Flush(now, func(ops []store.Op, done func(error)) {
		was := first
		first = false
		s.commit(was, real, ops, done)
	})
}

// slips plants a mistake between every engine and its store.
func slips(commit func(first bool, real loop.Commit, ops []store.Op, done func(error))) func(*World) {
	return func(w *World) {
		driven(w, func(n *Node, e engine) engine { return slip{e.(*loop.Engine), commit} })
	}
}

// driven puts something around the engines of a world whose root has started.
func driven(w *World, fn func(n *Node, e engine) engine) {
	w.drive = fn
	w.Root.engine = fn(w.Root, w.Root.engine)
}

// hasty is the production engine, answering as soon as the core has.
type hasty struct {
	*loop.Engine
	n *Node
}

func (h hasty) Step(now time.Time, msg any, to func(any, error)) {
	c := &overheard{core: h.n.outer}
	h.n.outer = c
	h.Engine.Step(now, msg, nil)
	h.n.outer = c.core
	if to != nil {
		to(c.fx.Result, c.fx.Err)
	}
}

type overheard struct {
	core
	fx wire.Effects
}

func (o *overheard) Step(now time.Time, msg any) wire.Effects {
	o.fx = o.core.Step(now, msg)
	return o.fx
}

// unwritten plants cores some of whose writes get lost.
func unwritten(lost func(x wire.Write) bool) func(*World) {
	return spoil[core](func(_ *World, _ *Node, fx *wire.Effects) { fx.Writes = slices.DeleteFunc(fx.Writes, lost) })
}

// tombstone reports whether a record says that an item of a set was deleted: a format byte, a varint, 1, an empty value.
func tombstone(x wire.Write) bool {
	n := len(x.Value)
	return strings.Contains(x.Key, "/i/") && n > 3 && n < 14 && x.Value[0] == 1 && x.Value[n-2] == 1 && x.Value[n-1] == 0
}

// strained is a scenario in which the disks of root and sites are slow, and some of these die soon after they were asked for something.
func strained(seed uint64) *Scenario {
	s := Generate(seed)
	rng := rand.New(rand.NewPCG(seed, 10))
	for _, n := range append([]string{"root"}, s.Sites...) {
		s.Actions = append(s.Actions, Action{Verb: "disk", Target: n, Args: map[string]string{"slow": "200ms"}})
	}
	for _, a := range slices.Clone(s.Actions) {
		if n := cmp.Or(a.Args["owner"], "root"); verbs[a.Verb].target == 'a' && rng.IntN(2) == 0 {
			soon := a.At + time.Duration(rng.IntN(400))*time.Millisecond
			s.Actions = append(s.Actions, Action{At: soon, Verb: "kill", Target: n}, Action{At: soon + 2*time.Second, Verb: "start", Target: n})
		}
	}
	slices.SortStableFunc(s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return s
}

// few are scenarios for mistakes that others show late.
var few = map[string]string{
	"refusal overlooked": `
seed 1
site a
worker a/edgewk1
at 0s disk root fault=full
at 0s apply app0 replicas=1
at 2s kill root
at 3s disk root fault=none
at 3s start root`,
	"token counter not persisted": `
seed 468
site a
worker a/edgewk1
at 0s apply app4 owner=a shape=perworker
at 1s off a/edgewk1
at 17s forget a/edgewk1
at 17s kill a`,
}

// TestCommitPath plants mistakes on the way from a core's step to what follows from it. Each must be seen within some seeds.
func TestCommitPath(t *testing.T) {
	for name, plant := range map[string]func(*World){
		"answer before commit": func(w *World) {
			driven(w, func(n *Node, e engine) engine { return hasty{e.(*loop.Engine), n} })
		},
		"send before persist": spoil[core](func(w *World, n *Node, fx *wire.Effects) {
			for _, s := range fx.Sends {
				w.deliver(n, s)
			}
			fx.Sends = nil
		}),
		"all of it before persist": slips(func(_ bool, real loop.Commit, ops []store.Op, done func(error)) {
			done(nil)
			real(ops, func(error) {})
		}),
		"second of two commits lost": slips(func(first bool, real loop.Commit, ops []store.Op, done func(error)) {
			if first {
				real(ops, done)
			} else {
				done(nil)
			}
		}),
		"refusal overlooked": slips(func(_ bool, real loop.Commit, ops []store.Op, done func(error)) {
			real(ops, func(error) { done(nil) })
		}),
		// A tombstone that is not written at all is no danger: the old record is there still, and the core ends it again.
		"tombstone not persisted": spoil[core](func(_ *World, _ *Node, fx *wire.Effects) {
			for i, x := range fx.Writes {
				if tombstone(x) {
					fx.Writes[i].Value = nil
				}
			}
		}),
		"token counter not persisted": unwritten(func(x wire.Write) bool { return strings.HasSuffix(x.Key, "/seq") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				s := strained(seed)
				if text, ok := few[name]; ok {
					s, _ = ParseScenario(strings.NewReader(text))
				}
				if b := Run(s, RunOptions{plant: plant}).Broken; b != nil {
					if same := Run(s, RunOptions{}).Broken; same != nil {
						t.Fatalf("without the mistake it breaks, too: %v\n%s", same, s)
					}
					t.Logf("seed %d: %v", seed, b)
					return
				}
			}
			t.Error("no seed shows it")
		})
	}
}
