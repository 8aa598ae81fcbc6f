//go:build linux

package main

import (
	"os"
	"syscall"
	"testing"

	"skerry.dev/skerry/runtime/vm/wire"
)

func give(t *testing.T, f wire.File) {
	t.Helper()
	f.UID, f.GID = uint32(os.Getuid()), uint32(os.Getgid())
	if err := takeFile(wire.Encode(&f)); err != nil {
		t.Fatal(err)
	}
}

// TestTakeFile makes what the host says of its files: in parts, anew, and no more.
func TestTakeFile(t *testing.T) {
	t.Chdir(t.TempDir())
	read := func(path, want string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(path)
		st, _ := os.Stat(path)
		if err != nil || string(data) != want || st.Mode() != mode {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	dir := wire.File{Path: "0", Mode: syscall.S_IFDIR | 0o750, Last: true}
	give(t, dir)
	give(t, dir)
	give(t, wire.File{Path: "0/a", Mode: syscall.S_IFREG | 0o440, Data: "first, "})
	if _, err := os.Stat("0/a"); err == nil {
		t.Error("half a file has taken its place")
	}
	give(t, wire.File{Path: "0/a", Mode: syscall.S_IFREG | 0o440, Offset: 7, Data: "second", Last: true})
	read("0/a", "first, second", 0o440)
	open, err := os.Open("0/a")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	give(t, wire.File{Path: "0/a", Mode: syscall.S_IFREG | 0o600, Data: "new", Last: true})
	read("0/a", "new", 0o600)
	give(t, wire.File{Path: "0/link", Mode: syscall.S_IFLNK | 0o777, Data: "a", Last: true})
	read("0/link", "new", 0o600)
	// One that is mounted by itself stays the same file.
	give(t, wire.File{Path: "1", Mode: syscall.S_IFREG | 0o644, Data: "longer", Last: true})
	before, _ := os.Stat("1")
	give(t, wire.File{Path: "1", Mode: syscall.S_IFREG | 0o644, Data: "short", Last: true})
	if after, _ := os.Stat("1"); !os.SameFile(before, after) {
		t.Error("it is another file")
	}
	read("1", "short", 0o644)
	for _, path := range []string{"0/link", "0/a", "0", "0"} {
		give(t, wire.File{Path: path})
	}
	if left, _ := os.ReadDir("."); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	if takeFile([]byte("no file")) == nil {
		t.Error("it takes anything")
	}
}
