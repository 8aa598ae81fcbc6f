//go:build linux

package artifact

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

func newKey(t testing.TB) (*ecdsa.PrivateKey, []*ecdsa.PublicKey) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k, []*ecdsa.PublicKey{&k.PublicKey}
}

// ownRegistry serves a store to whoever comes, as a registry of its own.
func ownRegistry(t *testing.T) (*Handler, string) {
	t.Helper()
	h := &Handler{Store: openStore(t, Options{}), Authorize: func(*http.Request, string, string) error { return nil }}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return h, strings.TrimPrefix(srv.URL, "http://")
}

// TestSign signs at a registry of others and at our own, where clients of others find it.
func TestSign(t *testing.T) {
	f := startForeign(t)
	_, own := ownRegistry(t)
	for kind, host := range map[string]string{"another registry": f.host, "our own": own} {
		t.Run(kind, func(t *testing.T) {
			ctx, s, at := t.Context(), openStore(t, Options{}), &Source{}
			img := (&foreign{host: host}).push(t, "team/app:1", amd64, 1000, 1)
			other := (&foreign{host: host}).push(t, "team/app:2", amd64, 1000, 1)
			want, _ := img.Digest()
			ann, anns := newKey(t)
			bob, bobs := newKey(t)
			_, strangers := newKey(t)
			name := host + "/team/app:1"
			if _, err := Verify(ctx, s, name, anns, at); !isUnsigned(err) || !strings.Contains(err.Error(), "has no tag sha256-") {
				t.Errorf("without a signature: %v", err)
			}
			for _, key := range []*ecdsa.PrivateKey{ann, ann, bob} { // the second time changes nothing
				if r, err := Sign(ctx, s, name, key, at); err != nil || r.Digest.String() != want.String() {
					t.Fatalf("%s, %v", r, err)
				}
			}
			// Another machine than the one that signed.
			elsewhere := openStore(t, Options{})
			for _, keys := range [][]*ecdsa.PublicKey{anns, bobs, append(strangers[:1:1], bobs...)} {
				if r, err := Verify(ctx, elsewhere, name, keys, at); err != nil || r.Digest.String() != want.String() {
					t.Errorf("%s, %v", r, err)
				}
			}
			if _, err := Verify(ctx, elsewhere, name, strangers, at); !isUnsigned(err) || !strings.Contains(err.Error(), "none of the 2 signatures") {
				t.Errorf("by a key that does not count: %v", err)
			}
			// What a client of others sees of it.
			sig, err := gname.ParseReference(host + "/team/app:" + SignatureTag(digest.Digest(want.String())))
			if err != nil {
				t.Fatal(err)
			}
			d, err := remote.Image(sig)
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.Manifest()
			if err != nil || len(m.Layers) != 2 || m.Subject == nil || m.Subject.Digest != want {
				t.Fatalf("%+v, %v", m, err)
			}
			for _, l := range m.Layers {
				if l.MediaType != mediaTypePayload || l.Annotations[signatureAnnotation] == "" {
					t.Errorf("%+v", l)
				}
			}
			// A signature that was copied to another image says nothing about that.
			lure, _ := other.Digest()
			to, err := gname.ParseReference(host + "/team/app:" + SignatureTag(digest.Digest(lure.String())))
			if err == nil {
				err = remote.Write(to, d)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(ctx, elsewhere, host+"/team/app:2", anns, at); !isUnsigned(err) || !strings.Contains(err.Error(), "signed another image") {
				t.Errorf("with another image's signature: %v", err)
			}
		})
	}
}

// A store goes by the signatures that it knows while the registry is away, and keeps those of images that are in use.
func TestSignedWithoutTheRegistry(t *testing.T) {
	ctx, f := t.Context(), startForeign(t)
	img := f.push(t, "team/app:1", amd64, 1000, 1)
	d, _ := img.Digest()
	key, keys := newKey(t)
	_, strangers := newKey(t)
	if _, err := Sign(ctx, openStore(t, Options{}), f.host+"/team/app:1", key, &Source{}); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{})
	pulled, err := s.Pull(ctx, f.host+"/team/app@"+d.String(), amd64, nil, &Source{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := imageref.Parse(f.host + "/team/app@" + d.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := Signed(ctx, s, r, keys, &Source{}); err != nil {
		t.Fatal(err)
	}
	f.set(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	if _, err := s.Prune([]digest.Digest{pulled.Digest}, s.o.Now().Add(1e9), func(Entry) bool { return false }); err != nil {
		t.Fatal(err)
	}
	away := &Source{BaseURL: "http://" + f.host} // which is asked once
	if err := Signed(ctx, s, r, keys, away); err != nil {
		t.Errorf("with the registry away: %v", err)
	}
	if err := Signed(ctx, s, r, strangers, away); !isUnsigned(err) {
		t.Errorf("by another key: %v", err)
	}
	if err := Signed(ctx, openStore(t, Options{}), r, keys, away); err == nil || isUnsigned(err) {
		t.Errorf("of a store that knows nothing: %v", err)
	}
	if _, err := s.Prune(nil, s.o.Now().Add(1e9), func(Entry) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if left := s.List(); len(left) != 0 {
		t.Errorf("kept of an image that is not in use: %+v", left)
	}
}

// TestCosign reads what cosign's own packages wrote: testdata/cosign/README.md tells how.
func TestCosign(t *testing.T) {
	read := func(name string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("testdata", "cosign", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	key, err := ParsePrivateKey(read("cosign.key"), []byte("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParsePublicKeys(read("cosign.pub"))
	if err != nil || len(keys) != 1 || !keys[0].Equal(&key.PublicKey) {
		t.Fatalf("%v, %v", keys, err)
	}
	if _, err := ParsePrivateKey(read("cosign.key"), []byte("wrong")); !errors.Is(err, ErrPassword) {
		t.Errorf("with another password: %v", err)
	}
	_, host := ownRegistry(t)
	image := digest.FromBytes(read("image-manifest.json"))
	for _, x := range [][]string{{"image-config.json"}, {"payload.json"}, {"config.json"}, {"image-manifest.json", image.String()}, {"manifest.json", SignatureTag(image)}} {
		data := read(x[0])
		method, at := http.MethodPost, "http://"+host+"/v2/team/app/blobs/uploads/?digest="+digest.FromBytes(data).String()
		if len(x) > 1 {
			method, at = http.MethodPut, "http://"+host+"/v2/team/app/manifests/"+x[1]
		}
		req, err := http.NewRequestWithContext(t.Context(), method, at, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(res.Body)
		if res.Body.Close(); res.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s %s", x[0], res.Status, said)
		}
	}
	s, name := openStore(t, Options{}), host+"/team/app@"+image.String()
	if _, err := Verify(t.Context(), s, name, keys, &Source{}); err != nil {
		t.Error(err)
	}
	if _, strangers := newKey(t); true {
		if _, err := Verify(t.Context(), s, name, strangers, &Source{}); !isUnsigned(err) {
			t.Errorf("by another key: %v", err)
		}
	}
	// Ours joins cosign's.
	mine, mines := newKey(t)
	if _, err := Sign(t.Context(), s, name, mine, &Source{}); err != nil {
		t.Fatal(err)
	}
	for _, k := range [][]*ecdsa.PublicKey{keys, mines} {
		if _, err := Verify(t.Context(), openStore(t, Options{}), name, k, &Source{}); err != nil {
			t.Error(err)
		}
	}
}

// TestKeys reads keys of openssl's, and refuses the rest.
func TestKeys(t *testing.T) {
	k, publics := newKey(t)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	pkix, err := x509.MarshalPKIXPublicKey(publics[0])
	if err != nil {
		t.Fatal(err)
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	largeDER, _ := x509.MarshalPKCS8PrivateKey(large)
	largePKIX, _ := x509.MarshalPKIXPublicKey(&large.PublicKey)
	for what, data := range map[string][]byte{"ecparam": append(of("EC PARAMETERS", []byte{6, 1}), of("EC PRIVATE KEY", der)...), "genpkey": of("PRIVATE KEY", pkcs8)} {
		if got, err := ParsePrivateKey(data, nil); err != nil || !got.Equal(k) {
			t.Errorf("%s: %v", what, err)
		}
	}
	two := append(of("PUBLIC KEY", pkix), of("PUBLIC KEY", pkix)...)
	if got, err := ParsePublicKeys(two); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	sealed := func(n int) []byte {
		return of("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"name":"scrypt","params":{"N":`+strings.Repeat("9", n)+`,"r":8,"p":1},"salt":""},"cipher":{"name":"nacl/secretbox","nonce":""},"ciphertext":""}`))
	}
	for what, data := range map[string][]byte{"nothing": nil, "text": []byte("key"), "public": two, "another curve": of("PRIVATE KEY", largeDER), "damaged": of("PRIVATE KEY", pkcs8[:20]),
		"a password that takes for ever": sealed(12), "no nonce": sealed(1), "encrypted otherwise": of("ENCRYPTED COSIGN PRIVATE KEY", []byte(`{}`))} {
		if _, err := ParsePrivateKey(data, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("private, %s: %v", what, err)
		}
	}
	for what, data := range map[string][]byte{"nothing": nil, "text behind it": append(two, "x"...), "private": of("PRIVATE KEY", pkcs8), "another curve": of("PUBLIC KEY", largePKIX)} {
		if _, err := ParsePublicKeys(data); !errors.Is(err, ErrInvalid) {
			t.Errorf("public, %s: %v", what, err)
		}
	}
}

// TestReferrers: what was pushed with a subject is listed for that, here and by a cache of another registry; a registry that lists none is not
// answered for.
func TestReferrers(t *testing.T) {
	ctx := t.Context()
	_, host := ownRegistry(t)
	s, at := openStore(t, Options{}), &Source{}
	img := (&foreign{host: host}).push(t, "team/app:1", amd64, 1000, 1)
	d, _ := img.Digest()
	key, _ := newKey(t)
	if _, err := Sign(ctx, s, host+"/team/app:1", key, at); err != nil {
		t.Fatal(err)
	}
	list := func(host, registry, kind string) (*v1.IndexManifest, error) {
		t.Helper()
		src := &Source{}
		if registry != "" {
			src.BaseURL = "http://" + host
		}
		var out []ocispec.Descriptor
		r := imageref.Ref{Registry: host, Repository: "team/app"}
		if registry != "" {
			r.Registry = registry
		}
		u := src.url(r, "referrers/"+d.String(), nil)
		if kind != "" {
			u += "?artifactType=" + url.QueryEscape(kind)
		}
		_, err := src.referrersPage(ctx, r, u, &out)
		m := &v1.IndexManifest{}
		for _, x := range out {
			m.Manifests = append(m.Manifests, v1.Descriptor{ArtifactType: x.ArtifactType, Size: x.Size})
		}
		return m, err
	}
	for kind, want := range map[string]int{"": 1, artifactTypeOfSig: 1, "text/plain": 0} {
		if m, err := list(host, "", kind); err != nil || len(m.Manifests) != want || want > 0 && (m.Manifests[0].ArtifactType != artifactTypeOfSig || m.Manifests[0].Size == 0) {
			t.Errorf("%q: %+v, %v", kind, m, err)
		}
	}
	// By a client of others.
	name, err := gname.NewDigest(host + "/team/app@" + d.String())
	if err != nil {
		t.Fatal(err)
	}
	if idx, err := remote.Referrers(name); err != nil {
		t.Error(err)
	} else if m, err := idx.IndexManifest(); err != nil || len(m.Manifests) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	cache := &Handler{Store: openStore(t, Options{}), Registry: "skerry.local", Upstream: func(string) []*Source { return []*Source{{}} }}
	srv := httptest.NewServer(cache)
	defer srv.Close()
	front := strings.TrimPrefix(srv.URL, "http://")
	if m, err := list(front, host, ""); err != nil || len(m.Manifests) != 1 {
		t.Errorf("by a cache: %+v, %v", m, err)
	}
	f := startForeign(t)
	f.set(func(http.Handler) http.Handler { return http.NotFoundHandler() })
	if m, err := list(front, f.host, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a registry that lists none: %+v, %v", m, err)
	}
	if m, err := list(front, "127.0.0.1:1", ""); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("of one that is away: %+v, %v", m, err)
	}
}

func FuzzSignature(f *testing.F) {
	_, publics := newKey(f)
	pkix, err := x509.MarshalPKIXPublicKey(publics[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(newPayload("registry.example/team/app", digest.FromString("x")))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := payloadDigest(data); err == nil && d.Validate() != nil {
			t.Errorf("digest %q", d)
		}
		if keys, err := ParsePublicKeys(data); err == nil && (len(keys) == 0 || signedBy(keys, data, data)) {
			t.Error("no keys, or anything is signed")
		}
		if !Encrypted(data) { // scrypt takes its time
			_, _ = ParsePrivateKey(data, nil)
		}
		_, _ = decryptKey(bytes.ReplaceAll(data, []byte("scrypt"), nil), nil)
	})
}
