package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// device is a worker's core with its store and a cluster that says what a test has it say.
type device struct {
	t    *testing.T
	c    *Core
	now  time.Time
	life byte
	kv   map[string][]byte
	src  *reconcile.Source
	acts []any // of the last step
	// repaired: the store lost records before the next life
	repaired bool
}

func newDevice(t *testing.T) *device {
	d := &device{t: t, now: time.Unix(1_700_000_000, 0), kv: map[string][]byte{}}
	d.src = reconcile.NewSource(members.Desired, "", "a1", reconcile.Options{})
	d.start()
	d.step(Reattach{})
	return d
}

// start begins another life of the agent, with what the store has.
func (d *device) start() {
	d.t.Helper()
	d.life++
	d.c = New(Options{Name: "w", Seed: [16]byte{d.life}, Repaired: d.repaired})
	for k, v := range d.kv {
		if err := d.c.Load(k, v); err != nil {
			d.t.Fatal(err)
		}
	}
	d.keep(d.c.Start(d.now))
}

func (d *device) step(msg any) wire.Effects {
	d.t.Helper()
	fx := d.c.Step(d.now, msg)
	d.keep(fx)
	if faults := d.c.Audit(); len(faults) > 0 {
		d.t.Errorf("after %T: %q", msg, faults)
	}
	return fx
}

func (d *device) keep(fx wire.Effects) {
	for _, w := range fx.Writes {
		if d.kv[w.Key] = w.Value; w.Value == nil {
			delete(d.kv, w.Key)
		}
	}
	d.acts = fx.Actions
}

// wants has the cluster want an assignment, and gives the actions that follow at once.
func (d *device) wants(a spec.Assignment) (acts []any) {
	d.t.Helper()
	if _, err := d.src.Put(wire.AssignmentKey(a.ID), wire.New().Marshal(&a)); err != nil {
		d.t.Fatal(err)
	}
	d.src.Connect(d.now, d.c.Up.Desired.State())
	defer d.src.Disconnect()
	for msgs := d.src.Next(d.now); len(msgs) > 0; msgs = d.src.Next(d.now) {
		for _, m := range msgs {
			fx := d.step(ParentFrame{Msg: m})
			acts = append(acts, fx.Actions...)
			for _, out := range fx.Sends {
				if msg, ok := out.Msg.(wire.Message); ok {
					d.src.Handle(d.now, msg)
				}
			}
		}
	}
	return acts
}

// runs has an instance prepared and started as its assignment says.
func (d *device) runs(a spec.Assignment) *inst {
	d.t.Helper()
	if acts := d.wants(a); !has[Prepare](acts) {
		d.t.Fatalf("it is not prepared: %+v", acts)
	}
	if fx := d.step(Prepared{ID: a.ID, Fence: a.Fence}); !has[StartContainer](fx.Actions) {
		d.t.Fatalf("it is not started: %+v", fx.Actions)
	}
	d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 1, At: d.now, Handle: []byte(`"h"`)})
	if i := d.c.ledger.insts[a.ID]; i.Phase != skerry.PhaseRunning {
		d.t.Fatalf("it does not run: %+v", i)
	}
	return d.c.ledger.insts[a.ID]
}

func has[A any](acts []any) bool {
	return slices.ContainsFunc(acts, func(a any) bool { _, ok := a.(A); return ok })
}

func assignment(f skerry.Fence) spec.Assignment {
	three := 3
	s := spec.ServiceSpec{Name: "web", Restart: spec.RestartSpec{Policy: "always", MaxAttempts: &three}}
	s.Image = "web:1"
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	return spec.Assignment{ID: "web-1", Service: k, Gen: 1, Revision: "r1", Spec: s, Fence: f}
}

