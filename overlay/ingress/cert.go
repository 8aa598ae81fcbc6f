package ingress

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry/spec"
)

// Certificates that are issued here last for issuedFor, or as long as the authority, and are made anew after two thirds of
// that.
const (
	issuedFor = 90 * 24 * time.Hour
	maxIssued = 1024
)

func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// keyring holds the certificates of a configuration, and issues those of routes with TLSSelf.
type keyring struct {
	byName map[spec.IngressTLS]*tls.Certificate
	key    *ecdsa.PrivateKey
	caCert *x509.Certificate // nil: certificates sign themselves
	caKey  crypto.Signer
	chain  [][]byte

	challenges challenges
	authority  string // what caCert was read from
	mu         sync.Mutex
	issued     map[string]*tls.Certificate
}

// newKeyring reads the certificates of a configuration; those that cannot be used are named in the error.
func (in *Ingress) newKeyring(conf Config) (*keyring, error) {
	k := &keyring{byName: map[spec.IngressTLS]*tls.Certificate{}, key: in.key, issued: map[string]*tls.Certificate{}}
	var problems []error
	for _, c := range conf.Certificates {
		pair, err := tls.X509KeyPair(c.CertPEM, c.KeyPEM)
		if err != nil {
			problems = append(problems, fmt.Errorf("certificate %s: %w", c.Name, err))
			continue
		}
		k.byName[spec.IngressTLS(c.Name)] = &pair
	}
	var err error
	k.challenges, err = newChallenges(conf.Challenges)
	problems = append(problems, err)
	if conf.Authority != nil {
		pair, err := tls.X509KeyPair(conf.Authority.CertPEM, conf.Authority.KeyPEM)
		signer, ok := pair.PrivateKey.(crypto.Signer)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("authority: %w", err))
		case !ok || !pair.Leaf.IsCA:
			problems = append(problems, errors.New("authority: its certificate may not sign others"))
		default:
			k.caCert, k.caKey, k.chain, k.authority = pair.Leaf, signer, pair.Certificate, string(conf.Authority.CertPEM)
		}
	}
	if old := in.certs; old != nil && old.authority == k.authority {
		old.mu.Lock()
		defer old.mu.Unlock()
		maps.Copy(k.issued, old.issued) // clients keep seeing the same
	}
	return k, errors.Join(problems...)
}

// has reports whether there is a certificate for a route.
func (k *keyring) has(t spec.IngressTLS) bool { return t == spec.TLSSelf || k.byName[t] != nil }

// certificate finds the certificate for a client of an HTTP listener.
func (t *table) certificate(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name, ok := cleanHost(h.ServerName)
	if !ok {
		return nil, errors.New("the name asked for is not valid")
	}
	// The path is not known yet: any route of the host has its certificate.
	for _, list := range t.candidates(name) {
		for _, r := range list {
			return t.certs.get(r.TLS, h)
		}
	}
	return nil, fmt.Errorf("no service is offered as %q", name)
}

// get gives a certificate by its name, or issues one for the name that a client asks for, or the address that it came to.
func (k *keyring) get(t spec.IngressTLS, h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if t != spec.TLSSelf {
		if c := k.byName[t]; c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("there is no certificate %q", string(t))
	}
	name, _ := cleanHost(h.ServerName)
	if name == "" && h.Conn != nil {
		if a, err := netip.ParseAddrPort(h.Conn.LocalAddr().String()); err == nil {
			name = a.Addr().Unmap().WithZone("").String()
		}
	}
	if _, err := netip.ParseAddr(name); err != nil && spec.CheckHost(name) != nil {
		return nil, fmt.Errorf("no certificate can be made for %q", name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if c := k.issued[name]; c != nil && now.Before(renewal(c.Leaf)) && !now.Before(c.Leaf.NotBefore) {
		return c, nil
	}
	c, err := k.issue(name, now)
	if err != nil {
		return nil, err
	}
	if len(k.issued) >= maxIssued { // of a route for any host, and somebody tries names
		clear(k.issued)
	}
	k.issued[name] = c
	return c, nil
}

func (k *keyring) issue(name string, now time.Time) (*tls.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	x := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "skerry ingress"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(issuedFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	if ip := net.ParseIP(name); ip != nil {
		x.IPAddresses = []net.IP{ip}
	} else {
		x.DNSNames = []string{name}
	}
	parent, signer := x, crypto.Signer(k.key)
	if k.caCert != nil {
		parent, signer = k.caCert, k.caKey
		if k.caCert.NotAfter.Before(x.NotAfter) {
			x.NotAfter = k.caCert.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, x, parent, k.key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, k.chain...), PrivateKey: k.key, Leaf: leaf}, nil
}
