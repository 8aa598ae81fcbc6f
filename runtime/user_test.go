//go:build unix

package runtime

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLookupUser finds a user as the layers of an image together have it, and nothing outside of them.
func TestLookupUser(t *testing.T) {
	dir := t.TempDir()
	layer := func(name, passwd string) string {
		etc := filepath.Join(dir, name, "etc")
		if err := os.MkdirAll(etc, 0o755); err != nil {
			t.Fatal(err)
		}
		if passwd != "" {
			if err := os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, name)
	}
	top, base, empty := layer("top", "app:x:7:8::/:/bin/sh\n"), layer("base", "app:x:1:1::/:/bin/sh\nold:x:2:3::/:/bin/sh\n"), layer("empty", "")
	away, fifo := layer("away", ""), layer("fifo", "")
	if err := os.Symlink(filepath.Join(base, "etc/passwd"), filepath.Join(away, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(fifo, "etc/passwd"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		layers   []string
		user     string
		uid, gid uint32
		fails    bool
	}{
		{[]string{top, base}, "", 0, 0, false},
		{[]string{top, base}, "app", 7, 8, false},
		{[]string{empty, base}, "app", 1, 1, false},
		{[]string{base}, "old:9", 2, 9, false},
		{[]string{top, base}, "old", 0, 0, true}, // hidden by the layer above
		{[]string{top}, "1234:5678", 1234, 5678, false},
		{[]string{filepath.Join(dir, "none")}, "1234", 1234, 0, false},
		{[]string{away}, "app", 0, 0, true},
		{[]string{fifo, base}, "app", 0, 0, true},
	} {
		uid, gid, err := LookupUser(x.layers, x.user)
		if (err != nil) != x.fails || !x.fails && (uid != x.uid || gid != x.gid) {
			t.Errorf("%v, %q: %d:%d, %v", x.layers, x.user, uid, gid, err)
		}
	}
}
