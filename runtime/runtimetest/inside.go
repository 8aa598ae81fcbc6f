//go:build linux

package runtimetest

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func (s *suite) refusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runtime.Spec)
		field  string
	}{
		"no program":      {func(sp *runtime.Spec) { sp.Args = nil }, "args"},
		"missing program": {func(sp *runtime.Spec) { sp.Args = []string{"/no/such/program"} }, "args[0]"},
		"not on the path": {func(sp *runtime.Spec) { sp.Args = []string{"no-such-program"} }, "args[0]"},
		"not executable":  {func(sp *runtime.Spec) { sp.Args = []string{filepath.Dir(s.program()) + "/noexec"} }, "args[0]"},
		"missing source": {func(sp *runtime.Spec) {
			sp.Mounts = []runtime.Mount{{Type: "bind", Source: "/no/such", Target: "/data"}}
		}, "mounts[0].source"},
		"unknown user":   {func(sp *runtime.Spec) { sp.User = "nobody-knows" }, "user"},
		"relative dir":   {func(sp *runtime.Spec) { sp.Dir = "tmp" }, "dir"},
		"bad id":         {func(sp *runtime.Spec) { sp.ID = "../escape" }, "id"},
		"bad capability": {func(sp *runtime.Spec) { sp.CapAdd = []string{"FLY"} }, "capAdd[0]"},
		"missing layer": {func(sp *runtime.Spec) {
			sp.RootFS = []runtime.Mount{{Type: "bind", Source: "/no/such", Shifted: s.o.Copied}}
		}, "rootfs[0]"},
		"negative memory": {func(sp *runtime.Spec) { sp.Resources.Memory = -1 }, "resources"},
		"missing netns":   {func(sp *runtime.Spec) { sp.Network = &wire.Attachment{NetNS: "/no/such"} }, "network.netns"},
	} {
		t.Run(name, func(t *testing.T) {
			sp := s.spec("exit", "0")
			c.change(&sp)
			handle, err := s.d.Start(t.Context(), sp)
			if err == nil {
				_ = s.d.Remove(t.Context(), handle)
				t.Fatal("it was started")
			}
			if c.field == "user" || c.field == "mounts[0].source" {
				s.skipUnsupported(t, err)
			}
			field := ""
			if e, ok := errors.AsType[*runtime.InvalidSpec](err); ok {
				field = e.Field
			} else if e, ok := errors.AsType[*runtime.StartError](err); ok {
				field = e.Field
				if e.Hint == "" {
					t.Errorf("no hint in %q", err)
				}
			}
			if s.o.System != nil && c.field == "args[0]" {
				c.field = s.o.System.Program
			}
			if !strings.HasPrefix(field, c.field) {
				t.Errorf("field %q, not %q, in %T %q", field, c.field, err, err)
			}
			if hs, _ := s.d.List(t.Context()); len(hs) != 0 {
				t.Errorf("left over: %v", hs)
			}
		})
	}
}

