package core

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// hookedAssignment has a hook after the start of main, and of a sidecar if that is said.
func hookedAssignment(sidecar bool) spec.Assignment {
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	hook := &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"warm"}}}
	if a.Spec.PostStart = hook; sidecar {
		a.Spec.Sidecars = []spec.SideContainer{{Name: "side", Container: spec.Container{Image: "side:1", PostStart: hook}}}
	}
	return a
}

func hooksIn(acts []any) (names []string) {
	for _, act := range acts {
		if run, ok := act.(RunHook); ok {
			names = append(names, run.Name)
		}
	}
	return names
}

// An instance is not ready, and nothing of it is probed, before its postStart is done.
func TestPostStart(t *testing.T) {
	d := newDevice(t)
	a := hookedAssignment(false)
	a.Spec.Probes.Liveness = &spec.Probe{TCP: &spec.TCPProbe{Port: 80}, Failures: 1}
	i := d.runs(a)
	if got := hooksIn(d.acts); len(got) != 1 || i.Ready || has[ProbeOn](d.acts) || !strings.Contains(i.Reason, "postStart") {
		t.Fatalf("hooks %v, ready %t, probed %t, reason %q; expected one hook alone", got, i.Ready, has[ProbeOn](d.acts), i.Reason)
	}
	if d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 7}); i.Ready {
		t.Error("the hook of another attempt makes it ready")
	}
	if d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 1}); !i.Ready || i.Reason != "" || !has[ProbeOn](d.acts) {
		t.Errorf("after the hook: ready %t, reason %q, probed %t; expected it ready and probed", i.Ready, i.Reason, has[ProbeOn](d.acts))
	}

	// Another life of the agent does not repeat what is done.
	task := Task{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Handle: []byte(`"h"`), Running: true}
	d.start()
	if d.step(Reattach{Tasks: []Task{task}}); len(hooksIn(d.acts)) > 0 || !d.c.ledger.insts[a.ID].Ready {
		t.Errorf("after a restart of the agent: hooks %v, ready %t; expected no hook", hooksIn(d.acts), d.c.ledger.insts[a.ID].Ready)
	}
	// Each start of the container does.
	d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 1}})
	i = d.c.ledger.insts[a.ID]
	d.now = i.retryAt
	d.keep(d.c.Tick(d.now))
	if d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 2, At: d.now, Handle: []byte(`"h"`)}); len(hooksIn(d.acts)) != 1 ||
		i.Ready {
		t.Errorf("after a restart: hooks %v, ready %t; expected the hook again", hooksIn(d.acts), i.Ready)
	}
}

// An agent that is started anew while a hook runs begins anew with it.
func TestPostStartOfAnAgentThatEnds(t *testing.T) {
	d := newDevice(t)
	a := hookedAssignment(false)
	d.runs(a)
	d.start()
	d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Handle: []byte(`"h"`), Running: true}}})
	if i := d.c.ledger.insts[a.ID]; len(hooksIn(d.acts)) != 1 || i.Ready {
		t.Fatalf("hooks %v, ready %t; expected the hook again", hooksIn(d.acts), i.Ready)
	}
	if d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 1}); !d.c.ledger.insts[a.ID].Ready {
		t.Error("it is not ready after the hook")
	}
}

// An agent that is killed before it writes down that a container runs finds it, and has its hook done: at the first start, of which there
// is no record, and at a later one.
func TestPostStartOfAStartThatWasNotWritten(t *testing.T) {
	for name, again := range map[string]bool{"first start": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			a := hookedAssignment(false)
			attempt := 1
			if again {
				i := d.runs(a)
				d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 1})
				d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 1}})
				d.now = i.retryAt
				d.keep(d.c.Tick(d.now))
				attempt = 2
			} else {
				d.wants(a)
				d.step(Prepared{ID: a.ID, Fence: a.Fence})
			}
			if !has[StartContainer](d.acts) {
				t.Fatalf("%+v, want a start", d.acts)
			}
			d.start()
			d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: attempt, Handle: []byte(`"h"`), Running: true}}})
			if !again {
				d.step(Prepared{ID: a.ID, Fence: a.Fence})
			}
			i := d.c.ledger.insts[a.ID]
			if got := hooksIn(d.acts); len(got) != 1 || i.Ready || has[ProbeOn](d.acts) {
				t.Fatalf("hooks %v, ready %t, probed %t; expected the hook, and it not ready", got, i.Ready, has[ProbeOn](d.acts))
			}
			if d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: attempt}); !i.Ready {
				t.Error("it is not ready after the hook")
			}
		})
	}
}

// A hook that fails ends the container, and the restart policy decides, also about a program that ends with status 0 then.
func TestPostStartFails(t *testing.T) {
	for policy, want := range map[string]skerry.Phase{"always": skerry.PhaseBackOff, "onFailure": skerry.PhaseBackOff,
		"never": skerry.PhaseExited} {
		d := newDevice(t)
		a := hookedAssignment(false)
		a.Spec.Restart.Policy = policy
		i := d.runs(a)
		if d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Err: "status 7: cold"}); !has[StopContainer](d.acts) || i.Ready {
			t.Fatalf("%s: a failed hook leads to %+v, ready %t; expected the container's end", policy, d.acts, i.Ready)
		}
		d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1})
		if i.Phase != want || i.Reason != "postStart of container main failed: status 7: cold" {
			t.Errorf("%s: phase %s because %q, expected %s because of the hook", policy, i.Phase, i.Reason, want)
		}
	}
}

// The main container waits for the hook of a sidecar, but not for ever for one that fails.
func TestPostStartOfASidecar(t *testing.T) {
	for name, why := range map[string]string{"done": "", "failed": "status 7"} {
		d := newDevice(t)
		a := hookedAssignment(true)
		d.wants(a)
		d.step(Prepared{ID: a.ID, Fence: a.Fence})
		d.step(Started{ID: a.ID, Name: "side", Attempt: 1, At: d.now, Handle: []byte(`"s"`)})
		if got := hooksIn(d.acts); len(got) != 1 || has[StartContainer](d.acts) {
			t.Fatalf("%s: hooks %v, and %+v; expected one hook, and main not started", name, got, d.acts)
		}
		d.step(HookDone{ID: a.ID, Name: "side", Attempt: 1, Err: why})
		if why != "" {
			if !has[StopContainer](d.acts) {
				t.Fatalf("%s: it is followed by %+v, expected the end of the sidecar", name, d.acts)
			}
			d.step(Exited{ID: a.ID, Name: "side", Attempt: 1, Exit: wire.Exit{Code: 143}})
		}
		if !has[StartContainer](d.acts) {
			t.Errorf("%s: it is followed by %+v, expected the start of main", name, d.acts)
		}
	}
}

// An instance does not leave before its postStart is done: the copy that goes on from its state does not begin with it again.
func TestPostStartBeforeLeaving(t *testing.T) {
	d := newDevice(t)
	a := hookedAssignment(false)
	next := skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 2}
	a.Leave = &spec.Leave{For: next}
	d.runs(a)
	ask := LeaveLocal{ID: a.ID, For: next}
	if fx := d.step(ask); fx.Err == nil || d.c.ledger.insts[a.ID].Left != nil {
		t.Fatalf("it leaves while its hook runs: %+v", fx.Result)
	}
	d.step(HookDone{ID: a.ID, Name: spec.MainContainer, Attempt: 1})
	if fx := d.step(ask); fx.Err != nil {
		t.Errorf("it does not leave after the hook: %v", fx.Err)
	}
}
