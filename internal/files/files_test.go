package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
