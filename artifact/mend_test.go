//go:build linux

package artifact

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
)

// flip changes a bit in the middle of a file, behind the back of whoever wrote it.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	overwrite(t, path, b)
}

func cut(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, b[:len(b)/2])
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMend damages what an image is made of, each in turn: it is found, fetched again or put right, and nothing else is touched.
func TestMend(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	s := openStore(t, Options{})
	f.push(t, "app:1", amd64, 100_000, 2)
	ref := f.host + "/app:1"
	img, err := s.Pull(ctx, ref, amd64, nil, &Source{})
	if err != nil {
		t.Fatal(err)
	}
	pinned := f.host + "/app@" + string(img.Digest)
	m, err := s.readManifest(img.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	unpacked := func() []string {
		t.Helper()
		dirs, err := s.RootFS(ctx, img.Digest, amd64)
		if err != nil {
			t.Fatal(err)
		}
		return dirs
	}
	first := func() string { // a file of the topmost layer
		t.Helper()
		list, err := filepath.Glob(filepath.Join(unpacked()[0], "*"))
		if err != nil || len(list) == 0 {
			t.Fatal("an empty layer", err)
		}
		return list[0]
	}
	was, err := os.ReadFile(first())
	if err != nil {
		t.Fatal(err)
	}
	if mended, err := Mend(ctx, s, pinned, amd64, &Source{}); err != nil || len(mended) != 0 {
		t.Fatalf("of what is whole: %v, %v", mended, err)
	}
	for _, c := range []struct {
		name string
		harm func()
		want string
	}{
		{"a bit of a layer", func() { flip(t, s.blobPath(img.layers[1])) }, "blob " + string(img.layers[1])},
		{"half of a layer", func() { cut(t, s.blobPath(img.layers[0])) }, "blob " + string(img.layers[0])},
		{"the config", func() { flip(t, s.blobPath(m.image.Config.Digest)) }, "blob " + string(m.image.Config.Digest)},
		{"the manifest", func() { cut(t, s.blobPath(img.Manifest)) }, "blob " + string(img.Manifest)},
		{"a bit of a file", func() { flip(t, first()) }, "/" + filepath.Base(first()) + " of layer " + string(img.layers[1])},
		{"half of a file", func() { cut(t, first()) }, "/" + filepath.Base(first()) + " of layer " + string(img.layers[1])},
		{"the rights of a file", func() { _ = os.Chmod(first(), 0o751) }, "/" + filepath.Base(first()) + " of layer " + string(img.layers[1])},
		{"a file that is gone", func() { _ = os.Remove(first()) }, "/" + filepath.Base(first()) + " of layer " + string(img.layers[1])},
		{"a folder in its place", func() { at := first(); _ = os.Remove(at); _ = os.MkdirAll(at+"/x/y", 0o755) }, "/" + filepath.Base(first()) + " of layer " + string(img.layers[1])},
		{"a file of nobody's", func() { overwriteNew(t, filepath.Join(unpacked()[0], "more")) }, "/more of layer " + string(img.layers[1])},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, err := os.Stat(unpacked()[1])
			if err != nil {
				t.Fatal(err)
			}
			c.harm()
			mended, err := Mend(ctx, s, pinned, amd64, &Source{})
			if err != nil || !slices.Equal(mended, []string{c.want}) {
				t.Fatalf("mended %q, %v; want %q", mended, err, c.want)
			}
			if again, err := Mend(ctx, s, pinned, amd64, &Source{}); err != nil || len(again) != 0 {
				t.Errorf("then: %q, %v", again, err)
			}
			if is, err := os.ReadFile(first()); err != nil || string(is) != string(was) {
				t.Errorf("it is not what it was: %v", err)
			}
			if now, err := os.Stat(unpacked()[1]); err != nil || !os.SameFile(kept, now) {
				t.Errorf("another layer was replaced: %v", err)
			}
		})
	}
	t.Run("nobody has it", func(t *testing.T) {
		flip(t, s.blobPath(img.layers[0]))
		f.set(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		})
		if mended, err := Mend(ctx, s, pinned, amd64, &Source{}); err == nil {
			t.Errorf("mended %q", mended)
		}
	})
}

