//go:build linux

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/wire"
)

// Two instances have these users.
var (
	someUsers  = runtime.UserNamespace{First: 0x7200_0000, Size: 1 << 16}
	otherUsers = runtime.UserNamespace{First: 0x7201_0000, Size: 1 << 16}
)

// withUsers opens a driver whose containers can have user namespaces, and gives the image with the suite's program.
func withUsers(t *testing.T, program string, how Owners) (*Driver, string) {
	t.Helper()
	t.Setenv(ownersEnv, string(how))
	need(t, program)
	if program == "crun" {
		runtimetest.Hybrid(t, false)
	}
	t.Setenv(runtimeEnv, program)
	opened, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*Driver)
	t.Cleanup(func() { d.Close() })
	if r := d.Check(t.Context()); !slices.Contains(r.Abilities, runtime.AbilityUserNS) || slices.Contains(r.Abilities, runtime.AbilityUserNSCopies) != (how == OwnersCopied) {
		t.Fatalf("no user namespaces on a kernel that has them: %+v", r)
	}
	image := runtimetest.Image(t, runtimetest.Workload(t))
	program, err = filepath.EvalSymlinks(filepath.Join(image, "bin/workload"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(filepath.Join(image, "bin/setuid"), data, 0o755)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(image, "bin/setuid"), 0o755|os.ModeSetuid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, image
}

// ran runs a task to its end.
func ran(t *testing.T, d *Driver, spec runtime.Spec) (int, string) {
	t.Helper()
	h := begun(t, d, spec)
	e, err := d.Wait(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return e.Code, lines(t, d, h)
}

func begun(t *testing.T, d *Driver, spec runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), h); err != nil {
			t.Error(err)
		}
	})
	return h
}

func lines(t *testing.T, d *Driver, h runtime.Handle) string {
	t.Helper()
	log, err := d.OpenLog(t.Context(), h, runtime.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var b strings.Builder
	for {
		e, err := log.Next()
		if err != nil {
			return b.String()
		}
		b.WriteString(e.Line + "\n")
	}
}

func ownerOf(t *testing.T, file string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}

func TestUserNamespace(t *testing.T) {
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) { testUserNamespace(t, program, OwnersMapped) })
	}
	t.Run("crun with copies", func(t *testing.T) { testUserNamespace(t, "crun", OwnersCopied) })
	if testenv.Systems() {
		t.Run("runc with copies", func(t *testing.T) { testUserNamespace(t, "runc", OwnersCopied) })
	}
}

