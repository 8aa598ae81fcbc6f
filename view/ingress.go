package view

import (
	"time"

	"skerry.dev/skerry/spec"
)

// CertificateView is a certificate as people see it: never its key.
type CertificateView struct {
	Org       string    `json:"org"`
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" doc:"Host names the certificate is valid for."`
	Issuer    string    `json:"issuer,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Print     string    `json:"fingerprint" doc:"SHA-256 of the certificate, in hexadecimal."`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	Author    string    `json:"author,omitempty"`
}

// IngressView is a way in to a service with where it is offered.
type IngressView struct {
	Host     string          `json:"host,omitempty"`
	Path     string          `json:"path,omitempty"`
	Listen   int             `json:"listen"`
	Protocol string          `json:"protocol"`
	TLS      spec.IngressTLS `json:"tls"`
	Policy   spec.Balance    `json:"policy"`
	// At are the workers that offer it; at the root the clusters.
	At []string `json:"at,omitempty" doc:"Workers that serve the ingress. At the root, clusters."`
	// Problems say why it is not offered, or not everywhere.
	Problems []string `json:"problems,omitempty" doc:"Why it is not served, or not everywhere."`
	// Certificate is that of its host with tls: acme, at the cluster; nil: another kind.
	Certificate *PublicCertificate `json:"certificate,omitempty" doc:"Certificate of the host, if it has tls: acme. Clusters only."`
}

// CertificateState says how far the certificate of a host is.
type CertificateState string

// States of a PublicCertificate. Until it is valid, the site's own authority vouches for the host.
const (
	CertificateValid    CertificateState = "valid"
	CertificateOrdering CertificateState = "ordering" // an order is under way
	CertificateWaiting  CertificateState = "waiting"  // for the next order
	CertificateRefused  CertificateState = "refused"  // the site orders none
	// CertificateUnserved: there is a valid one, and the workers do not get it with the application.
	CertificateUnserved CertificateState = "unserved"
)

// PublicCertificate shows the certificate that a site orders for a host.
type PublicCertificate struct {
	State    CertificateState `json:"state" doc:"Unless valid, the site vouches for it." enum:"valid,ordering,waiting,refused,unserved"`
	NotAfter time.Time        `json:"notAfter,omitzero" doc:"When it expires."`
	Reason   string           `json:"reason,omitempty" doc:"Why there is none, why it is not served, or why the last order failed."`
	Next     time.Time        `json:"next,omitzero" doc:"When it is ordered next."`
}
