package ctl

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/execstream"
)

// archiveOf makes an archive of entries NAME, NAME->LINK, NAME=>HARDLINK, NAME| (a pipe), NAME/ or NAME=CONTENT.
func archiveOf(t testing.TB, entries ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		head := &tar.Header{Name: e, Typeflag: tar.TypeDir, Mode: 0o755}
		content := ""
		if name, link, ok := strings.Cut(e, "->"); ok {
			head.Name, head.Linkname, head.Typeflag = name, link, tar.TypeSymlink
		} else if name, ok := strings.CutSuffix(e, "|"); ok {
			head.Name, head.Typeflag = name, tar.TypeFifo
		} else if name, link, ok := strings.Cut(e, "=>"); ok {
			head.Name, head.Linkname, head.Typeflag = name, link, tar.TypeLink
		} else if name, text, ok := strings.Cut(e, "="); ok {
			head.Name, head.Typeflag, head.Mode, head.Size = name, tar.TypeReg, 0o6755, int64(len(text))
			content = text
		}
		if err := w.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestCopies: what is packed comes out again under another name, with links within it, and without those elsewhere.
func TestCopies(t *testing.T) {
	from := t.TempDir()
	for name, text := range map[string]string{"a": "one", "d/b": "two"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"d/up": "../a", "out": "../elsewhere", "abs": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	var archive, told bytes.Buffer
	if err := pack(&archive, from, "data", &told); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out", "abs"} {
		if !strings.Contains(told.String(), filepath.Join(from, name)+" is left out") {
			t.Errorf("%s is not told: %s", name, told.String())
		}
	}
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(root, &archive, "data", "copy", io.Discard); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"copy/a": "one", "copy/d/b": "two", "copy/d/up": "one"} {
		if text, err := os.ReadFile(filepath.Join(parent, name)); string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(parent, "copy/a")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(parent, "copy/out")); err == nil {
		t.Error("a link elsewhere was copied")
	}
}

// A file with several names is copied with all of them, which tar has as hard links.
func TestCopiesOfHardLinks(t *testing.T) {
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	archive := archiveOf(t, "./data/", "./data/d/", "./data/d/a=one", "./data/b=>./data/d/a", "./data/gone=>./data/none",
		"./data/dir=>./data/d", "./data/else=>./other/a")
	var told bytes.Buffer
	if err := unpack(root, archive, "data", "copy", &told); err != nil {
		t.Fatalf("unpack: %v", err)
	}
	for _, name := range []string{"copy/d/a", "copy/b"} {
		if text, err := os.ReadFile(filepath.Join(parent, name)); string(text) != "one" {
			t.Errorf("%s: got %q, %v; want one", name, text, err)
		}
	}
	for _, name := range []string{"copy/gone", "copy/dir", "copy/else"} {
		if !strings.Contains(told.String(), name+" is left out") {
			t.Errorf("that %s is left out is not told: %s", name, told.String())
		}
	}
}

// Where what was asked for itself is left out, nothing is copied, which is no success.
func TestNothingIsCopied(t *testing.T) {
	for _, entry := range []string{"data->/etc/localtime", "data->other", "data=>data", "data|"} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := unpack(root, archiveOf(t, entry), "data", "copy", io.Discard); err == nil {
			t.Errorf("%q: it succeeds, want an error", entry)
		}
		root.Close()
	}
	if err := pack(io.Discard, os.DevNull, "data", io.Discard); err == nil {
		t.Errorf("a device is packed, want an error")
	}
}

// TestHostileArchives: an instance cannot write beside what was asked for, whatever it sends.
func TestHostileArchives(t *testing.T) {
	for _, entries := range [][]string{
		{"data/", "data/../../evil=x"}, {"../evil=x"}, {"/evil=x"}, {"other=x"}, {"data/", "data/l->..", "data/l/evil=x"},
		{"data/", "data/l->../..", "data/l/evil=x"}, {"data->..", "data/evil=x"},
		{"data/", "data/a/", "data/a/b/", "data/a/b/up->../..", "data/a/b/out->up/..", "data/a/b/out/evil=x"},
		{"data/", "data/a/", "data/a/b/", "data/a/b/up->../..", "data/a/b/up/out->../..", "data/out/evil=x"}, {"data->/", "data/evil=x"}, {}, {"data2/evil=x"},
		{"data/", "data/a/", "data/a/b/", "data/a/b/up->../..", "data/out=>data/a/b/up", "data/out/evil=x"},
		{"data/", "data/l=>../secret", "data/l=evil"}, {"data/", "data/../../evil=>data/a"}, {"data=>../secret"},
	} {
		parent := filepath.Join(t.TempDir(), "parent")
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(parent)
		if err != nil {
			t.Fatal(err)
		}
		err = unpack(root, archiveOf(t, entries...), "data", "copy", io.Discard)
		root.Close()
		onlyCopy(t, parent)
		for _, name := range []string{"copy/a/b/out", "copy/out"} {
			if to, err := os.Readlink(filepath.Join(parent, name)); err == nil {
				t.Errorf("archive %q left a link to %s, which is not in the copy", entries, to)
			}
		}
		if len(entries) < 3 && !strings.HasPrefix(strings.Join(entries, ""), "data->") && err == nil {
			t.Errorf("%q is no error", entries)
		}
	}
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(root, archiveOf(t, "data=x"), "data", "copy", io.Discard); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(parent, "copy")); err != nil || info.Mode() != 0o755 {
		t.Errorf("it can take its owner's rights: %v, %v", info.Mode(), err)
	}
}

// onlyCopy holds that nothing but copy lies in a directory, and nothing beside the directory.
func onlyCopy(t *testing.T, parent string) {
	t.Helper()
	for dir, want := range map[string]string{parent: "copy", filepath.Dir(parent): filepath.Base(parent)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != want {
				t.Errorf("%s was written", filepath.Join(dir, e.Name()))
			}
		}
	}
}

// FuzzUnpack: no archive writes beside the copy.
func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, "data/", "data/a=x", "data/l->a").Bytes())
	f.Add(archiveOf(f, "data/", "data/l->../..", "data/l/evil=x").Bytes())
	f.Add(archiveOf(f, "data/", "data/a=x", "data/l=>data/a", "data/l=y").Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := filepath.Join(t.TempDir(), "parent")
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(parent)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = unpack(root, bytes.NewReader(data), "data", "copy", io.Discard)
		onlyCopy(t, parent)
	})
}

// TestTarThatEndsEarly: a copy of which not all was read is none, whatever the tar of the instance says, and it keeps nobody waiting.
func TestTarThatEndsEarly(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := execstream.Accept(w, r, execstream.ProtoExec)
		if err != nil {
			t.Error(err)
			return
		}
		call := calls.Add(1)
		// The first call asks whether the destination is a directory.
		if err := execstream.New(conn).WriteJSON(execstream.Exit, execstream.Result{}); err != nil {
			t.Error(err)
		}
		if call == 1 {
			conn.Close()
		} // else it stays open, and nobody reads it
	}))
	defer server.Close()
	client, err := api.NewClient(api.ClientOptions{Server: server.URL, Bearer: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := (&app{}).cpCommand()
	cmd.SetContext(t.Context())
	cmd.SetErr(io.Discard)
	err = copyInto(cmd, client, "web-1", "", file, "/data/large")
	if skerry.AsError(err).Code != skerry.CodeUnavailable || !strings.Contains(err.Error(), "ended before it had read all") {
		t.Errorf("it said: %v", err)
	}
}
