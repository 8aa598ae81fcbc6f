package artifact

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/sbom"
)

const spdxType = "application/spdx+json"

// attachment is an image that consists of a document.
func attachment(t *testing.T, document, kind string) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(kind))
	img, err := mutate.AppendLayers(img, static.NewLayer([]byte(document), types.MediaType(kind)))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// refersTo makes an attachment refer to an image.
func refersTo(t *testing.T, a v1.Image, subject v1.Image) v1.Image {
	t.Helper()
	desc, err := partial.Descriptor(subject)
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Subject(a, *desc).(v1.Image)
}

func pushAs(t *testing.T, img v1.Image, host, ref string) {
	t.Helper()
	r, err := gname.ParseReference(host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
}

func digestOf(t *testing.T, img interface{ Digest() (v1.Hash, error) }) digest.Digest {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.Digest(h.String())
}

func listed(list []SBOM) string {
	var texts []string
	for _, s := range list {
		data, err := s.Read()
		if err != nil {
			data = []byte(err.Error())
		}
		texts = append(texts, string(data))
	}
	return strings.Join(texts, " ")
}

// builtIn serves a store as the registry of a name.
func builtIn(t *testing.T) (s *Store, host string) {
	t.Helper()
	all := func(*http.Request, string, string) error { return nil }
	h := &Handler{Store: openStore(t, Options{}), Registry: "skerry.local", Authorize: all}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return h.Store, strings.TrimPrefix(srv.URL, "http://")
}

// Lists of contents are found however they were attached, and those in other repositories do not count.
func TestSBOMs(t *testing.T) {
	s, host := builtIn(t)
	at := &foreign{host: host}
	img := at.push(t, "team/app:1", amd64, 1000, 1)
	d := digestOf(t, img)
	ref := imageref.Ref{Registry: "skerry.local", Repository: "team/app", Digest: d}
	if list, _, err := SBOMs(t.Context(), s, ref); err != nil || len(list) != 0 {
		t.Fatalf("of an image without one: %v, %v", list, err)
	}
	pushAs(t, refersTo(t, attachment(t, `{"elsewhere":1}`, spdxType), img), host, "other/app:sbom")
	pushAs(t, refersTo(t, attachment(t, `{"picture":1}`, "image/png"), img), host, "team/app:picture")
	if list, _, err := SBOMs(t.Context(), s, ref); err != nil || len(list) != 0 {
		t.Fatalf("of another repository, or another kind: %q, %v", listed(list), err)
	}
	pushAs(t, refersTo(t, attachment(t, `{"referrer":1}`, spdxType), img), host, "team/app:list")
	pushAs(t, attachment(t, `{"cosign":1}`, "text/spdx+json"), host, "team/app:sha256-"+d.Encoded()+".sbom")
	list, _, err := SBOMs(t.Context(), s, ref)
	if err != nil || len(list) != 2 || !strings.Contains(listed(list), "referrer") || !strings.Contains(listed(list), "cosign") {
		t.Errorf("%q, %v", listed(list), err)
	}
	other := imageref.Ref{Registry: "skerry.local", Repository: "team/app", Digest: digest.FromString("another")}
	if _, _, err := SBOMs(t.Context(), s, other); !errors.Is(err, ErrNotFound) {
		t.Errorf("of an image that is not there: %v", err)
	}
}

// BuildKit puts statements into the index.
func TestSBOMsInAnIndex(t *testing.T) {
	s, host := builtIn(t)
	img := (&foreign{host: host}).push(t, "team/app:part", amd64, 1000, 1)
	statement := attachment(t, `{"statement":1}`, "application/vnd.in-toto+json")
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: statement, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest"}}})
	r, err := gname.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, index); err != nil {
		t.Fatal(err)
	}
	pushAs(t, refersTo(t, attachment(t, `{"part":1}`, spdxType), img), host, "team/app:list")
	list, _, err := SBOMs(t.Context(), s, imageref.Ref{Registry: "skerry.local", Repository: "team/app", Digest: digestOf(t, index)})
	if err != nil || len(list) != 2 || !strings.Contains(listed(list), "statement") || !strings.Contains(listed(list), "part") {
		t.Errorf("%q, %v", listed(list), err)
	}
}

