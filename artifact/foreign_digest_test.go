//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// Whoever has heard of the digest of another's image does not get it by a name of his own, from a store that has it for that other.
func TestDigestOfAnothersImage(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	d := addImage(t, s, "reg.example/theirs/app:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"}))
	theirs, mine := "reg.example/theirs/app@"+d.String(), "reg.example/mine/x@"+d.String()
	registry := &Handler{Store: openStore(t, Options{}), Registry: "reg.example", Authorize: allow} // has nothing of mine
	source := &Source{BaseURL: "http://" + startHandler(t, registry)}
	for _, sources := range [][]*Source{nil, {source}} {
		if _, err := s.Resolve(ctx, mine, amd64, sources...); !errors.Is(err, ErrNotFound) {
			t.Errorf("resolved: %v", err)
		}
		if _, err := s.Pull(ctx, mine, amd64, nil, sources...); !errors.Is(err, ErrNotFound) {
			t.Errorf("pulled: %v", err)
		}
		if got, err := s.Resolve(ctx, theirs, amd64, sources...); err != nil || got.Digest != d {
			t.Errorf("their own: %v", err)
		}
	}
	ref, err := imageref.Parse(mine)
	if err != nil || s.Has(ref, d) {
		t.Errorf("it is here as mine, %v", err)
	}
	if ref, _ = imageref.Parse(theirs); !s.Has(ref, d) {
		t.Error("it is not here as theirs")
	}
	// With the right to it there, it is had by that name, too.
	if _, err := s.Push(ctx, "reg.example/theirs/app:1", source.BaseURL[len("http://"):]+"/mine/x:1", &Source{}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Pull(ctx, mine, amd64, nil, source); err != nil || got.Digest != d {
		t.Errorf("pushed to it: %v", err)
	}
}

// Whoever has heard of the diff ID of somebody else's layer must not get it by a config of his own that names it.
func TestDiffIDOfAnothersLayer(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	secret := layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"})
	theirs, err := s.RootFS(ctx, addImage(t, s, "reg.example/theirs/app:1", amd64, gz, secret), amd64)
	if err != nil {
		t.Fatal(err)
	}
	other := func([]byte) []byte { return gz(layerTar(t, entry{kind: tar.TypeReg, name: "mine", body: "y"})) }
	for range 2 {
		if dirs, err := s.RootFS(ctx, addImage(t, s, "reg.example/mine/x:1", amd64, other, secret), amd64); !errors.Is(err, ErrDigest) {
			t.Errorf("%v, %v", dirs, err)
		}
	}
	// A blob that does hold it shares the folder, as does one of a store that an earlier version left.
	if err := os.RemoveAll(filepath.Join(filepath.Dir(theirs[0]), "from")); err != nil {
		t.Fatal(err)
	}
	for _, compress := range []func([]byte) []byte{plain, gz} {
		if mine, err := s.RootFS(ctx, addImage(t, s, "reg.example/mine/x:2", amd64, compress, secret), amd64); err != nil || mine[0] != theirs[0] {
			t.Errorf("%v, %v", mine, err)
		}
	}
}

// A manifest is taken only if all that it names was pushed to its own repository.
func TestManifestOfAnothersLayer(t *testing.T) {
	h := &Handler{Store: openStore(t, Options{}), Registry: "reg.example", Authorize: allow}
	base := "http://" + startHandler(t, h)
	theirs := addImage(t, h.Store, "reg.example/theirs/app:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"}))
	m, err := h.Store.readManifest(theirs)
	if err != nil {
		t.Fatal(err)
	}
	put := func(kind string, body []byte) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/v2/mine/x/manifests/1", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	index := ocispec.Index{Versioned: m.image.Versioned, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{m.desc}}
	for kind, body := range map[string][]byte{ocispec.MediaTypeImageManifest: m.raw, ocispec.MediaTypeImageIndex: mustJSON(index)} {
		if text := put(kind, body); !strings.Contains(text, "MANIFEST_BLOB_UNKNOWN") {
			t.Errorf("%s: %s", kind, text)
		}
	}
}

