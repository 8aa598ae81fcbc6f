//go:build linux

package runtimetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/wire"
)

// System tells how a driver starts the suite's program as a system of its own (see the directory of that name).
type System struct {
	// Image holds it.
	Image string
	// Tell has it do what the words say.
	Tell func(sp *runtime.Spec, words []string)
	// Program begins the name of a Spec's field that is wrong where there is no such program.
	Program string
	// Disc says that it is told of its instance by a disc; else, by its words.
	Disc bool
}

// Kernel is for a driver of unikernels; root is the way to the repository's top from the package of the test.
func Kernel(t testing.TB, root string) *System {
	file := testenv.SuiteUnikernel(t, root)
	return &System{Image: imageOf(t, filepath.Dir(file)), Program: "args[0]",
		Tell: func(sp *runtime.Spec, words []string) { sp.Args = append([]string{"/workload"}, words...) }}
}

// Disk is for a driver of machines that boot a disk.
func Disk(t testing.TB, root string) *System {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	testenv.SuiteDisk(t, root, filepath.Join(dir, "disk"))
	return &System{Image: imageOf(t, dir), Program: "rootfs", Disc: true, Tell: func(sp *runtime.Spec, words []string) {
		sp.Args, sp.Machine = []string{"/disk"}, &runtime.Machine{UserData: strings.Join(words, "\n")}
	}}
}

// imageOf adds what is no program.
func imageOf(t testing.TB, dir string) string {
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "noexec"), []byte("no program"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// told looks at what a system is told of its instance.
func (s *suite) told(t *testing.T) {
	t.Run("words", func(t *testing.T) {
		want := []string{"a b", "$HOME", "ü'"}
		if _, out := s.run(t, s.spec(append([]string{"print"}, want...)...)); out != strings.Join(want, "\n")+"\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("env and hostname", func(t *testing.T) {
		sp, want := s.spec("print", "$(A)", "$(B)"), []string{"1\ntwo words\n"}
		if s.o.System.Disc {
			sp, want = s.spec("told"), []string{`"A":"1"`, `"B":"two words"`, `"local-hostname":"islet"`, `"instance-id":"suite-`}
		}
		sp.Env, sp.Hostname = []string{"A=1", "B=two words"}, "islet"
		_, out := s.run(t, sp)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("got %q without %q", out, w)
			}
		}
	})
	t.Run("network", func(t *testing.T) {
		sp := s.spec("sleep")
		sp.Network = &wire.Attachment{NetNS: namespace(t)}
		h := s.start(t, sp)
		s.ready(t, s.d, h)
		// What is mounted is the namespace itself.
		want, err := os.Stat(sp.Network.NetNS)
		if err != nil {
			t.Fatal(err)
		}
		if got := networkOf(t, h.PID); !os.SameFile(got, want) {
			t.Error("it is in another network than it was given")
		}
	})
}

// noNetwork checks that a machine has not the host's network when it is given none.
func (s *suite) noNetwork(t *testing.T) {
	h := s.start(t, s.spec("sleep"))
	s.ready(t, s.d, h)
	if os.SameFile(networkOf(t, h.PID), networkOf(t, os.Getpid())) {
		t.Error("it is in the host's network")
	}
}

func networkOf(t *testing.T, pid int) os.FileInfo {
	t.Helper()
	st, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// lacks asks for each thing that the driver's self-test does not list: it is refused by a typed error that names it,
// before anything is made.
func (s *suite) lacks(t *testing.T) {
	for _, c := range []struct {
		ability runtime.Ability
		ask     func(sp *runtime.Spec)
	}{
		{runtime.AbilityTTY, func(sp *runtime.Spec) { sp.TTY = true }},
		{runtime.AbilityUser, func(sp *runtime.Spec) { sp.User = "1234:5678" }},
		{runtime.AbilityDir, func(sp *runtime.Spec) { sp.Dir = "/tmp" }},
		{runtime.AbilityUlimits, func(sp *runtime.Spec) { sp.Ulimits = []runtime.Ulimit{{Name: "nofile", Soft: 99, Hard: 99}} }},
		{runtime.AbilitySysctls, func(sp *runtime.Spec) { sp.Sysctls = map[string]string{"net.ipv4.ip_default_ttl": "77"} }},
		{runtime.AbilityHosts, func(sp *runtime.Spec) { sp.ExtraHosts = lighthouse() }},
		{runtime.AbilitySignals, func(sp *runtime.Spec) { sp.StopSignal = 10 }},
		{runtime.AbilityPrivileged, func(sp *runtime.Spec) { sp.Privileged = true }},
		{runtime.AbilityCapabilities, func(sp *runtime.Spec) { sp.CapAdd = []string{"NET_ADMIN"} }},
		{runtime.AbilitySeccomp, func(sp *runtime.Spec) { sp.Seccomp = runtime.SeccompDefault }},
		{runtime.AbilityReadOnlyRoot, func(sp *runtime.Spec) { sp.ReadOnlyRoot = true }},
		{runtime.AbilityDevices, func(sp *runtime.Spec) { sp.Devices = []runtime.Device{{Path: "/dev/kmsg"}} }},
		{runtime.AbilityMounts, func(sp *runtime.Spec) { sp.Mounts = []runtime.Mount{{Type: "tmpfs", Target: "/mnt"}} }},
		{runtime.AbilityPIDNS, func(sp *runtime.Spec) { sp.SharePID = &runtime.Handle{ID: "suite-other.main.1", PID: os.Getpid()} }},
		{runtime.AbilityHostNetwork, func(sp *runtime.Spec) { sp.HostNetwork = true }},
		{runtime.AbilityUserNS, func(sp *runtime.Spec) { sp.UserNS = &runtime.UserNamespace{First: 1 << 31, Size: 1 << 16} }},
		{runtime.AbilityHandler, func(sp *runtime.Spec) { sp.Handler, sp.Listen = &runtime.Handler{}, []uint16{8080} }},
		{runtime.AbilityCheckpoint, func(sp *runtime.Spec) { sp.Checkpoint = true }},
	} {
		t.Run(string(c.ability), func(t *testing.T) {
			if slices.Contains(s.can, c.ability) {
				return // others of these tests have it do that
			}
			sp := s.spec("exit", "0")
			c.ask(&sp)
			un, ok := errors.AsType[*runtime.Unsupported](s.refused(t, sp))
			if !ok || un.Ability != c.ability || un.Driver != s.d.Name() || un.Reason == "" {
				t.Errorf("refused by %+v", un)
			}
			if hs, _ := s.d.List(t.Context()); len(hs) != 0 {
				t.Errorf("left over: %v", hs)
			}
		})
	}
}

// without skips the tests of an optional part of the contract that the driver has not, which it must not list either.
func (s *suite) without(t *testing.T, a runtime.Ability, reason string) {
	t.Helper()
	if slices.Contains(s.can, a) {
		t.Fatalf("it lists %s, and there is %s", a, reason)
	}
	t.Skip(&runtime.Unsupported{Ability: a, Driver: s.d.Name(), Reason: reason})
}
