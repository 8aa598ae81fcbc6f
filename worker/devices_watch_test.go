//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWatchDirs follows directories that are made, moved and removed with what they are in: each change that a look would find ends a wait,
// and what others do nearby does not.
func TestWatchDirs(t *testing.T) {
	base := t.TempDir()
	in := func(p string) string { return filepath.Join(base, p) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(p string) { t.Helper(); must(os.MkdirAll(in(p), 0o755)) }
	write := func(p string) { t.Helper(); must(os.WriteFile(in(p), []byte("x"), 0o644)) }
	link := func(to, p string) { t.Helper(); must(os.Symlink(in(to), in(p))) }
	remove := func(p string) { t.Helper(); must(os.RemoveAll(in(p))) }
	rename := func(from, to string) { t.Helper(); must(os.Rename(in(from), in(to))) }
	mkdir("etc")
	mkdir("elsewhere/cdi")
	mkdir("dev")
	link("elsewhere", "run")
	read, listed := []string{in("etc/cdi"), in("run/cdi")}, []string{in("dev/serial/by-id"), in("dev/serial/by-path"), in("dev/v4l/by-id")}
	for _, step := range []struct {
		what string
		seen bool
		do   func()
	}{
		{"a file beside a directory that is to come", false, func() { write("etc/other") }},
		{"the directory comes", true, func() { mkdir("etc/cdi") }},
		{"a description", true, func() { write("etc/cdi/a.json") }},
		{"it is written again", true, func() { write("etc/cdi/a.json") }},
		{"it is replaced", true, func() { write("etc/new"); rename("etc/new", "etc/cdi/a.json") }},
		{"a file above a directory that is watched", false, func() { write("etc/again") }},
		{"a description goes", true, func() { remove("etc/cdi/a.json") }},
		{"the directory goes", true, func() { remove("etc/cdi") }},
		{"a file is in its place", true, func() { write("etc/cdi") }},
		{"the file goes", true, func() { remove("etc/cdi") }},
		{"behind a link", true, func() { write("elsewhere/cdi/b.json") }},
		{"the first device in a place of several", true, func() { mkdir("dev/serial/by-id") }},
		{"its name", true, func() { link("dev/tty", "dev/serial/by-id/plc") }},
		{"the other place", true, func() { mkdir("dev/serial/by-path") }},
		{"a device that has no place", false, func() { write("dev/tty") }},
		{"a device is used", false, func() { write("dev/serial/by-id/plc") }},
		{"the name goes", true, func() { remove("dev/serial/by-id/plc") }},
		{"both places go", true, func() { remove("dev/serial") }},
		{"one comes back", true, func() { mkdir("dev/serial/by-path") }},
		{"the directory is moved away", true, func() { rename("dev/serial/by-path", "dev/gone") }},
		{"and back", true, func() { rename("dev/gone", "dev/serial/by-path") }},
		{"another", true, func() { mkdir("dev/v4l") }},
	} {
		w, err := watchDirs(read, listed)
		must(err)
		step.do()
		if step.seen {
			w.wait(t.Context(), time.Hour) // or the test does not end
		} else {
			must(w.file.SetReadDeadline(time.Now()))
			buf := make([]byte, 4096)
			if n, err := w.file.Read(buf); err == nil && w.concerns(buf[:n]) {
				t.Errorf("%s: it was taken for a change", step.what)
			}
		}
		w.close()
	}
}

// TestWatchDirsAgrees has a watch that was made while directories come and go see what a look after it does not.
func TestWatchDirsAgrees(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serial", "by-id")
	made := make(chan struct{})
	go func() {
		defer close(made)
		for range 200 {
			os.RemoveAll(filepath.Dir(dir))
			os.MkdirAll(dir, 0o755)
		}
		os.WriteFile(filepath.Join(dir, "last"), nil, 0o644)
	}()
	for {
		w, err := watchDirs(nil, []string{dir})
		if err != nil {
			t.Fatal(err)
		}
		if list, _ := os.ReadDir(dir); len(list) == 1 {
			w.close()
			break
		}
		w.wait(t.Context(), time.Hour)
		w.close()
	}
	<-made
}
