//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestPushWithSHA512 pushes an image by digests of SHA-512, in each way that a blob may come, and runs from it.
func TestPushWithSHA512(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	host := "http://" + startHandler(t, &Handler{Store: s, Authorize: allow})
	want := wantStatus(t)
	begin := func() string {
		return host + want(request(t, "POST", host+"/v2/team/app/blobs/uploads/", nil), 202).Header.Get("Location")
	}
	layer := layerTar(t, entry{kind: tar.TypeReg, name: "hello", body: "hello"})
	config := mustJSON(ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.SHA512.FromBytes(layer)}}})
	at := begin()
	want(request(t, "PATCH", at, layer[:100], "Content-Range", "0-99"), 202)
	want(request(t, "PUT", at+"?digest="+digest.SHA512.FromString("other").String(), layer[100:]), 400)
	at = begin()
	want(request(t, "PATCH", at, layer[:100]), 202)
	want(request(t, "PUT", at+"?digest="+digest.SHA512.FromBytes(layer).String(), layer[100:]), 201)
	want(request(t, "POST", host+"/v2/team/app/blobs/uploads/?digest="+digest.SHA512.FromBytes(config).String(), config), 201)
	of := func(mediaType string, b []byte) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.SHA512.FromBytes(b), Size: int64(len(b))}
	}
	raw := mustJSON(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: of(ocispec.MediaTypeImageConfig, config), Layers: []ocispec.Descriptor{of(ocispec.MediaTypeImageLayer, layer)}})
	sum := digest.SHA512.FromBytes(raw)
	res := want(request(t, "PUT", host+"/v2/team/app/manifests/"+sum.String()+"?tag=1&tag=2", raw), 201)
	got := res.Header.Get("Docker-Content-Digest")
	if tags := res.Header.Values("OCI-Tag"); !slices.Equal(tags, []string{"1", "2"}) || got != sum.String() {
		t.Errorf("it was taken as %v with tags %q", got, tags)
	}
	for _, id := range []string{sum.String(), "1", "2"} {
		got := want(request(t, "GET", host+"/v2/team/app/manifests/"+id, nil), 200)
		if b, _ := io.ReadAll(got.Body); !bytes.Equal(b, raw) || got.Header.Get("Docker-Content-Digest") != sum.String() {
			t.Errorf("%s is %s: %s", id, got.Header.Get("Docker-Content-Digest"), b)
		}
	}
	// A worker pulls it, verifies it, and unpacks it.
	worker := openStore(t, Options{})
	ref := strings.TrimPrefix(host, "http://") + "/team/app:1"
	img, err := worker.Pull(t.Context(), ref, amd64, nil, &Source{})
	if err != nil || img.Digest != sum {
		t.Fatalf("pulled %s: %v", img.Digest, err)
	}
	dirs, err := worker.RootFS(t.Context(), sum, amd64)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dirs[0], "hello")); err != nil || string(b) != "hello" {
		t.Errorf("it holds %q, %v", b, err)
	}
	// It goes through an archive.
	var archive bytes.Buffer
	if err := worker.Export(t.Context(), &archive, ref); err != nil {
		t.Fatal(err)
	}
	if names, err := openStore(t, Options{}).Import(t.Context(), &archive, ""); err != nil || len(names) != 1 {
		t.Errorf("imported %q: %v", names, err)
	}
	// Damage is found as with SHA-256.
	blob := worker.blobPath(digest.SHA512.FromBytes(layer))
	if err := os.WriteFile(blob, bytes.Repeat([]byte("x"), len(layer)), 0o600); err != nil {
		t.Fatal(err)
	}
	if mended, err := Mend(t.Context(), worker, ref, amd64, &Source{}); err != nil || len(mended) != 1 {
		t.Errorf("mended %q: %v", mended, err)
	}
	// The list of names says that older programs cannot read it, and survives.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadFile(filepath.Join(dir, "names.json"))
	if err != nil || !strings.Contains(string(names), `"version":2`) {
		t.Errorf("names.json: %s, %v", names, err)
	}
	again, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Prune(nil, again.o.Now().Add(1e12), nil); err != nil {
		t.Error(err)
	}
	if _, err := again.RootFS(t.Context(), sum, amd64); err != nil {
		t.Errorf("after a restart and a prune: %v", err)
	}
}

