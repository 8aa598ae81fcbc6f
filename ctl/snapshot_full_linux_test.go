package ctl

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sealing "filippo.io/age"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
)

// smallDisk gives a file system of a megabyte, with room for seven files.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=8"); err != nil { // it has an inode itself
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// filesIn gives the content of each file of a directory.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range list {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(data)
	}
	return all
}

// TestExportToFullDisk writes snapshots to a disk that is full, or becomes full on the way: the error says so, nothing new is left there,
// and an older file of the same name stays as it is. Once there is room, the same command succeeds.
func TestExportToFullDisk(t *testing.T) {
	key, err := sealing.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := smallDisk(t)
	write := func(name string, data []byte) {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), data)
	}
	files := func() map[string]string { return filesIn(t, dir) }
	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	content := bytes.Repeat([]byte("what is in it "), 40<<10) // more than half of the disk
	name := filepath.Join(dir, "db.snapshot")
	for what, full := range map[string]func(){
		"on the way":     func() { write("others", make([]byte, 512<<10)) },
		"from the start": func() { write("others", make([]byte, 1<<20-4<<10)) }, // db.snapshot has a page
		"of names": func() {
			for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
				write(n, nil)
			}
		},
	} {
		for protected, to := range map[string][]sealing.Recipient{"plain": nil, "encrypted": {key.Recipient()}} {
			write("db.snapshot", []byte("the one of yesterday"))
			full()
			before := files()
			err := writeWhole(cmd, name, bytes.NewReader(content), to)
			if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeFull || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), "no space left on device") || !strings.Contains(e.Hint, "make room") ||
				!strings.Contains(e.Hint, "no new file") || strings.Contains(err.Error(), ".skerry-") {
				t.Errorf("full %s, %s: %v", what, protected, err)
			}
			if after := files(); len(after) != len(before) || after["db.snapshot"] != "the one of yesterday" {
				t.Errorf("full %s, %s: %d files became %d: %.40q", what, protected, len(before), len(after), after["db.snapshot"])
			}
			for n := range before {
				if err := os.Remove(filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
			}
			if err := writeWhole(cmd, name, bytes.NewReader(content), to); err != nil {
				t.Errorf("with room again, %s: %v", protected, err)
			}
			after := files()
			if got := after["db.snapshot"]; len(after) != 1 || to == nil && got != string(content) || len(got) < len(content) {
				t.Errorf("with room again, %s: %d files, one of %d bytes", protected, len(after), len(got))
			}
		}
	}
}

// TestExportToFullStandardOutput: where the shell opened the file, part of it is there, which the error says.
func TestExportToFullStandardOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := &cobra.Command{}
	cmd.SetOut(full)
	err = writeWhole(cmd, "", strings.NewReader("what is in it"), nil)
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeFull || !strings.Contains(e.Hint, "incomplete") {
		t.Errorf("a full standard output: %v", err)
	}
}

// TestImageExportToFullDisk is the same of an archive of images. What cannot be read is not said of where it was to go.
func TestImageExportToFullDisk(t *testing.T) {
	images, err := artifact.Open(t.TempDir(), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	content, folder := make([]byte, 560<<10), t.TempDir() // more than half of the disk, and it cannot be compressed
	rand.NewChaCha8([32]byte{}).Read(content)
	writeFile(t, filepath.Join(folder, "content"), content)
	if _, err := images.Build(t.Context(), artifact.BuildOptions{Source: folder, Tag: "web:1", Platform: artifact.Platform{OS: "linux",
		Arch: "amd64"}}); err != nil {
		t.Fatal(err)
	}
	cmd, dir := &cobra.Command{}, smallDisk(t)
	cmd.SetContext(t.Context())
	name := filepath.Join(dir, "web.tar")
	writeFile(t, name, []byte("the one of yesterday"))
	for what, size := range map[string]int{"on the way": 512 << 10, "from the start": 1<<20 - 4<<10} {
		others := filepath.Join(dir, "others")
		writeFile(t, others, make([]byte, size))
		err := exportTo(cmd, images, name, []string{"web:1"})
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeFull || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "no space left on device") || !strings.Contains(e.Hint, "no new file") ||
			strings.Contains(err.Error(), ".skerry-") {
			t.Errorf("full %s: %v", what, err)
		}
		if after := filesIn(t, dir); len(after) != 2 || after["web.tar"] != "the one of yesterday" {
			t.Errorf("full %s: %d files are there: %.40q", what, len(after), after["web.tar"])
		}
		if err := os.Remove(others); err != nil {
			t.Fatal(err)
		}
	}
	if err := exportTo(cmd, images, name, []string{"web:1"}); err != nil || len(filesIn(t, dir)["web.tar"]) < len(content) {
		t.Errorf("with room again: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd.SetOut(full)
	e := skerry.AsError(exportTo(cmd, images, "", []string{"web:1"}))
	if e == nil || e.Code != skerry.CodeFull || !strings.Contains(e.Hint, "incomplete") {
		t.Errorf("to a full standard output: %v", e)
	}
	if err := exportTo(cmd, images, dir, []string{"web:1"}); err == nil || strings.Contains(err.Error(), ".skerry-") {
		t.Errorf("over a directory: %v", err)
	}
	if err := exportTo(cmd, images, name, []string{"web:2"}); err == nil || strings.Contains(err.Error(), name) {
		t.Errorf("of an image that is not there: %v", err)
	}
}
