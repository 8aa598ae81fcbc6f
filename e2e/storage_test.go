//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
)

// TestInstanceThatFillsItsLayer: of four instances one writes a file that it has deleted, and two, one of them a native process, fill a
// volume without a size. These three end, with the reason, and what they wrote is gone; the fourth, and the worker, go on.
func TestInstanceThatFillsItsLayer(t *testing.T) {
	disk, _, _ := small(t, "400m")
	s := (&site{t: t, dirs: map[string]string{"worker": filepath.Join(disk, "worker")},
		admission: &clustercore.Admission{Native: true}}).open()
	s.image("test/workload:1", workload)
	once := func(args ...string) func(*spec.ServiceSpec) {
		return func(x *spec.ServiceSpec) {
			x.Args, x.Restart.Policy, x.Resources.Memory, x.Resources.Storage = args, "never", 512*skerry.MiB, 32*skerry.MiB
			x.Volumes = []spec.Volume{{Name: "scratch", Empty: &spec.EmptyVolume{}}}
			x.Mounts = []spec.Mount{{Volume: "scratch", Path: "/scratch"}}
		}
	}
	s.do(app("quiet", service("web", "test/workload:1", once("sleep"))))
	s.await("the neighbour is ready", s.ready(1))
	before := s.pids()
	var empty unix.Statfs_t
	if err := unix.Statfs(disk, &empty); err != nil {
		t.Fatal(err)
	}
	s.do(app("greedy",
		service("layer", "test/workload:1", once("hoard", "/deleted", "100")),
		service("volume", "test/workload:1", once("hoard", "/scratch/file", "100")),
		service("native", "test/workload:1", once("hoard", "/mnt/file", "100"), func(x *spec.ServiceSpec) {
			x.Runtime, x.Mounts[0].Path = spec.RuntimeNative, "/mnt"
		}),
	))
	// They get new places at once, so that the state in which they have ended is there for a moment alone.
	s.await("the root hears that they were ended for it", func() bool {
		ended := map[string]bool{}
		for _, e := range s.Root.Journal().List(0, nil) {
			if (e.Reason == "StorageExceeded" || e.Reason == "Failed") && strings.Contains(e.Text, "use of the disk: more than the 32Mi") {
				ended[e.Reason+" "+e.Service] = true
			}
		}
		return len(ended) == 6
	})
	s.await("the room is free again", func() bool {
		var st unix.Statfs_t
		return unix.Statfs(disk, &st) == nil && int64(empty.Bfree-min(st.Bfree, empty.Bfree))*int64(st.Bsize) < 32<<20
	})
	for id, pid := range before {
		if now := s.pids()[id]; now != pid {
			t.Errorf("the neighbour had process %d and has %d", pid, now)
		}
	}
}
