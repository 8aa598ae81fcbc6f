//go:build linux

package userns

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

var users = runtime.UserNamespace{First: 0x7300_0000, Size: 1 << 16}

func opened(t testing.TB) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "user namespaces of other users", Why: "they need root"})
	}
	ns, err := Open(users)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// Files on disk belong to whom they did, and in the mount to users of the namespace; what is written there is written so on disk.
func TestMount(t *testing.T) {
	ns := opened(t)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := errors.Join(os.Mkdir(from, 0o755), os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(from, "file"), nil, 0o644), os.Chown(filepath.Join(from, "file"), 7, 8)); err != nil {
		t.Fatal(err)
	}
	if err := Mount(Tree{Path: from, Users: ns, Recursive: true}, to); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(to, unix.MNT_DETACH)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(to, "file"), &st); err != nil || st.Uid != users.First+7 || st.Gid != users.First+8 {
		t.Errorf("it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := os.Chown(filepath.Join(to, "file"), int(users.First)+9, int(users.First)+10); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Join(from, "file"), &st); err != nil || st.Uid != 9 || st.Gid != 10 {
		t.Errorf("on disk it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := os.Chown(filepath.Join(to, "file"), 0, 0); !errors.Is(err, unix.EOVERFLOW) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("the host's root, which the namespace does not have: %v", err)
	}
}

// What cannot be mapped is told as such, and can be mounted without.
func TestUnmappable(t *testing.T) {
	ns := opened(t)
	to := t.TempDir()
	err := Mount(Tree{Path: "/proc", Users: ns}, to)
	if !IsUnmappable(err) {
		t.Errorf("%v", err)
	}
	if err := Mount(Tree{Path: "/proc", ReadOnly: true}, to); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(to, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(to, "self/comm"), []byte("x"), 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("written: %v", err)
	}
	if err := Mount(Tree{Path: "/no/such", Users: ns}, to); err == nil || IsUnmappable(err) {
		t.Errorf("%v", err)
	}
}

// An old kernel mounts without a map, as it is said, and says that it has none.
func TestMountOld(t *testing.T) {
	ns := opened(t)
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := errors.Join(os.Mkdir(from, 0o755), os.Mkdir(to, 0o755), unix.Mount("tmpfs", from, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "size=1m"), os.WriteFile(filepath.Join(from, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(from, unix.MNT_DETACH)
	if err := (Tree{Path: from, Users: ns}).mountOld(to, unix.ENOSYS); !IsUnmappable(err) {
		t.Errorf("%v", err)
	}
	for _, readOnly := range []bool{false, true} {
		if err := (Tree{Path: from, ReadOnly: readOnly, Recursive: true}).mountOld(to, unix.ENOSYS); err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(to, &st); err != nil || st.Flags&unix.ST_NODEV == 0 || st.Flags&unix.ST_NOSUID == 0 {
			t.Errorf("it has the flags %x, %v", st.Flags, err)
		}
		if err := os.WriteFile(filepath.Join(to, "file"), []byte("x"), 0o644); (err == nil) == readOnly || readOnly && !errors.Is(err, unix.EROFS) {
			t.Errorf("read only %v: %v", readOnly, err)
		}
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Tree{Path: "/no/such"}).mountOld(to, unix.ENOSYS); err == nil || IsUnmappable(err) {
		t.Errorf("%v", err)
	}
}

// The program for each architecture says that it is in the namespace, or why not: an emulator has threads, which the kernel refuses.
func TestProgram(t *testing.T) {
	for arch, emulator := range map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static",
		"arm": "qemu-arm-static", "riscv64": "qemu-riscv64-static"} {
		t.Run(arch, func(t *testing.T) {
			code, _ := program(arch)
			file := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(file, code, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(file)
			if arch != goruntime.GOARCH {
				path, err := exec.LookPath(emulator)
				if err != nil {
					t.Skip(&testenv.Unsupported{What: "programs for " + arch, Why: emulator + " is not installed; apt-get install qemu-user-static"})
				}
				cmd = exec.Command(path, file)
			}
			out, err := cmd.Output()
			exit, _ := errors.AsType[*exec.ExitError](err)
			switch {
			case exit != nil && unix.Errno(exit.ExitCode()) == unix.EINVAL && arch != goruntime.GOARCH && len(out) == 0:
			case err != nil || len(out) != 1:
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	if _, ok := program("mips"); ok {
		t.Error("there is one for mips")
	}
}

func BenchmarkOpen(b *testing.B) {
	ballast := make([]byte, 64<<20) // an agent's memory, of which a fork copies the tables
	for i := range ballast {
		ballast[i] = 1
	}
	for b.Loop() {
		ns, err := Open(users)
		if err != nil {
			b.Fatal(err)
		}
		ns.Close()
	}
	if ballast[0] == 0 {
		b.Fatal()
	}
}

// A namespace belongs to its own root, for whom the kernel counts what is used in it, and not to the host's.
func TestOwner(t *testing.T) {
	owner, err := unix.IoctlGetInt(int(opened(t).Fd()), unix.NS_GET_OWNER_UID)
	if err != nil || uint32(owner) != users.First {
		t.Errorf("it belongs to user %d, %v", owner, err)
	}
}
