//go:build linux

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestInstancesFollowTheirLoad has real processes use all the processor time that they may: there are more of them, to the limit,
// and fewer again when a file tells them to rest.
func TestInstancesFollowTheirLoad(t *testing.T) {
	s := newSite(t)
	share, down := 0.6, spec.Duration(10*time.Second)
	rest := t.TempDir() + "/rest"
	if err := parents.Seed(t.Context(), s.Cluster); err != nil {
		t.Fatal(err)
	}
	do := func(msg any) {
		t.Helper()
		if _, err := s.Cluster.Do(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(n int) func() bool {
		return func() bool {
			list, err := s.Cluster.Instances(t.Context())
			if err != nil || len(list) != n {
				return false
			}
			return !slices.ContainsFunc(list, func(i wire.Instance) bool { return !skerry.HasCondition(i.Conditions, skerry.Ready) || i.Stopping })
		}
	}
	do(app("busy", service("loop", "", func(s *spec.ServiceSpec) {
		s.Runtime, s.Resources = "native", spec.Resources{CPU: 150, Memory: 16 * skerry.MiB}
		s.Command = []string{"/bin/sh", "-c", "while :; do if [ -e " + rest + " ]; then sleep 1; else i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; fi; done"}
		s.Scale = &spec.ScaleSpec{Max: 2, Down: &down, Target: spec.ScaleTarget{CPU: &share}}
	})))
	s.await("two run", ready(2))
	k := skerry.AppKey{Namespace: spec.DefaultNamespace, Name: "busy"}
	v, err := s.Cluster.App(t.Context(), k, 0)
	if err != nil || v.Services[0].Scale == nil || v.Services[0].Scale.Want != 2 || !strings.Contains(v.Services[0].Scale.Why, "of 90m that one is to bear") {
		t.Errorf("it is shown as %+v, %v", v.Services[0].Scale, err)
	}
	if err := os.WriteFile(rest, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.await("one runs", ready(1))
	do(apps.Delete{Key: k})
	s.await("nothing runs", ready(0))
}