func wantStatus(t *testing.T) func(*http.Response, int) *http.Response {
	return func(res *http.Response, want int) *http.Response {
		t.Helper()
		if res.StatusCode != want {
			b, _ := io.ReadAll(res.Body)
			t.Errorf("%s %s: %d, want %d: %s", res.Request.Method, res.Request.URL, res.StatusCode, want, b)
		}
		return res
	}
}

// refusedAs gives the code of a refusal.
func refusedAs(t *testing.T, res *http.Response) string {
	t.Helper()
	var doc struct{ Errors []struct{ Code string } }
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil || len(doc.Errors) != 1 {
		t.Fatalf("%s %s: no error of the protocol: %v", res.Request.Method, res.Request.URL, err)
	}
	return doc.Errors[0].Code
}

// TestPieceOutOfOrder: it is refused, whatever the method, and the upload goes on.
func TestPieceOutOfOrder(t *testing.T) {
	host := "http://" + startHandler(t, &Handler{Store: openStore(t, Options{}), Authorize: allow})
	want := wantStatus(t)
	blob := bytes.Repeat([]byte("x"), 600)
	sum := "?digest=" + digest.FromBytes(blob).String()
	at := host + want(request(t, "POST", host+"/v2/a/blobs/uploads/", nil), 202).Header.Get("Location")
	want(request(t, "PATCH", at, blob[:200], "Content-Range", "0-199"), 202)
	want(request(t, "PUT", at+sum, blob[400:], "Content-Range", "400-599"), 416)
	if got := want(request(t, "GET", at, nil), 204).Header.Get("Range"); got != "0-199" {
		t.Errorf("it has %q", got)
	}
	want(request(t, "PUT", at+sum, blob[200:], "Content-Range", "200-599"), 201)
}

// TestDeleteBlob: a blob that no image needs goes at once; one that an image needs stays.
func TestDeleteBlob(t *testing.T) {
	s := openStore(t, Options{})
	h := &Handler{Store: s, Registry: "r.skerry", Authorize: allow}
	host := "http://" + startHandler(t, h)
	want := wantStatus(t)
	blob := []byte("a blob")
	sum := digest.FromBytes(blob)
	at := host + "/v2/team/app/blobs/" + sum.String()
	want(request(t, "DELETE", at, nil), 404)
	want(request(t, "DELETE", host+"/v2/team/app/blobs/sha256:x", nil), 400)
	for range 2 {
		want(request(t, "POST", host+"/v2/team/app/blobs/uploads/?digest="+sum.String(), blob), 201)
		want(request(t, "DELETE", host+"/v2/other/app/blobs/"+sum.String(), nil), 404)
		want(request(t, "HEAD", at, nil), 200)
		want(request(t, "DELETE", at, nil), 202)
		want(request(t, "HEAD", at, nil), 404)
		if _, here := s.hasBlob(sum); here {
			t.Error("it still takes room")
		}
	}
	d := addImage(t, s, "r.skerry/team/app:1", amd64, gz, layerTar(t))
	m, err := s.readManifest(d)
	if err != nil {
		t.Fatal(err)
	}
	layer := host + "/v2/team/app/blobs/" + m.image.Layers[0].Digest.String()
	if code := refusedAs(t, want(request(t, "DELETE", layer, nil), 405)); code != "UNSUPPORTED" {
		t.Errorf("refused as %s", code)
	}
	want(request(t, "HEAD", layer, nil), 200)
	want(request(t, "DELETE", host+"/v2/team/app/manifests/"+d.String(), nil), 202)
	want(request(t, "DELETE", layer, nil), 404)
}