// Nor does he get it by an index of a registry of his own that names it.
func TestIndexOfAnothersImage(t *testing.T) {
	ctx := context.Background()
	cache := openStore(t, Options{})
	d := addImage(t, cache, "reg.example/theirs/app:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"}))
	m, err := cache.readManifest(d)
	if err != nil {
		t.Fatal(err)
	}
	evil := openStore(t, Options{})
	desc := m.desc
	desc.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	index, err := evil.putBlob(mustJSON(ocispec.Index{Versioned: m.image.Versioned, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{desc}}), "")
	if err != nil {
		t.Fatal(err)
	}
	upstream := &Handler{Store: evil, Registry: "evil.example", Authorize: allow}
	source := &Source{BaseURL: "http://" + startHandler(t, upstream)}
	mine, err := imageref.Parse("evil.example/mine/x:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := evil.setName(mine, index); err != nil {
		t.Fatal(err)
	}
	if img, err := cache.Pull(ctx, mine.String(), amd64, nil, source); err == nil {
		t.Errorf("pulled %s", img.Manifest)
	}
	// The same by way of a cache, to somebody who has nothing.
	proxy := &Handler{Store: cache, Registry: "reg.example", Authorize: allow, Upstream: func(string) []*Source { return []*Source{source} }}
	by := &Source{BaseURL: "http://" + startHandler(t, proxy)}
	if img, err := openStore(t, Options{}).Pull(ctx, mine.String(), amd64, nil, by); err == nil {
		t.Errorf("pulled by way of a cache: %s", img.Manifest)
	}
}

// Nor by an index of his own that has an image of his own for one platform and somebody else's for another, once the first was pulled: what
// runs without a registry's being asked must be its own, whole.
func TestIndexOfTwoImages(t *testing.T) {
	ctx := context.Background()
	here := openStore(t, Options{})
	theirs := addImage(t, here, "reg.example/theirs/app:1", WasmPlatform(), gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"}))
	m, err := here.readManifest(theirs)
	if err != nil {
		t.Fatal(err)
	}
	evil := openStore(t, Options{})
	own := addImage(t, evil, "evil.example/mine/own:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "own", body: "y"}))
	o, err := evil.readManifest(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*ocispec.Descriptor{&m.desc, &o.desc} {
		d.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	}
	wasm := WasmPlatform()
	m.desc.Platform = &ocispec.Platform{OS: wasm.OS, Architecture: wasm.Arch}
	index, err := evil.putBlob(mustJSON(ocispec.Index{Versioned: m.image.Versioned, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{o.desc, m.desc}}), "")
	if err != nil {
		t.Fatal(err)
	}
	// His registry may even have all but the layers.
	for _, d := range []string{theirs.String(), m.image.Config.Digest.String()} {
		b, err := os.ReadFile(filepath.Join(here.dir, "blobs", "sha256", d[len("sha256:"):]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := evil.putBlob(b, ""); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(d string) imageref.Ref {
		r, err := imageref.Parse("evil.example/mine/x@" + d)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := evil.setName(ref(index.String()), index); err != nil {
		t.Fatal(err)
	}
	upstream := &Handler{Store: evil, Registry: "evil.example", Authorize: allow}
	source := &Source{BaseURL: "http://" + startHandler(t, upstream)}
	img, err := here.Pull(ctx, ref(index.String()).String(), amd64, nil, source)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Proven(here, ref(index.String()), amd64); err != nil || got.Manifest != img.Manifest {
		t.Error("what was pulled is not there without a registry")
	}
	for _, d := range []string{index.String(), theirs.String()} {
		if _, err := here.Pull(ctx, ref(d).String(), wasm, nil, source); err == nil {
			t.Errorf("%s: pulled", d)
		}
		if img, err := Proven(here, ref(d), wasm); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: it would run %s", d, img.Manifest)
		}
	}
	if r, err := imageref.Parse("reg.example/theirs/app@" + theirs.String()); err != nil {
		t.Fatal(err)
	} else if _, err := Proven(here, r, wasm); err != nil {
		t.Error("their own")
	}
}
