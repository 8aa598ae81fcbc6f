//go:build linux

package lease

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The moment of the last contact is known to the next agent of this boot, and to no other.
func TestContact(t *testing.T) {
	f, err := NewContact(filepath.Join(t.TempDir(), "run", "contact"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Read(); ok {
		t.Error("known before it was written")
	}
	if err := f.Write(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	ago, ok := f.Read()
	if !ok || ago < 90*time.Second || ago > 150*time.Second {
		t.Errorf("%v ago, %v", ago, ok)
	}
	other := *f
	other.boot = "another"
	if _, ok := other.Read(); ok {
		t.Error("taken over from an earlier boot")
	}
	for _, bad := range []string{"", "x", f.boot, f.boot + " -5", f.boot + " 99999999999999999999", f.boot + " 9000000000000000000"} {
		if err := os.WriteFile(f.Path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if ago, ok := f.Read(); ok {
			t.Errorf("%q is taken for %v", bad, ago)
		}
	}
}
