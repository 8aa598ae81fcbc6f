package spec

import (
	"testing"

	"skerry.dev/skerry"
)

// A service counts with what it asks for, and what it may use beyond that is a limit like any other: it changes while it runs.
func TestLimits(t *testing.T) {
	s := ServiceSpec{Name: "a", Resources: Resources{CPU: 200, Memory: 64 * skerry.MiB, Limits: Limits{CPU: 1000}}, Sidecars: []SideContainer{{Name: "s", Resources: Resources{Limits: Limits{Memory: 32 * skerry.MiB}}}}}
	s.setDefaults()
	if n := s.Need(); n.CPU != 200 || n.Memory != 96*skerry.MiB {
		t.Errorf("it needs %v and %v", n.CPU, n.Memory)
	}
	if r := s.Resources; r.MostCPU() != 1000 || r.MostMemory() != 64*skerry.MiB {
		t.Errorf("at most %v and %v", r.MostCPU(), r.MostMemory())
	}
	more := s
	more.Resources.Limits = Limits{CPU: 2000, Memory: skerry.GiB}
	if !s.DiffersInLimits(&more) {
		t.Error("other limits make another service")
	}
	more.Resources.IO.ReadBps = skerry.MiB
	if s.DiffersInLimits(&more) {
		t.Error("limits of I/O change nothing that runs")
	}
}

// What bounds an instance counts by what it may use, not by what it is sure of.
func TestAtMost(t *testing.T) {
	s := ServiceSpec{Resources: Resources{CPU: 100, Memory: 64 * skerry.MiB, Limits: Limits{CPU: 4000, Memory: 8 * skerry.GiB}},
		Sidecars: []SideContainer{{Resources: Resources{CPU: 50}}}}
	if got := s.AtMost(); got.CPU != 4050 || got.Memory != 8*skerry.GiB+DefaultMemory {
		t.Errorf("%s cores, %s", got.CPU, got.Memory)
	}
	for level, want := range map[SecurityLevel]skerry.Bytes{"": 0, LevelPrivileged: 0, LevelBaseline: DefaultMemory, LevelRestricted: DefaultMemory} {
		if got := level.Enforced(Resources{}, RuntimeOCI).MostMemory(); got != want {
			t.Errorf("at level %q a container may use %s", level, got)
		}
		if level.Enforced(Resources{}, RuntimeVM).MostMemory() != 0 || level.Enforced(Resources{Memory: skerry.MiB}, RuntimeOCI).MostMemory() != skerry.MiB {
			t.Errorf("at level %q what has a size is given another", level)
		}
	}
	// The disk of a machine counts as far as it is more than its storage.
	for disk, want := range map[skerry.Bytes]skerry.Bytes{0: 2 * DefaultStorage, skerry.GiB: 2 * DefaultStorage, 20 * skerry.GiB: 20*skerry.GiB + DefaultStorage} {
		s.Machine = &Machine{Disk: disk}
		if got := s.AtMost(); got.Storage != want {
			t.Errorf("with a disk of %s it has %s, want %s", disk, got.Storage, want)
		}
	}
	for _, runtime := range []string{RuntimeOCI, RuntimeNative, RuntimeWasm, RuntimeMicroVM, RuntimeVM, RuntimeUnikernel} {
		if got := LevelBaseline.Enforced(Resources{}, runtime).Storage; got != DefaultStorage {
			t.Errorf("in %s it may write %s", runtime, got)
		}
	}
	if got := s.Need(); got.CPU != 150 || got.Memory != 64*skerry.MiB {
		t.Errorf("it needs %s cores, %s", got.CPU, got.Memory)
	}
}
