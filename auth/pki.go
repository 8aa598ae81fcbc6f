package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Keys of devices are Ed25519: fast without assembly on small boards, and small on the wire. A device may bring a P-256 key,
// because security chips do. A site's CA has a P-256 key, because it signs the certificate of the API too and browsers take
// no Ed25519 anywhere in a chain. A CA of an older store keeps the key it has.

// caBegin and caEnd bound a site CA's certificate. A device may be born in 1970 and an outage may last for years, so the
// dates say nothing; what a CA vouches for ends with it.
var (
	caBegin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	caEnd   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// siteCA is a site's certificate authority.
type siteCA struct {
	site string
	tier wire.Tier
	cert *x509.Certificate
	key  crypto.Signer
}

func newSiteCA(site string, tier wire.Tier) (*siteCA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := caTemplate(site, identityURI(site, tier, site))
	if tier == wire.TierRoot {
		tmpl.MaxPathLen = 1 // the CAs of sites are below it
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &siteCA{site, tier, cert, key}, nil
}

func caTemplate(site string, id *url.URL) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: serial(0), Subject: pkix.Name{CommonName: "Skerry site " + site}, URIs: []*url.URL{id},
		NotBefore: caBegin, NotAfter: caEnd, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
}

// serial is 64 random bits, then the counter of the renewal, so that a certificate tells which one it is.
func serial(counter uint64) *big.Int {
	var b [16]byte
	rand.Read(b[:8])
	b[0] = b[0]&0x7f | 0x40 // positive, and always 16 bytes
	binary.BigEndian.PutUint64(b[8:], counter)
	return new(big.Int).SetBytes(b[:])
}

func serialCounter(n *big.Int) uint64 {
	b := n.Bytes()
	if len(b) != 16 {
		return 0
	}
	return binary.BigEndian.Uint64(b[8:])
}

// identityURI is what a certificate says about its holder: skerry://<site of the CA>/<tier>/<name>.
func identityURI(site string, tier wire.Tier, name string) *url.URL {
	return &url.URL{Scheme: "skerry", Host: site, Path: "/" + string(tier) + "/" + name}
}

func (ca *siteCA) issue(pub crypto.PublicKey, tier wire.Tier, name string, counter uint64, now time.Time, life time.Duration,
	usage x509.ExtKeyUsage) ([]byte, error) {
	tmpl := &x509.Certificate{
		SerialNumber: serial(counter), Subject: pkix.Name{CommonName: name},
		URIs:      []*url.URL{identityURI(ca.site, tier, name)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	return x509.CreateCertificate(rand.Reader, tmpl, ca.cert, pub, ca.key)
}

// deviceURI is what a request to certify a site's CA says about the device that sends it: skerry-key:<hash of its key>.
func deviceURI(key string) *url.URL { return &url.URL{Scheme: "skerry-key", Opaque: key} }

// request asks a root to certify this CA's key. It is signed by that key and names the device that may send it, so that
// nobody can have a key certified that is not theirs.
func (ca *siteCA) request(device crypto.PublicKey) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(device)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "Skerry site " + ca.site}, URIs: []*url.URL{deviceURI(hashSPKI(spki))}}
	return x509.CreateCertificateRequest(rand.Reader, tmpl, ca.key)
}

// certifySite signs a cluster's own CA key, so that others in the federation can trust what that site says of itself. The
// request must come from the device with the key named by its hash.
func (ca *siteCA) certifySite(request []byte, name, device string) ([]byte, error) {
	pub, _, err := checkCSR(request)
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, err
	}
	if len(csr.URIs) != 1 || csr.URIs[0].String() != deviceURI(device).String() {
		return nil, &wire.Refuse{Code: wire.RefuseMalformed, Reason: "the request to certify the cluster's own CA was made for another device",
			Hint: "each cluster has a data directory of its own; do not copy one"}
	}
	return x509.CreateCertificate(rand.Reader, caTemplate(name, identityURI(ca.site, wire.TierCluster, name)), ca.cert, pub, ca.key)
}

// keyHash names a public key: SHA-256 of its SPKI, hexadecimal.
func keyHash(cert *x509.Certificate) string { return hashSPKI(cert.RawSubjectPublicKeyInfo) }

func hashSPKI(spki []byte) string {
	h := sha256.Sum256(spki)
	return hex.EncodeToString(h[:])
}

// base32Lower is the alphabet of what people copy: one case, no padding.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// pinOf is how a token names a CA: 160 bits of the hash of its key.
func pinOf(ca *x509.Certificate) string {
	h := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return base32Lower.EncodeToString(h[:20])
}

var errNoCertificate = errors.New("the peer shows no certificate")

// verifyLeaf checks that the peer's certificate was issued by ca for a use, and reads the identity.
//
// Dates are not checked here. Both ends of a link decide by enrolment: the parent judges expiry of what it issued by its
// own clock and answers with a word (renew) instead of a failed handshake, and a child whose clock is wrong must still find
// its parent, whose key lives in the memory of one process and is pinned through the CA.
func verifyLeaf(ca *x509.Certificate, cs tls.ConnectionState, usage x509.ExtKeyUsage) (wire.PeerIdentity, error) {
	var id wire.PeerIdentity
	if len(cs.PeerCertificates) == 0 {
		return id, errNoCertificate
	}
	leaf := cs.PeerCertificates[0]
	if err := leaf.CheckSignatureFrom(ca); err != nil {
		return id, fmt.Errorf("certificate is not from this site's CA: %w", err)
	}
	if leaf.IsCA || len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != usage || len(leaf.URIs) != 1 {
		return id, errors.New("certificate is not meant for this end of a link")
	}
	u := leaf.URIs[0]
	tier, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != "skerry" || !ok || !wire.Tier(tier).Valid() || skerry.CheckName(name) != nil {
		return id, fmt.Errorf("certificate has no identity: %q", u)
	}
	return wire.PeerIdentity{Tier: wire.Tier(tier), Name: name, Site: u.Host, Key: keyHash(leaf),
		Counter: serialCounter(leaf.SerialNumber), Expires: leaf.NotAfter, Public: leaf.RawSubjectPublicKeyInfo}, nil
}

// checkCSR gives the public key of a request whose maker holds the private one. Names in it are ignored.
func checkCSR(der []byte) (crypto.PublicKey, string, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err == nil {
		switch k := csr.PublicKey.(type) {
		case ed25519.PublicKey:
		case *ecdsa.PublicKey:
			if k.Params().BitSize != 256 {
				err = errors.New("only the curve P-256 is accepted")
			}
		default:
			err = fmt.Errorf("keys of type %T are not accepted; use Ed25519 or P-256", k)
		}
	}
	if err != nil {
		return nil, "", &wire.Refuse{Code: wire.RefuseMalformed, Reason: "the certificate request is not valid: " + err.Error()}
	}
	return csr.PublicKey, hashSPKI(csr.RawSubjectPublicKeyInfo), nil
}
