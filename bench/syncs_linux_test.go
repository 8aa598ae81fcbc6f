package bench

import (
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// TestSyncsAreCounted: each fsync of a process counts, by whichever of its threads, and a write alone does not.
func TestSyncsAreCounted(t *testing.T) {
	s, err := countSyncs([]int{os.Getpid()})
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "counting system calls", Why: err.Error()})
	}
	defer s.close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const want = 5.0
	done := make(chan error)
	for range int(want) {
		go func() {
			_, err := f.WriteString("x")
			if err == nil {
				err = f.Sync()
			}
			done <- err
		}()
	}
	for range int(want) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.count(); got != want || err != nil {
		t.Errorf("syncs: got %v (%v), want %v", got, err, want)
	}
}
