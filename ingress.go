package skerry

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// IngressCertificate is a certificate, with those that lead to its authority behind it, and its key, as PEM.
type IngressCertificate struct {
	Name    string `json:"name,omitempty" cbor:"1,keyasint,omitempty"` // by which manifests of its organisation mean it
	CertPEM []byte `json:"certificate" cbor:"2,keyasint"`
	KeyPEM  []byte `json:"-" cbor:"3,keyasint,omitempty"`
}

// MaxCertificate is the most bytes of a certificate with its chain and its key.
const MaxCertificate = 32 << 10

// CertificateView is a certificate as people see it: never its key.
type CertificateView struct {
	Org       string    `json:"org"`
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" doc:"Names that the certificate is for."`
	Issuer    string    `json:"issuer,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Print     string    `json:"fingerprint" doc:"SHA-256 of the certificate, in hexadecimal digits."`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	Author    string    `json:"author,omitempty"`
}

// IngressKey is the key of a worker's IngressState in its observed set.
const IngressKey = "ingress"

// IngressState tells for which applications a worker lets clients in, and what it cannot do of that.
type IngressState struct {
	Serving  []AppKey         `json:"serving,omitempty" cbor:"1,keyasint,omitempty"`
	Problems []IngressProblem `json:"problems,omitempty" cbor:"2,keyasint,omitempty"`
	// Waiting are services that something waits for here, to have an instance.
	Waiting []ServiceKey `json:"waiting,omitempty" cbor:"3,keyasint,omitempty"`
}

// IngressProblem says why a worker does not offer a way in.
type IngressProblem struct {
	Service ServiceKey `json:"service" cbor:"1,keyasint"`
	Door    string     `json:"door" cbor:"2,keyasint"` // see Ingress.Door
	Text    string     `json:"text" cbor:"3,keyasint"`
}

// Door names what clients come to: the port of the workers, the host and the path. At one site each leads to one service.
func (g Ingress) Door() string {
	return strconv.Itoa(g.Listen) + " " + g.Host + strings.TrimSuffix(g.Path, "/")
}

// IngressView is a way in to a service with where it is offered.
type IngressView struct {
	Host     string     `json:"host,omitempty"`
	Path     string     `json:"path,omitempty"`
	Listen   int        `json:"listen"`
	Protocol string     `json:"protocol"`
	TLS      IngressTLS `json:"tls"`
	Policy   Balance    `json:"policy"`
	// At are the workers that offer it; at the root the clusters.
	At []string `json:"at,omitempty" doc:"Workers that serve the ingress; at the root, clusters."`
	// Problems say why it is not offered, or not everywhere.
	Problems []string `json:"problems,omitempty" doc:"Why it is not offered, or not everywhere."`
}

// SiteIngress is what a site tells the root of the ways in that it offers to the root's applications.
type SiteIngress struct {
	// Zone is the one in which the site's own name servers answer for hosts; empty: it has none.
	Zone    string        `json:"zone,omitempty" cbor:"1,keyasint,omitempty"`
	Servers []netip.Addr  `json:"servers,omitempty" cbor:"2,keyasint,omitempty"` // addresses of those
	Doors   []IngressDoor `json:"doors,omitempty" cbor:"3,keyasint,omitempty"`
}

// IngressDoor is a way in at a site.
type IngressDoor struct {
	Service ServiceKey `json:"service" cbor:"1,keyasint"`
	Door    string     `json:"door" cbor:"2,keyasint"`
	Workers int        `json:"workers" cbor:"3,keyasint,omitempty"` // that offer it now and have an instance to lead to
	Problem string     `json:"problem,omitempty" cbor:"4,keyasint,omitempty"`
	Waiting bool       `json:"waiting,omitempty" cbor:"5,keyasint,omitempty"` // something waits there for the service to have an instance
}
