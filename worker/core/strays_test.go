package core

import (
	"encoding/json"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestStrays: what runs on a machine whose store lost its records runs on, is taken up when the cluster names it, and ends when the cluster
// has had its time and did not.
func TestStrays(t *testing.T) {
	for name, c := range map[string]struct {
		keep  func(key string) bool // of the store
		named bool                  // the cluster wants it still
	}{
		"its own record":                  {func(key string) bool { return key[:5] != "inst/" }, true},
		"everything":                      {func(string) bool { return false }, true},
		"everything, and it is not named": {func(string) bool { return false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			d.wants(a)
			for key := range d.kv {
				if !c.keep(key) {
					delete(d.kv, key)
				}
			}
			d.repaired = true
			d.start()
			handle := json.RawMessage(`"it runs"`)
			d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: 3, Handle: handle, Running: true}}})
			if has[Discard](d.acts) {
				t.Fatal("what runs is ended")
			}
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			if !c.named {
				d.src = reconcile.NewSource(members.Desired, "", "a2", reconcile.Options{})
				other := a
				other.ID = "other"
				d.wants(other)
				if has[Discard](d.acts) {
					t.Fatal("it is ended at once")
				}
				at := d.now.Add(strayTime)
				if wake := d.c.NextWake(); wake.IsZero() || wake.After(at) {
					t.Errorf("the next wake is %v, not by %v", wake, at)
				}
				for d.now = d.now.Add(time.Second); d.now.Before(at); d.now = d.now.Add(time.Second) {
					if fx := d.c.Tick(d.now); has[Discard](fx.Actions) {
						t.Fatalf("it is ended %s early", at.Sub(d.now))
					}
				}
				d.now = at
				if fx := d.c.Tick(d.now); !has[Discard](fx.Actions) || !has[Cleanup](fx.Actions) {
					t.Error("it runs for ever, or its network and files stay")
				}
				return
			}
			d.wants(a)
			d.step(Prepared{ID: a.ID, Fence: a.Fence, Address: "10.0.0.1"})
			if has[StartContainer](d.acts) || has[Discard](d.acts) || !has[Watch](d.acts) {
				t.Errorf("it is not taken up: %+v", d.acts)
			}
			i := d.c.ledger.insts[a.ID]
			if i == nil || i.State != skerry.Running || i.main().Attempt != 3 || string(i.main().Handle) != string(handle) {
				t.Errorf("the worker knows %+v", i)
			}
			d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 3, Exit: wire.Exit{Code: 1, At: d.now}})
			if i.Restarts != 1 || i.Phase != skerry.PhaseBackOff {
				t.Errorf("its end is not seen: %+v", i)
			}
		})
	}
}

// TestStraysOfAnother: what runs of another image than is wanted by now, or was to be restarted, is not taken for what is wanted.
func TestStraysOfAnother(t *testing.T) {
	for name, c := range map[string]struct {
		digest string // of what runs
		asked  uint64 // restarts
		again  bool
	}{
		"the same":                      {"sha256:new", 0, false},
		"of another image":              {"sha256:old", 0, true},
		"nobody knows of which image":   {"", 0, true},
		"a restart was asked meanwhile": {"sha256:new", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.repaired = true
			d.start()
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
			a.Restart = c.asked
			d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: 3, Handle: json.RawMessage(`"it runs"`), Running: true,
				Digest: c.digest, Monitor: "QEMU 7.2.19"}}})
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			d.wants(a)
			d.step(Prepared{ID: a.ID, Fence: a.Fence, Address: "10.0.0.1", Digest: "sha256:new"})
			i := d.c.ledger.insts[a.ID]
			if o := i.observation(); has[StopContainer](d.acts) != c.again || o.Ready == c.again || o.Monitor != "QEMU 7.2.19" {
				t.Fatalf("observed as %+v with %+v", o, d.acts)
			}
			if !c.again {
				return
			}
			d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 3, Exit: wire.Exit{At: d.now}})
			if !has[StartContainer](d.acts) || i.main().Attempt != 4 {
				t.Errorf("it is not started anew: %+v, %+v", i, d.acts)
			}
			if o := i.observation(); o.Monitor != "" {
				t.Errorf("what has ended is run by %q", o.Monitor)
			}
			d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 4, At: d.now, Handle: json.RawMessage(`"anew"`), Monitor: "Firecracker 1.16.1"})
			if o := i.observation(); o.Monitor != "Firecracker 1.16.1" {
				t.Errorf("it is observed as %+v", o)
			}
		})
	}
}
