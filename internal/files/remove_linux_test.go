package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
)

func TestRemoveTree(t *testing.T) {
	none := func(at string) error { return fmt.Errorf("%s is a mount point", at) }
	outside := filepath.Join(t.TempDir(), "outside")
	root := filepath.Join(t.TempDir(), "root")
	deep := filepath.Join(root, strings.Repeat("d/", 200))
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.MkdirAll(deep, 0o700),
		os.Symlink(filepath.Dir(outside), filepath.Join(root, "link")), os.MkdirAll(filepath.Join(root, "empty"), 0)); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // more than are read at once
		if err := os.WriteFile(filepath.Join(root, "d", fmt.Sprint(i)), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := RemoveTree(root, none); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("it is still there: %v", err)
		}
	}
	if err := RemoveTree(filepath.Join(root, "no", "such"), none); err != nil {
		t.Error(err)
	}
	if err := RemoveTree(outside, none); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// What is mounted in a tree is never removed with it: not that of another file system, not that of the same, not a file, not what lies
// below another mount.
func TestRemoveTreeLeavesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	dir := t.TempDir()
	other, root := filepath.Join(dir, "other"), filepath.Join(dir, "root")
	precious := filepath.Join(other, "precious")
	at := func(name string) string { return filepath.Join(root, name) }
	thread.Run(func() {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			os.MkdirAll(other, 0o700), os.WriteFile(precious, []byte("kept"), 0o600), os.MkdirAll(at("a/bind"), 0o700),
			os.WriteFile(at("a/file"), nil, 0o600), os.MkdirAll(at("memory"), 0o700), os.WriteFile(at("z"), nil, 0o600),
			unix.Mount(other, at("a/bind"), "", unix.MS_BIND, ""), unix.Mount(precious, at("a/file"), "", unix.MS_BIND, ""),
			unix.Mount("tmpfs", at("memory"), "tmpfs", 0, ""), os.Mkdir(at("memory/more"), 0o700),
			unix.Mount(other, at("memory/more"), "", unix.MS_BIND, ""), unix.Mount(other, at("memory/more"), "", unix.MS_BIND, "")); err != nil {
			t.Error(err)
			return
		}
		refused := errors.New("refused")
		if err := RemoveTree(root, func(string) error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a tree with mounts was removed: %v", err)
		}
		var were []string
		err := RemoveTree(root, func(at string) error {
			were = append(were, at)
			return unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		})
		if err != nil || len(were) != 3 {
			t.Errorf("%v; mounts were at %v; expected three", err, were)
		}
		if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
		if data, err := os.ReadFile(precious); err != nil || string(data) != "kept" {
			t.Errorf("what was mounted was removed: %q, %v", data, err)
		}
	})
}

// What is mounted while a tree is removed is left alone, and so is what is in it.
func TestRemoveTreeMeetsMounts(t *testing.T) {
	inOwnMounts(t, func() {
		dir := t.TempDir()
		other, root := filepath.Join(dir, "other"), filepath.Join(dir, "root")
		at, precious := filepath.Join(root, "at"), filepath.Join(other, "precious")
		namespace, err := os.Open("/proc/thread-self/ns/mnt")
		if err := errors.Join(err, os.Mkdir(other, 0o700), os.WriteFile(precious, nil, 0o600)); err != nil {
			t.Error(err)
			return
		}
		defer namespace.Close()
		stop := make(chan struct{})
		var mounting sync.WaitGroup
		mounting.Go(func() {
			thread.Run(func() {
				if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)); err != nil {
					t.Error(err)
					return
				}
				for {
					select {
					case <-stop:
						return
					default:
					}
					if unix.Mount(other, at, "", unix.MS_BIND, "") == nil {
						time.Sleep(rand.N(200 * time.Microsecond)) // so that a removal meets it
						_ = unix.Unmount(at, unix.MNT_DETACH)
					}
				}
			})
		})
		refused := errors.New("refused")
		met := 0
		for rounds := 0; rounds < testenv.Times(1000, 20000) || met == 0; rounds++ {
			if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, "file"), nil, 0o600)); err != nil {
				continue // it was just mounted there, or is removed
			}
			if errors.Is(RemoveTree(root, func(string) error { return refused }), refused) {
				met++
			}
			if _, err := os.Lstat(precious); err != nil {
				t.Errorf("what was mounted was removed: %v", err)
				break
			}
		}
		close(stop)
		mounting.Wait()
	})
}

