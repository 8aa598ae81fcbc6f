package devices

import (
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A node that is no camera captures nothing, and only a character device has a number. The request to the kernel has
// the size of its answer in it.
func TestNodes(t *testing.T) {
	tree := Host("", "")
	for _, node := range []string{"/dev/null", "/dev/nonesuch", t.TempDir()} {
		if tree.Captures(node) {
			t.Errorf("%s captures, want that it does not", node)
		}
	}
	if got, err := tree.Number("/dev/null"); err != nil || got != "1:3" {
		t.Errorf("the number of /dev/null is %q (%v), want 1:3", got, err)
	}
	block := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{block, "/dev/nonesuch", "/etc/hostname"} {
		if got, err := tree.Number(node); err == nil {
			t.Errorf("%s has the number %q, want none", node, got)
		}
	}
	if got, want := unsafe.Sizeof(v4lCapability{}), uintptr(vidiocQuerycap>>16&0x3fff); got != want {
		t.Errorf("an answer has %d bytes, want %d", got, want)
	}
}

// A camera that only one may open is there while an instance has it open. Each is asked once, but for such ones.
func TestBusyCamera(t *testing.T) {
	asked, answer, why := 0, false, error(unix.EBUSY)
	is := capturing(func(string) (bool, error) {
		asked++
		return answer, why
	})
	want := func(what string, captures bool, times int) {
		t.Helper()
		if got := is("/dev/null"); got != captures || asked != times {
			t.Errorf("%s: it captures: %v, asked %d times; want %v, %d times", what, got, asked, captures, times)
		}
	}
	want("in use", true, 1)
	want("in use still", true, 2)
	why = unix.ENODEV
	want("being pulled out", false, 3)
	answer, why = true, nil
	want("free", true, 4)
	answer = false
	want("known", true, 4)
}