// TestMountFromAnywhere mounts a blob without the name of its repository: it is taken from one that the client may read, and no other.
func TestMountFromAnywhere(t *testing.T) {
	closed := false
	h := &Handler{Store: openStore(t, Options{}), Registry: "r.skerry", Authorize: func(_ *http.Request, repository, _ string) error {
		if closed && repository == "r.skerry/team/source" {
			return errors.New("not yours")
		}
		return nil
	}}
	host := "http://" + startHandler(t, h)
	want := wantStatus(t)
	blob := []byte("a blob")
	sum := digest.FromBytes(blob).String()
	want(request(t, "POST", host+"/v2/team/first/blobs/uploads/?mount="+sum, nil), 202)
	want(request(t, "POST", host+"/v2/team/source/blobs/uploads/?digest="+sum, blob), 201)
	closed = true
	want(request(t, "POST", host+"/v2/team/second/blobs/uploads/?mount="+sum, nil), 202)
	want(request(t, "HEAD", host+"/v2/team/second/blobs/"+sum, nil), 404)
	closed = false
	want(request(t, "POST", host+"/v2/team/second/blobs/uploads/?mount="+sum, nil), 201)
	want(request(t, "HEAD", host+"/v2/team/second/blobs/"+sum, nil), 200)
}

// TestNonDistributableLayers: such an image is kept for others without those layers, and refused where it would have to run.
func TestNonDistributableLayers(t *testing.T) {
	s := openStore(t, Options{})
	host := "http://" + startHandler(t, &Handler{Store: s, Authorize: allow})
	want := wantStatus(t)
	layer := []byte("lies elsewhere")
	config := mustJSON(ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}}})
	want(request(t, "POST", host+"/v2/team/app/blobs/uploads/?digest="+digest.FromBytes(config).String(), config), 201)
	for _, mediaType := range []string{"application/vnd.oci.image.layer.nondistributable.v1.tar",
		"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"} {
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))},
			Layers: []ocispec.Descriptor{{MediaType: mediaType, Digest: digest.FromBytes(layer), Size: int64(len(layer))}}}
		at := host + "/v2/team/app/manifests/1"
		if code := refusedAs(t, want(request(t, "PUT", at, mustJSON(m)), 400)); code != "MANIFEST_BLOB_UNKNOWN" {
			t.Errorf("without an address it is refused as %s", code)
		}
		m.Layers[0].URLs = []string{"https://store.example/blob"}
		want(request(t, "PUT", at, mustJSON(m)), 201)
		_, err := openStore(t, Options{}).Pull(t.Context(), strings.TrimPrefix(host, "http://")+"/team/app:1", amd64, nil, &Source{})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "lies on another server") {
			t.Errorf("%s: pulled: %v", mediaType, err)
		}
	}
}

// TestMethodsOfTheRegistry: a method that is not there is refused with those that are.
func TestMethodsOfTheRegistry(t *testing.T) {
	host := "http://" + startHandler(t, &Handler{Store: openStore(t, Options{}), Authorize: allow})
	want := wantStatus(t)
	sum := digest.FromString("x").String()
	for path, allowed := range map[string]string{
		"/v2/":                      "GET, HEAD",
		"/v2/_catalog":              "GET, HEAD",
		"/v2/a/manifests/1":         "GET, HEAD, PUT, DELETE",
		"/v2/a/blobs/" + sum:        "GET, HEAD, DELETE",
		"/v2/a/tags/list":           "GET, HEAD",
		"/v2/a/referrers/" + sum:    "GET, HEAD",
		"/v2/a/blobs/uploads/":      "POST",
		"/v2/a/blobs/uploads/other": "",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} {
			res := request(t, method, host+path, nil)
			if listed := slices.Contains(strings.Split(allowed, ", "), method); allowed != "" && (res.StatusCode == 405) == listed {
				t.Errorf("%s %s is answered with %d, allowed are %q", method, path, res.StatusCode, allowed)
			}
			if res.StatusCode != 405 {
				continue
			}
			if code := refusedAs(t, res); code != "UNSUPPORTED" || res.Header.Get("Allow") != allowed {
				t.Errorf("%s %s: %s, allowed are %q", method, path, code, res.Header.Get("Allow"))
			}
		}
	}
	large := bytes.Repeat([]byte(" "), maxManifest+1)
	if code := refusedAs(t, want(request(t, "PUT", host+"/v2/a/manifests/1", large), 413)); code != "SIZE_INVALID" {
		t.Errorf("a manifest that is too large is refused as %s", code)
	}
}
