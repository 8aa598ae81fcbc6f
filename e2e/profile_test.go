//go:build linux

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// TestProfile: what was measured of a worker's runtimes while it runs is known to its cluster once it has looked at them again.
func TestProfile(t *testing.T) {
	s := newSite(t)
	known := func() float64 {
		ws, err := s.Cluster.Workers(t.Context())
		if err != nil || len(ws) != 1 || ws[0].Facts == nil {
			return -1
		}
		return ws[0].Facts.RuntimeCosts()[spec.RuntimeNative]
	}
	s.await("the worker tells of its machine", func() bool { return known() == 0 })
	if err := worker.WriteProfile(filepath.Join(s.dir, "worker"), map[string]wire.RuntimeProfile{spec.RuntimeNative: {CPU: 0.5, At: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	s.Worker.Recheck(t.Context())
	s.await("the cluster goes by what was measured", func() bool { v := known(); return v > 0.45 && v < 0.55 })
}
