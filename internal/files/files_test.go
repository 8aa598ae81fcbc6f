package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	holds := func(want string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(path)
		st, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(data) != want || st.Mode().Perm() != mode {
			t.Errorf("it holds %q, mode %v, %v, %v; expected %q, mode %v", data, st.Mode().Perm(), err, statErr, want, mode)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("beside it is %v, %v", list, err)
		}
	}
	if err := Replace(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds("one", 0o600)
	if err := Swap(path, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	holds("two", 0o644)
	// What cannot be read to its end replaces nothing.
	broken := errors.New("broken")
	from := io.MultiReader(strings.NewReader("half"), &failing{broken})
	if err := ReplaceFrom(path, from, 0o600); !errors.Is(err, broken) {
		t.Errorf("%v; expected %v", err, broken)
	}
	holds("two", 0o644)
	if err := Replace(filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v in a folder that is not there", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// What processes have left that were killed goes when the file is replaced again; what others are writing stays, and so
// does what belongs to files with longer names.
func TestLeftOvers(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := func(name string, age time.Duration) string {
		t.Helper()
		path, then := filepath.Join(dir, name), time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, then, then)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	put := func(name string) string { return at(name, 2*leftFor) }
	mine, others := fmt.Sprintf("-%d-1", os.Getpid())+leftSuffix, fmt.Sprintf("-%d-1", os.Getppid())+leftSuffix
	ended := fmt.Sprintf("-%d-123", dead.Process.Pid)
	gone := []string{put(".file" + ended + leftSuffix)}
	stay := []string{put(".file" + mine), put(".file" + others), put(".file-5" + mine), put(".file-x"), put(".fil-1"), put("file-1"),
		put(".file" + ended), put(".file-20261126"), put(".file-2026-11"), // somebody's own
		at(".file"+fmt.Sprintf("-%d-124", dead.Process.Pid)+leftSuffix, 0)} // of a process that has this number elsewhere
	if err := Replace(filepath.Join(dir, "file"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range stay {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range gone {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