// Both ways to open a directory open none that is mounted, of the same file system or another.
func TestOpenUnmounted(t *testing.T) {
	inOwnMounts(t, func() {
		dir := t.TempDir()
		for _, name := range []string{"plain", "bound", "memory"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Error(err)
			}
		}
		parent, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err := errors.Join(err, unix.Mount(filepath.Join(dir, "plain"), filepath.Join(dir, "bound"), "", unix.MS_BIND, ""),
			unix.Mount("tmpfs", filepath.Join(dir, "memory"), "tmpfs", 0, ""), os.Symlink("plain", filepath.Join(dir, "link"))); err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(parent)
		for how, open := range map[string]func(int, string) (int, error){"openat2": openUnmounted, "compared": openCompared} {
			for name, want := range map[string]error{"plain": nil, "bound": errMounted, "memory": errMounted, "link": unix.ENOTDIR,
				"none": unix.ENOENT} {
				fd, err := open(parent, name)
				if !errors.Is(err, want) {
					t.Errorf("%s, %s: %v; expected %v", how, name, err, want)
				}
				if err == nil {
					unix.Close(fd)
				}
			}
		}
	})
}

// A tree that is deeper than files may be open, with names that are as long as they may be, is removed with few open files and little
// memory. What is mounted deep down in it is left alone, and names that are in the way hinder nobody.
func TestRemoveTreeHoweverDeep(t *testing.T) {
	inOwnMounts(t, func() {
		dir := t.TempDir()
		other, root := filepath.Join(dir, "other"), filepath.Join(dir, "root")
		precious := filepath.Join(other, "precious")
		if err := errors.Join(os.MkdirAll(filepath.Join(root, ".lifted-1"), 0o700), os.WriteFile(filepath.Join(root, ".lifted-2"), nil, 0o600),
			os.WriteFile(filepath.Join(root, ".lifted-1/full"), nil, 0o600), os.Mkdir(other, 0o700), os.WriteFile(precious, nil, 0o600),
			unix.Chdir(root)); err != nil {
			t.Error(err)
			return
		}
		name := strings.Repeat("n", unix.NAME_MAX)
		const deep = 3000 // the paths of all of them are more than a gigabyte
		for n := range deep {
			if err := errors.Join(unix.Mkdir(name, 0o700), unix.Chdir(name)); err != nil {
				t.Error(err)
				return
			}
			if n == 10*maxDepth+5 {
				if err := errors.Join(unix.Mkdir("at", 0o700), unix.Mount(other, "at", "", unix.MS_BIND, "")); err != nil {
					t.Error(err)
					return
				}
			}
		}
		if err := unix.Chdir("/"); err != nil {
			t.Error(err)
			return
		}
		most, were := 0, 0
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := RemoveTree(root, func(at string) error {
			open, err := os.ReadDir("/proc/self/fd")
			most = max(most, len(open))
			were++
			return errors.Join(err, unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
		})
		runtime.ReadMemStats(&after)
		if _, gone := os.Lstat(root); err != nil || !errors.Is(gone, os.ErrNotExist) {
			t.Errorf("it is still there, %v", err)
		}
		if _, err := os.Lstat(precious); err != nil || were != 1 {
			t.Errorf("%d mounts were met; what was mounted: %v", were, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 || most > 3*maxDepth {
			t.Errorf("it took %d MiB of memory in all, %d open files", took, most)
		}
	})
}

// inOwnMounts runs a test on a thread with mounts and a working directory of its own.
func inOwnMounts(t *testing.T, test func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	thread.Run(func() {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
			t.Error(err)
			return
		}
		test()
	})
}
