//go:build linux

package artifact

import (
	"crypto/ecdsa"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// TestHostileSignatures has whoever may push to a repository put things where signatures are. Whatever lies there, an image is signed only where
// a key that counts signed a document about its digest.
func TestHostileSignatures(t *testing.T) {
	h, host := ownRegistry(t)
	f := &foreign{host: host}
	image, lure := f.push(t, "team/app:1", amd64, 1000, 1), f.push(t, "team/app:2", amd64, 1000, 1)
	d, _ := image.Digest()
	other, _ := lure.Digest()
	key, keys := newKey(t)
	stranger, _ := newKey(t)
	ref, err := imageref.Parse(host + "/team/app@" + d.String())
	if err != nil {
		t.Fatal(err)
	}
	document := func(digest, kind string) []byte {
		return []byte(`{"critical":{"identity":{"docker-reference":"x"},"image":{"docker-manifest-digest":"` + digest + `"},"type":"` + kind + `"},"optional":null}`)
	}
	good := document(d.String(), payloadType)
	layer := func(doc []byte, by *ecdsa.PrivateKey, change func(*ocispec.Descriptor)) ocispec.Descriptor {
		t.Helper()
		if _, err := h.Store.putBlob(doc, ""); err != nil {
			t.Fatal(err)
		}
		signature, err := sign(by, doc)
		if err != nil {
			t.Fatal(err)
		}
		l := ocispec.Descriptor{MediaType: mediaTypePayload, Digest: digest.FromBytes(doc), Size: int64(len(doc)),
			Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}}
		if change != nil {
			change(&l)
		}
		return l
	}
	config := []byte(`{}`)
	put := func(raw []byte) digest.Digest {
		t.Helper()
		for _, b := range [][]byte{config, raw} {
			if _, err := h.Store.putBlob(b, ""); err != nil {
				t.Fatal(err)
			}
		}
		at := signaturesOf(ref)
		if err := h.Store.setName(at, digest.FromBytes(raw)); err != nil {
			t.Fatal(err)
		}
		return digest.FromBytes(raw)
	}
	manifestOf := func(layers ...ocispec.Descriptor) []byte {
		return mustJSON(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: layers,
			Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))}})
	}
	annotate := func(v string) func(*ocispec.Descriptor) {
		return func(l *ocispec.Descriptor) { l.Annotations[signatureAnnotation] = v }
	}
	elsewhere := layer(good, key, nil).Annotations[signatureAnnotation]
	deep := []byte(strings.Replace(string(good), "null", `{"a":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+"}", 1))
	for what, raw := range map[string][]byte{
		"another's signature":                manifestOf(layer(good, stranger, nil)),
		"a hundred of them":                  manifestOf(many(100, func(int) ocispec.Descriptor { return layer(good, stranger, nil) })...),
		"more than are read, and a good one": manifestOf(append(many(100, func(int) ocispec.Descriptor { return layer(good, stranger, nil) }), layer(good, key, nil))...),
		"of another digest":                  manifestOf(layer(document(other.String(), payloadType), key, nil)),
		"for another document":               manifestOf(layer(document(other.String(), payloadType), key, annotate(elsewhere)), layer(append(good, ' '), key, annotate(elsewhere))),
		"of another type":                    manifestOf(layer(document(d.String(), "a birthday card"), key, nil)),
		"of no digest":                       manifestOf(layer(document("", payloadType), key, nil)),
		"of a digest that is none":           manifestOf(layer(document("sha256:../../x", payloadType), key, nil)),
		"of an older algorithm":              manifestOf(layer(document("md5:"+strings.Repeat("0", 32), payloadType), key, nil)),
		"no JSON":                            manifestOf(layer([]byte("{"), key, nil)),
		"nested for ever":                    manifestOf(layer([]byte(strings.Repeat("[", 60_000)), key, nil)),
		"a document of 100 KiB":              manifestOf(layer(append(good, strings.Repeat(" ", 100<<10)...), key, nil)),
		"a layer of another type":            manifestOf(layer(good, key, func(l *ocispec.Descriptor) { l.MediaType = ocispec.MediaTypeImageLayer })),
		"a size that is too large":           manifestOf(layer(good, key, func(l *ocispec.Descriptor) { l.Size++ })),
		"a size of nothing":                  manifestOf(layer(good, key, func(l *ocispec.Descriptor) { l.Size = 0 })),
		"a size below nothing":               manifestOf(layer(good, key, func(l *ocispec.Descriptor) { l.Size = -1 })),
		"no annotation":                      manifestOf(layer(good, key, func(l *ocispec.Descriptor) { l.Annotations = nil })),
		"no base64":                          manifestOf(layer(good, key, annotate("*"))),
		"an empty signature":                 manifestOf(layer(good, key, annotate(""))),
		"zeros":                              manifestOf(layer(good, key, annotate(base64.StdEncoding.EncodeToString([]byte{0x30, 6, 2, 1, 0, 2, 1, 0})))),
		"a signature of a megabyte":          manifestOf(layer(good, key, annotate(strings.Repeat("AAAA", 1<<18)))),
		"an index": mustJSON(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
			Manifests: []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(manifestOf(layer(good, key, nil))), Size: 1}}}),
	} {
		put(raw)
		s := openStore(t, Options{})
		if err := Signed(t.Context(), s, ref, keys, &Source{}); err == nil {
			t.Errorf("%s: it counts", what)
		}
		if list := s.List(); len(list) != 0 {
			t.Errorf("%s: it is kept: %+v", what, list)
		}
	}
	for what, raw := range map[string][]byte{
		"one among those of others": manifestOf(layer(good, stranger, nil), layer(document(other.String(), payloadType), key, nil), layer(good, key, nil)),
		"a deep one":                manifestOf(layer(deep, key, nil)),
	} {
		put(raw)
		if err := Signed(t.Context(), openStore(t, Options{}), ref, keys, &Source{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func many[T any](n int, one func(int) T) (out []T) {
	for i := range n {
		out = append(out, one(i))
	}
	return out
}

// A signature of an index is none of the images in it, and the other way round.
func TestSignaturesOfParts(t *testing.T) {
	_, host := ownRegistry(t)
	f := &foreign{host: host}
	image := f.push(t, "team/app:amd", amd64, 1000, 1)
	part, _ := image.Digest()
	key, keys := newKey(t)
	s := openStore(t, Options{})
	if _, err := Sign(t.Context(), s, host+"/team/app:amd", key, &Source{}); err != nil {
		t.Fatal(err)
	}
	raw := mustJSON(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{
		{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(part.String()), Size: 1, Platform: &ocispec.Platform{OS: "linux", Architecture: "amd64"}}}})
	r, err := imageref.Parse(fmt.Sprintf("%s/team/app@%s", host, digest.FromBytes(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Signed(t.Context(), s, r, keys, &Source{}); !isUnsigned(err) {
		t.Errorf("an index of a signed image: %v", err)
	}
	if err := Signed(t.Context(), s, imageref.Ref{Registry: r.Registry, Repository: "team/other", Digest: digest.Digest(part.String())}, keys, &Source{}); !isUnsigned(err) {
		t.Errorf("a signature in another repository: %v", err)
	}
}
