//go:build linux

package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/spec"
)

func signer(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return k, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// A worker starts no image that none of its site's signers has signed, and has nothing of one whose digest was known. What was signed once starts
// while the registry is away.
func TestSignedImages(t *testing.T) {
	store := func(name string) *artifact.Store {
		st, err := artifact.Open(filepath.Join(t.TempDir(), name), artifact.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	const registry = "registry.example"
	away := false
	h := &artifact.Handler{Store: store("registry"), Registry: registry, Authorize: func(*http.Request, string, string) error { return nil }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	src := &artifact.Source{BaseURL: srv.URL}
	user := store("user")
	dir := t.TempDir()
	push := func(ref string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(ref), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := user.Build(t.Context(), artifact.BuildOptions{Source: dir, Tag: ref, Platform: artifact.HostPlatform(), Entrypoint: []string{"/x"}}); err != nil {
			t.Fatal(err)
		}
		d, err := user.Push(t.Context(), ref, ref, src, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(d)
	}
	const ref, plain = registry + "/team/app:1", registry + "/team/app:2"
	pinned := registry + "/team/app@" + push(ref)
	push(plain)
	key, public := signer(t)
	stranger, strangers := signer(t)

	s := &Server{opt: ServerOptions{Images: store("worker")}}
	s.source.Store(src)
	start := func(ref, pinned string, signers ...string) error {
		a := &spec.Assignment{Org: "guests", Signers: signers, Digest: map[string]string{ref: pinned}}
		_, _, err := s.image(t.Context(), a, ref)
		return err
	}
	refused := func(what string, err error, part string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("without a signature", start(ref, pinned, public), "is not signed: ")
	refused("the way out", start(ref, pinned, public), `signers: {guests: [...]}`)
	if _, err := artifact.Sign(t.Context(), user, ref, stranger, src); err != nil {
		t.Fatal(err)
	}
	refused("by a key that does not count", start(ref, pinned, public), "none of the 1 signatures")
	refused("with a key that cannot be read", start(ref, pinned, "no key"), "signers")
	for _, e := range s.opt.Images.List() {
		if strings.Contains(e.Ref, "@") {
			t.Errorf("it was fetched all the same: %+v", e)
		}
	}
	if err := start(ref, pinned, public, strangers); err != nil {
		t.Errorf("by the second of two keys: %v", err)
	}
	if _, err := artifact.Sign(t.Context(), user, ref, key, src); err != nil {
		t.Fatal(err)
	}
	if err := start(ref, pinned, public); err != nil {
		t.Errorf("signed: %v", err)
	}
	// Its digest is not known before it was fetched.
	refused("without a signature, by its tag", start(plain, "", public), "is not signed: ")
	if err := start(ref, "", public); err != nil {
		t.Errorf("signed, by its tag: %v", err)
	}
	if err := start(plain, ""); err != nil {
		t.Errorf("where no signature is asked for: %v", err)
	}
	away = true
	if err := start(ref, pinned, public); err != nil {
		t.Errorf("with the registry away: %v", err)
	}
	_, third := signer(t)
	if err := start(ref, pinned, third); err == nil {
		t.Error("with the registry away, by another key: it starts")
	}
}
