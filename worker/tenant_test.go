//go:build linux

package worker

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

func TestProbesHaveALeastInterval(t *testing.T) {
	for _, soon := range []bool{false, true} {
		took, wait, early := time.Duration(0), time.Duration(0), 10*time.Millisecond
		for range 100 {
			wait, early = nextTry(1, early, soon)
			took += wait
		}
		if took < 95*minProbe {
			t.Errorf("a hundred tries in %s", took)
		}
	}
	if wait, _ := nextTry(10*time.Second, time.Second, false); wait != 10*time.Second {
		t.Errorf("%s", wait)
	}
}

// A process of the host that is not trusted gets volumes without the devices and set-user-ID programs that others made in them.
func TestVolumesOfNativeAreRestricted(t *testing.T) {
	s := &Server{}
	s.opt.Dir = t.TempDir()
	a := &spec.Assignment{ID: "web-1"}
	a.Spec.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}
	a.Spec.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	for level, want := range map[spec.SecurityLevel]int{spec.LevelRestricted: 2, spec.LevelBaseline: 2, spec.LevelPrivileged: 0} {
		a.Level = level
		list, err := s.mounts(t.Context(), a, &a.Spec.Container, spec.RuntimeNative)
		if err != nil || len(list) != 1 || len(list[0].Options) != want {
			t.Errorf("%s: %+v, %v", level, list, err)
		}
	}
}
