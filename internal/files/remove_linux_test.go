package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