func overwriteNew(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A blob that was damaged before it was unpacked is removed, so that the next pull brings it.
func TestDamagedBeforeItIsUnpacked(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "app:1", amd64, 50_000, 1)
	for name, harm := range map[string]func(*testing.T, string){"flipped": flip, "cut short": cut} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{})
			img, err := s.Pull(ctx, f.host+"/app:1", amd64, nil, &Source{})
			if err != nil {
				t.Fatal(err)
			}
			harm(t, s.blobPath(img.layers[0]))
			if _, err := s.RootFS(ctx, img.Digest, amd64); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			if _, err := s.Pull(ctx, f.host+"/app:1", amd64, nil, &Source{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCacheMendsItself: a site's cache that was damaged never gives a wrong blob for a whole one; whoever asks gets the right one with the same pull,
// because the cache has it from the root again. A root without anything behind it says that it has it no more.
func TestCacheMendsItself(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	f.push(t, "team/app:1", amd64, 1<<20, 2)
	root := &Handler{Store: openStore(t, Options{}), Registry: "registry.skerry", Upstream: func(string) []*Source { return []*Source{{}} }}
	rootHost := startHandler(t, root)
	var mu sync.Mutex
	var told []digest.Digest
	site := &Handler{Store: openStore(t, Options{Damaged: func(d digest.Digest) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, d)
	}}), Registry: "registry.skerry", Upstream: func(string) []*Source { return []*Source{{BaseURL: "http://" + rootHost}} }}
	host := startHandler(t, site)
	pull := func() (Image, *Store, error) {
		s := openStore(t, Options{})
		img, err := s.Pull(ctx, f.host+"/team/app:1", amd64, nil, &Source{BaseURL: "http://" + host})
		if err == nil {
			_, err = s.RootFS(ctx, img.Digest, amd64)
		}
		return img, s, err
	}
	img, _, err := pull()
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(*testing.T, string){"flipped": flip, "cut short": cut} {
		t.Run(name, func(t *testing.T) {
			told = nil
			harm(t, site.Store.blobPath(img.layers[1]))
			if _, _, err := pull(); err != nil {
				t.Fatal(err)
			}
			if _, err := intact(ctx, site.Store, img.layers[1]); err != nil {
				t.Error("the cache:", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, []digest.Digest{img.layers[1]}) {
				t.Errorf("told of %v", told)
			}
		})
	}
	alone := openStore(t, Options{})
	d := addImage(t, alone, "registry.skerry/own:1", amd64, gz, layerTar(t, entry{name: "a", body: strings.Repeat("x", 100_000)}))
	own := startHandler(t, &Handler{Store: alone, Registry: "registry.skerry"})
	of, err := alone.Image(d, amd64)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, alone.blobPath(of.layers[0]))
	for range 2 {
		if _, err := openStore(t, Options{}).Pull(ctx, "registry.skerry/own:1", amd64, nil, &Source{BaseURL: "http://" + own}); err == nil {
			t.Error("a damaged image was pulled")
		}
	}
	if _, here := alone.hasBlob(of.layers[0]); here {
		t.Error("it would be given again, and another push would not bring it")
	}
}

// A damaged list of names ends a store that others have their images from, and is set aside in one that is but a cache.
func TestDamagedNames(t *testing.T) {
	dir := t.TempDir()
	cut := `{"version":1,"names":{"a:1":{"digest":"sha256:00`
	for _, text := range []string{"", cut, cut + `zz"}}}`} {
		file := filepath.Join(dir, "names.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "names.json is damaged") {
			t.Errorf("%q: %v", text, err)
		}
		told := ""
		s, err := Open(dir, Options{Aside: func(file string, _ error) { told = file }})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if kept, err := os.ReadFile(told); err != nil || string(kept) != text {
			t.Errorf("%q is set aside as %q: %v", text, kept, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "names.json"), []byte(`{"version":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Aside: func(string, error) { t.Error("a newer list is set aside") }}); err == nil {
		t.Error("a newer list is read")
	}
}
