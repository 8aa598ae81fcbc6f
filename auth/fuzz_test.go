package auth_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

func nilCerts() []*x509.Certificate { return nil }

func csr(t testing.TB) []byte {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func parse(t *testing.T, s string) *x509.Certificate {
	t.Helper()
	b, _ := pem.Decode([]byte(s))
	if b == nil {
		t.Fatalf("%q is no PEM", s)
	}
	return parseDER(t, b.Bytes)
}

func parseDER(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// FuzzJoin feeds requests of strangers: only the real token may enrol, everything else is refused with a word.
func FuzzJoin(f *testing.F) {
	st, err := store.Open(f.Context(), "memory:", store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	a, err := auth.OpenAuthority(f.Context(), auth.AuthorityConfig{Site: "s", Tier: wire.TierCluster, Store: st})
	if err != nil {
		f.Fatal(err)
	}
	token, _, err := a.CreateToken(f.Context(), auth.TokenOptions{Tier: wire.TierWorker})
	if err != nil {
		f.Fatal(err)
	}
	good := csr(f)
	f.Add("skt1.worker.aaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "worker", "w1", good)
	f.Add("skt1.worker", "cluster", "", []byte{0x30})
	f.Add("", "", "../x", []byte{})
	f.Fuzz(func(t *testing.T, text, tier, name string, req []byte) {
		if text == token {
			return
		}
		_, err := a.Join(t.Context(), &wire.Join{Token: text, Tier: wire.Tier(tier), Name: name, CSR: req}, "")
		var r *wire.Refuse
		if !errors.As(err, &r) || r.Reason == "" {
			t.Fatalf("got %v", err)
		}
		if len(a.List()) != 0 {
			t.Fatal("somebody was enrolled")
		}
	})
}
