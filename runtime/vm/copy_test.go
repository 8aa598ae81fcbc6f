//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/runtime/vm/wire"
)

// TestCopier sends a directory and a file, then only what has changed, and what is gone after what was in it.
func TestCopier(t *testing.T) {
	dir := t.TempDir()
	shared, single := filepath.Join(dir, "shared"), filepath.Join(dir, "single")
	large := strings.Repeat("0123456789abcdef", 1<<16)
	err := errors.Join(os.MkdirAll(filepath.Join(shared, "sub"), 0o750),
		os.WriteFile(filepath.Join(shared, "sub", "a"), []byte("text"), 0o640),
		os.WriteFile(filepath.Join(shared, "empty"), nil, 0o644), os.Symlink("/etc/passwd", filepath.Join(shared, "out")),
		syscall.Mkfifo(filepath.Join(shared, "pipe"), 0o644), os.WriteFile(single, []byte(large), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	got := map[string]string{}
	broken := errors.New("broken")
	var fails error
	c := &copier{[]share{{Source: shared, Name: "0"}, {Source: single, Name: "1"}}, func(k wire.Kind, data []byte) error {
		var f wire.File
		if k != wire.KindFile || len(data) > wire.MaxData || wire.Decode(data, &f) != nil {
			t.Errorf("kind %d with %d bytes", k, len(data))
		}
		if f.Offset == 0 {
			said = append(said, fmt.Sprintf("%s %o", f.Path, f.Mode))
			got[f.Path] = ""
		}
		if int(f.Offset) != len(got[f.Path]) {
			t.Errorf("%s goes on at %d, not %d", f.Path, f.Offset, len(got[f.Path]))
		}
		got[f.Path] += f.Data
		return fails
	}, nil, map[string]stamp{}}
	round := func(want ...string) {
		t.Helper()
		said = nil
		if err := c.round(); err != nil {
			t.Fatal(err)
		}
		if strings.Join(said, "\n") != strings.Join(want, "\n") {
			t.Errorf("it sent %q", said)
		}
	}
	round("0 40750", "0/empty 100644", "0/out 120777", "0/sub 40750", "0/sub/a 100640", "1 100600")
	if got["0/sub/a"] != "text" || got["0/out"] != "/etc/passwd" || got["1"] != large {
		t.Errorf("%q, %q, %d bytes", got["0/sub/a"], got["0/out"], len(got["1"]))
	}
	round()
	if err := os.WriteFile(single, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	round("1 100600")
	if got["1"] != "short" {
		t.Errorf("%q", got["1"])
	}
	if err := os.RemoveAll(filepath.Join(shared, "sub")); err != nil {
		t.Fatal(err)
	}
	round("0/sub/a 0", "0/sub 0")
	if err := os.Truncate(single, int64(copyMax)+1); err != nil {
		t.Fatal(err)
	}
	if err := c.round(); err == nil || !strings.Contains(err.Error(), "mounts[1].source") {
		t.Errorf("too much: %v", err)
	}
	if err := os.WriteFile(single, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails = broken
	if err := c.round(); !errors.Is(err, errGuestGone) {
		t.Errorf("nobody listens: %v", err)
	}
}
