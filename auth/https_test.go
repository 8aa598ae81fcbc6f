package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// Browsers take no Ed25519 anywhere in a chain, so a site's API is signed with P-256 from its CA on.
func TestHTTPSForBrowsers(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	conf, err := o.HTTPS([]string{"root.example", "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := conf.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range cert.Certificate {
		c := parseDER(t, der)
		if c.SignatureAlgorithm != x509.ECDSAWithSHA256 || c.PublicKeyAlgorithm != x509.ECDSA {
			t.Errorf("%s: %s signed with %s", c.Subject, c.PublicKeyAlgorithm, c.SignatureAlgorithm)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(parseDER(t, o.CA()))
	for _, name := range []string{"root.example", "192.0.2.1"} {
		if _, err := parseDER(t, cert.Certificate[0]).Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
}

// TestCertificatesFollowTheClock: a device without a battery has a clock of 1970 until somebody tells it the time, and browsers look at
// dates.
func TestCertificatesFollowTheClock(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	o.clock.add(8766 * time.Hour)
	https, err := o.HTTPS([]string{"root.example"})
	if err != nil {
		t.Fatal(err)
	}
	link := o.ServerTLS()
	for _, jump := range []time.Duration{0, -3 * time.Hour, 40 * 8766 * time.Hour, -39 * 8766 * time.Hour, 24 * time.Hour} {
		o.clock.add(jump)
		for what, conf := range map[string]*tls.Config{"API": https, "link": link} {
			cert, err := conf.GetCertificate(&tls.ClientHelloInfo{})
			if err != nil {
				t.Fatal(err)
			}
			if c := parseDER(t, cert.Certificate[0]); o.clock.now().Before(c.NotBefore) || o.clock.now().After(c.NotAfter) {
				t.Errorf("%s: at %v its certificate is good from %v to %v", what, o.clock.now(), c.NotBefore, c.NotAfter)
			}
		}
	}
}
