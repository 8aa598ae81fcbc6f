//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// listened has a copier write down what it sends.
func listened(shares ...share) func() ([]string, error) {
	var said []string
	c := &copier{shares, func(_ wire.Kind, data []byte) error {
		var f wire.File
		_ = wire.Decode(data, &f)
		said = append(said, fmt.Sprintf("%s %o %s", f.Path, f.Mode, f.Data))
		return nil
	}, nil, map[string]stamp{}}
	return func() ([]string, error) {
		said = nil
		err := c.round()
		return said, err
	}
}

// TestCopierOfWhatChangesItsKind takes away first what has become something else: through a link that is now a directory, the guest would
// write to, and give away, whatever the link leads to.
func TestCopierOfWhatChangesItsKind(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	round := listened(share{Source: dir, Name: "0"})
	for _, step := range []struct {
		does func() error
		says []string
	}{
		{func() error { return errors.Join(os.Chmod(dir, 0o755), os.Symlink("../1", at)) }, []string{"0 40755 ", "0/a 120777 ../1"}},
		{func() error {
			return errors.Join(os.Remove(at), os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "b"), []byte("text"), 0o600))
		}, []string{"0/a 0 ", "0/a 40700 ", "0/a/b 100600 text"}},
		{func() error { return errors.Join(os.RemoveAll(at), os.WriteFile(at, []byte("file"), 0o600)) },
			[]string{"0/a/b 0 ", "0/a 0 ", "0/a 100600 file"}},
		{func() error { return errors.Join(os.Remove(at), os.Mkdir(at, 0o700)) }, []string{"0/a 0 ", "0/a 40700 "}},
	} {
		if err := step.does(); err != nil {
			t.Fatal(err)
		}
		if says, err := round(); err != nil || !slices.Equal(says, step.says) {
			t.Errorf("it sent %q, %v; not %q", says, err, step.says)
		}
	}
}

// TestCopierOfBadShare goes on with the others when one cannot be copied any more, and keeps what the guest has of it.
func TestCopierOfBadShare(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad"), filepath.Join(dir, "good")
	names := func(n int) error {
		for i := range n {
			if err := os.WriteFile(filepath.Join(bad, fmt.Sprint(i)), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(os.Mkdir(bad, 0o700), names(1), os.WriteFile(good, []byte("first"), 0o600)); err != nil {
		t.Fatal(err)
	}
	round := listened(share{Source: bad, Name: "0"}, share{Source: good, Name: "1"})
	if _, err := round(); err != nil {
		t.Fatal(err)
	}
	for step, spoil := range []func() error{
		func() error { return os.Truncate(filepath.Join(bad, "0"), int64(copyMax)) },
		func() error { return errors.Join(os.Truncate(filepath.Join(bad, "0"), 0), names(copyNames)) },
		func() error {
			return errors.Join(os.RemoveAll(bad), os.MkdirAll(filepath.Join(bad, strings.Repeat("d/", copyDeepest+2)), 0o700))
		},
		func() error { return errors.Join(os.RemoveAll(bad), syscall.Mkfifo(bad, 0o600)) },
		func() error { return os.Remove(bad) },
	} {
		now := fmt.Sprint("now ", step)
		if err := errors.Join(spoil(), os.WriteFile(good, []byte(now), 0o600)); err != nil {
			t.Fatal(err)
		}
		says, err := round()
		if err == nil || !strings.HasPrefix(err.Error(), "mounts[0].source: ") || !slices.Contains(says, "1 100600 "+now) {
			t.Errorf("%d: it sent %q, %v", step, says, err)
		}
		if slices.ContainsFunc(says, func(s string) bool { return strings.Contains(s, " 0 ") }) {
			t.Errorf("%d: it took away %q", step, says)
		}
	}
}
