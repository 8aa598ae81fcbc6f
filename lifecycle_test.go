package skerry

import (
	"testing"
	"time"
)

// The paper's figure 3, as text: every step that it draws must be allowed.
func TestTransitionsOfThePaper(t *testing.T) {
	for _, step := range [][2]State{
		{Registered, Requested}, {Requested, ClusterScheduled}, {ClusterScheduled, WorkerScheduled}, {WorkerScheduled, Running},
		{Running, Terminated}, {ClusterScheduled, Requested}, {Running, Failed}, {WorkerScheduled, Failed}, {Failed, Requested},
	} {
		if err := CheckTransition(step[0], step[1]); err != nil {
			t.Error(err)
		}
	}
	for _, step := range [][2]State{
		{Registered, Running}, {Requested, Running}, {Terminated, Running}, {Terminated, Requested}, {Failed, Running}, {Running, Requested},
	} {
		if CheckTransition(step[0], step[1]) == nil {
			t.Errorf("%s -> %s is allowed", step[0], step[1])
		}
	}
}

func TestTransitionProperties(t *testing.T) {
	for _, s := range States {
		if !s.CanFollow(s) {
			t.Errorf("%s cannot stay", s)
		}
		if !s.CanReach(Terminated) {
			t.Errorf("%s cannot be deleted", s)
		}
		if s.Final() != (s == Terminated) {
			t.Errorf("%s: final is %v", s, s.Final())
		}
		if s != Terminated && !s.CanReach(Running) {
			t.Errorf("%s can never run", s)
		}
		for _, n := range States {
			if s.CanFollow(n) && !s.CanReach(n) {
				t.Errorf("%s -> %s is a step but not a way", s, n)
			}
		}
	}
}

func TestConditionKeepsItsTime(t *testing.T) {
	t0 := time.Unix(100, 0)
	list := SetCondition(nil, t0, Ready, false, "starting")
	list = SetCondition(list, t0.Add(time.Second), Ready, false, "probe fails")
	if c := list[0]; c.Since != t0 || c.Reason != "probe fails" {
		t.Errorf("a new reason moved the time: %+v", c)
	}
	before := list
	list = SetCondition(list, t0.Add(2*time.Second), Ready, true, "")
	if !HasCondition(list, Ready) || list[0].Since != t0.Add(2*time.Second) {
		t.Errorf("%+v", list)
	}
	if before[0].Status {
		t.Error("a list that somebody else holds was changed")
	}
}
