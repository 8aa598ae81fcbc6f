package files

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

// A file that is swapped is not written to the disk for that, however often.
func TestSwapWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &fs); err != nil || fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip(&testenv.Unsupported{What: "seeing what is on the disk", Why: "it is asked of ext4 alone"})
	}
	for n := range 3 {
		if err := Swap(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var m struct { // struct fiemap and one struct fiemap_extent
			start, length           uint64
			flags, mapped, count, _ uint32
			_                       [5]uint64
			extent, _, _, _         uint32
		}
		m.length, m.count = 1<<20, 1
		const fiemap, delayed = 0xc020660b, 0x4
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&m))); e != 0 {
			t.Fatalf("ask where the file is: %v", e)
		}
		if m.mapped != 1 || m.extent&delayed == 0 {
			t.Errorf("after %d times it has %d extents, flags %#x: it has a place on the disk", n+1, m.mapped, m.extent)
		}
	}
}

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
