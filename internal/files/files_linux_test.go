package files

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// A program that was just written starts, whatever else the process starts meanwhile. Written like any other file, it fails with
// "text file busy" in some of a hundred rounds: a child that was forked meanwhile has it open until it executes its own program.
func TestProgramStartsAtOnce(t *testing.T) {
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	defer others.Wait()
	defer close(stop)
	path := filepath.Join(t.TempDir(), "program")
	for n := range 100 {
		if err := Program(path, bytes.NewReader(data), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(path).Run(); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
	}
}
