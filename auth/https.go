package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// httpsLife is how long a certificate of the API lives; it is made anew after half of it.
const httpsLife = 30 * 24 * time.Hour

// HTTPS gives the TLS configuration of an API listener: a certificate of this site's CA for host names and addresses. It
// carries the CA, so that a client can show and pin it (see Authority.CAPin). The key lives in memory only.
func (a *Authority) HTTPS(names []string) (*tls.Config, error) {
	h := &httpsCert{a: a, names: names}
	if _, err := h.get(nil); err != nil {
		return nil, fmt.Errorf("certificate of the API: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: h.get}, nil
}

type httpsCert struct {
	a     *Authority
	names []string

	mu     sync.Mutex
	cert   *tls.Certificate
	issued time.Time // by the wall clock
}

func (h *httpsCert) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.a.cfg.Now()
	if h.cert != nil && !renewDue(now, h.issued, httpsLife/2) {
		return h.cert, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // browsers do not take Ed25519
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(0), Subject: pkix.Name{CommonName: "Skerry API of " + h.a.cfg.Site},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(httpsLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range h.names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else if n != "" {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, h.a.ca.cert, &key.PublicKey, h.a.ca.key)
	if err != nil {
		return nil, err
	}
	h.cert = &tls.Certificate{Certificate: [][]byte{der, h.a.ca.cert.Raw}, PrivateKey: key}
	h.issued = now.Round(0)
	return h.cert, nil
}

// renewDue reports whether a certificate is to be issued anew because of its age, or since the clock was set: others look at its dates.
func renewDue(now, issued time.Time, after time.Duration) bool {
	age := now.Round(0).Sub(issued)
	return age < -time.Minute || age > after
}

// CAPin names the site's CA for the users of its API: the SHA-256 of its certificate, as sha256:HEX.
func (a *Authority) CAPin() string { return CertPin(a.ca.cert.Raw) }

// CertPin gives the pin of a certificate (DER).
func CertPin(der []byte) string {
	h := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(h[:])
}

// VerifyPinned checks that a connection's certificate was issued for a host by the CA whose pin is given, which the peer
// shows in its chain. It is what a client does that knows nothing of the site but the pin.
func VerifyPinned(cs tls.ConnectionState, pin, host string) error {
	if len(cs.PeerCertificates) == 0 {
		return errNoCertificate
	}
	for _, ca := range cs.PeerCertificates[1:] {
		if !strings.EqualFold(CertPin(ca.Raw), pin) || !ca.IsCA {
			continue
		}
		pool := x509.NewCertPool()
		pool.AddCert(ca)
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: host,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		return err
	}
	if strings.EqualFold(CertPin(cs.PeerCertificates[0].Raw), pin) {
		return cs.PeerCertificates[0].VerifyHostname(host)
	}
	return fmt.Errorf("the server shows another certificate authority than the one that was pinned (%s)", pin)
}
