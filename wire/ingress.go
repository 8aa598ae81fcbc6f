package wire

import (
	"net/netip"

	"skerry.dev/skerry"
)

// IngressCertificate is a certificate, with those that lead to its authority behind it, and its key, as PEM.
type IngressCertificate struct {
	Name    string `json:"name,omitempty" cbor:"1,keyasint,omitempty"` // by which manifests of its organisation mean it
	CertPEM []byte `json:"certificate" cbor:"2,keyasint"`
	KeyPEM  []byte `json:"-" cbor:"3,keyasint,omitempty"`
}

// IngressChallenge is a question of a certificate authority that workers with an ingress answer, whoever asks: that the host is the site's.
type IngressChallenge struct {
	Host  string `json:"host" cbor:"1,keyasint"`
	Token string `json:"token" cbor:"2,keyasint"` // tells challenges apart; of HTTP-01, what is asked for
	// Answer is that of HTTP-01; empty: the challenge is TLS-ALPN-01, answered by the certificate.
	Answer  string `json:"-" cbor:"3,keyasint,omitempty"`
	CertPEM []byte `json:"-" cbor:"4,keyasint,omitempty"`
	KeyPEM  []byte `json:"-" cbor:"5,keyasint,omitempty"`
}

// IngressKey is the key of a worker's IngressState in its observed set.
const IngressKey = "ingress"

// IngressState tells for which applications a worker lets clients in, and what it cannot do of that.
type IngressState struct {
	Serving  []skerry.AppKey  `json:"serving,omitempty" cbor:"1,keyasint,omitempty"`
	Problems []IngressProblem `json:"problems,omitempty" cbor:"2,keyasint,omitempty"`
	// Waiting are services that something waits for here, to have an instance.
	Waiting []skerry.ServiceKey `json:"waiting,omitempty" cbor:"3,keyasint,omitempty"`
	// Answers are the tokens of the challenges that are answered here.
	Answers []string `json:"answers,omitempty" cbor:"4,keyasint,omitempty"`
}

// IngressProblem says why a worker does not offer a way in.
type IngressProblem struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Entry   string            `json:"door" cbor:"2,keyasint"` // see Ingress.Entry
	Text    string            `json:"text" cbor:"3,keyasint"`
}

// SiteIngress is what a site tells the root of the ways in that it offers to the root's applications.
type SiteIngress struct {
	// Zone is the one in which the site's own name servers answer for hosts; empty: it has none.
	Zone    string        `json:"zone,omitempty" cbor:"1,keyasint,omitempty"`
	Servers []netip.Addr  `json:"servers,omitempty" cbor:"2,keyasint,omitempty"` // addresses of those
	Entries []IngressDoor `json:"doors,omitempty" cbor:"3,keyasint,omitempty"`
}

// IngressDoor is a way in at a site.
type IngressDoor struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Entry   string            `json:"door" cbor:"2,keyasint"`
	Workers int               `json:"workers" cbor:"3,keyasint,omitempty"` // that offer it now and have an instance to lead to
	Problem string            `json:"problem,omitempty" cbor:"4,keyasint,omitempty"`
	Waiting bool              `json:"waiting,omitempty" cbor:"5,keyasint,omitempty"` // something waits there for the service to have an instance
}