func (s *suite) environment(t *testing.T) {
	if s.o.System != nil {
		s.told(t)
		return
	}
	t.Run("args", func(t *testing.T) {
		s.together(t)
		want := []string{"", "a b", "$HOME", "ü\t'\""}
		if _, out := s.run(t, s.spec(append([]string{"print"}, want...)...)); out != strings.Join(want, "\n")+"\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("env", func(t *testing.T) {
		s.together(t)
		sp := s.spec("env")
		sp.Env = []string{"A=1", "B=two words"}
		_, out := s.run(t, sp)
		lines := strings.Split(out, "\n")
		if !slices.Contains(lines, "A=1") || !slices.Contains(lines, "B=two words") || !strings.Contains(out, "PATH=") {
			t.Errorf("got %q", out)
		}
	})
	t.Run("dir", func(t *testing.T) {
		s.together(t)
		sp := s.spec("cwd")
		sp.Dir = "/tmp"
		if _, out := s.run(t, sp); out != "/tmp\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("user by number", func(t *testing.T) {
		s.together(t)
		sp := s.spec("id")
		sp.User = "4321:8765"
		if _, out := s.run(t, sp); !strings.HasPrefix(out, "4321 8765 ") {
			t.Errorf("got %q", out)
		}
	})
	t.Run("user by name", func(t *testing.T) {
		s.together(t)
		sp, want := s.spec("id"), "1234 5678 [777]\n"
		sp.User = "mule"
		if s.o.HostRoot {
			sp.User, want = "nobody", "65534 65534 []\n"
		}
		if _, out := s.run(t, sp); out != want {
			t.Errorf("got %q, not %q", out, want)
		}
	})
	t.Run("hostname", func(t *testing.T) {
		s.together(t)
		sp := s.spec("hostname")
		sp.Hostname = "islet"
		if _, out := s.run(t, sp); out != "islet\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("mounts", func(t *testing.T) {
		s.together(t)
		dir := filepath.Join(s.root, "..", "shared")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		target := "/mnt"
		sp := s.spec("read", target+"/file")
		sp.Mounts = []runtime.Mount{s.volume(t, runtime.Mount{Type: "bind", Source: dir, Target: target, ReadOnly: s.o.Copies})}
		if e, out := s.run(t, sp); out != "from the host\n" {
			t.Errorf("got %q, %+v", out, e)
		}
		sp = s.spec("write", target+"/new", "x")
		sp.Mounts = []runtime.Mount{s.volume(t, runtime.Mount{Type: "bind", Source: dir, Target: target, ReadOnly: true})}
		if e, out := s.run(t, sp); e.Code != 90 || !readOnly(out) {
			t.Errorf("got %q, %+v", out, e)
		}
		sp = s.spec("write", target+"/new", "x")
		sp.Mounts = []runtime.Mount{{Type: "tmpfs", Target: target, Options: []string{"size=1m"}}}
		if e, out := s.run(t, sp); out != "written\n" {
			t.Errorf("got %q, %+v", out, e)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("what was written to a tmpfs is on the host")
		}
	})
	t.Run("ulimits", func(t *testing.T) {
		s.together(t)
		sp := s.spec("nofile")
		// Go raises the soft limit to the hard one.
		sp.Ulimits = []runtime.Ulimit{{Name: "nofile", Soft: 99, Hard: 99}}
		if _, out := s.run(t, sp); out != "99 99\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("sysctls", func(t *testing.T) {
		s.together(t)
		sp := s.spec("read", "/proc/sys/net/ipv4/ip_default_ttl")
		sp.Sysctls = map[string]string{"net.ipv4.ip_default_ttl": "77"}
		if _, out := s.run(t, sp); out != "77\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("devices", func(t *testing.T) {
		s.together(t)
		sp := s.spec("write", "/dev/kmsg", "")
		sp.Devices = []runtime.Device{{Path: "/dev/kmsg"}}
		if e, out := s.run(t, sp); out != "written\n" {
			t.Errorf("got %q, %+v", out, e)
		}
	})
	t.Run("network", s.network)
	t.Run("shared processes", func(t *testing.T) {
		s.together(t)
		first := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, first)
		sp := s.spec("read", "/proc/1/cmdline")
		sp.SharePID = &first
		if _, out := s.run(t, sp); !strings.HasSuffix(out, "sleep\x00\n") {
			t.Errorf("got %q", out)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		s.together(t)
		sp := s.spec("tty")
		sp.TTY = true
		// On a slow machine conmon may lose a race with a program that ends at once on a terminal; once is an accident, three times are a fault.
		h, err := s.d.Start(t.Context(), sp)
		for tries := 1; err != nil && tries < 3; tries++ {
			s.skipUnsupported(t, err)
			t.Logf("%v", err)
			h, err = s.d.Start(t.Context(), sp)
		}
		if err != nil {
			t.Fatal(err)
		}
		e, out := s.wait(t, s.d, h), s.output(t, s.d, h)
		if !strings.HasPrefix(out, "tty ") {
			t.Errorf("got %q, %+v", out, e)
		}
		if err := s.d.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	})
}

