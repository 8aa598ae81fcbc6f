package apps

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// certKey names a certificate.
type certKey struct{ org, name string }

// certificate is what an ingress proves its name with.
type certificate struct {
	Org       string    `json:"org"`
	Name      string    `json:"name"`
	CertPEM   []byte    `json:"certificate"`
	KeyPEM    []byte    `json:"key"`
	UpdatedAt time.Time `json:"updatedAt"`
	Author    string    `json:"author,omitempty"`
}

const prefixCert = "cert/"

const (
	// maxCertificates is how many an organisation may keep.
	maxCertificates = 1000
	// maxCertificateBytes is how much of them an application's directory carries: it must fit an item of a set.
	maxCertificateBytes = 256 << 10
)

// certificates has what ingresses prove their names with.
type certificates struct {
	catalog *catalog
	tenants *tenants
	certs   map[certKey]*certificate
}

func (cs *certificates) load(value []byte) error {
	return read(value, func(x *certificate) { cs.certs[certKey{x.Org, x.Name}] = x })
}

// put keeps a certificate. Whether it is still valid is not asked: the one that it replaces may be worse.
func (cs *certificates) put(now time.Time, m PutCertificate) (any, wire.Effects, error) {
	var fx wire.Effects
	if cs.tenants.orgs[m.Org] == nil {
		return nil, fx, skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", m.Org).WithHint("`skerry get orgs` lists them")
	}
	if err := skerry.CheckName(m.Name); err != nil {
		return nil, fx, skerry.Errorf(skerry.CodeInvalid, "name of the certificate: %s", err)
	}
	if !spec.IngressTLS(m.Name).Named() {
		return nil, fx, skerry.Errorf(skerry.CodeInvalid, "%q means something else in a manifest", m.Name).WithHint("choose another name")
	}
	if n := len(m.CertPEM) + len(m.KeyPEM); n > spec.MaxCertificate {
		return nil, fx, skerry.Errorf(skerry.CodeInvalid, "certificate and key have %d bytes; at most %d are allowed", n, spec.MaxCertificate).WithHint("omit certificates that do not belong to the chain")
	}
	k := certKey{m.Org, m.Name}
	if cs.certs[k] == nil && len(cs.Certificates(m.Org)) >= maxCertificates {
		return nil, fx, skerry.Errorf(skerry.CodeQuota, "organisation %s has %d certificates", m.Org, maxCertificates).WithHint("delete some that no manifest names")
	}
	x := &certificate{Org: m.Org, Name: m.Name, CertPEM: bytes.Clone(m.CertPEM), KeyPEM: bytes.Clone(m.KeyPEM), UpdatedAt: now, Author: m.Actor}
	v, err := x.view()
	if err != nil {
		return nil, fx, skerry.Errorf(skerry.CodeInvalid, "certificate and key cannot be used: %s", err).WithHint("give the certificate with its chain, and its own key without a passphrase, both as PEM")
	}
	cs.certs[k] = x
	fx.Put(prefixCert+m.Org+"/"+m.Name, mustJSON(x))
	return v, fx, nil
}

func (cs *certificates) delete(m DeleteCertificate) (wire.Effects, error) {
	var fx wire.Effects
	k := certKey{m.Org, m.Name}
	if cs.certs[k] == nil {
		return fx, skerry.Errorf(skerry.CodeNotFound, "organisation %s has no certificate %q", m.Org, m.Name).WithHint("`skerry certificate get` lists them")
	}
	for _, a := range cs.catalog.Apps() {
		if a.Org == m.Org && !a.Deleting && slices.Contains(namedBy(a), m.Name) {
			return fx, skerry.Errorf(skerry.CodeConflict, "application %s names certificate %s", a.Key(), m.Name).WithHint("change the tls of its ingress first")
		}
	}
	delete(cs.certs, k)
	fx.Delete(prefixCert + m.Org + "/" + m.Name)
	return fx, nil
}

// view shows a certificate; it fails for one that cannot be used.
func (x *certificate) view() (view.CertificateView, error) {
	pair, err := tls.X509KeyPair(x.CertPEM, x.KeyPEM)
	if err != nil {
		return view.CertificateView{}, err
	}
	l := pair.Leaf
	v := view.CertificateView{Org: x.Org, Name: x.Name, Hosts: slices.Clone(l.DNSNames), Issuer: l.Issuer.String(), NotBefore: l.NotBefore, NotAfter: l.NotAfter,
		UpdatedAt: x.UpdatedAt, Author: x.Author}
	for _, ip := range l.IPAddresses {
		v.Hosts = append(v.Hosts, ip.String())
	}
	if v.Hosts == nil {
		v.Hosts = []string{}
	}
	print := sha256.Sum256(l.Raw)
	v.Print = hex.EncodeToString(print[:])
	return v, nil
}

// Certificates lists the certificates of an organisation by name.
func (cs *certificates) Certificates(org string) []view.CertificateView {
	out := []view.CertificateView{}
	for k, x := range cs.certs {
		if k.org != org {
			continue
		}
		if v, err := x.view(); err == nil {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b view.CertificateView) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// namedBy lists the certificates that an application's manifest names, in order and once each.
func namedBy(a *App) (out []string) {
	for i := range a.Manifest.Spec.Services {
		for _, g := range a.Manifest.Spec.Services[i].Ingress {
			if g.TLS.Named() {
				out = append(out, string(g.TLS))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// of gives the certificates that an application's ingresses need. What is missing, or too much, is told by
// the workers that have no certificate for an ingress.
func (cs *certificates) of(a *App) (out []wire.IngressCertificate) {
	room := maxCertificateBytes
	for _, name := range namedBy(a) {
		x := cs.certs[certKey{a.Org, name}]
		if x == nil {
			continue
		}
		if room -= len(x.CertPEM) + len(x.KeyPEM); room < 0 {
			break
		}
		out = append(out, wire.IngressCertificate{Name: name, CertPEM: x.CertPEM, KeyPEM: x.KeyPEM})
	}
	return out
}
