package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// authorityFor is how long the authority of a site's ingresses lasts.
const authorityFor = 10 * 365 * 24 * time.Hour

// newIngressAuthority makes an authority for the ingresses of a site. It is not the one that devices trust: its key is on
// every worker with an ingress, and it vouches for nothing but names of services.
func newIngressAuthority(site string, now time.Time) (*wire.IngressCertificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	x := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "Skerry ingress of " + site}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(authorityFor),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &wire.IngressCertificate{CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, nil
}

// IngressAuthority gives the certificate, as PEM, by which clients know the ingresses of the site that have none of their
// own.
func (s *Server) IngressAuthority(ctx context.Context) ([]byte, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]byte, error) {
		a := c.IngressAuthority()
		if a == nil {
			return nil, skerry.Errorf(skerry.CodeNotFound, "the site has no authority for ingresses")
		}
		return a.CertPEM, nil
	})
}

// Certificates lists the certificates of an organisation for the site's own applications.
func (s *Server) Certificates(ctx context.Context, org string) ([]view.CertificateView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.CertificateView, error) { return c.Apps.Certificates(org), nil })
}