// An image whose builder described one platform only is not known on the others.
func TestSBOMsOfSomePlatforms(t *testing.T) {
	s, host := builtIn(t)
	at := &foreign{host: host}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	parts := map[string]v1.Image{}
	for i, arch := range []string{"amd64", "arm64"} {
		parts[arch] = at.push(t, "team/app:"+arch, Platform{OS: "linux", Arch: arch}, 1000, int64(i+1))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: parts[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	r, err := gname.ParseReference(host + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, index); err != nil {
		t.Fatal(err)
	}
	is := func(what string, lists int, want string) {
		t.Helper()
		list, missing, err := SBOMs(t.Context(), s, imageref.Ref{Registry: "skerry.local", Repository: "team/app", Digest: digestOf(t, index)})
		if err != nil || len(list) != lists || strings.Join(missing, " ") != want {
			t.Errorf("%s: %d lists, missing %q, want %q; %v", what, len(list), missing, want, err)
		}
	}
	is("none", 0, "")
	pushAs(t, refersTo(t, attachment(t, `{"amd64":1}`, spdxType), parts["amd64"]), host, "team/app:list")
	is("one", 1, "linux/arm64")
	pushAs(t, attachment(t, `{"arm64":1}`, spdxType), host, "team/app:sha256-"+digestOf(t, parts["arm64"]).Encoded()+".sbom")
	is("both", 2, "")
}

// What a registry has is fetched when it is asked for, and is there without it later.
func TestSBOMsAreKept(t *testing.T) {
	f := startForeign(t)
	s := openStore(t, Options{})
	d := digestOf(t, f.push(t, "team/app:1", amd64, 1000, 1))
	pushAs(t, attachment(t, `{"cosign":1}`, spdxType), f.host, "team/app:sha256-"+d.Encoded()+".sbom")
	ref := imageref.Ref{Registry: f.host, Repository: "team/app", Digest: d}
	if _, err := s.Pull(t.Context(), ref.String(), amd64, nil, &Source{}); err != nil {
		t.Fatal(err)
	}
	if list, _, err := SBOMs(t.Context(), s, ref); err != nil || len(list) != 0 {
		t.Fatalf("without asking: %q, %v", listed(list), err)
	}
	list, _, err := SBOMs(t.Context(), s, ref, &Source{})
	if err != nil || listed(list) != `{"cosign":1}` {
		t.Fatalf("%q, %v", listed(list), err)
	}
	f.set(func(http.Handler) http.Handler { return http.NotFoundHandler() })
	if list, _, err := SBOMs(t.Context(), s, ref); err != nil || listed(list) != `{"cosign":1}` {
		t.Errorf("later: %q, %v", listed(list), err)
	}
}

// Whoever may push to a repository cannot have more read than there is room for.
func TestSBOMsAreBounded(t *testing.T) {
	s, host := builtIn(t)
	img := (&foreign{host: host}).push(t, "team/app:1", amd64, 1000, 1)
	ref := imageref.Ref{Registry: "skerry.local", Repository: "team/app", Digest: digestOf(t, img)}
	for n := range maxSBOMs + 1 {
		pushAs(t, refersTo(t, attachment(t, fmt.Sprintf(`{"n":%d}`, n), spdxType), img), host, fmt.Sprintf("team/app:list-%d", n))
	}
	if list, _, err := SBOMs(t.Context(), s, ref); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d lists, %v", len(list), err)
	}
	other := (&foreign{host: host}).push(t, "team/large:1", amd64, 1000, 1)
	pushAs(t, refersTo(t, attachment(t, strings.Repeat("x", sbom.MaxSize+1), spdxType), other), host, "team/large:list")
	large := imageref.Ref{Registry: "skerry.local", Repository: "team/large", Digest: digestOf(t, other)}
	if list, _, err := SBOMs(t.Context(), s, large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d lists, %v", len(list), err)
	}
}