// namespace makes a network namespace with a setting of its own, until the end of a test.
func namespace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	err := thread.Do(func() error {
		return errors.Join(
			unix.Unshare(unix.CLONE_NEWNET),
			unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""),
			os.WriteFile("/proc/sys/net/ipv4/ip_default_ttl", []byte("78"), 0o644),
		)
	})
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// network runs a task in a namespace that somebody else made.
func (s *suite) network(t *testing.T) {
	if s.o.WASI {
		t.Skip(&runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: s.d.Name(), Reason: "WASI shows nothing of the network"})
	}
	path := namespace(t)
	at := &wire.Attachment{
		NetNS: path, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Search: []string{"island.example"},
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")},
	}
	for file, want := range map[string]string{
		"/proc/sys/net/ipv4/ip_default_ttl": "78\n",
		"/etc/resolv.conf":                  "nameserver 192.0.2.53\nsearch island.example\noptions timeout:5 attempts:4\n",
	} {
		if (s.o.OwnKernel || s.o.Machine) && strings.HasPrefix(file, "/proc/sys/") {
			continue
		}
		sp := s.spec("read", file)
		sp.Network = at
		if e, out := s.run(t, sp); out != want {
			t.Errorf("%s: got %q, %+v", file, out, e)
		}
	}
	sp := s.spec("read", "/etc/hosts")
	sp.Network, sp.Hostname = at, "islet"
	if _, out := s.run(t, sp); !s.o.HostRoot && !strings.Contains(out, "192.0.2.7 islet\n") {
		t.Errorf("hosts: got %q", out)
	}
	if slices.Contains(s.can, runtime.AbilityHosts) {
		sp := s.spec("read", "/etc/hosts")
		sp.Network, sp.Hostname, sp.ExtraHosts = at, "islet.example", lighthouse()
		_, out := s.run(t, sp)
		for _, line := range []string{"192.0.2.7 islet.example islet\n", "203.0.113.5 lighthouse light.example\n"} {
			if !strings.Contains(out, line) {
				t.Errorf("hosts: got %q, without %q", out, line)
			}
		}
	}
	host, err := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl")
	if err != nil {
		t.Fatal(err)
	}
	sp = s.spec("read", "/proc/sys/net/ipv4/ip_default_ttl")
	sp.HostNetwork = true
	if _, out := s.run(t, sp); out != string(host) {
		t.Errorf("the host's network: got %q, not %q", out, host)
	}
}

// lighthouse is a host that no name server knows.
func lighthouse() []spec.HostEntry {
	return []spec.HostEntry{{Address: netip.MustParseAddr("203.0.113.5"), Names: []string{"lighthouse", "light.example"}}}
}

func (s *suite) isolation(t *testing.T) {
	if s.o.System != nil {
		t.Run("no network", s.noNetwork)
		return
	}
	t.Run("no new privileges", func(t *testing.T) {
		s.together(t)
		s.hostKernel(t)
		if _, out := s.run(t, s.spec("status", "NoNewPrivs")); out != "1\n" {
			t.Errorf("got %q", out)
		}
		sp := s.spec("status", "NoNewPrivs")
		sp.AllowNewPrivileges = true
		if _, out := s.run(t, sp); out != "0\n" {
			t.Errorf("got %q when they are allowed", out)
		}
	})
	t.Run("dropped capabilities", func(t *testing.T) {
		s.together(t)
		sp := s.spec("mount")
		if s.o.HostRoot {
			sp.CapDrop = []string{"ALL"}
		}
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "not permitted") {
			t.Errorf("mount: %q, %+v", out, e)
		}
		sp = s.spec("chroot")
		sp.CapDrop = []string{"sys_chroot"}
		if e, out := s.run(t, sp); e.Code != 90 || !strings.Contains(out, "not permitted") {
			t.Errorf("chroot: %q, %+v", out, e)
		}
		if e, out := s.run(t, s.spec("chroot")); e.Code != 0 {
			t.Errorf("chroot without drop: %q, %+v", out, e)
		}
	})
	t.Run("seccomp", func(t *testing.T) {
		s.together(t)
		sp := s.spec("status", "Seccomp")
		sp.Seccomp = runtime.SeccompDefault
		// Twice: the second start may use what the first one compiled.
		for range 2 {
			if _, out := s.run(t, sp); out != "2\n" {
				t.Errorf("got %q", out)
			}
			sp.ID += "x"
		}
		sp.Seccomp = runtime.SeccompUnconfined
		if _, out := s.run(t, sp); out != "0\n" {
			t.Errorf("got %q without", out)
		}
	})
	t.Run("read-only root", func(t *testing.T) {
		s.together(t)
		sp := s.spec("write", "/data/x", "x")
		sp.ReadOnlyRoot = true
		if e, out := s.run(t, sp); e.Code != 90 || !readOnly(out) {
			t.Errorf("got %q, %+v", out, e)
		}
	})
	t.Run("own root", func(t *testing.T) {
		s.together(t)
		if s.o.HostRoot {
			t.Skip(&runtime.Unsupported{Ability: runtime.AbilityImages, Driver: s.d.Name(), Reason: "tasks see the host's root"})
		}
		if e, out := s.run(t, s.spec("write", "/data/x", "x")); out != "written\n" && !(s.o.WASI && e.Code == 90 && readOnly(out)) {
			t.Errorf("got %q, %+v", out, e)
		}
		if _, err := os.Stat(filepath.Join(s.root, "data/x")); err == nil {
			t.Error("a task wrote into its image")
		}
	})
	t.Run("no network", func(t *testing.T) {
		s.together(t)
		if s.o.HostRoot {
			t.Skip(&runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: s.d.Name(), Reason: "the host's network is the default"})
		}
		if _, out := s.run(t, s.spec("links")); out != "1\n" {
			t.Errorf("%s interfaces, not loopback alone", out)
		}
	})
}

