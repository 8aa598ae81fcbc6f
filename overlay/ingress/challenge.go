package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Challenge is a question of a certificate authority, who asks whether a host leads here, and its answer.
type Challenge struct {
	Host  string
	Token string // what tells it apart; with Answer, the end of the path that is asked for
	// Answer is that of HTTP-01 (RFC 8555, section 8.3); empty: it is TLS-ALPN-01 (RFC 8737), answered by a certificate.
	Answer          string
	CertPEM, KeyPEM []byte
}

const (
	// challengePath begins the paths that authorities ask for, and protocolALPN is what they name in their TLS hello.
	challengePath = "/.well-known/acme-challenge/"
	protocolALPN  = "acme-tls/1"
)

// challenges are those that are answered. They never change.
type challenges struct {
	answers map[[2]string]string        // by host and token
	certs   map[string]*tls.Certificate // by host
	tokens  map[string]string           // of certs
}

// newChallenges reads them; those that cannot be used are named in the error.
func newChallenges(list []Challenge) (c challenges, err error) {
	c = challenges{answers: map[[2]string]string{}, certs: map[string]*tls.Certificate{}, tokens: map[string]string{}}
	var problems []error
	for _, x := range list {
		if x.Token == "" || x.Host == "" {
			problems = append(problems, fmt.Errorf("challenge for %q: it has no host or no token", x.Host))
			continue
		}
		if x.Answer != "" {
			c.answers[[2]string{x.Host, x.Token}] = x.Answer
			continue
		}
		pair, err := tls.X509KeyPair(x.CertPEM, x.KeyPEM)
		if err != nil {
			problems = append(problems, fmt.Errorf("challenge for %s: %w", x.Host, err))
			continue
		}
		c.certs[x.Host], c.tokens[x.Host] = &pair, x.Token
	}
	return c, errors.Join(problems...)
}

// answer answers a request that asks for an answer; all others are services'. What a service answers itself it goes on to answer.
func (c *challenges) answer(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.URL.Path, challengePath)
	if !ok || len(c.answers) == 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	host, _ := cleanHost(r.Host)
	text, ok := c.answers[[2]string{host, token}]
	if !ok {
		return false
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, text)
	return true
}

// config gives what a TLS connection of an authority gets; nil: it is somebody else's.
func (c challenges) config(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if len(c.certs) == 0 || !slices.Equal(h.SupportedProtos, []string{protocolALPN}) {
		return nil, nil
	}
	name, _ := cleanHost(h.ServerName)
	cert := c.certs[name]
	if cert == nil {
		return nil, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{protocolALPN}, Certificates: []tls.Certificate{*cert}}, nil
}

// Answers lists the tokens of the challenges that are answered, because listeners are open at which authorities may ask, in order.
func (in *Ingress) Answers() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.certs == nil {
		return nil
	}
	out := map[string]bool{}
	for _, d := range in.listeners {
		t := d.table.Load()
		if t.http && !t.tls {
			for key := range in.certs.challenges.answers {
				out[key[1]] = true
			}
		}
		for host, token := range in.certs.challenges.tokens {
			if r := t.match(host, nil); t.http && t.tls || r != nil && r.config != nil {
				out[token] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}
