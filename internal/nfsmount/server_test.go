//go:build linux

package nfsmount

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

var exported = flag.String("exported", "", "directory that an NFS server of this machine exports at 127.0.0.1; e2e/guest sets it")

// TestRealServer mounts what a server really exports, and has the server vanish while a process writes. It runs in the guest of e2e/guest.
func TestRealServer(t *testing.T) {
	if *exported == "" {
		t.Skip(&testenv.Unsupported{What: "an NFS server", Why: "-exported names no directory; e2e/guest TestNFS does"})
	}
	dir := t.TempDir()
	helper := Helper{os.Args[0], "helper"}
	table := New(filepath.Join(dir, "nfs"), filepath.Join(dir, "instances", "*", "nfs", "*"), helper)
	record := func(name string) string { return filepath.Join(dir, "instances", name, "nfs", "v") }
	defer func() {
		if err := table.Clean(context.Background()); err != nil {
			t.Errorf("clean: %v", err)
		}
	}()
	volume := &spec.NFSVolume{Server: "127.0.0.1", Path: *exported}
	for _, name := range []string{"a", "b"} {
		if err := table.Mount(t.Context(), volume, record(name)); err != nil {
			t.Fatalf("mount for %s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(At(table.dir, volume), "said"), []byte("hello"), 0o644); err != nil {
		t.Fatalf("write: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(*exported, "said")); err != nil || string(got) != "hello" {
		t.Errorf("the server has %q, %v, want hello", got, err)
	}
	readOnly := &spec.NFSVolume{Server: "127.0.0.1", Path: *exported, Version: "4.1", Options: []string{"hard", "noatime"}, ReadOnly: true}
	if err := table.Mount(t.Context(), readOnly, record("c")); err != nil {
		t.Fatalf("mount to read: %v", err)
	}
	if err := os.WriteFile(filepath.Join(At(table.dir, readOnly), "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to what is to be read: %v, want %v", err, unix.EROFS)
	}
	refused := new(Refused)
	err := table.Mount(t.Context(), &spec.NFSVolume{Server: "127.0.0.1", Path: *exported + "/none"}, record("d"))
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "no such path") {
		t.Errorf("a path that is not exported: %v, want a refusal", err)
	}
	linked(t, table, record("d"))
	// The agent restarts, and one of two ends.
	table = New(table.dir, table.records, helper)
	gone(t, record("a"))
	if err := table.Sweep(t.Context()); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if _, err := os.Stat(filepath.Join(At(table.dir, volume), "said")); err != nil {
		t.Errorf("what another still has: %v", err)
	}
	vanish(t, table, volume, record("b"))
}

// linked mounts a directory of the export, and refuses a link to it.
func linked(t *testing.T, table *Table, record string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(*exported, "below"), 0o755); err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	if err := os.Symlink(filepath.Join(*exported, "below"), filepath.Join(*exported, "link")); err != nil {
		t.Fatalf("make a link: %v", err)
	}
	elsewhere := new(Elsewhere)
	err := table.Mount(t.Context(), &spec.NFSVolume{Server: "127.0.0.1", Path: *exported + "/link"}, record)
	if !errors.As(err, &elsewhere) || elsewhere.Is != "127.0.0.1:"+*exported+"/below" {
		t.Errorf("a link of the server's: %v, want a refusal that says where it leads", err)
	}
	if err := table.Mount(t.Context(), &spec.NFSVolume{Server: "127.0.0.1", Path: *exported + "/below"}, record); err != nil {
		t.Errorf("a directory below the export: %v", err)
	}
}

// vanish drops what is sent to the server, under a process that writes.
func vanish(t *testing.T, table *Table, volume *spec.NFSVolume, record string) {
	t.Helper()
	nft := func(rules string) {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	}
	writer := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(At(table.dir, volume), "much"), "bs=64k", "oflag=sync")
	if err := writer.Start(); err != nil {
		t.Fatalf("start a writer: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- writer.Wait() }()
	nft("add table inet gone\nadd chain inet gone in { type filter hook input priority 0; }\nadd rule inet gone in tcp dport 2049 drop\n")
	late := new(NoAnswer)
	if err := table.Mount(t.Context(), volume, record); !errors.As(err, &late) {
		t.Errorf("mount while the server is away: %v, want that it does not answer", err)
	}
	if err := writer.Process.Kill(); err != nil {
		t.Errorf("kill the writer: %v", err)
	}
	<-ended // a server that hangs keeps nobody alive
	gone(t, record)
	if err := table.Sweep(t.Context()); err != nil {
		t.Errorf("unmount while the server is away: %v", err)
	}
	list, err := table.system.Mounts()
	if at := At(table.dir, volume); err != nil || isMounted(list, at) {
		t.Errorf("%s is still mounted (%v), want it gone while the server is away", at, err)
	}
	nft("delete table inet gone\n")
	if err := table.Mount(t.Context(), volume, record); err != nil {
		t.Errorf("mount when the server is back: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(At(table.dir, volume), "said")); err != nil || string(got) != "hello" {
		t.Errorf("what was acknowledged before: %q, %v, want hello", got, err)
	}
}