// readOnly reports whether a program was told that what it would write to is read-only.
func readOnly(out string) bool { return strings.Contains(strings.ToLower(out), "read-only") }

func (s *suite) limits(t *testing.T) {
	st, ok := s.d.(runtime.Statser)
	if !ok {
		s.without(t, runtime.AbilityStats, "no Statser")
	}
	t.Run("cpu", func(t *testing.T) {
		s.together(t)
		sp := s.spec("spin", "60000")
		sp.Resources.CPU = 200
		h := s.start(t, sp)
		// A busy host gives it less than its limit for a while.
		for began := time.Now(); ; testenv.Pause(began) {
			stats, err := st.Stats(t.Context(), h)
			if err != nil || stats.Periods < stats.ThrottledPeriods {
				t.Fatalf("%+v, %v", stats, err)
			}
			if stats.ThrottledPeriods > 0 && stats.Throttled > 0 && stats.CPU >= 100*time.Millisecond {
				break
			}
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("it is not held back: %+v", stats)
			}
		}
	})
	t.Run("memory", func(t *testing.T) {
		s.together(t)
		sp := s.spec("alloc", "256")
		sp.Resources.Memory = 32 * skerry.MiB
		h := s.start(t, sp)
		e := s.wait(t, s.d, h)
		stats, err := st.Stats(t.Context(), h)
		if s.o.WASI || s.o.System != nil {
			if out := s.output(t, s.d, h); e.OOMKilled || e.Code != 2 || !strings.Contains(out, "out of memory") || stats.OOMKills != 0 ||
				stats.MemoryLimit != 32*skerry.MiB {
				t.Errorf("%+v %+v %v %q", e, stats, err, out)
			}
		} else if !e.OOMKilled || e.Code != 137 || err != nil || stats.OOMKills == 0 || stats.MemoryLimit != 32*skerry.MiB ||
			stats.MemoryPeak > 33*skerry.MiB+s.o.Beside {
			t.Errorf("%+v %+v %v", e, stats, err)
		}
		if s.shares() {
			return // what it may use is used in one machine
		}
		sp = s.spec("alloc", "8")
		sp.Resources.Memory = 64 * skerry.MiB
		if e, out := s.run(t, sp); e.OOMKilled || e.Code != 0 {
			t.Errorf("%+v, %q", e, out)
		}
	})
	t.Run("pids", func(t *testing.T) {
		s.together(t)
		s.needs(t, runtime.AbilityPids)
		sp := s.spec("fork", "50")
		sp.Resources.Pids = 40
		if e, out := s.run(t, sp); e.Code >= 50 || !strings.HasPrefix(out, "refused") && e.Code != 2 {
			t.Errorf("%+v, %q", e, out)
		}
	})
	t.Run("disk", s.diskLimits)
	t.Run("stats", func(t *testing.T) {
		if s.shares() {
			return // in one machine
		}
		s.together(t)
		h := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, h)
		stats, err := st.Stats(t.Context(), h)
		limited := stats.MemoryLimit != 0
		// a system has what its machine has
		if err != nil || stats.Pids < 1 || stats.Memory <= 0 || stats.MemoryPeak < stats.Memory || stats.CPU <= 0 || stats.At.IsZero() ||
			limited != (s.o.System != nil) {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}
