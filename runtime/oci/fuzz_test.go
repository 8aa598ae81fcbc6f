//go:build linux

package oci

import (
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/wire"
)

// FuzzConfig translates what a manifest and an image may ask for, and holds what comes out against what no container without privileges
// is to have.
func FuzzConfig(f *testing.F) {
	for _, s := range []runtime.Spec{
		{ID: "a.main.1", Args: []string{"/bin/true"}},
		{ID: "a.main.1", Args: []string{"x"}, User: "web:1", Dir: "/srv/..", Env: []string{"PATH=", "A=b=c"}, CapAdd: []string{"NET_RAW"}, CapDrop: []string{"ALL"}, ReadOnlyRoot: true, TTY: true},
		{ID: "a.main.1", Args: []string{"x"}, Privileged: true, HostNetwork: true, Seccomp: runtime.SeccompUnconfined},
		{ID: "a.main.1", Args: []string{"x"}, Hostname: "h", Mounts: []runtime.Mount{{Type: "bind", Source: "/tmp", Target: "/a/../b", ReadOnly: true}, {Type: "tmpfs", Target: "/c", Options: []string{"size=1m", "dev", "suid"}}}},
		{ID: "a.main.1", Args: []string{"x"}, Devices: []runtime.Device{{Path: "/dev/null", Target: "/dev/x", Access: "r"}}, Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}, Ulimits: []runtime.Ulimit{{Name: "nofile", Soft: 1, Hard: 2}}},
		{ID: "a.main.1", Args: []string{"x"}, Resources: runtime.Resources{CPU: 1500, CPURequest: 200, Memory: 64 * skerry.MiB, Pids: 9, CPUSet: "0-1"}, Network: &wire.Attachment{NetNS: "/proc/self/ns/net"}},
	} {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "root:x:0:0::/:/bin/sh\nweb:x:7:8::/:\n")
	}
	d, err := open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	driver := d.(*Driver)
	t0, err := driver.Tasks.Create(monitor.Record{Handle: runtime.Handle{ID: "fuzz.main.1"}, Cgroup: cgroupParent() + "/fuzz.main.1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(t0.Unlock)
	root := t0.Path("rootfs")
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, users string) {
		var s runtime.Spec
		if json.Unmarshal(data, &s) != nil || s.Check() != nil || s.SharePID != nil {
			return
		}
		if err := os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte(users), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := driver.config(t0, s)
		if err != nil {
			if bad := (*runtime.InvalidSpec)(nil); !errors.As(err, &bad) {
				t.Errorf("not the spec's fault: %v", err)
			}
			return
		}
		text, err := json.Marshal(c)
		var back specs.Spec
		if err != nil || json.Unmarshal(text, &back) != nil || len(back.Process.Args) == 0 || back.Process.Cwd == "" || back.Linux.CgroupsPath == "" {
			t.Fatalf("%v: %s", err, text)
		}
		holds(t, &s, c)
	})
}

// holds checks what a config says against what was asked for.
func holds(t *testing.T, s *runtime.Spec, c *specs.Spec) {
	if !s.Privileged {
		if !s.AllowNewPrivileges && !c.Process.NoNewPrivileges {
			t.Error("set-user-ID programs gain privileges")
		}
		if len(s.CapAdd) == 0 && slices.Contains(c.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") {
			t.Error("a capability that nobody asked for")
		}
		if !slices.Contains(c.Linux.MaskedPaths, "/proc/kcore") || !slices.Contains(c.Linux.ReadonlyPaths, "/proc/sys") {
			t.Error("the kernel's files are open")
		}
	}
	if first := c.Linux.Resources.Devices[0]; first.Allow != s.Privileged || first.Access != "rwm" {
		t.Errorf("devices are open: %+v", first)
	}
	if len(c.Linux.Devices) > len(s.Devices) {
		t.Errorf("%d devices of %d", len(c.Linux.Devices), len(s.Devices))
	}
	own := map[specs.LinuxNamespaceType]bool{}
	for _, n := range c.Linux.Namespaces {
		own[n.Type] = true
	}
	for _, n := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
		if !own[n] {
			t.Errorf("it shares the host's %s namespace", n)
		}
	}
	if own[specs.NetworkNamespace] == s.HostNetwork {
		t.Error("the network is not the one asked for")
	}
	for _, m := range c.Mounts {
		if !path.IsAbs(m.Destination) || path.Clean(m.Destination) != m.Destination || m.Destination == "/" {
			t.Errorf("a mount at %q", m.Destination)
		}
		if m.Type == "bind" && slices.ContainsFunc(s.Mounts, func(a runtime.Mount) bool {
			return path.Clean(a.Target) == m.Destination && a.Source == m.Source && a.ReadOnly
		}) && !slices.Contains(m.Options, "ro") {
			t.Errorf("%s can be written", m.Destination)
		}
		last := ""
		for _, o := range m.Options {
			if o == "dev" || o == "nodev" {
				last = o // a later one wins
			}
		}
		if m.Type == "tmpfs" && last == "dev" {
			t.Errorf("%s may hold devices", m.Destination)
		}
	}
	if r := c.Linux.Resources; s.Resources.Memory > 0 && (r.Memory == nil || *r.Memory.Limit < int64(s.Resources.Memory) || *r.Memory.Swap != *r.Memory.Limit) {
		t.Error("the memory is not limited")
	}
}

// FuzzSettle has an image with links of any kind: the place of a mount is in the root, and no link is left on the way to it.
func FuzzSettle(f *testing.F) {
	f.Add("/srv/a/b", "../../etc", "/b", "a")
	f.Add("/a/../b/.", "/..", ".", "/a/b/c/a")
	f.Add("/a", "a", "", "")
	f.Fuzz(func(t *testing.T, target, a, b, c string) {
		if strings.ContainsRune(target+a+b+c, 0) || !path.IsAbs(target) || len(target) > 200 {
			return
		}
		dir := t.TempDir()
		rootfs := filepath.Join(dir, "rootfs")
		if err := os.MkdirAll(filepath.Join(rootfs, "srv"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, to := range map[string]string{"a": a, "b": b, "srv/a": c} {
			_ = os.Symlink(to, filepath.Join(rootfs, name)) // an empty one is none
		}
		top, err := os.OpenRoot(rootfs)
		if err != nil {
			t.Fatal(err)
		}
		defer top.Close()
		root := &settling{top, imageRoot{owner: -1}}
		at, err := root.settle(target, nil, func(at string) error { return root.mountPoint(at, true) })
		if list, e := os.ReadDir(dir); e != nil || len(list) != 1 {
			t.Fatalf("beside the root there is %v, %v", list, e)
		}
		if err != nil {
			return
		}
		real, err := filepath.EvalSymlinks(filepath.Join(rootfs, at))
		if err != nil || real != filepath.Join(rootfs, at) || at == "/" {
			t.Fatalf("%q became %q, which is %q, %v", target, at, real, err)
		}
	})
}
