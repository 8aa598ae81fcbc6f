//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
)

// A full disk at the root: new work is refused, what runs goes on and is shown, and the root recovers by itself.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	s := newSiteAt(t, map[string]string{"root": filepath.Join(disk, "root")})
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.do(app("shop", service("web", "test/catalog:1")))
	s.await("it is ready", s.ready(1))
	before := s.pids()

	fill := filepath.Join(disk, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<16); ; {
		if _, err := f.Write(chunk); err != nil {
			if chunk = chunk[:len(chunk)/2]; len(chunk) == 0 {
				break
			}
		}
	}
	f.Close()
	scale := apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: 2}
	s.await("new work is refused", func() bool {
		scale.Replicas++ // a write that fits into what SQLite has left may still succeed
		_, err := s.Root.Do(context.Background(), scale)
		if err == nil {
			return false
		}
		e := skerry.AsError(err)
		if e.Code != skerry.CodeFull || e.Hint == "" {
			t.Fatalf("%+v", e)
		}
		return true
	})
	if _, err := s.Root.Apps(t.Context()); err != nil {
		t.Errorf("readers are not answered: %v", err)
	}
	s.await("the root says that it is not ready", func() bool { return s.Root.Ready() != nil })
	for id, pid := range s.pids() {
		if before[id] != 0 && before[id] != pid {
			t.Errorf("%s was restarted", id)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	s.await("work is taken again", func() bool {
		scale.Replicas = 1
		_, err := s.Root.Do(context.Background(), scale)
		return err == nil
	})
	s.await("one instance is left", s.ready(1))
	for id, pid := range s.pids() {
		if before[id] == pid {
			return
		}
		t.Logf("%s runs as %d", id, pid)
	}
	t.Error("the first instance did not live through it")
}
