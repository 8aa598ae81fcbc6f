// Package olddata has what earlier versions wrote: data directories of each role, payloads of frames, the description of the API. Tests
// hold the present program against them. Only tests import it.
package olddata

import (
	"archive/tar"
	"bytes"
	"embed"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"skerry.dev/skerry/store"
)

// Dir is where the sets are, from the top of the module.
const Dir = "internal/olddata/testdata"

// Files of a set. The data directory of a role is ROLE.tar.
const (
	OpenAPI = "openapi.json"
	Views   = "views.json" // what the commands of that version showed
)

//go:embed testdata
var sets embed.FS

// Versions lists the sets, oldest first.
func Versions(t testing.TB) (out []string) {
	t.Helper()
	list, err := sets.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.IsDir() {
			out = append(out, d.Name())
		}
	}
	if len(out) == 0 {
		t.Fatal("there is no old data")
	}
	return out
}

// File gives a file of a set.
func File(t testing.TB, version, name string) []byte {
	t.Helper()
	data, err := sets.ReadFile("testdata/" + version + "/" + name + ".zst")
	if errors.Is(err, fs.ErrNotExist) {
		data, err = sets.ReadFile("testdata/" + version + "/" + name)
		if err == nil {
			return data
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out, err := d.DecodeAll(data, nil)
	if err != nil {
		t.Fatalf("%s of %s: %v", name, version, err)
	}
	return out
}

// Unpack puts the data directory of a role at dir, which is made.
func Unpack(t testing.TB, version, role, dir string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(File(t, version, role+".tar")))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(at, data, fs.FileMode(h.Mode)&fs.ModePerm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Records gives all records of a role's store.
func Records(t testing.TB, version, role string) []store.Record {
	t.Helper()
	dir := t.TempDir()
	Unpack(t, version, role, dir)
	st, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "state.db"), store.Options{})
	if err != nil {
		t.Fatalf("%s of %s: %v", role, version, err)
	}
	defer st.Close()
	list, _, err := st.List(t.Context(), "")
	if err != nil || len(list) == 0 {
		t.Fatalf("%s of %s: %d records, %v", role, version, len(list), err)
	}
	return list
}

// Write keeps a file of a new set, below the top of the module.
func Write(t testing.TB, top, version, name string, data []byte) {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, Dir, version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, name+".zst"), e.EncodeAll(data, nil), 0o644), e.Close()); err != nil {
		t.Fatal(err)
	}
}

// Pack gives the plain files below a directory as a tar, but those whose path below it begins with one of skip.
func Pack(t testing.TB, dir string, skip ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if slices.ContainsFunc(skip, func(s string) bool { return name == s || strings.HasPrefix(name, s+"/") }) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(data)),
			Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
