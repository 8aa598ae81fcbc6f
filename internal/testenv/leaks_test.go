//go:build linux

package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m, Options{NetNS: true})) }

// found looks without patience, because the leak is there.
func found(list []string, part string) bool {
	for _, s := range list {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

func TestLeaksAreFound(t *testing.T) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); <-stop }()
	if !found(Goroutines(), "TestLeaksAreFound") {
		t.Error("a goroutine was not found")
	}
	close(stop)
	<-done

	before := Descriptors()
	file := filepath.Join(t.TempDir(), "open")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if !found(NewDescriptors(before), file) {
		t.Error("a descriptor was not found")
	}
	f.Close()
	if left := NewDescriptors(before); len(left) != 0 {
		t.Error(left)
	}

	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if !found(Processes(os.Getenv(runVar)), "sleep 600") {
		t.Error("a process was not found")
	}
	child.Process.Kill()
	child.Wait()

	dir := t.TempDir()
	at := filepath.Join(dir, "m")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if !found(Mounts(dir), at) {
		t.Error("a mount was not found")
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		make, remove []string
		find         func() []string
	}{
		{[]string{"ip", "link", "add", "leak0", "type", "veth", "peer", "name", "leak1"}, []string{"ip", "link", "del", "leak0"}, Interfaces},
		{[]string{"nft", "add", "table", "inet", "leak"}, []string{"nft", "delete", "table", "inet", "leak"}, Tables},
	} {
		if out, err := exec.Command(c.make[0], c.make[1:]...).CombinedOutput(); err != nil {
			t.Fatal(string(out))
		}
		if !found(c.find(), "leak") {
			t.Errorf("%v was not found", c.make)
		}
		if out, err := exec.Command(c.remove[0], c.remove[1:]...).CombinedOutput(); err != nil {
			t.Fatal(string(out))
		}
	}
}