func testUserNamespace(t *testing.T, program string, how Owners) {
	d, image := withUsers(t, program, how)
	copied := how == OwnersCopied
	n, images := 0, map[uint32]string{0: image}
	if copied {
		for _, users := range []runtime.UserNamespace{someUsers, otherUsers} {
			at := filepath.Join(d.Options.Dir, fmt.Sprintf("image-%x", users.First))
			if err := errors.Join(os.Mkdir(at, 0o755), owners.Copy(t.Context(), image, at, users.First)); err != nil {
				t.Fatal(err)
			}
			images[users.First] = at
		}
	}
	// first is whom root's files belong to on the disk.
	first := func(users *runtime.UserNamespace) uint32 {
		if users == nil || !copied {
			return 0
		}
		return users.First
	}
	spec := func(users *runtime.UserNamespace, args ...string) runtime.Spec {
		n++
		root := runtime.Overlay(images[first(users)])
		root.Shifted = copied && users != nil
		return runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("users.main.%d", n)), Args: append([]string{"/bin/workload"}, args...), UserNS: users, RootFS: []runtime.Mount{root}}
	}
	// mounted is a volume as a worker gives it to a container.
	mounted := func(t *testing.T, users *runtime.UserNamespace, dir string, readOnly bool) []runtime.Mount {
		t.Helper()
		if copied {
			if err := owners.Record(dir+".owners").Settle(t.Context(), dir, first(users)); err != nil {
				t.Fatal(err)
			}
		}
		return []runtime.Mount{{Type: "bind", Source: dir, Target: "/mnt", ReadOnly: readOnly, Shifted: copied && users != nil}}
	}
	// volume makes a directory that anybody may write to, on the file system of the driver's.
	volume := func(t *testing.T) string {
		dir := filepath.Join(d.Options.Dir, "volume-"+filepath.Base(t.Name()))
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		return dir
	}

	t.Run("the image belongs to root inside", func(t *testing.T) {
		if _, out := ran(t, d, spec(&someUsers, "owner", "/bin/workload")); out != "0 0755 memory=false\n" {
			t.Errorf("%q", out)
		}
		if _, out := ran(t, d, spec(&someUsers, "id")); !strings.HasPrefix(out, "0 0 ") {
			t.Errorf("%q", out)
		}
	})
	t.Run("root is nobody outside", func(t *testing.T) {
		one, two := begun(t, d, spec(&someUsers, "sleep")), begun(t, d, spec(&otherUsers, "sleep"))
		for h, users := range map[int]runtime.UserNamespace{one.PID: someUsers, two.PID: otherUsers} {
			if uid := ownerOf(t, fmt.Sprintf("/proc/%d", h)); uid != users.First {
				t.Errorf("process %d is user %d of the host, not %d", h, uid, users.First)
			}
		}
		if st, err := os.Stat(filepath.Join(d.Mounts, string(one.ID))); err != nil || st.Mode().Perm() != 0o710 || st.Sys().(*syscall.Stat_t).Gid != someUsers.First {
			t.Errorf("others of the host may enter: %v, %v", st, err)
		}
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if at := strings.Fields(line)[4]; strings.HasPrefix(at, d.Mounts) && filepath.Base(at) != rootDir {
				t.Errorf("what was prepared is still mounted: %s", line)
			}
		}
	})
	if program == "crun" { // containers of runc share those of the host's root: SECURITY.md
		t.Run("has inotify instances of its own", func(t *testing.T) {
			// They count for the user that owns the namespace: were that root, one container could leave the host and all others none.
			for _, users := range []*runtime.UserNamespace{&someUsers, &otherUsers} {
				h := begun(t, d, spec(users, "watch"))
				out := ""
				for out == "" {
					out = lines(t, d, h)
				}
				if out == "has 0\n" {
					t.Errorf("users from %d have none left", users.First)
				}
			}
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				t.Fatalf("the host has none left: %v", err)
			}
			unix.Close(fd)
		})
	}
	t.Run("writable layer", func(t *testing.T) {
		sp := spec(&someUsers, "write", "/data/x", "x")
		h := begun(t, d, sp)
		if e, err := d.Wait(t.Context(), h); err != nil || e.Code != 0 {
			t.Fatal(e, err, lines(t, d, h))
		}
		task, err := d.Tasks.Get(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"", "data", "data/x"} {
			if uid := ownerOf(t, task.Path("upper", file)); uid != someUsers.First {
				t.Errorf("%q belongs to user %d of the host", file, uid)
			}
		}
	})
	t.Run("a volume outlives its user namespace", func(t *testing.T) {
		dir := volume(t)
		write := func(users *runtime.UserNamespace, name, user string) {
			t.Helper()
			sp := spec(users, "write", "/mnt/"+name, "from "+name)
			sp.User, sp.Mounts = user, mounted(t, users, dir, false)
			if code, out := ran(t, d, sp); code != 0 {
				t.Fatal(code, out)
			}
		}
		write(nil, "before", "0")
		write(&someUsers, "root", "0")
		write(&someUsers, "mule", "mule")
		for name, uid := range map[string]uint32{"before": 0, "root": 0, "mule": 1234} {
			mounted(t, &someUsers, dir, true)
			if got := ownerOf(t, filepath.Join(dir, name)); got != first(&someUsers)+uid {
				t.Errorf("%s belongs to user %d of the host, not %d", name, got, first(&someUsers)+uid)
			}
			if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
			sp := spec(&otherUsers, "read", "/mnt/"+name)
			sp.User, sp.Mounts = fmt.Sprint(uid), mounted(t, &otherUsers, dir, true)
			if code, out := ran(t, d, sp); code != 0 || out != "from "+name+"\n" {
				t.Errorf("%s: %d %q", name, code, out)
			}
		}
	})
	t.Run("files of the host's numbers", func(t *testing.T) {
		dir := volume(t)
		file := filepath.Join(dir, "secret")
		if err := errors.Join(os.WriteFile(file, []byte("for 1234\n"), 0o400), os.Chown(file, int(someUsers.First)+1234, 0)); err != nil {
			t.Fatal(err)
		}
		sp := spec(&someUsers, "read", "/mnt/secret")
		sp.User, sp.Mounts = "1234", []runtime.Mount{{Type: "bind", Source: dir, Target: "/mnt", ReadOnly: true, Shifted: true}}
		if code, out := ran(t, d, sp); code != 0 || out != "for 1234\n" {
			t.Errorf("%d %q", code, out)
		}
	})
	t.Run("a file system that cannot map", func(t *testing.T) {
		sp := spec(&someUsers, "read", "/mnt/ostype")
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: "/proc/sys/kernel", Target: "/mnt", ReadOnly: true}}
		if code, out := ran(t, d, sp); code != 0 || out != "Linux\n" {
			t.Errorf("%d %q", code, out)
		}
		sp = spec(&someUsers, "owner", "/mnt/ostype")
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: "/proc/sys/kernel", Target: "/mnt", ReadOnly: true}}
		if _, out := ran(t, d, sp); !strings.HasPrefix(out, "65534 ") {
			t.Errorf("it belongs to %q", out)
		}
	})
	t.Run("files of the agent's own", func(t *testing.T) {
		sp := spec(&someUsers, "owner", "/etc/hostname")
		sp.Hostname = "islet"
		if code, out := ran(t, d, sp); code != 0 || !strings.HasPrefix(out, "0 0644") {
			t.Errorf("%d %q", code, out)
		}
	})
	t.Run("set-user-ID programs", func(t *testing.T) {
		sp := spec(&someUsers, "euid")
		sp.Args[0], sp.User, sp.AllowNewPrivileges = "/bin/setuid", "mule", true
		if code, out := ran(t, d, sp); code != 0 || out != "0\n" {
			t.Errorf("%d %q", code, out)
		}
		sp = spec(&someUsers, "sleep")
		sp.Args[0], sp.User, sp.AllowNewPrivileges = "/bin/setuid", "mule", true
		if uid := ownerOf(t, fmt.Sprintf("/proc/%d", begun(t, d, sp).PID)); uid == 0 {
			t.Error("it is the host's root")
		}
	})
	t.Run("files of the host by their numbers", func(t *testing.T) {
		dir := volume(t)
		secrets := map[string]string{"the host's": filepath.Join(d.Options.Dir, "secret")}
		if copied { // of another organisation
			theirs := dir + "-theirs"
			if err := os.Mkdir(theirs, 0o755); err != nil {
				t.Fatal(err)
			}
			secrets["a layer's"], secrets["a volume's"] = filepath.Join(images[otherUsers.First], "etc/secret"), filepath.Join(theirs, "secret")
		}
		for text, secret := range secrets {
			if err := errors.Join(os.WriteFile(secret, []byte(text+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if text != "the host's" {
				if err := os.Chown(secret, int(otherUsers.First), int(otherUsers.First)); err != nil {
					t.Fatal(err)
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(secret, &st); err != nil {
				t.Fatal(err)
			}
			for _, users := range []*runtime.UserNamespace{nil, &someUsers} {
				sp := spec(users, "handle", "/mnt", fmt.Sprint(st.Ino))
				sp.CapAdd, sp.Mounts = []string{"DAC_READ_SEARCH"}, mounted(t, users, dir, false)
				code, out := ran(t, d, sp)
				if read := strings.Contains(out, text); read != (users == nil) {
					t.Errorf("%s with users %v: %d %q", text, users, code, out) // without, the test shows that it tries the right thing
				}
			}
		}
	})
	t.Run("streams can be opened again", func(t *testing.T) {
		for _, user := range []string{"", "mule"} {
			sp := spec(&someUsers, "reopen")
			sp.User = user
			if code, out := ran(t, d, sp); code != 0 || out != "/dev/stdout\n/dev/stderr\n" {
				t.Errorf("%q: %d %q", user, code, out)
			}
			sp = spec(&someUsers, "sleep")
			sp.User = user
			var out, errs bytes.Buffer
			exec := runtime.ExecSpec{Args: []string{"/bin/workload", "reopen"}, Stdout: &out, Stderr: &errs}
			if code, err := d.Exec(t.Context(), begun(t, d, sp), exec); code != 0 || err != nil || out.String() != "/dev/stdout\n" || errs.String() != "/dev/stderr\n" {
				t.Errorf("exec by %q: %d %v %q %q", user, code, err, &out, &errs)
			}
		}
	})
	t.Run("exec in a network of the host's", func(t *testing.T) {
		sp := spec(&someUsers, "sleep")
		sp.Network = &wire.Attachment{NetNS: hostNetNS(t)}
		var out bytes.Buffer
		exec := runtime.ExecSpec{Args: []string{"/bin/workload", "links"}, Stdout: &out, Stderr: &out}
		if code, err := d.Exec(t.Context(), begun(t, d, sp), exec); code != 0 || err != nil || out.String() != "1\n" {
			t.Errorf("%d %v %q", code, err, &out)
		}
	})
	t.Run("input can be opened again", func(t *testing.T) {
		var out bytes.Buffer
		exec := runtime.ExecSpec{Args: []string{"/bin/workload", "read", "/dev/stdin"}, Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &out}
		if code, err := d.Exec(t.Context(), begun(t, d, spec(&someUsers, "sleep")), exec); code != 0 || err != nil || out.String() != "in\n" {
			t.Errorf("%d %v %q", code, err, &out)
		}
	})
	t.Run("a network namespace of the host's", func(t *testing.T) {
		at := &wire.Attachment{NetNS: hostNetNS(t)}
		for _, args := range [][]string{{"listen", "80"}, {"read", "/sys/class/net/lo/mtu"}, {"read", "/proc/sys/net/ipv4/ip_default_ttl"}} {
			sp := spec(&someUsers, args...)
			sp.Network, sp.CapDrop, sp.Sysctls = at, []string{"ALL"}, map[string]string{"net.ipv4.ip_default_ttl": "79"}
			code, out := ran(t, d, sp)
			if code != 0 || args[0] == "read" && strings.Contains(args[1], "ttl") && out != "79\n" {
				t.Errorf("%v: %d %q", args, code, out)
			}
		}
	})
	t.Run("a device", func(t *testing.T) {
		sp := spec(&someUsers, "owner", "/dev/kmsg")
		sp.Devices = []runtime.Device{{Path: "/dev/kmsg"}}
		if code, out := ran(t, d, sp); code != 0 || !strings.HasPrefix(out, "0 0") {
			t.Errorf("%d %q", code, out)
		}
	})
	t.Run("a user that it does not have", func(t *testing.T) {
		sp := spec(&someUsers, "id")
		sp.User = "65536"
		if _, err := d.Start(t.Context(), sp); err == nil || !strings.HasPrefix(err.Error(), "user: the container has no user or group 65536") {
			t.Errorf("%v", err)
		}
		_, err := d.Exec(t.Context(), begun(t, d, spec(&someUsers, "sleep")), runtime.ExecSpec{Args: []string{"/bin/workload", "id"}, User: "0:65536"})
		if err == nil || !strings.HasPrefix(err.Error(), "user: the container has no user or group 65536") {
			t.Errorf("exec: %v", err)
		}
	})
	t.Run("other users' processes", func(t *testing.T) {
		first := begun(t, d, spec(&someUsers, "sleep"))
		sp := spec(&otherUsers, "id")
		sp.SharePID = &first
		if _, err := d.Start(t.Context(), sp); err == nil || !strings.HasPrefix(err.Error(), "sharePID: ") {
			t.Errorf("%v", err)
		}
	})
}

// A file system that cannot map owners is found by trying, and what is not shifted is refused there.
func TestUserNamespaceWithoutMaps(t *testing.T) {
	noMaps(t)
	opened, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*Driver)
	defer d.Close()
	r := d.Check(t.Context())
	if !r.Passed || !slices.Contains(r.Abilities, runtime.AbilityUserNS) || !slices.Contains(r.Abilities, runtime.AbilityUserNSCopies) ||
		!strings.Contains(r.Cause, "one range of users for each organisation: userNS: map the owners of files") {
		t.Fatalf("%+v", r)
	}
	spec := runtime.Spec{ID: "ram.main.1", Args: []string{"/probe"}, UserNS: &someUsers, RootFS: []runtime.Mount{{Type: "overlay", Options: []string{"lowerdir=/"}}}}
	if u, ok := errors.AsType[*runtime.Unsupported](second(d.Start(t.Context(), spec))); !ok || u.Ability != runtime.AbilityUserNS {
		t.Errorf("%v", u)
	}
	t.Setenv(ownersEnv, string(OwnersMapped))
	if opened, err = open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if r := opened.Check(t.Context()); !r.Passed || slices.Contains(r.Abilities, runtime.AbilityUserNS) || !strings.Contains(r.Cause, "no user namespaces: ") {
		t.Errorf("%+v", r)
	}
}

func second(_ runtime.Handle, err error) error { return err }

func TestParseOwners(t *testing.T) {
	for text, want := range map[string]Owners{"": OwnersAuto, "auto": OwnersAuto, "mapped": OwnersMapped, "copied": OwnersCopied} {
		if got, err := ParseOwners(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := ParseOwners("off"); err == nil {
		t.Error("off is one")
	}
}

// hostNetNS makes a network namespace as the worker's network does, until the end of the test.
func hostNetNS(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	err := thread.Do(func() error {
		return errors.Join(unix.Unshare(unix.CLONE_NEWNET), unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, ""), upLoopback(),
			os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o644))
	})
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Where the root cannot be reached by the namespace's users, containers run without, and both the self-test and a refusal say so.
func TestNoUserNamespace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Dir: dir, CgroupParent: cgroupParent()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	began := time.Now()
	r := d.Check(t.Context())
	if !r.Passed || slices.Contains(r.Abilities, runtime.AbilityUserNS) || !strings.Contains(r.Cause, "no user namespaces: ") || !strings.Contains(r.Cure, "run directory that others may enter") {
		t.Errorf("after %s: %+v", time.Since(began), r)
	}
	_, err = d.Start(t.Context(), runtime.Spec{ID: "no.main.1", Args: []string{"/probe"}, UserNS: &someUsers, RootFS: []runtime.Mount{{Type: "overlay", Options: []string{"lowerdir=/"}}}})
	if u, ok := errors.AsType[*runtime.Unsupported](err); !ok || u.Ability != runtime.AbilityUserNS {
		t.Errorf("%v", err)
	}
}
