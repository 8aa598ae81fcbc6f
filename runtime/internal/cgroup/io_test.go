//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// Bound writes what each version of control groups understands. The trees are of plain files, so that it is seen on every machine.
func TestBound(t *testing.T) {
	limits := Limits{MemoryLow: 32 * skerry.MiB, HugePages: spec.HugePages{Size2Mi: 64 * skerry.MiB},
		IO: &runtime.IO{Devices: []string{"8:0"}, ReadBps: 1000, WriteIOPS: 7, Weight: 50}}
	for _, version := range []struct {
		name    string
		unified bool
		has     map[string]string // files that the kernel would make
		want    map[string]string
	}{
		{"2", true, map[string]string{"cgroup.controllers": "cpu io memory hugetlb", "g/io.weight": "", "g/io.max": "", "g/memory.low": "0", "g/hugetlb.2MB.max": "max", "g/hugetlb.1GB.max": "max"},
			map[string]string{"g/io.max": "8:0 wiops=7", "g/io.weight": "default 50", "g/memory.low": "33554432", "g/hugetlb.2MB.max": "67108864", "g/hugetlb.1GB.max": "0"}},
		{"1", false, map[string]string{"blkio.throttle.read_bps_device": "", "blkio.bfq.weight": "", "g/blkio.bfq.weight": "100", "g/hugetlb.2MB.limit_in_bytes": "9223372036854771712"},
			map[string]string{"g/blkio.throttle.read_bps_device": "8:0 1000", "g/blkio.throttle.write_iops_device": "8:0 7", "g/blkio.bfq.weight": "50", "g/memory.soft_limit_in_bytes": "33554432", "g/hugetlb.2MB.limit_in_bytes": "67108864"}},
	} {
		t.Run(version.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range version.has {
				if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			tree := &Tree{unified: version.unified, mounts: map[string]string{"": root}}
			if !version.unified {
				tree.mounts = map[string]string{"blkio": root, "memory": root, "hugetlb": root}
			}
			if err := tree.Group("g").Bound(limits); err != nil {
				t.Fatal(err)
			}
			for name, want := range version.want {
				if got := readFile(filepath.Join(root, name)); got != want {
					t.Errorf("%s: %q, not %q", name, got, want)
				}
			}
		})
	}
	bare := &Tree{unified: true, mounts: map[string]string{"": t.TempDir()}}
	for ability, io := range map[runtime.Ability]*runtime.IO{runtime.AbilityIO: {ReadBps: 1}, runtime.AbilityIOWeight: {Weight: 1}} {
		if un, ok := errors.AsType[*runtime.Unsupported](bare.CheckIO("oci", io)); !ok || un.Ability != ability {
			t.Errorf("without the controller: %+v", un)
		}
	}
}
