package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestLeaf: a certificate counts at the end of a link that it was issued for, when the CA of the site has signed it and it says
// who holds it.
func TestLeaf(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := newSiteCA("harbour", wire.TierCluster)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newSiteCA("harbour", wire.TierCluster)
	if err != nil {
		t.Fatal(err)
	}
	const client, server = x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	now := time.Now()
	issue := func(ca *siteCA, name string, usage x509.ExtKeyUsage) []byte {
		der, err := ca.issue(&key.PublicKey, wire.TierWorker, name, 7, now, time.Hour, usage)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	custom := func(edit func(c *x509.Certificate)) []byte {
		c := &x509.Certificate{SerialNumber: serial(7), URIs: []*url.URL{identityURI("harbour", wire.TierWorker, "w")},
			NotBefore: now, NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{client}}
		edit(c)
		der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, &key.PublicKey, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	read := func(der []byte) (wire.PeerIdentity, error) {
		var cs tls.ConnectionState
		if der != nil {
			leaf, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			cs.PeerCertificates = []*x509.Certificate{leaf}
		}
		return verifyLeaf(ca.cert, cs, client)
	}

	id, err := read(issue(ca, "w", client))
	if err != nil || id.Name != "w" || id.Tier != wire.TierWorker || id.Site != "harbour" || id.Counter != 7 {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := read(custom(func(*x509.Certificate) {})); err != nil {
		t.Error(err)
	}
	for what, der := range map[string][]byte{
		"none":              nil,
		"of another CA":     issue(other, "w", client),
		"for the other end": issue(ca, "w", server),
		"for both ends":     custom(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{client, server} }),
		"for no end":        custom(func(c *x509.Certificate) { c.ExtKeyUsage = nil }),
		"of a CA": custom(func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
		}),
		"without identity":  custom(func(c *x509.Certificate) { c.URIs = nil }),
		"with two":          custom(func(c *x509.Certificate) { c.URIs = append(c.URIs, identityURI("harbour", wire.TierWorker, "v")) }),
		"of another scheme": custom(func(c *x509.Certificate) { c.URIs[0].Scheme = "https" }),
		"of no tier":        custom(func(c *x509.Certificate) { c.URIs[0].Path = "/captain/w" }),
		"of no name":        custom(func(c *x509.Certificate) { c.URIs[0].Path = "/worker/.." }),
	} {
		if id, err := read(der); err == nil {
			t.Errorf("a certificate %s counts as %+v", what, id)
		}
	}
}
