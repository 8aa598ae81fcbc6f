//go:build linux

package diskuse

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func measure(t *testing.T, dir string, most Use) Use {
	t.Helper()
	u, err := Of([]string{dir}, nil, []int{os.Getpid()}, most)
	must(t, err)
	return u
}

func TestOf(t *testing.T) {
	dir := t.TempDir()
	empty := measure(t, dir, Use{})
	if empty.Over(Use{Bytes: 1, Files: 1}) {
		t.Fatalf("empty: %+v", empty)
	}
	file := filepath.Join(dir, "a")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	must(t, os.Link(file, filepath.Join(dir, "b")))
	if u := measure(t, dir, Use{}); u.Bytes != 1<<20 || u.Files != 2 {
		t.Errorf("one file with two names: %+v", u)
	}
	if u := measure(t, file, Use{}); u.Bytes != 1<<19 || u.Files != 1 {
		t.Errorf("a file: %+v", u)
	}
	// A link leads nowhere, and a hole takes nothing.
	must(t, os.Symlink("/", filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "hole"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, "hole"), 1<<40))
	if u := measure(t, dir, Use{}); u.Bytes > 1<<20+8192 || u.Files != 4 {
		t.Errorf("with a link and a hole: %+v", u)
	}
	// What was deleted takes its room as long as a process holds it, by a descriptor or a mapping.
	f, err := os.Open(file)
	must(t, err)
	must(t, os.Remove(file))
	must(t, os.Remove(filepath.Join(dir, "b")))
	if u := measure(t, dir, Use{}); u.Bytes < 1<<20 {
		t.Errorf("deleted and open: %+v", u)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	f.Close()
	if u := measure(t, dir, Use{}); u.Bytes < 1<<20 {
		t.Errorf("deleted and mapped: %+v", u)
	}
	must(t, unix.Munmap(mem))
	if u := measure(t, dir, Use{}); u.Bytes > 8192 {
		t.Errorf("gone: %+v", u)
	}
}

// TestHostileDirectories: many files and deep directories are too much, and are not looked at to the end.
func TestHostileDirectories(t *testing.T) {
	dir := t.TempDir()
	for k := range 3000 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), nil, 0o600))
	}
	if u := measure(t, dir, Use{Files: 100}); !u.Over(Use{Files: 100}) || u.Files > 101 {
		t.Errorf("many: %+v", u)
	}
	deep, err := unix.Open(t.TempDir(), unix.O_DIRECTORY, 0)
	must(t, err)
	top, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", deep))
	must(t, err)
	for range 2 * maxDepth {
		must(t, unix.Mkdirat(deep, "d", 0o700))
		next, err := unix.Openat(deep, "d", unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(deep)
		deep = next
	}
	unix.Close(deep)
	if u := measure(t, top, Use{Bytes: 1 << 30}); !u.Over(Use{Bytes: 1 << 30}) {
		t.Errorf("deep: %+v", u)
	}
}