// TestOlderTokens: what the cluster says under an older token changes nothing, whichever part of the token is older.
func TestOlderTokens(t *testing.T) {
	held := skerry.Fence{RootEpoch: 5, ClusterTerm: 5, Sequence: 5}
	older := []skerry.Fence{
		{RootEpoch: 4, ClusterTerm: 9, Sequence: 9},
		{RootEpoch: 5, ClusterTerm: 4, Sequence: 9},
		{RootEpoch: 5, ClusterTerm: 5, Sequence: 4},
	}
	for _, f := range older {
		d := newDevice(t)
		i := d.runs(assignment(held))
		a := assignment(f)
		a.Gen, a.Restart, a.Revision, a.Leave = 2, 3, "r2", &spec.Leave{For: held}
		if acts := d.wants(a); len(acts) > 0 {
			t.Errorf("%s: it does %+v", f, acts)
		}
		changed := i.A.Fence != held || i.A.Gen != 1 || i.A.Restart != 0 || i.A.Leave != nil
		if changed || i.Resize != nil || i.Next != nil || i.Phase != skerry.PhaseRunning {
			t.Errorf("%s: it is taken over: %+v", f, i)
		}
		if n := d.c.Up.Ignored.All()[members.IgnoredToken]; n != 1 {
			t.Errorf("%s: %d are counted", f, n)
		}

		// While the instance ends for a newer token, an older one does not get ahead of that.
		newer := skerry.Fence{RootEpoch: 5, ClusterTerm: 5, Sequence: 9}
		if acts := d.wants(assignment(newer)); !has[StopContainer](acts) {
			t.Fatalf("a newer token has no effect: %+v", acts)
		}
		for _, late := range []skerry.Fence{f, held, {RootEpoch: 5, ClusterTerm: 5, Sequence: 7}} {
			a.Fence = late
			if d.wants(a); i.Next == nil {
				t.Fatalf("%s: nothing comes after the end", late)
			} else if i.Next.Fence != newer {
				t.Errorf("%s takes the place of %s, for which the instance ends", i.Next.Fence, newer)
			}
		}
		d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1})
		d.step(Cleaned{ID: a.ID})
		if i := d.c.ledger.insts[a.ID]; i == nil || i.A.Fence != newer {
			t.Errorf("it goes on with %+v", i)
		}
	}
}

// TestAssignmentIsKept: what the worker begins it knows from its own record, before anything is done for it. Another life of the agent goes
// on with it by itself, also when its copy of what the cluster wants is damaged, and when the device is held since.
func TestAssignmentIsKept(t *testing.T) {
	for what, then := range map[string]func(d *device){
		"restarted": func(*device) {},
		"the desired set is damaged": func(d *device) {
			for k := range d.kv {
				if len(k) > 7 && k[:7] == "parent/" {
					d.kv[k] = []byte("damaged")
				}
			}
		},
		"held": func(d *device) { d.step(FreezeLocal{Reason: "it drives"}) },
	} {
		t.Run(what, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			if acts := d.wants(a); !has[Prepare](acts) {
				t.Fatalf("it is not prepared: %+v", acts)
			}
			then(d)
			d.start() // the agent ends before the answer
			if d.step(Reattach{}); !has[Prepare](d.acts) {
				t.Errorf("it is not prepared again: %+v", d.acts)
			}
			if i := d.c.ledger.insts[a.ID]; i == nil || i.A.Fence != a.Fence {
				t.Errorf("the agent does not know it: %+v", i)
			}
		})
	}
}

// TestSignersOfARestart: a worker asks for the signatures that its site asked for when it gave the instance, and from a restart on for
// those that the site asks for by then.
func TestSignersOfARestart(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	a.Signers = []string{"first"}
	d.wants(a)
	signers := func() string { return strings.Join(d.c.ledger.insts[a.ID].A.Signers, " ") }
	a.Gen, a.Signers = 2, []string{"second"}
	if d.wants(a); signers() != "first" {
		t.Errorf("another generation: %s", signers())
	}
	a.Restart = 1
	if d.wants(a); signers() != "second" {
		t.Errorf("a restart: %s", signers())
	}
}
