//go:build linux

package worker

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"skerry.dev/skerry"
)

// A state is another worker's word: it fills the two directories that go along, and leads nowhere else.
func TestUnpackState(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	outside := t.TempDir()
	entry := func(name, content string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), Linkname: content}
	}
	folder := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	whole := []tar.Header{folder("checkpoint"), entry("checkpoint/upper.tar", "files"), folder("volumes"), folder("volumes/data"), entry("volumes/data/note", "kept")}
	for _, c := range []struct {
		name string
		more []tar.Header
		room skerry.Bytes
		err  string // empty: it is taken
	}{
		{name: "whole"},
		{name: "a volume's own link", more: []tar.Header{link("volumes/data/out", outside)}},
		{name: "beside", more: []tar.Header{entry("config/0", "other"), entry("run/endpoints.json", "{}")}},
		{name: "above", more: []tar.Header{entry("volumes/../../out", "x")}, err: "contains '..'"},
		{name: "through a link", more: []tar.Header{link("volumes/data/out", outside), entry("volumes/data/out/x", "x")}, err: "Not a directory"},
		{name: "a volume is a link", more: []tar.Header{link("volumes/empty", outside)}, err: "volume empty is no directory"},
		{name: "a volume is a file", more: []tar.Header{entry("volumes/empty", "x")}, err: "volume empty is no directory"},
		{name: "too large", more: []tar.Header{entry("volumes/data/big", strings.Repeat("x", 1<<20))}, room: skerry.MiB, err: "no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key, err := age.GenerateX25519Identity()
			if err != nil {
				t.Fatal(err)
			}
			var sent bytes.Buffer
			sealed, err := age.Encrypt(&sent, key.Recipient())
			if err != nil {
				t.Fatal(err)
			}
			w := tar.NewWriter(sealed)
			for _, h := range slices.Concat(whole, c.more) {
				content := ""
				if h.Typeflag == tar.TypeReg {
					content, h.Linkname = h.Linkname, ""
				}
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			cut := bytes.Clone(sent.Bytes())
			if err := sealed.Close(); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for _, name := range []string{"volumes/data", "volumes/empty", "config", "run"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.room == 0 {
				c.room = skerry.GiB
			}
			if err := unpack(t.Context(), bytes.NewReader(cut), key, dir, c.room); err == nil {
				t.Error("it was taken without its end")
			}
			err = unpack(t.Context(), &sent, key, dir, c.room)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, not %q", err, c.err)
			}
			if note, e := os.ReadFile(filepath.Join(dir, "volumes/data/note")); err == nil && string(note) != "kept" {
				t.Errorf("its volume has %q, %v", note, e)
			}
			for _, other := range []string{outside, filepath.Join(dir, "config"), filepath.Join(dir, "run")} {
				if there, err := os.ReadDir(other); err != nil || len(there) > 0 {
					t.Errorf("%s has %v, %v", other, there, err)
				}
			}
		})
	}
}
