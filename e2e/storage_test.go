//go:build linux

package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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
	job := func(x *spec.ServiceSpec) { x.Mode = spec.ModeJob } // stays as it ended; a service gets a new place at once
	s.do(app("greedy",
		service("layer", "test/workload:1", once("hoard", "/deleted", "100"), job),
		service("volume", "test/workload:1", once("hoard", "/scratch/file", "100"), job),
		service("native", "test/workload:1", once("hoard", "/mnt/file", "100"), job, func(x *spec.ServiceSpec) {
			x.Runtime, x.Mounts[0].Path = spec.RuntimeNative, "/mnt"
		}),
	))
	s.await("they are ended for it", func() bool {
		list, err := s.Cluster.Instances(context.Background())
		if err != nil {
			return false
		}
		ended := map[string]bool{}
		for _, i := range list {
			if e := i.Exit; e != nil && e.StorageExceeded && strings.Contains(e.Message, "32Mi") && i.State == skerry.Failed {
				ended[i.Service.Service] = true
			}
		}
		return len(ended) == 3
	})
	s.await("the root hears of it", func() bool {
		return slices.ContainsFunc(s.Root.Journal().List(0, nil), func(e wire.Event) bool { return e.Reason == "StorageExceeded" })
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
