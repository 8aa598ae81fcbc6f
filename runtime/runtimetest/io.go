//go:build linux

package runtimetest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/blockdev"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

// diskLimits has the kernel hold a task to rates, and keep memory for it; what the kernel cannot do is refused by a typed error.
func (s *suite) diskLimits(t *testing.T) {
	s.together(t)
	device, err := blockdev.Of(t.TempDir())
	if err != nil {
		device = "" // the rest can be tested without a disk
	}
	sp := s.spec("sleep")
	sp.Resources = runtime.Resources{Memory: 96 * skerry.MiB, MemoryLow: 32 * skerry.MiB,
		IO: &runtime.IO{ReadBps: 4 << 20, WriteBps: 2 << 20, ReadIOPS: 300, WriteIOPS: 200}}
	if device != "" {
		sp.Resources.IO.Devices = []string{device}
	}
	if !slices.Contains(s.can, runtime.AbilityIO) {
		un, ok := errors.AsType[*runtime.Unsupported](s.refused(t, sp))
		if !ok || un.Ability != runtime.AbilityIO {
			t.Errorf("without the controller: %+v", un)
		}
		t.Skip(&runtime.Unsupported{Ability: runtime.AbilityIO, Driver: s.d.Name(), Reason: "the kernel has no controller of I/O"})
	}
	tree, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	h := s.start(t, sp)
	g := tree.Group(s.groupOf(t, h))
	if got := g.ReadIO(device); device != "" && (got.ReadBps != 4<<20 || got.WriteBps != 2<<20 || got.ReadIOPS != 300 ||
		got.WriteIOPS != 200) {
		t.Errorf("device %s: the kernel holds it to %+v", device, got)
	}
	if low := g.ReadMemoryLow(); low != 32*skerry.MiB {
		t.Errorf("the kernel keeps %s for it", low)
	}
	if !slices.Contains(s.can, runtime.AbilityIOWeight) {
		sp := s.spec("sleep")
		sp.Resources.IO = &runtime.IO{Weight: 50}
		if un, ok := errors.AsType[*runtime.Unsupported](s.refused(t, sp)); !ok || un.Ability != runtime.AbilityIOWeight {
			t.Errorf("a share without the kernel's: %+v", un)
		}
	}
}

// refused starts what must be refused.
func (s *suite) refused(t *testing.T, sp runtime.Spec) error {
	t.Helper()
	h, err := s.d.Start(t.Context(), sp)
	if err == nil {
		t.Error("it was started")
		_ = s.d.Remove(t.Context(), h)
	}
	return err
}

// groupOf asks the kernel for the cgroup of a task, whose name is the driver's affair.
func (s *suite) groupOf(t *testing.T, h runtime.Handle) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", h.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "/"+s.o.CgroupParent+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			if name != "conmon" { // where a service manager's hierarchy has it
				return path.Join(s.o.CgroupParent, name)
			}
		}
	}
	return path.Join(s.o.CgroupParent, string(h.ID))
}
