package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Beside has scripts/beside fetch a program, and gives the directory that it is in; "" where it cannot be had. root is the way to
// the repository's top from the package of the test.
func Beside(t testing.TB, root, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if cache, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(cache, "skerry", name)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "beside"), name, dir).CombinedOutput(); err != nil {
		t.Logf("there is no %s: %v: %s", name, err, out)
		return ""
	}
	return dir
}
