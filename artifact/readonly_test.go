//go:build linux

package artifact

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOpenReadOnlyOfEarlierVersion: the store of an earlier version opens on a disk that nothing can be written to, and its images are
// there: a worker that starts after an upgrade still has what its instances run.
func TestOpenReadOnlyOfEarlierVersion(t *testing.T) {
	dir := mountTmpfs(t, "8m")
	s, err := Open(filepath.Join(dir, "images"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	host := startHandler(t, &Handler{Store: s, Registry: "r.skerry", Authorize: allow})
	if _, err := pushImage(t, host, "team/app:1", 1, 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.dir, "blobs", "sha512")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, err = Open(filepath.Join(dir, "images"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.lock.Close()
	if list := s.List(); len(list) != 2 || list[0].Broken != "" {
		t.Errorf("it has %+v", list)
	}
	if blobs, err := blobsOf(s); err != nil || len(blobs) == 0 {
		t.Errorf("%d blobs: %v", len(blobs), err)
	}
}
