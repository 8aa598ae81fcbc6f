package files

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that is kept reads as os reads it, each time, whatever room there is at first, also one that the kernel gives page by page.
func TestKept(t *testing.T) {
	long := 0
	for _, path := range []string{"/proc/crypto", "/proc/devices", "/proc/misc", "/proc/filesystems", "/proc/self/limits"} {
		want, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		k, err2 := Keep(path)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if len(want) > 8<<10 { // two pages
			long++
		}
		for _, room := range []int{1, 128, shortest, 4 << 10, len(want), len(want) + 1, 64 << 10} {
			for range 2 {
				if got, err := k.Read(make([]byte, room)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s with room for %d: %d bytes, %v, want %d", path, room, len(got), err, len(want))
				}
			}
			head, err := k.Head(make([]byte, room))
			if err != nil || len(head) < min(room, 64, len(want)) || !bytes.HasPrefix(want, head) {
				t.Errorf("the head of %s, of %d bytes: %q, %v", path, room, head, err)
			}
		}
		if got, err := Peek(path, make([]byte, 16)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("once, %s: %d bytes, %v", path, len(got), err)
		}
	}
	if long == 0 {
		t.Log("this kernel has no long file that stays the same")
	}
}

// Closed, it has no descriptor, and does nothing to one that another file has got since.
func TestKeptClosed(t *testing.T) {
	k, err := Keep("/proc/self/limits")
	if err != nil || !k.Open() {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil || k.Open() {
		t.Fatal(err)
	}
	other, err := os.Open("/proc/self/limits") // by the same number, mostly
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := k.Read(nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("reading gives %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fmt.Fscan(other, new(string)); err != nil {
		t.Errorf("the other file: %v", err)
	}
}
