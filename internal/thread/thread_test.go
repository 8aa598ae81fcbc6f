//go:build linux

package thread

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// TestRun: whatever thread it is called from, mounts made on such a thread are seen by nobody else, and never by the process as a whole.
func TestRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			Run(func() {
				if unix.Gettid() == unix.Getpid() {
					t.Error("the first thread was taken, which never ends: what it is in stays in use")
				}
				if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
					t.Error(err)
					return
				}
				if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
					t.Error(err)
				}
				if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "here"), nil, 0o644); err != nil {
					t.Error(err)
				}
			})
			if _, err := os.Stat(filepath.Join(dir, "here")); err == nil {
				t.Error("a mount is seen outside")
			}
		})
	}
	all.Wait()
	if after, err := os.Readlink("/proc/self/ns/mnt"); err != nil || after != before {
		t.Errorf("the process is in %s, was in %s, %v", after, before, err)
	}
}
