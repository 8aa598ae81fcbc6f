package core

import (
	"encoding/json"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An instance that was ended in the agent's place is cut off and not restarted, whether the agent hung or was not there, and whatever it believes
// of its link. Word about an earlier token is none about this one.
func TestLeaseOver(t *testing.T) {
	fence := skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 3}
	for name, c := range map[string]struct {
		fence   skerry.Fence
		restart bool
		phase   skerry.Phase
	}{
		"while the agent hung":     {fence, false, skerry.PhaseCutOff},
		"while there was no agent": {fence, true, skerry.PhaseCutOff},
		"under an earlier token":   {skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 2}, false, skerry.PhaseBackOff},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(fence)
			a.Spec.OnDisconnect = spec.StopAfter(20 * time.Second)
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			if l, ok := last[KeepContact](d.wants(a)); !ok || len(l.Leases) != 1 || l.Leases[0].Fence != fence || l.Leases[0].Stop != 23*time.Second || l.Leases[0].Main != "" {
				t.Fatalf("before it starts: %+v, %v", l, ok)
			}
			handle := json.RawMessage(`{"pid":12}`)
			d.step(Prepared{ID: a.ID, Fence: fence})
			start, _ := last[StartContainer](d.acts)
			d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: start.Attempt, At: d.now, Handle: handle})
			if l, _ := last[KeepContact](d.acts); len(l.Leases) != 1 || l.Leases[0].Main != string(handle) || l.Leases[0].Ending {
				t.Fatalf("while it runs: %+v", l)
			}
			over, exit := LeaseOver{ID: a.ID, Fence: c.fence, Alone: time.Minute}, wire.Exit{Code: 137, Signal: "SIGKILL", At: d.now}
			if c.restart {
				d.start()
				d.step(Contact{At: d.now})
				d.step(over)
				d.step(Reattach{Tasks: []Task{{ID: a.ID, Name: spec.MainContainer, Attempt: start.Attempt, Handle: handle, Exit: exit}}})
			} else {
				d.step(over)
				d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: start.Attempt, Exit: exit})
			}
			i := d.c.ledger.insts[a.ID]
			if i == nil || i.Phase != c.phase || i.Ready {
				t.Fatalf("%+v", i)
			}
			if c.phase != skerry.PhaseCutOff {
				return
			}
			if l := d.c.contact.leases(); len(l) != 0 {
				t.Errorf("when nothing of it runs: %+v", l)
			}
			d.now = d.now.Add(time.Hour)
			if fx := d.c.Tick(d.now); has[StartContainer](fx.Actions) || has[Prepare](fx.Actions) {
				t.Error("it is started again")
			}
		})
	}
}

// An agent that hung, and stops what was ended in its place before it hears of that, tells then who came first. What it stopped in time,
// and what was killed afterwards because it did not end, was stopped by the agent.
func TestLeaseOverIsHeardLate(t *testing.T) {
	for name, c := range map[string]struct {
		alone time.Duration
		told  bool
	}{"ended before": {25 * time.Second, true}, "killed afterwards": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 3})
			a.Spec.OnDisconnect = spec.StopAfter(20 * time.Second)
			d.step(ParentUp{Welcome: &wire.Welcome{}})
			d.wants(a)
			d.step(Prepared{ID: a.ID, Fence: a.Fence})
			start, _ := last[StartContainer](d.acts)
			d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: start.Attempt, At: d.now, Handle: json.RawMessage(`{"pid":12}`)})
			d.step(ParentDown{})
			d.now = d.now.Add(30 * time.Second)
			d.c.Tick(d.now)
			i := d.c.ledger.insts[a.ID]
			before := i.Reason
			if i.Phase != skerry.PhaseCutOff {
				t.Fatalf("the agent did not stop it: %+v", i)
			}
			events := 0
			for range 2 { // it is told before every word on a container
				for _, e := range d.step(LeaseOver{ID: a.ID, Fence: a.Fence, Alone: c.alone}).Events {
					if e.Reason == "CutOff" {
						events++
					}
				}
			}
			if told := i.Reason != before; told != c.told || i.Phase != skerry.PhaseCutOff {
				t.Errorf("told = %v, want %v: %q in phase %s", told, c.told, i.Reason, i.Phase)
			}
			if want := map[bool]int{true: 1}[c.told]; events != want {
				t.Errorf("CutOff told %d times after the agent's own word, want %d", events, want)
			}
		})
	}
}

// An agent that starts and has no lease says that too: an earlier life may have left some to the guard. It says it once it knows what runs, and
// not while there may be containers whose leases went with their records.
func TestNoLeasesAreToldAtTheStart(t *testing.T) {
	d := newDevice(t)
	if l, ok := last[KeepContact](d.acts); !ok || len(l.Leases) != 0 {
		t.Errorf("once it is known that nothing runs: %+v, %v", l, ok)
	}
	if fx := d.c.Tick(d.now); has[KeepContact](fx.Actions) {
		t.Error("it is said again")
	}
	if d.start(); has[KeepContact](d.acts) {
		t.Error("it is said before anybody looked what runs")
	}

	d.repaired = true
	d.start()
	if d.step(Reattach{Tasks: []Task{{ID: "gone-1", Name: spec.MainContainer, Attempt: 1, Running: true}}}); has[KeepContact](d.acts) {
		t.Error("it is said while something runs of which no record is left")
	}
	d.src.Connect(d.now, d.c.Up.Desired.State())
	for msgs := d.src.Next(d.now); len(msgs) > 0; msgs = d.src.Next(d.now) {
		for _, m := range msgs {
			d.step(ParentFrame{Msg: m})
		}
	}
	d.step(ParentUp{Welcome: &wire.Welcome{}})
	d.now = d.now.Add(strayTime)
	if fx := d.c.Tick(d.now); !has[Discard](fx.Actions) || !has[KeepContact](fx.Actions) {
		t.Errorf("when the cluster did not name it: %+v", fx.Actions)
	}
}

// last gives the last action of a kind.
func last[A any](acts []any) (a A, ok bool) {
	for _, x := range acts {
		if x, is := x.(A); is {
			a, ok = x, true
		}
	}
	return a, ok
}
